"""`log_prob` with a fixed Z: the library and glasflow."""

from __future__ import annotations

from benchmarks.arena import Arena, Settings
from benchmarks.cases.draws import GLASFLOW, OURS, D, T, Z
from benchmarks.results import CaseResult, Goal

EMPTY = "empty tf.function"


def run(settings: Settings) -> CaseResult:
    """Measures `log_prob` of a small and a large batch."""
    rounds = settings.pick(full=31, quick=7, tiny=2)
    result = CaseResult(
        "log_prob",
        f"log_prob with a fixed Z, d={D}, a = {D}-100-100-1",
        notes=["tfp_lars: frozen, in a `tf.function`. glasflow: evaluation mode under `no_grad`."],
    )
    with Arena(settings, result.name) as arena:
        for batch in (128, 16_384):
            problem = {"batch": batch, "d": D, "z": Z, "T": T}
            times = arena.measure(
                f"batch of {batch:,}",
                {
                    OURS: arena.tensorflow("log_prob", **problem),
                    GLASFLOW: arena.torch("log_prob", **problem),
                    EMPTY: arena.tensorflow("empty_function", batch=batch, d=D),
                },
                rounds,
                least_seconds=settings.pick(0.2, 0.1, 0.01),
            )
            result.timings.extend(times.timings())
            goal = Goal(
                f"{times.size}: speed of {OURS} over {GLASFLOW}",
                at_least=1.0,
                bounded_by="TensorFlow's call overhead. An empty `tf.function` takes "
                f"{times.share(EMPTY, OURS)} of this time.",
            )
            result.outcomes.append(times.ratio(goal, GLASFLOW, OURS))
    return result
