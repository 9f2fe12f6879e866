"""Dimension-wise resampling: independent networks, and a Z for each dimension."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_lars
from examples.vae import build as building
from examples.vae import datasets, evaluation, priors, training
from examples.vae.config import Config, PriorConfig
from examples.vae.dimensionwise import DimensionwiseAcceptance
from tests.bounds import FALSE_ALARM_RATE, dkw_band, normal_bound


def make(d=3, T=20):
    """Returns a prior with different dimensions and acceptances that are far from constant."""
    config = PriorConfig("lars_dimensionwise", (20, 20), T=T, num_samples=64)
    prior = priors.make(d, config, None)
    accept_fn = prior.distribution.accept_fn
    accept_fn.kernels[-1].assign(4.0 * accept_fn.kernels[-1])
    accept_fn.biases[-1].assign_sub(np.linspace(0.5, 2.0, d, dtype=np.float32)[:, None])
    return prior


def by_quadrature(prior, num_points=2001):
    """Returns Z of each dimension `[d]`, the grid `[G]`, and p_T on the grid `[G, d]`."""
    grid = np.linspace(-8.0, 8.0, num_points)
    step = grid[1] - grid[0]
    z = np.float32(np.repeat(grid[:, None], prior.event_shape[0], axis=1))
    a = np.exp(prior.distribution.accept_log_prob(z)).astype(np.float64)
    pi = np.exp(-0.5 * grid[:, None] ** 2) / np.sqrt(2 * np.pi)
    rate = np.sum(pi * a, axis=0) * step
    alpha = (1 - rate) ** (prior.distribution.T - 1)
    return rate, grid, pi * (a * (1 - alpha) / rate + alpha)


def test_networks_are_those_of_a_plain_product():
    accept_fn = DimensionwiseAcceptance(3, (5, 4), seed=1)
    z = np.float32(np.random.default_rng(0).normal(size=(7, 2, 3)))
    found = accept_fn.logits(z).numpy()
    weights = [v.numpy() for v in (*accept_fn.kernels, *accept_fn.biases)]
    for i in range(3):
        h = np.tanh(z[..., i, None] @ weights[0][i] + weights[3][i])
        h = np.tanh(h @ weights[1][i] + weights[4][i])
        expected = (h @ weights[2][i] + weights[5][i])[..., 0]
        np.testing.assert_allclose(found[..., i], expected, rtol=1e-4, atol=1e-5)


def test_each_acceptance_depends_on_its_own_dimension_and_weights():
    accept_fn = DimensionwiseAcceptance(4, seed=1)
    z = tf.constant(np.float32(np.random.default_rng(0).normal(size=(5, 4))))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(z)
        logits = tf.reduce_sum(accept_fn.logits(z), axis=0)  # [4]
    by_z = tf.transpose(tape.jacobian(logits, z), [0, 2, 1])  # [4, 4, 5]
    for source in (by_z, *(tape.jacobian(logits, v) for v in accept_fn.kernels)):
        parts = np.abs(source.numpy()).reshape(4, 4, -1).sum(-1)
        assert np.all(np.diag(parts) > 0.0)
        assert np.all(parts[~np.eye(4, dtype=bool)] == 0.0)


def test_density_is_the_product_of_those_by_quadrature(seed):
    prior = make()
    rate, grid, density = by_quadrature(prior)
    np.testing.assert_allclose(density.sum(0) * (grid[1] - grid[0]), 1.0, rtol=1e-6)
    frozen = priors.freeze(prior, np.log(rate))
    assert (frozen.batch_shape, frozen.event_shape) == ([], [3])
    rows = np.array([[700, 1000, 1190], [1000, 1190, 700]])
    expected = np.log(density[rows, np.arange(3)]).sum(1)
    np.testing.assert_allclose(frozen.log_prob(np.float32(grid[rows])), expected, rtol=1e-4)
    draws = prior.sample(5000, seed=[seed, 1]).numpy()
    for i in range(3):
        # Integrate up to the middle of each cell, for an error of second order in its width.
        mass = density[:, i] * (grid[1] - grid[0])
        cdf = np.interp(np.sort(draws[:, i]), grid, np.cumsum(mass) - 0.5 * mass)
        gap = np.abs(cdf - np.arange(5000) / 5000).max()
        assert gap < dkw_band(5000, FALSE_ALARM_RATE / 3) + 1e-3


class Model:
    """Stub with the parts of a model that the evaluation of its prior uses."""

    def __init__(self, prior):
        self.prior = prior


def test_evaluation_freezes_a_z_for_each_dimension(seed):
    prior = make()
    rate, _, _ = by_quadrature(prior)
    frozen, estimate = evaluation.frozen_prior(Model(prior), 20_000, seed=seed)
    assert not isinstance(frozen.distribution.normalizer, tfp_lars.MovingAverage)
    assert np.all(np.abs(estimate.log_z - np.log(rate)) < normal_bound(3) * estimate.stderr)
    np.testing.assert_allclose(frozen.distribution.log_normalizer, estimate.log_z, rtol=1e-6)
    before = frozen.log_prob(tf.zeros([2, 3]))
    np.testing.assert_array_equal(before, frozen.log_prob(tf.zeros([2, 3])))


def test_error_of_all_z_is_that_of_the_sum_of_their_logs():
    """Without truncation, log p contains minus the sum of log Z, with known standard errors."""
    stderr = np.array([0.03, 0.04, 0.0])
    estimate = tfp_lars.LogNormalizer(np.array([-1.0, -2.0, -0.5]), stderr, 10, "monte_carlo")
    prior = make(T=None)
    z = tf.zeros([1, 3])
    moved = priors.freeze(prior, evaluation._off_by_stderr(estimate)).log_prob(z)
    np.testing.assert_allclose(priors.freeze(prior, estimate).log_prob(z) - moved, 0.05, rtol=1e-3)
    certain = tfp_lars.LogNormalizer(np.array(-1.0), np.array(0.0), 10, "monte_carlo")
    assert evaluation._off_by_stderr(certain) == -1.0
    unknown = tfp_lars.LogNormalizer(np.array(-1.0), np.array(np.inf), 10, "monte_carlo")
    assert evaluation._off_by_stderr(unknown) == 0.0
    one = tfp_lars.LogNormalizer(np.array(-1.0), np.array(0.2), 10, "monte_carlo")
    assert evaluation._off_by_stderr(one) == pytest.approx(-0.8)


def test_metrics_and_scalars_are_numbers():
    config = PriorConfig("lars_dimensionwise", num_samples=32)
    model = building.build(Config("mnist", "vae", config, steps=1, num_latents=3))
    pixels = np.uint8(255 * (np.random.default_rng(0).random((6, 28, 28)) < 0.3))
    images = datasets.Images("mnist", pixels, pixels, pixels, dynamic=True, source="made up")
    found = evaluation.compute_metrics(model, images, iwae_samples=3, z_samples=1000)
    part, estimate = evaluation.frozen_prior(model, 1000, seed=0)
    assert found["z"] == pytest.approx(np.mean(np.exp(estimate.log_z)))
    assert found["log_z_stderr"] == pytest.approx(np.sqrt(np.sum(estimate.stderr**2)))
    attempts = part.distribution.expected_attempts
    assert found["expected_attempts"] == pytest.approx(np.mean(attempts))
    model.prior.log_prob(tf.zeros([2, 3]))  # one update
    scalars = training.prior_scalars(model)
    rates = np.exp(model.prior.distribution.log_normalizer)
    assert scalars["z"] == pytest.approx(np.mean(rates), rel=1e-5)
    assert 1.0 <= scalars["attempts"] <= 100.0
    assert evaluation.prior_samples(model, 2, 3).shape == (2, 3, 28, 28)
