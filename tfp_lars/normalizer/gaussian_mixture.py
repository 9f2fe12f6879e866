"""Mixtures of a few Gaussians with full covariances: a distribution, and its fit by EM.

`tfd.MixtureSameFamily` of `tfd.MultivariateNormalTriL` is the same distribution. In 50 dimensions
its `sample` and `log_prob` take about ten times as long as the matrix products here.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars._traced_once import TracedOnce

__all__ = ["GaussianMixture", "Parameters", "fit"]

tfd = tfp.distributions

_EM_STEPS = 10
_JITTER = 1e-6  # relative to the variance of the points
_MOST_DIMENSIONS = 100  # with more, covariances are diagonal


class Parameters(NamedTuple):
    """Parameters of a mixture of `K` Gaussians in `d` dimensions.

    Attributes:
      log_weights: Shape `B + [K]`.
      means: Shape `B + [K, d]`.
      scales: Cholesky factors of the covariances, shape `B + [K, d, d]`.
    """

    log_weights: Any
    means: Any
    scales: Any


class GaussianMixture(tfd.Distribution):
    """A mixture of Gaussians, without gradients.

    Args:
      parameters: `Parameters` with tensors of one floating-point type.
    """

    def __init__(self, parameters: Parameters):
        self._mixture = Parameters(*(tf.convert_to_tensor(p) for p in parameters))
        super().__init__(
            dtype=self._mixture.means.dtype,
            reparameterization_type=tfd.NOT_REPARAMETERIZED,
            validate_args=False,
            allow_nan_stats=True,
            parameters={"parameters": tuple(self._mixture)},
            name="GaussianMixture",
        )

    def _batch_shape(self):
        return self._mixture.means.shape[:-2]

    def _batch_shape_tensor(self):
        return tf.shape(self._mixture.means)[:-2]

    def _event_shape(self):
        return self._mixture.means.shape[-1:]

    def _event_shape_tensor(self):
        return tf.shape(self._mixture.means)[-1:]

    def _sample_n(self, n, seed=None):
        log_weights, means, scales = self._mixture
        seeds = tf.random.split(tfp.random.sanitize_seed(seed), 2)
        component = tfd.Categorical(logits=log_weights).sample(n, seed=seeds[0])  # [n] + B
        noise = tf.random.stateless_normal(
            tf.concat([[n], self._batch_shape_tensor(), self._event_shape_tensor()], 0),
            seeds[1],
            dtype=self.dtype,
        )
        # All components use the same noise, and each draw keeps one of them.
        every = _apply(scales, noise) + means  # [n] + B + [K, d]
        chosen = tf.one_hot(component, means.shape[-2], dtype=self.dtype)
        return tf.einsum("...k,...kd->...d", chosen, every)

    def _log_prob(self, value):
        constant = 0.5 * np.log(2.0 * np.pi) * self._mixture.means.shape[-1]
        log_density = _log_densities(value, self._mixture) - constant
        return tf.reduce_logsumexp(self._mixture.log_weights + log_density, axis=-1)


def _apply(matrices: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    """Multiplies vectors `[n] + B + [d]` by matrices `B + [K, d, d]`, in one matrix product.

    Returns:
      products: Shape `[n] + B + [K, d]`.
    """
    rank = matrices.shape.rank - 3
    columns = tf.einsum("...kij->...jki", matrices)
    shape = tf.shape(columns)
    columns = tf.reshape(columns, tf.concat([shape[:-2], [shape[-2] * shape[-1]]], 0))
    rows = tf.transpose(vectors, [*range(1, rank + 1), 0, rank + 1])  # B + [n, d]
    products = tf.matmul(rows, columns)
    products = tf.reshape(products, tf.concat([tf.shape(rows)[:-1], shape[-2:]], 0))
    return tf.transpose(products, [rank, *range(rank), rank + 1, rank + 2])


def fit(
    x: np.ndarray, weights: np.ndarray, num_components: int, rng: np.random.Generator
) -> Parameters:
    """Fits a mixture to weighted points by EM.

    The covariance of a component with few points is shrunk to the mean covariance within
    components. That keeps only correlations that are larger than their noise.

    Args:
      x: Points, shape `[N, d]`.
      weights: Weights of the points with sum 1, shape `[N]`.
      num_components: Number of components.
      rng: Source of the random start.

    Returns:
      parameters: Arrays without batch shape.
    """
    x, weights = x.astype(np.float64), weights.astype(np.float64)
    center = np.sum(weights[:, None] * x, axis=0)
    spread = np.sqrt(np.sum(weights[:, None] * (x - center) ** 2, axis=0) + 1e-12)
    x = (x - center) / spread  # so that constants do not depend on units
    means = x[_distant_points(x, weights, num_components, rng)]
    graph = _graph(*x.shape, num_components)
    fitted = graph(tf.constant(x), tf.constant(weights), tf.constant(means))
    log_shares, means, scales = (np.asarray(p) for p in fitted)
    return Parameters(log_shares, means * spread + center, scales * spread[:, None])


@functools.lru_cache(maxsize=8)
def _graph(n: int, d: int, num_components: int) -> TracedOnce:
    """Returns EM for points and means of one shape."""
    return TracedOnce(functools.partial(_expectation_maximization, d, num_components))


# NumPy would be simpler. Its matrix products use all cores, which is slow while others do.
def _expectation_maximization(
    d: int, num_components: int, x: tf.Tensor, weights: tf.Tensor, means: tf.Tensor
) -> Parameters:
    """Returns the parameters after some steps of EM from given means, `[K, d]`."""
    covariance = tf.matmul(weights[:, None] * x, x, transpose_a=True)
    covariance += _JITTER * tf.eye(d, dtype=x.dtype)
    scales = tf.tile(tf.linalg.cholesky(covariance)[None], [num_components, 1, 1])
    log_shares = tf.fill([num_components], tf.constant(-np.log(num_components), x.dtype))

    def step(i, log_shares, means, scales):
        log_density = log_shares + _log_densities(x, Parameters(log_shares, means, scales))
        parts = weights[:, None] * tf.nn.softmax(log_density)  # [N, K]
        shares = tf.maximum(tf.reduce_sum(parts, axis=0), 1e-6)
        means = tf.matmul(parts, x, transpose_a=True) / shares[:, None]
        centered = x - means[:, None]  # [K, N, d]
        weighted = tf.expand_dims(tf.transpose(parts), -1) * centered
        scatters = tf.matmul(weighted, centered, transpose_a=True)
        counts = shares**2 / tf.maximum(tf.reduce_sum(parts**2, axis=0), 1e-300)
        scales = tf.linalg.cholesky(_shrink(d, scatters, shares, counts))
        return i + 1, tf.math.log(shares / tf.reduce_sum(shares)), means, scales

    _, *parameters = tf.while_loop(
        lambda i, *_: i < _EM_STEPS, step, [0, log_shares, means, scales]
    )
    return Parameters(*parameters)


def _log_densities(x: tf.Tensor, parameters: Parameters) -> tf.Tensor:
    """Returns the log densities of the components up to a constant, shape `[N] + B + [K]`."""
    _, means, scales = parameters
    identity = tf.eye(means.shape[-1], batch_shape=tf.shape(means)[:-1], dtype=means.dtype)
    inverses = tf.linalg.triangular_solve(scales, identity)
    standard = _apply(inverses, x) - tf.linalg.matvec(inverses, means)  # [N] + B + [K, d]
    log_volumes = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(scales)), axis=-1)
    return -0.5 * tf.reduce_sum(standard**2, axis=-1) - log_volumes


def _shrink(d: int, scatters: tf.Tensor, shares: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Returns covariances, shape `[K, d, d]`, without most of the noise of few points.

    Args:
      d: Number of dimensions.
      scatters: Weighted scatter matrices of the components, shape `[K, d, d]`.
      shares: Total weights of the components, shape `[K]`.
      counts: Effective numbers of points of the components, shape `[K]`.
    """
    pooled = tf.reduce_sum(scatters, axis=0) / tf.reduce_sum(shares)
    pooled = _without_noise(d, pooled, tf.reduce_sum(counts))
    if d > _MOST_DIMENSIONS:
        return pooled + tf.zeros_like(scatters)
    own = (counts / (counts + 2.0 * d**2))[:, None, None]
    return own * scatters / shares[:, None, None] + (1.0 - own) * pooled


