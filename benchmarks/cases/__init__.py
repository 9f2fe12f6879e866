"""Benchmark cases by name, in the order in which they run.

A case is a module with a function `run(settings)` that returns a `results.CaseResult`.
"""

from benchmarks.cases import (
    draws,
    fit,
    fit_samples,
    growth,
    import_time,
    limit,
    log_prob,
    memory,
    normalizer,
    training,
    untruncated,
)

CASES = {
    module.__name__.rsplit(".", 1)[1]: module
    for module in (
        draws,
        untruncated,
        limit,
        log_prob,
        training,
        fit,
        fit_samples,
        import_time,
        memory,
        growth,
        normalizer,
    )
}
