"""Monte Carlo against known Z, its standard error and interval."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tests.bounds import normal_bound
from tests.library.normalizer.problem import make
from tfp_lars import (
    LogNormalizer,
    Resampled,
    _proposal_draws,
    _seeds,
    estimate_log_normalizer,
)

tfd = tfp.distributions


def test_monte_carlo_agrees_with_known_rates_within_its_standard_error(seed):
    """Uniform on [0, s] and a(z) = z: Z = s / 2. Three members, one bound for all."""
    high = np.array([1.0, 0.5, 0.1], np.float32)
    dist = Resampled(tfd.Uniform(0.0, high), lambda z: z)
    estimate = estimate_log_normalizer(dist, 300_001, seed=seed)
    error = estimate.log_z - np.log(high / 2)
    assert np.all(np.abs(error) < normal_bound(3) * estimate.stderr)
    # sd(a) / E(a) is 1 / sqrt(3) for a uniform on [0, s].
    np.testing.assert_allclose(estimate.stderr, 1 / np.sqrt(3 * 300_001), rtol=0.02)
    assert estimate.num_samples == 300_001
    assert estimate.method == "monte_carlo"


def test_a_second_estimate_is_no_new_graph(seed):
    traces = []

    def accept(z):
        traces.append(1)
        return tf.sigmoid(z)

    dist = Resampled(tfd.Normal(0.0, 1.0), accept)
    first = estimate_log_normalizer(dist, 1000, seed=seed)
    before = len(traces)
    second = estimate_log_normalizer(dist, 3000, batch_size=200, seed=seed + 1)
    assert len(traces) == before
    assert second.log_z != first.log_z


def test_monte_carlo_is_the_mean_over_all_batches(seed):
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: 40.0 * z - 700.0, from_logits=True)
    estimate = estimate_log_normalizer(dist, 1000, batch_size=64, seed=seed)
    key = _seeds.stateless_seed(seed)
    sizes = [64] * 15 + [40]
    draws = np.concatenate(
        [
            _proposal_draws.sample(dist.proposal, n, tf.random.fold_in(key, i))
            for i, n in enumerate(sizes)
        ]
    )
    log_accept = dist.accept_log_prob(draws).numpy().astype(np.float64)
    accept = np.exp(log_accept - log_accept.max())
    np.testing.assert_allclose(estimate.log_z, np.log(accept.mean()) + log_accept.max(), rtol=1e-6)
    relative = accept.std(ddof=1) / accept.mean() / np.sqrt(1000)
    np.testing.assert_allclose(estimate.stderr, relative, rtol=1e-4)


def test_monte_carlo_stops_at_the_wanted_error(seed):
    dist = Resampled(tfd.Uniform(), lambda z: z)
    estimate = estimate_log_normalizer(dist, 10**8, target_stderr=0.002, seed=seed)
    assert estimate.stderr <= 0.002
    assert estimate.num_samples < 10**6


def test_same_seed_gives_the_same_estimate(seed):
    dist = Resampled(tfd.Uniform(), lambda z: z)
    a, b, c = (estimate_log_normalizer(dist, 5000, seed=s).log_z for s in (seed, seed, seed + 1))
    assert a == b != c


def test_progress_is_shown_when_asked_for(capsys):
    dist = Resampled(tfd.Uniform(), lambda z: z)
    estimate_log_normalizer(dist, 100, seed=0)
    assert capsys.readouterr().out == ""
    estimate_log_normalizer(dist, 100, seed=0, progress=True)
    assert "100/100" in capsys.readouterr().out


def test_interval_is_normal_theory_with_what_was_not_seen_and_ends_at_certainty():
    estimate = LogNormalizer(np.log(0.25), 0.01, 1000, "monte_carlo")
    lower, upper = estimate.interval(0.95)
    np.testing.assert_allclose(lower, np.log(0.25) - 0.0195996, rtol=1e-5)
    # 1,000 draws miss a region of probability 0.0029957 in 5 % of all cases.
    np.testing.assert_allclose(upper, np.log(0.25 * np.exp(0.0195996) + 0.0029957), rtol=1e-5)
    assert LogNormalizer(-0.001, 0.01, 10, "monte_carlo").interval()[1] == 0.0
    with pytest.raises(ValueError, match="`level`.*95"):
        estimate.interval(95)


def test_never_accepting_is_a_bound():
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.zeros_like, T=None)
    estimate = estimate_log_normalizer(dist, 1000, seed=0)
    assert estimate.log_z == -np.inf
    assert estimate.stderr == np.inf
    lower, upper = estimate.interval()
    assert lower == -np.inf
    np.testing.assert_allclose(upper, np.log(-np.log(0.05) / 1000), rtol=1e-12)
    assert "no draw with a(z) > 0: log_z < -5.81 at 95 %" in repr(estimate)
    with pytest.raises(ValueError, match=r"none of 1000 draws.*below -5.81.*`num_samples`"):
        dist.freeze(num_samples=1000, seed=0)
    with pytest.raises(ValueError, match="finite"):
        dist.freeze(-np.inf)


def rarely_high(z):
    return tf.where(z < 2e-5, 1.0, 1e-9)


def test_what_was_not_seen_does_not_stop_the_estimate(seed):
    """a(z) is 1 with probability 2e-5, else 1e-9. Without a hit, all draws have the same a(z).

    16,384 draws rarely have a hit. 10^6 draws have none with probability 2e-9.
    """
    dist = Resampled(tfd.Uniform(), rarely_high, T=None)
    truth = np.log(2e-5 + 1e-9)
    estimate = estimate_log_normalizer(dist, 10**6, target_stderr=0.05, seed=seed)
    assert estimate.num_samples == 10**6
    few = estimate_log_normalizer(dist, 1000, seed=seed)
    for result in (few, estimate):
        lower, upper = result.interval()
        assert lower < truth < upper
    np.testing.assert_allclose(few.log_z, np.log(1e-9), atol=1e-3)


def test_a_constant_stops_the_estimate_as_soon_as_it_can(seed):
    """If a(z) is the same for all draws, the error is what they may have missed, -log(0.05) / n."""
    dist = Resampled(tfd.Uniform(), lambda z: tf.fill(tf.shape(z), 0.5))
    estimate = estimate_log_normalizer(dist, 10**6, target_stderr=0.01, batch_size=64, seed=seed)
    missed = np.log1p(-np.log(0.05) / estimate.num_samples / 0.5)
    assert missed / 1.959964 <= 0.01 < 3 * missed


@pytest.mark.parametrize(
    ("log_z", "stderr", "expected"),
    [
        (-1.2e-6, 3e-7, "log_z=-0.00000120 ± 0.00000030"),
        (-1.2e-12, 3e-13, "log_z=-1.2e-12 ± 3e-13"),
        (np.log(0.5), 0.0, "log_z=-0.693147 ± 0,"),
        (np.log(0.5), 0.02, "log_z=-0.6931 ± 0.0200, Z=0.5,"),
        (np.log([0.5, 0.2]), np.array([0.02, 1e-6]), "[-0.6931 ± 0.0200, -1.6094379 ± 0.0000010]"),
        (np.full(9, -1.0), np.full(9, 0.1), "..., -1.0000 ± 0.1000"),
    ],
)
def test_repr_shows_the_digits_that_matter(log_z, stderr, expected):
    assert expected in repr(LogNormalizer(log_z, stderr, 1000, "monte_carlo"))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_samples": 0}, "`num_samples`.*got 0"),
        ({"num_samples": float("nan")}, "`num_samples`.*got nan"),
        ({"num_samples": "a"}, "`num_samples`.*got 'a'"),
        ({"batch_size": -1}, "`batch_size`.*got -1"),
        ({"batch_size": 0}, "`batch_size`.*got 0"),
        ({"target_stderr": 0.0}, "`target_stderr`.*got 0.0"),
        ({"method": "guess"}, "`method`.*'guess'"),
    ],
)
def test_bad_arguments_of_the_estimate_are_named(kwargs, message):
    dist = Resampled(tfd.Uniform(), lambda z: z)
    with pytest.raises((TypeError, ValueError), match=message):
        estimate_log_normalizer(dist, **kwargs)


def test_estimate_of_what_is_not_resampled_is_an_error():
    for dist in (tfd.Normal(0.0, 1.0), tfd.Independent(make(), 0)):
        with pytest.raises(TypeError, match="`dist` must be a `Resampled`; got <tfp.distributions"):
            estimate_log_normalizer(dist)


def test_estimate_refuses_to_run_inside_a_graph():
    dist = Resampled(tfd.Uniform(), lambda z: z)
    with pytest.raises(RuntimeError, match="outside"):
        tf.function(lambda: estimate_log_normalizer(dist).log_z)()


def test_nan_acceptance_is_an_error_of_the_estimate():
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.where(z > 3.0, np.nan, 0.5))
    with pytest.raises(ValueError, match="NaN"):
        estimate_log_normalizer(dist, 10**5, seed=0)


def test_acceptance_above_one_is_an_error_of_the_estimate():
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.where(z > 2.5, 1.5, 0.5))
    with pytest.raises(ValueError, match=r"\[0, 1\].*from_logits=True"):
        estimate_log_normalizer(dist, 10**4, seed=0)
