"""Growth of the library's time with the size of the task."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from benchmarks import harness
from benchmarks.arena import Arena, Settings
from benchmarks.cases.draws import D, T, Z
from benchmarks.harness import Spread
from benchmarks.results import CaseResult, Curve, Goal, Outcome


@dataclasses.dataclass(frozen=True)
class Axis:
    """A size that varies, and the task to time.

    Attributes:
      what: Description of the task.
      axis: Name of the size.
      contender: Name of a contender in `with_tensorflow`.
      arguments: Arguments of the contender, one dictionary per size.
      sizes: Sizes in increasing order.
      start: Smallest size at which fixed costs are negligible.
      goal: Bounds on the slope.
    """

    what: str
    axis: str
    contender: str
    arguments: Sequence[dict]
    sizes: Sequence[float]
    start: float
    goal: dict


LINEAR = {"at_least": 0.85, "at_most": 1.15}
AT_MOST_LINEAR = {"at_most": 1.15}


def axes(settings: Settings) -> list[Axis]:
    """Returns the axes: n, 1/Z and d for draws, S for the estimate of Z."""
    n = settings.pick(
        (1, 10, 100, 1000, 3000, 10_000, 30_000), (10, 100, 1000, 10_000), (10, 20, 40)
    )
    inverse_z = settings.pick((2, 8, 32, 128, 256, 512, 1024), (2, 32, 128, 512), (2, 4, 8))
    d = settings.pick((2, 10, 50, 100, 200, 400, 800), (2, 50, 100, 400), (2, 4, 8))
    S = settings.pick(
        (10**4, 10**5, 10**6, 3 * 10**6, 10**7), (10**5, 10**6, 3 * 10**6), (100, 200, 400)
    )
    num_draws = settings.pick(2000, 1000, 10)
    tiny = settings.size == "tiny"
    return [
        Axis(
            f"draws, d={D}, Z ≈ {Z}, T={T}",
            "number of draws n",
            "draws",
            [{"n": k, "T": T, "d": D, "z": Z} for k in n],
            n,
            0 if tiny else 1000,
            LINEAR,
        ),
        Axis(
            f"{num_draws:,} untruncated draws, d={D}",
            "1/Z",
            "draws",
            [{"n": num_draws, "T": None, "d": D, "z": 1.0 / k} for k in inverse_z],
            inverse_z,
            0 if tiny else 32,
            LINEAR,
        ),
        Axis(
            f"{num_draws:,} draws, Z ≈ {Z}, T={T}",
            "dimensions d",
            "draws",
            [{"n": num_draws, "T": T, "d": k, "z": Z} for k in d],
            d,
            0 if tiny else 100,
            AT_MOST_LINEAR,
        ),
        Axis(
            f"estimate of Z, d={D}",
            "number of proposals S",
            "estimate",
            [{"num_samples": k, "d": D, "z": Z} for k in S],
            S,
            0 if tiny else 10**6,
            LINEAR,
        ),
    ]


def run(settings: Settings) -> CaseResult:
    """Measures times at increasing sizes and fits the slope in logarithms."""
    rounds = settings.pick(full=3, quick=1, tiny=1)
    result = CaseResult(
        "growth",
        "Growth of the library's time with the size of the task",
        notes=[
            "Slopes of log time against log size, fitted where fixed costs are negligible (filled "
            "dots). A slope of 1 is linear growth. With d, only the first layer and the proposal "
            "grow, not the 100 x 100 layer. The time is therefore a constant plus a linear term, "
            "and the goal is growth that is at most linear.",
        ],
    )
    with Arena(settings, result.name) as arena:
        for axis in axes(settings):
            contenders = {
                str(size): arena.tensorflow(axis.contender, **arguments)
                for size, arguments in zip(axis.sizes, axis.arguments, strict=True)
            }
            times = arena.measure(axis.axis, contenders, rounds, least_seconds=0.05)
            curve = _curve(axis, [times.seconds[name] for name in contenders])
            result.curves.append(curve)
            goal = Goal(f"slope against {axis.axis}: {axis.what}", unit="", **axis.goal)
            result.outcomes.append(Outcome(goal, curve.slope))
    return result


def _curve(axis: Axis, seconds: Sequence[Sequence[float]]) -> Curve:
    return Curve(
        what=axis.what,
        axis=axis.axis,
        sizes=[float(size) for size in axis.sizes],
        seconds=[Spread.of(s) for s in seconds],
        start=float(axis.start),
        slope=harness.slope(axis.sizes, seconds, axis.start),
    )
