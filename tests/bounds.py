"""Bounds for statistical tests with a stated false-alarm rate.

`FALSE_ALARM_RATE` is the rate of one test at a random seed. Seeds are fixed, so a test that passes
continues to pass until the code changes.
"""

import numpy as np
from scipy import stats

from examples.common.chi_square import pearson

FALSE_ALARM_RATE = 1e-6


def dkw_band(num_samples, false_alarm_rate=FALSE_ALARM_RATE):
    """Half-width of the Dvoretzky-Kiefer-Wolfowitz-Massart band around an empirical CDF."""
    return np.sqrt(np.log(2.0 / false_alarm_rate) / (2.0 * num_samples))


def normal_bound(num_statistics=1, false_alarm_rate=FALSE_ALARM_RATE):
    """Maximum deviation of several normal statistics, in standard errors."""
    return stats.norm.isf(false_alarm_rate / (2.0 * num_statistics))


def chi_square_p_value(counts, probabilities, least_expected=10.0):
    """P-value of observed counts under cell probabilities, with sparse cells pooled.

    Args:
      counts: Observed counts, shape `[K]`.
      probabilities: Cell probabilities, shape `[K]`, with sum 1.
      least_expected: Cells with a smaller expected count are pooled.

    Returns:
      The p-value; 0 if an impossible cell has counts, 1 if only one cell is left after pooling.
    """
    counts, probabilities = np.ravel(counts), np.ravel(probabilities).astype(np.float64)
    np.testing.assert_allclose(probabilities.sum(), 1.0, atol=1e-6)
    expected = counts.sum() * probabilities / probabilities.sum()
    if np.any(counts[probabilities == 0.0]):
        return 0.0
    _, degrees_of_freedom, p_value = pearson(counts, expected, least_expected)
    return p_value if degrees_of_freedom else 1.0
