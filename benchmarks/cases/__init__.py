"""The cases, by name, in the order in which they run.

A case is a module with a function `run(settings)` that returns a `results.CaseResult`.
"""

from benchmarks.cases import (
    draws,
    fit,
    growth,
    import_time,
    limit,
    log_prob,
    memory,
    training,
    without_end,
)

CASES = {
    module.__name__.rsplit(".", 1)[1]: module
    for module in (
        draws,
        without_end,
        limit,
        log_prob,
        training,
        fit,
        import_time,
        memory,
        growth,
    )
}
