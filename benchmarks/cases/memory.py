"""Memory while drawing and while estimating Z: it should not grow with the number."""

from __future__ import annotations

from benchmarks.arena import Arena, Settings
from benchmarks.harness import Spread
from benchmarks.results import CaseResult, Goal, Outcome, Timing

MB = 2**20
# Draws: d=50, and a Z that saves time; blocks are the same. Z: few dimensions, for the same reason.
DRAWS, ESTIMATE = {"d": 50, "z": 0.5}, {"d": 2, "z": 0.5}


def run(settings: Settings) -> CaseResult:
    """Peak growth of resident memory at a small and at a large number, in fresh processes."""
    small_n, large_n = settings.pick((10**5, 10**6), (10**5, 10**6), (10**4, 10**5))
    small_S, large_S = settings.pick((10**6, 10**8), (10**5, 10**7), (10**4, 10**5))
    rounds = settings.pick(full=3, quick=1, tiny=1)
    result = CaseResult(
        "memory",
        "Memory while drawing and while estimating Z",
        notes=[
            "Growth of resident memory at its peak, in a fresh process that has drawn before. "
            "Excess: beyond the draws themselves. Flat: from the small number to the large one the "
            "excess grows by at most 10 % of the large output; while estimating Z, which has no "
            "output, by at most 16 MB.",
            f"Draws with d={DRAWS['d']} and Z={DRAWS['z']}, Z with d={ESTIMATE['d']} and "
            "a = 2-10-10-1: this saves time and changes nothing in what is kept.",
        ],
    )
    excess, output = {small_n: [], large_n: []}, {}
    estimate = {small_S: [], large_S: []}
    with Arena(settings, result.name) as arena:
        for i in range(rounds):
            for n in excess:
                growth, output[n] = arena.call_in_fresh_process("memory_of_draws", n=n, **DRAWS)
                excess[n].append((growth - output[n]) / MB)
            for S in estimate:
                growth = arena.call_in_fresh_process(
                    "memory_of_estimate", num_samples=S, **ESTIMATE
                )
                estimate[S].append(growth / MB)
            arena.show(f"round {i + 1} of {rounds}")
    for n, values in excess.items():
        size = f"{n:,} draws ({output[n] / MB:.0f} MB)"
        result.timings.append(Timing(size, "excess", Spread.of(values), "MB"))
    for S, values in estimate.items():
        size = f"Z from {S:,} proposals"
        result.timings.append(Timing(size, "growth", Spread.of(values), "MB"))
    share = [
        100.0 * (large - small) * MB / output[large_n]
        for small, large in zip(excess[small_n], excess[large_n], strict=True)
    ]
    goal = Goal(
        f"growth of the excess from {small_n:,} to {large_n:,} draws, of the output",
        at_most=10.0,
        unit="%",
    )
    result.outcomes.append(Outcome(goal, Spread.of(share)))
    more = [
        large - small for small, large in zip(estimate[small_S], estimate[large_S], strict=True)
    ]
    goal = Goal(
        f"growth of memory from Z with {small_S:,} to {large_S:,} proposals",
        at_most=16.0,
        unit="MB",
    )
    result.outcomes.append(Outcome(goal, Spread.of(more)))
    return result
