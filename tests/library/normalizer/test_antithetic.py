"""Antithetic pairs: which proposals are symmetric, and what pairs gain."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tests.bounds import normal_bound
from tfp_lars import Resampled, estimate_log_normalizer, proposals
from tfp_lars.normalizer import antithetic
from tfp_lars.normalizer.batch_sums import Sums

tfd = tfp.distributions

SYMMETRIC = {
    "normal": lambda: tfd.Normal([0.3, -2.0], [1.0, 0.1]),
    "student": lambda: tfd.StudentT(0.8, 1.5, 2.0),  # without a mean
    "laplace": lambda: tfd.Laplace(-1.0, 0.5),
    "logistic": lambda: tfd.Logistic(2.0, 0.5),
    "uniform": lambda: tfd.Uniform([-1.0, 2.0], [4.0, 3.0]),
    "diagonal": lambda: tfd.MultivariateNormalDiag([1.0, 2.0], [0.5, 3.0]),
    "triangular": lambda: tfd.MultivariateNormalTriL([1.0, 2.0], [[1.0, 0.0], [0.7, 0.5]]),
    "full": lambda: tfd.MultivariateNormalFullCovariance([1.0, 2.0], [[1.0, 0.3], [0.3, 2.0]]),
    "no location": lambda: tfd.MultivariateNormalDiag(scale_diag=[0.5, 3.0]),
    "low rank": lambda: tfd.MultivariateNormalDiagPlusLowRankCovariance(
        [0.5, 0.0], [1.0, 2.0], [[1.0], [0.5]]
    ),
    "independent": lambda: tfd.Independent(tfd.Laplace(np.arange(6.0).reshape(3, 2), 1.0), 1),
    "sample": lambda: tfd.Sample(tfd.Normal(0.7, 1.0), [3, 2]),
}


@pytest.mark.parametrize("name", SYMMETRIC)
def test_reflections_keep_the_density_and_the_shape(name):
    proposal = SYMMETRIC[name]()
    reflect_fn = antithetic.known_reflection(proposal)
    assert antithetic.checked_reflection(reflect_fn, proposal) is reflect_fn
    z = proposal.sample(5, seed=1)
    assert np.all(np.any(np.reshape(z != reflect_fn(z), [5, -1]), axis=1))


@pytest.mark.parametrize(
    "proposal",
    [
        lambda: tfd.Gamma(2.0, 1.0),
        lambda: tfd.LogNormal(0.0, 1.0),
        lambda: tfd.Poisson(3.0),
        lambda: tfd.Independent(tfd.Beta([2.0, 2.0], 2.0), 1),
        lambda: tfd.Sample(tfd.Normal([0.0, 1.0], 1.0), [2]),
    ],
)
def test_other_proposals_have_no_known_reflection(proposal):
    proposal = proposal()
    assert antithetic.known_reflection(proposal) is None
    dist = Resampled(proposal, lambda z: tf.fill(tf.shape(z)[: 1 + proposal.batch_shape.rank], 0.5))
    with pytest.raises(ValueError, match="not known to be symmetric. Pass `reflect_fn`"):
        estimate_log_normalizer(dist, 100, antithetic=True)


def test_reflection_follows_a_location_that_training_moves(seed):
    """a(z) = sigmoid(z - loc) for N(loc, 1): Z = 1/2, and every pair has exactly this mean."""
    location = tf.Variable(0.0)
    dist = Resampled(tfd.Normal(location, 1.0), lambda z: z - location, from_logits=True)
    for value in (0.0, 3.0):
        location.assign(value)
        estimate = estimate_log_normalizer(dist, 1000, antithetic=True, seed=seed)
        np.testing.assert_allclose(estimate.log_z, np.log(0.5), rtol=1e-5)


def test_pairs_agree_with_known_rates_with_a_smaller_error(seed):
    """Uniform and a(z) = z**2: Z = 1/3. Var(a) = 4/45, Cov of a pair = 1/30 - 1/9 = -7/90."""
    dist = Resampled(tfd.Uniform(), tf.square)
    n = 100_000
    estimate = estimate_log_normalizer(dist, n, antithetic=True, seed=seed)
    np.testing.assert_allclose(estimate.stderr, 3 * np.sqrt((4 / 45 - 7 / 90) / n), rtol=0.02)
    assert abs(estimate.log_z - np.log(1 / 3)) < normal_bound() * estimate.stderr
    assert (estimate.num_samples, estimate.num_values) == (n, n // 2)


def test_odd_numbers_of_draws_are_rounded_to_pairs(seed):
    dist = Resampled(tfd.Uniform(), tf.square)
    assert estimate_log_normalizer(dist, 101, antithetic=True, seed=seed).num_samples == 100
    assert estimate_log_normalizer(dist, 1, antithetic=True, seed=seed).num_samples == 2
    many = estimate_log_normalizer(dist, 101, antithetic=True, seed=seed, batch_size=7)
    assert many.num_samples == 100


@pytest.mark.parametrize(
    ("accept_fn", "helps"), [(tf.sigmoid, True), (lambda z: tf.exp(-z * z), False)]
)
def test_a_pilot_decides_for_pairs(accept_fn, helps, seed):
    """For an even a(z) both points of a pair have the same value."""
    dist = Resampled(tfd.Normal(0.0, 1.0), accept_fn)
    estimate = estimate_log_normalizer(dist, 2**18, seed=seed)
    assert estimate.num_values == (2**17 if helps else 2**18)
    few = estimate_log_normalizer(dist, 10_000, seed=seed)
    assert few.num_values == 10_000


def test_variance_ratio_follows_from_the_correlation():
    rng = np.random.default_rng(0)
    first = rng.uniform(size=200_000)
    for second, correlation in (
        (1 - first, -1.0),
        (first, 1.0),
        (rng.uniform(size=first.size), 0.0),
    ):
        sums = [
            Sums(np.float64(v.size), np.zeros(()), v.sum(), np.sum(v**2))
            for v in (np.concatenate([first, second]), (first + second) / 2)
        ]
        np.testing.assert_allclose(antithetic.variance_ratio(*sums), 1 + correlation, atol=0.01)
    constant = Sums(np.float64(4), np.zeros(()), np.float64(2.0), np.float64(1.0))
    assert antithetic.variance_ratio(constant, constant) == 1.0


def test_pair_means_of_zeros_and_nan():
    log_accept = tf.constant([-np.inf, -np.inf, 0.0, -np.inf, -1.0, np.nan], tf.float64)
    means = antithetic.log_pair_means(log_accept).numpy()
    np.testing.assert_array_equal(means[:1], -np.inf)
    np.testing.assert_allclose(means[1], np.log(np.exp(-1.0) / 2), rtol=1e-12)
    assert np.isnan(means[2])


def test_users_reflection_is_used_and_checked(seed):
    """A mixture that is symmetric around 1, and an odd a(z) around it: pairs are perfect."""
    mixture = tfd.MixtureSameFamily(tfd.Categorical(probs=[0.5, 0.5]), tfd.Normal([-1.0, 3.0], 1.0))
    dist = Resampled(mixture, lambda z: z - 1.0, from_logits=True)
    estimate = estimate_log_normalizer(
        dist, 1000, antithetic=True, reflect_fn=lambda z: 2.0 - z, seed=seed
    )
    np.testing.assert_allclose(estimate.log_z, np.log(0.5), rtol=1e-5)
    wrong = {
        "same density": [lambda z: -z, lambda z: z + 2.0],
        "of shape": [lambda z: z[:1], lambda z: tf.cast(z, tf.float64)],
        "function": [2.0],
    }
    for message, functions in wrong.items():
        for reflect_fn in functions:
            with pytest.raises((TypeError, ValueError), match=f"`reflect_fn`.*{message}"):
                estimate_log_normalizer(dist, 1000, reflect_fn=reflect_fn)
    with pytest.raises(ValueError, match="`reflect_fn` has no effect"):
        estimate_log_normalizer(dist, 1000, antithetic=False, reflect_fn=lambda z: 2.0 - z)
    with pytest.raises(TypeError, match="`antithetic`.*'yes'"):
        estimate_log_normalizer(dist, 1000, antithetic="yes")


def test_reparameterized_mixtures_are_reflected(seed):
    """TFP draws them with a `GradientTape` of its own. An odd logit makes pairs perfect."""
    mixture = proposals.gaussian_mixture(2, 3, init_spread=0.0)
    dist = Resampled(mixture, lambda z: z[..., 0], from_logits=True)
    estimate = estimate_log_normalizer(
        dist, 1000, antithetic=True, reflect_fn=lambda z: -z, seed=seed
    )
    np.testing.assert_allclose(estimate.log_z, np.log(0.5), rtol=1e-5)


def test_rotation_is_no_reflection():
    """It keeps the density, but its second application is not the identity."""
    dist = Resampled(tfd.MultivariateNormalDiag([0.0, 0.0]), lambda z: tf.sigmoid(z[..., 0]))
    with pytest.raises(ValueError, match="`reflect_fn`.*that point back to z"):
        estimate_log_normalizer(
            dist, 100, antithetic=True, reflect_fn=lambda z: tf.stack([-z[..., 1], z[..., 0]], -1)
        )


def test_pairs_are_continued_as_pairs(seed):
    dist = Resampled(tfd.Uniform(), tf.square)
    part = estimate_log_normalizer(dist, 1000, antithetic=True, seed=seed, batch_size=500)
    both = estimate_log_normalizer(dist, 1000, continue_from=part, batch_size=500)
    whole = estimate_log_normalizer(dist, 2000, antithetic=True, seed=seed, batch_size=500)
    np.testing.assert_allclose(both.log_z, whole.log_z, rtol=1e-12)
    with pytest.raises(ValueError, match="`continue_from` was estimated with antithetic=True"):
        estimate_log_normalizer(dist, 1000, continue_from=part, antithetic=False)
