"""Evaluations of `fit` on held-out samples."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lars
from tfp_lars._fit_evaluation import Evaluation, combined_error, log_z_errors

tfd = tfp.distributions

POINTS = np.linspace(-2.0, 2.0, 5, dtype=np.float32)
GRID = np.linspace(-10.0, 10.0, 20_001)


def resampled(proposal, bias):
    return tfp_lars.Resampled(proposal, lambda z: z + bias, T=None, from_logits=True)


def test_evaluations_with_the_same_seed_agree():
    dist = resampled(tfd.Normal(0.0, 1.0), 0.0)
    first, again, other = (Evaluation(dist, POINTS, seed) for seed in (3, 3, 4))
    expected = first()
    np.testing.assert_array_equal(first(), expected)
    np.testing.assert_array_equal(again(), expected)
    assert np.all(other() != expected)


def test_nested_distributions_are_evaluated_with_their_current_weights():
    """Each Z has 2**15 proposals and a relative error below 0.01. The bound is 5 of both."""
    bias = tf.Variable(3.0)
    inner = resampled(tfd.Normal(0.0, 1.0), bias)
    dist = resampled(inner, -1.0)
    dist.log_prob(POINTS)  # gives the averages a value that is wrong later on
    evaluation = Evaluation(dist, POINTS, seed=0)
    bias.assign(-2.0)

    def log_density(z):
        return -0.5 * z**2 - np.logaddexp(0.0, 2.0 - z) - np.logaddexp(0.0, 1.0 - z)

    normalizer = np.sum(np.exp(log_density(GRID))) * (GRID[1] - GRID[0])
    expected = log_density(POINTS.astype(np.float64)) - np.log(normalizer)
    np.testing.assert_allclose(evaluation(), expected, atol=5 * np.sqrt(2) * 0.01)


@pytest.mark.parametrize("num_dims", [0, 1])
def test_errors_of_log_z_are_finite_differences_of_the_mean_log_density(num_dims):
    """They depend on how the density uses Z: for a small T, the derivative is not -1."""
    inner = tfp_lars.Resampled(
        tfd.Normal(np.array([0.0, 1.0]), 1.0), lambda z: z, T=3, from_logits=True
    )
    inner = inner.freeze(num_samples=1000, seed=1)
    outer = tfp_lars.Resampled(inner, lambda z: 2.0 - z, T=5, from_logits=True)
    outer = outer.freeze(num_samples=1000, seed=2)
    dist = tfd.Independent(outer, num_dims)
    samples = np.stack([np.linspace(-1.0, 2.0, 7), np.linspace(0.0, 1.0, 7)], axis=-1)
    found = log_z_errors(dist, samples)
    assert len(found) == 2
    for part in (outer, inner):
        log_z, estimate = part.normalizer, part.estimate
        start = log_z.numpy()

        def shifted(step, log_z=log_z, start=start):
            log_z.assign(start + step)
            return np.mean(dist.log_prob(samples))

        slopes = [(shifted(step) - shifted(-step)) / 2e-5 for step in 1e-5 * np.eye(2)]
        log_z.assign(start)
        assert np.all(np.abs(np.array(slopes) * 2 ** (1 - num_dims) + 1.0) > 1e-4)
        np.testing.assert_allclose(found[log_z.ref()], slopes * estimate.stderr, rtol=1e-6)
    sizes = [np.linalg.norm(error) for error in found.values()]
    np.testing.assert_allclose(combined_error(found), np.sum(sizes))


def test_distribution_without_an_estimate_has_no_error_of_log_z():
    dist = resampled(tfd.Normal(0.0, 1.0), 0.0)
    for part in (dist, dist.proposal, dist.copy(normalizer=-0.7)):
        assert combined_error(log_z_errors(part, POINTS)) == 0.0
