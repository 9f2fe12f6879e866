"""Bands for statistical tests, each with a stated rate of false alarms.

`FALSE_ALARM_RATE` is that of one test at a random seed. Seeds are fixed, so that a test
that has passed goes on to pass until the code changes.
"""

import numpy as np
from scipy import stats

from examples.common.chi_square import pearson

FALSE_ALARM_RATE = 1e-6


def dkw_band(num_samples, false_alarm_rate=FALSE_ALARM_RATE):
    """Half width of a band around an empirical CDF (Dvoretzky, Kiefer, Wolfowitz, Massart)."""
    return np.sqrt(np.log(2.0 / false_alarm_rate) / (2.0 * num_samples))


def normal_bound(num_statistics=1, false_alarm_rate=FALSE_ALARM_RATE):
    """How many standard errors the worst of several normal statistics may be off."""
    return stats.norm.isf(false_alarm_rate / (2.0 * num_statistics))


def chi_square_p_value(counts, probabilities, least_expected=10.0):
    """P-value of observed counts under cell probabilities; sparse cells are pooled.

    Args:
      counts: Shape `[K]`.
      probabilities: Shape `[K]`, summing to 1.
      least_expected: Cells expected to hold fewer are taken together.
    """
    counts, probabilities = np.ravel(counts), np.ravel(probabilities).astype(np.float64)
    np.testing.assert_allclose(probabilities.sum(), 1.0, atol=1e-6)
    expected = counts.sum() * probabilities / probabilities.sum()
    return pearson(counts, expected, least_expected)[2]
