"""Untruncated draws, the worst case for a masked loop."""

from __future__ import annotations

from benchmarks.arena import Arena, Settings
from benchmarks.cases.draws import GLASFLOW, MASKED, D, compare, outcomes
from benchmarks.results import CaseResult

Z = 0.001
GLASFLOW_T = 10**6  # glasflow requires a truncation; no draw reaches this one


def run(settings: Settings) -> CaseResult:
    """Measures `n` draws with d=50, Z ≈ 0.001 and T=None."""
    rounds = settings.pick(full={300: 5, 3000: 2}, quick={300: 3}, tiny={5: 2})
    result = CaseResult(
        "untruncated",
        f"Untruncated draws, d={D}, a = {D}-100-100-1, Z ≈ {Z}",
        notes=[
            "Same as the case `draws`, with T=None. glasflow requires a truncation. It uses T = "
            f"{GLASFLOW_T:,}, which no draw reaches."
        ],
    )
    with Arena(settings, result.name) as arena:
        for n, num_rounds in rounds.items():
            times = compare(arena, n, num_rounds, z=Z, T=None, glasflow_T=GLASFLOW_T)
            result.timings.extend(times.timings())
            result.outcomes.extend(outcomes(times, {GLASFLOW: 5.0, MASKED: 5.0}))
    return result
