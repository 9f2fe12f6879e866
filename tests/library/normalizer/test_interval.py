"""Errors and intervals of means in [0, 1], against SciPy and known coverage."""

import numpy as np
import pytest
from scipy import stats

from tfp_lars.normalizer import interval


@pytest.mark.parametrize(
    ("x", "y"), [(2.0, 1e3), (5.0, 5.0), (10.0, 1e9), (100.0, 3.0), (1e5, 1e6), (0.7, 0.9)]
)
def test_beta_quantiles_agree_with_scipy(x, y):
    mean = x / (x + y)
    for level in (0.5, 0.95):
        for sign, probability in ((-1, 0.5 - level / 2), (1, 0.5 + level / 2)):
            quantile = np.exp(
                interval.log_beta_quantile(
                    np.log(mean), (1 - mean) / x, sign * interval.normal_width(level)
                )
            )
            expected = stats.beta.ppf(probability, x, y)
            # In units of the standard deviation, the error is small at any scale.
            deviation = stats.beta.std(x, y)
            assert abs(quantile - expected) < (0.02 if min(x, y) >= 2 else 0.12) * deviation


def test_beta_quantiles_of_a_mean_of_one_are_one():
    for deviations in (-2.0, 2.0):
        assert interval.log_beta_quantile(0.0, 0.0, deviations) == 0.0


def test_beta_quantiles_of_tiny_means_are_those_of_a_gamma_distribution():
    quantile = interval.log_beta_quantile(-800.0, 1 / 20.0, interval.normal_width(0.95))
    np.testing.assert_allclose(
        np.exp(quantile + 800.0), stats.gamma.ppf(0.975, 20.0) / 20.0, rtol=1e-3
    )


@pytest.mark.parametrize("degrees_of_freedom", [15, 31, 1000])
def test_t_widths_agree_with_scipy(degrees_of_freedom):
    for level in (0.5, 0.95, 0.999):
        expected = stats.t.ppf(0.5 + level / 2, degrees_of_freedom)
        np.testing.assert_allclose(interval.t_width(level, degrees_of_freedom), expected, rtol=1e-3)


def test_standard_error_is_the_classical_one_for_many_values():
    values = np.random.default_rng(0).beta(2.0, 5.0, size=100_000)
    stderr = interval.log_mean_stderr(
        np.log(values.mean()), np.mean(values**2) / values.mean() ** 2, values.size
    )
    expected = stats.sem(values) / values.mean()
    np.testing.assert_allclose(stderr, expected, rtol=1e-3)


def test_a_constant_has_the_error_of_what_was_not_seen():
    """Two half draws at 0 and 1 around 99 values of 0.5: their variance is 0.25 / 100."""
    stderr = interval.log_mean_stderr(np.log(0.5), 1.0, 99)
    np.testing.assert_allclose(stderr, np.sqrt(0.25 / 100 / 99) / 0.5, rtol=1e-12)
    assert interval.log_mean_stderr(-0.5, 1.0, 1) == np.inf
    assert interval.log_mean_stderr(-np.inf, np.nan, 100) == np.inf
    assert 1e100 < interval.log_mean_stderr(-1e5, 1.0, 100) < np.inf


@pytest.mark.parametrize("mean", [0.0005, 0.001, 0.01, 0.3, 0.5, 0.99, 0.999, 0.9995])
def test_intervals_of_binomial_counts_cover(mean):
    """Exact coverage, by summing over all counts. 10,000 draws, at least 5 hits or misses."""
    n = 10_000
    hits = np.arange(n + 1)
    rates = hits / n
    with np.errstate(divide="ignore", invalid="ignore"):
        lower, upper = interval.log_mean_interval(np.log(rates), 1.0 / rates, n, 0.95)
    covers = (lower <= np.log(mean)) & (np.log(mean) <= upper)
    assert 0.94 < np.sum(stats.binom.pmf(hits, n, mean) * covers) < 0.98


def test_all_ones_bound_the_mean_from_below():
    """100 draws of 1: Jeffreys' lower bound is 0.9752."""
    lower, upper = interval.log_mean_interval(0.0, 1.0, 100, 0.95)
    np.testing.assert_allclose(np.exp(lower), stats.beta.ppf(0.025, 100.5, 0.5), atol=1e-3)
    assert upper == 0.0


def with_draws(values, added, weight):
    """Mean, relative variance and weight of a sample to which draws of some weight are added."""
    values = np.append(values, added)
    weights = np.append(np.ones(len(values) - len(added)), np.full(len(added), weight))
    mean = np.average(values, weights=weights)
    return mean, np.average((values - mean) ** 2, weights=weights) / mean**2, weights.sum()


@pytest.mark.parametrize("n", [3, 40])
def test_errors_and_intervals_are_those_of_a_sample_with_added_draws(n):
    """Half a draw at 0 and at 1 for the error, at 0 or at 1 for an end of the interval."""
    values = np.random.default_rng(n).beta(2.0, 6.0, size=n)
    log_mean, relative_square = np.log(values.mean()), np.mean(values**2) / values.mean() ** 2
    mean, relative_variance, total = with_draws(values, [0.0, 1.0], 0.5)
    expected = np.sqrt(relative_variance * mean**2 / n) / values.mean()
    stderr = interval.log_mean_stderr(log_mean, relative_square, n)
    np.testing.assert_allclose(stderr, expected, rtol=1e-9)
    ends = interval.log_mean_interval(log_mean, relative_square, n, 0.8)
    for end, added, sign in zip(ends, (0.0, 1.0), (-1, 1), strict=True):
        mean, relative_variance, total = with_draws(values, [added], 0.5)
        expected = interval.log_beta_quantile(
            np.log(mean), relative_variance / total, sign * interval.normal_width(0.8)
        )
        np.testing.assert_allclose(end, expected, rtol=1e-9)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_no_upper_end_is_below_what_all_draws_may_miss(level):
    """A region of probability p is missed by n draws with probability (1 - p)**n."""
    missed = np.log(-np.log(1 - level) / 1000)
    _, upper = interval.log_mean_interval([-np.inf, -50.0], 1.0, 1000, level)
    np.testing.assert_allclose(upper[0], missed, rtol=1e-12)
    assert upper[1] >= upper[0]
    assert np.all(interval.log_mean_interval(-5.0, 1.0, 1, level)[1] <= 0.0)


def test_ends_are_numbers_for_any_variance():
    """One draw of 100 is 1: the lower end at 99.9 % is 0. A variance has a largest value."""
    lower, _ = interval.log_mean_interval(np.log(0.01), 100.0, 100, 0.999)
    assert lower == -np.inf
    assert interval.log_mean_interval(-5.0, 1.0, 1, 0.999)[1] == 0.0
    for n in range(1, 40):
        rates = np.linspace(0.0, 1.0, 50)[1:]
        for relative_square in (np.ones(49), np.minimum(n, 1 / rates)):
            for level in (0.5, 0.95, 0.999, 1 - 1e-9):
                lower, upper = interval.log_mean_interval(np.log(rates), relative_square, n, level)
                assert np.all(lower <= np.log(rates)) and np.all(np.log(rates) <= upper)
    largest = interval.log_mean_interval(np.log(0.01), 100.0, 100, 0.95)
    for relative_square in (101.0, np.inf):
        ends = interval.log_mean_interval(np.log(0.01), relative_square, 100, 0.95)
        np.testing.assert_array_equal(ends, largest)
