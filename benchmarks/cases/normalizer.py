"""Estimates of Z: proposals per second, and what antithetic pairs gain."""

from __future__ import annotations

from benchmarks.arena import Arena, Settings
from benchmarks.cases.draws import GLASFLOW, OURS, D, Z
from benchmarks.cases.limit import BARE
from benchmarks.harness import Spread
from benchmarks.results import CaseResult, Goal, Outcome

SINGLE = "tfp_lars, independent draws"
NETWORK = "a(z) alone"


def run(settings: Settings) -> CaseResult:
    """Compares estimates of Z with a bare loop and with glasflow."""
    n, rounds = settings.pick(full=(10**6, 9), quick=(3 * 10**5, 3), tiny=(1000, 2))
    result = CaseResult(
        "normalizer",
        f"Estimate of Z from {n:,} proposals, d={D}, a = {D}-100-100-1, Z ≈ {Z}",
        notes=[
            "tfp_lars: `estimate_log_normalizer` with its defaults, which use antithetic pairs "
            "here. Independent draws: the same with antithetic=False. Bare candidates: one "
            "`tf.function` draws proposals with the library's normal random numbers, then "
            "evaluates and sums a(z), in the fastest block size. glasflow: "
            "`estimate_normalisation_constant` in batches of 20,000. a(z) alone: the same network "
            "on given points. Speed per unit of variance compares times for the same error of Z.",
        ],
    )
    problem = {"d": D, "z": Z}
    with Arena(settings, result.name) as arena:
        block = arena.call("best_block", candidates=n, **problem)
        gain = 1.0 / arena.call("pair_variance_ratio", num_samples=max(n, 10**5), **problem)
        times = arena.measure(
            f"{n:,} proposals",
            {
                OURS: arena.tensorflow("estimate", num_samples=n, **problem),
                SINGLE: arena.tensorflow("estimate", num_samples=n, antithetic=False, **problem),
                BARE: arena.tensorflow("bare_candidates", candidates=n, block=block, **problem),
                NETWORK: arena.tensorflow("network_alone", candidates=n, block=block, **problem),
                GLASFLOW: arena.torch("estimate", num_samples=n, **problem),
            },
            rounds,
            num_calls=1,
        )
        result.timings.extend(times.timings())
        for ours, name, bound in (
            (SINGLE, BARE, 0.9),
            (SINGLE, GLASFLOW, 2.0),
            (OURS, GLASFLOW, 2.0),
        ):
            goal = Goal(f"speed of {ours} over {name}", at_least=bound)
            result.outcomes.append(times.ratio(goal, name, ours))
        for name, bound in ((BARE, 1.5), (GLASFLOW, 2.0)):
            goal = Goal(f"speed of {OURS} per unit of variance over {name}", at_least=bound)
            result.outcomes.append(_scaled(times.ratio(goal, name, OURS), gain))
        result.notes.append(
            f"Pairs divide the variance by {gain:.2f}. Of the time of glasflow, independent draws "
            f"take {times.share(SINGLE, GLASFLOW)} and a(z) alone {times.share(NETWORK, GLASFLOW)}."
        )
    return result


def _scaled(outcome: Outcome, factor: float) -> Outcome:
    if outcome.value is None:
        return outcome
    value = outcome.value
    return Outcome(
        outcome.goal,
        Spread(factor * value.median, factor * value.low, factor * value.high, value.count),
    )
