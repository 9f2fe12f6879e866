"""Truncated draws: the library, glasflow and a masked loop."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from benchmarks.arena import Arena, Settings, Times
from benchmarks.results import CaseResult, Goal, Outcome

OURS, MASKED, GLASFLOW = "tfp_lars", "masked loop", "glasflow"
D, Z, T = 50, 0.015, 100
BOUNDED_BY = MappingProxyType(
    {
        GLASFLOW: "TensorFlow's normal random numbers and matrix products. The case `limit` shows "
        "that draws take little more time than their candidates alone."
    }
)


def run(settings: Settings) -> CaseResult:
    """Measures `n` draws with d=50, Z ≈ 0.015 and T=100."""
    rounds = settings.pick(
        full={1: 21, 100: 21, 1000: 11, 10_000: 5, 100_000: 3},
        quick={1: 5, 100: 3, 1000: 3, 10_000: 1},
        tiny={1: 2, 20: 2},
    )
    result = CaseResult(
        "draws",
        f"Draws, d={D}, a = {D}-100-100-1, Z ≈ {Z}, T={T}",
        notes=[
            "tfp_lars: an eager call of `sample(n, seed=...)` with a new seed for each call. "
            "glasflow: `ResampledGaussian.sample(n)` in evaluation mode under `no_grad`. Masked "
            "loop: one `tf.function` in which all n lanes draw until the last one has accepted.",
        ],
    )
    with Arena(settings, result.name) as arena:
        for n, num_rounds in rounds.items():
            times = compare(arena, n, num_rounds, z=Z, T=T, glasflow_T=T)
            result.timings.extend(times.timings())
            large = n >= 1000
            result.outcomes.extend(
                outcomes(times, {GLASFLOW: 4.0 if large else 1.0, MASKED: 1.8 if large else 1.0})
            )
    return result


def compare(
    arena: Arena, n: int, rounds: int, *, z: float, T: int | None, glasflow_T: int
) -> Times:
    """Measures the three contenders for `n` draws."""
    problem = {"n": n, "d": D, "z": z}
    return arena.measure(
        f"n = {n:,}",
        {
            OURS: arena.tensorflow("draws", T=T, **problem),
            MASKED: arena.tensorflow("masked_draws", T=T, **problem),
            GLASFLOW: arena.torch("draws", T=glasflow_T, **problem),
        },
        rounds,
        # Long calls need no repetition, and a trial call would double their time.
        num_calls=1 if n * min(T or 1e9, 1.0 / z) > 2e5 else None,
    )


def outcomes(
    times: Times, goals: dict[str, float], bounded_by: Mapping[str, str] = BOUNDED_BY
) -> list[Outcome]:
    """Returns the speed of the library relative to other contenders.

    Args:
      times: Result of `compare`.
      goals: Lower bounds on the relative speed, by name of the other contender.
      bounded_by: Known causes of missed goals, by name of the other contender.
    """
    return [
        times.ratio(
            Goal(
                f"{times.size}: speed of {OURS} over {name}",
                at_least=bound,
                bounded_by=bounded_by.get(name, ""),
            ),
            name,
            OURS,
        )
        for name, bound in goals.items()
    ]
