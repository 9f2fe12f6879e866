"""Peak memory of draws and of the estimate of Z, at a small and a large number."""

from __future__ import annotations

from benchmarks.arena import Arena, Settings
from benchmarks.harness import Spread
from benchmarks.results import CaseResult, Goal, Outcome, Timing

MB = 2**20
# A large Z and, for the estimate, few dimensions save time. The blocks are the same.
DRAWS, ESTIMATE = {"d": 50, "z": 0.5}, {"d": 2, "z": 0.5}


def run(settings: Settings) -> CaseResult:
    """Measures the peak growth of resident memory in new processes."""
    small_n, large_n = settings.pick((10**5, 10**6), (10**5, 10**6), (10**4, 10**5))
    small_S, large_S = settings.pick((10**6, 10**8), (10**5, 10**7), (10**4, 10**5))
    rounds = settings.pick(full=3, quick=1, tiny=1)
    result = CaseResult(
        "memory",
        "Memory of draws and of the estimate of Z",
        notes=[
            "Peak growth of resident memory in a new process, after warm-up calls. The excess is "
            "the growth beyond the size of the draws. From the small to the large number, the "
            "excess may grow by at most 10 % of the large output. The estimate of Z has no output, "
            "and its memory may grow by at most 16 MB.",
            f"Draws use d={DRAWS['d']} and Z={DRAWS['z']}. The estimate of Z uses "
            f"d={ESTIMATE['d']} and a = 2-10-10-1. This saves time and does not change what is "
            "stored.",
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
        f"growth of the excess from {small_n:,} to {large_n:,} draws, relative to the output",
        at_most=10.0,
        unit="%",
    )
    result.outcomes.append(Outcome(goal, Spread.of(share)))
    more = [
        large - small for small, large in zip(estimate[small_S], estimate[large_S], strict=True)
    ]
    goal = Goal(
        f"growth of memory from {small_S:,} to {large_S:,} proposals for Z",
        at_most=16.0,
        unit="MB",
    )
    result.outcomes.append(Outcome(goal, Spread.of(more)))
    return result
