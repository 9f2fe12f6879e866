"""Evaluations of `fit` on held-out samples."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lars
from tfp_lars._fit_evaluation import Evaluation

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
