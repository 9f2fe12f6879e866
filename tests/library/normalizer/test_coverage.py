"""How often the 95 % interval of log Z contains the true value."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import special, stats

from tests.bounds import FALSE_ALARM_RATE
from tfp_lars import Resampled, estimate_log_normalizer

tfd = tfp.distributions


def assert_covers(covered, lowest=0.94, highest=0.975):
    """Checks a coverage between two limits, at the false-alarm rate of the tests."""
    n, count = np.size(covered), np.count_nonzero(covered)
    assert stats.binom.cdf(count, n, lowest) > FALSE_ALARM_RATE / 2
    assert stats.binom.sf(count - 1, n, highest) > FALSE_ALARM_RATE / 2


def z_of(slope, bias):
    """E[sigmoid(slope * z + bias)] for a standard normal z, by quadrature."""
    z, weight = np.polynomial.hermite_e.hermegauss(180)
    fine = np.linspace(-12, 12, 200_001)
    by_trapezoids = np.sum(stats.norm.pdf(fine) * special.expit(slope * fine + bias)) * 24 / 200_000
    if slope < 2:  # the polynomial rule is an independent check where it is accurate
        by_polynomials = np.sum(weight * special.expit(slope * z + bias)) / np.sqrt(2 * np.pi)
        np.testing.assert_allclose(by_trapezoids, by_polynomials, rtol=1e-6)
    return by_trapezoids


@pytest.mark.parametrize(
    ("slope", "bias", "num_samples"),
    [
        (1.0, 0.0, 1000),
        (4.0, -13.5, 20_000),  # Z = 1.1e-3
        (200.0, -620.0, 10_000),  # Z = 1e-3, a(z) is 0 or 1 almost everywhere
        (200.0, 620.0, 10_000),  # the same with 1 - a(z)
    ],
)
def test_interval_of_a_fixed_number_of_draws_covers(slope, bias, num_samples, seed):
    """Each of 1,000 batch members is a repetition."""
    dist = Resampled(
        tfd.Normal(np.zeros(1000, np.float32), 1.0),
        lambda z: slope * z + bias,
        T=None,
        from_logits=True,
    )
    estimate = estimate_log_normalizer(dist, num_samples, seed=seed)
    lower, upper = estimate.interval(0.95)
    truth = np.log(z_of(slope, bias))
    assert_covers((lower <= truth) & (truth <= upper))


@pytest.mark.parametrize(
    ("slope", "bias", "target"), [(2.0, -2.0, 0.05), (20.0, -40.0, 0.1), (20.0, 46.0, 0.005)]
)
def test_interval_of_a_run_that_the_target_stopped_covers(slope, bias, target, seed):
    """400 runs each. In the last, a first look after 300 draws would lower the coverage to 91 %."""
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: slope * z + bias, T=None, from_logits=True)
    truth = np.log(z_of(slope, bias))
    covered = []
    for i in range(400):
        estimate = estimate_log_normalizer(dist, 10**6, target_stderr=target, seed=seed + i)
        assert estimate.stderr <= target
        lower, upper = estimate.interval(0.95)
        covered.append(lower <= truth <= upper)
    assert_covers(covered)


def test_interval_of_a_stopped_run_covers_rare_large_values(seed, num_runs=600):
    """a(z) is 0.1, and 1 with a probability of 0.01. About 11 draws in a run have the large value.

    If runs stopped by their plain standard error, those with few large values would stop too early,
    and 86 % of the intervals would cover.
    """
    edge = np.float32(stats.norm.ppf(0.99))
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.where(z > edge, 1.0, 0.1), T=None)
    truth = np.log(0.1 + 0.9 * 0.01)
    covered = []
    for i in range(num_runs):
        estimate = estimate_log_normalizer(dist, 10**5, target_stderr=0.04, seed=seed + i)
        lower, upper = estimate.interval(0.95)
        covered.append(lower <= truth <= upper)
    assert_covers(covered)
