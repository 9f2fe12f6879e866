"""Pearson's chi-square test with sparse cells merged."""

from __future__ import annotations

import numpy as np


def pearson(
    counts: np.ndarray, expected: np.ndarray, least_expected: float = 10.0
) -> tuple[float, int, float]:
    """Tests counts against their expectations.

    The statistic is chi-square distributed only if no expected count is tiny. Cells with an
    expected count below `least_expected` are merged into one. If that cell is still too small, it
    is merged with the smallest other cell.

    Args:
      counts: Observed counts, `[K]`.
      expected: Expected counts, `[K]`, with the same sum.
      least_expected: Smallest expected count of a cell that is not merged.

    Returns:
      The statistic, its degrees of freedom, and the p-value.
    """
    from scipy import special

    counts, expected = (np.ravel(part).astype(np.float64) for part in (counts, expected))
    sparse = expected < least_expected
    if sparse.any():
        counts = np.append(counts[~sparse], counts[sparse].sum())
        expected = np.append(expected[~sparse], expected[sparse].sum())
        if expected[-1] < least_expected and len(expected) > 1:
            smallest = np.argmin(expected[:-1])
            counts[smallest] += counts[-1]
            expected[smallest] += expected[-1]
            counts, expected = counts[:-1], expected[:-1]
    statistic = float(np.sum((counts - expected) ** 2 / expected))
    dof = len(counts) - 1
    return statistic, dof, float(special.chdtrc(dof, statistic))
