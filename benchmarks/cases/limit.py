"""Time of the sampler relative to the cost of its candidates alone."""

from __future__ import annotations

from benchmarks.arena import Arena, Settings
from benchmarks.cases.draws import OURS, D, T, Z
from benchmarks.results import CaseResult, Goal

BARE = "bare candidates"


def run(settings: Settings) -> CaseResult:
    """Compares `n` draws with drawing and evaluating the same number of candidates."""
    rounds = settings.pick(
        full={1000: 15, 10_000: 7, 100_000: 3}, quick={1000: 5, 10_000: 2}, tiny={20: 2}
    )
    result = CaseResult(
        "limit",
        f"Draws against their candidates alone, d={D}, a = {D}-100-100-1, Z ≈ {Z}, T={T}",
        notes=[
            "Bare candidates: one `tf.function` draws as many candidates as the draws take on "
            "average, then evaluates and sums a(z). It uses the library's normal random numbers, "
            "which are cheaper than `proposal.sample`, and the fastest block size. It draws no "
            "uniform random numbers, accepts nothing and stores nothing.",
        ],
    )
    problem = {"d": D, "z": Z}
    with Arena(settings, result.name) as arena:
        for n, num_rounds in rounds.items():
            seeds = 64 if n <= 1000 else 8 if n <= 10_000 else 1
            candidates = arena.call("num_candidates", n=n, T=T, num_seeds=seeds, **problem)
            block = arena.call("best_block", candidates=candidates, **problem)
            times = arena.measure(
                f"n = {n:,}",
                {
                    OURS: arena.tensorflow("draws", n=n, T=T, **problem),
                    BARE: arena.tensorflow(
                        "bare_candidates", candidates=candidates, block=block, **problem
                    ),
                },
                num_rounds,
                num_calls=1 if n >= 10_000 else None,
            )
            result.notes.append(f"n = {n:,}: {candidates:,} candidates, blocks of {block:,}.")
            result.timings.extend(times.timings())
            goal = Goal(f"n = {n:,}: speed of {OURS} over {BARE}", at_least=0.85)
            result.outcomes.append(times.ratio(goal, BARE, OURS))
    return result