def _without_noise(d: int, covariance: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns a covariance with correlations only in the directions where they are significant.

    The eigenvalues of the correlation matrix of `count` independent points are between
    `(1 - sqrt(d / count))**2` and `(1 + sqrt(d / count))**2` (Marchenko and Pastur). Those near
    this range become 1.
    """
    variances = tf.linalg.diag_part(covariance) + _JITTER
    if d > _MOST_DIMENSIONS:
        return tf.linalg.diag(variances)
    deviations = tf.sqrt(variances)
    eigenvalues, vectors = tf.linalg.eigh(covariance / deviations / deviations[:, None])
    noise = tf.sqrt(d / tf.maximum(count, 1.0))
    low, high = 0.9 * tf.maximum(1.0 - noise, 0.0) ** 2, 1.1 * (1.0 + noise) ** 2
    is_noise = tf.logical_and(eigenvalues > low, eigenvalues < high)
    eigenvalues = tf.where(is_noise, tf.ones_like(eigenvalues), eigenvalues)
    # Eigenvalues near 0 are noise, too, if there are fewer points than dimensions.
    smallest = tf.where(count > 2.0 * d, _JITTER, 1.0)
    eigenvalues = tf.maximum(eigenvalues, tf.cast(smallest, eigenvalues.dtype))
    factors = vectors * tf.sqrt(eigenvalues) * deviations[:, None]
    return tf.matmul(factors, factors, transpose_b=True)


def _distant_points(
    x: np.ndarray, weights: np.ndarray, num_points: int, rng: np.random.Generator
) -> list[int]:
    """Chooses points at random, each with probability proportional to its squared distance."""
    chosen = [int(rng.choice(len(x), p=weights / weights.sum()))]
    nearest = np.full(len(x), np.inf)
    for _ in range(num_points - 1):
        nearest = np.minimum(nearest, np.sum((x - x[chosen[-1]]) ** 2, axis=1))
        chance = weights * nearest + 1e-300
        chosen.append(int(rng.choice(len(x), p=chance / chance.sum())))
    return chosen
