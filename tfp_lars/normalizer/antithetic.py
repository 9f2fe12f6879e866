"""Antithetic pairs: z and its reflection at the center of a symmetric proposal.

If a(z) is large where a at the reflected point is small, the mean of a pair varies less than that
of two independent draws. If a(z) is even, a pair is worth only one draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _compat, _proposal_draws
from tfp_lars.normalizer.batch_sums import Sums

__all__ = [
    "Reflection",
    "checked_reflection",
    "known_reflection",
    "log_pair_means",
    "variance_ratio",
]

tfd = tfp.distributions

Reflection = Callable[[tf.Tensor], tf.Tensor]

# Only these exact types: a subclass may have another density.
_WITH_LOCATION = (
    tfd.Cauchy,
    tfd.Laplace,
    tfd.Logistic,
    tfd.MultivariateStudentTLinearOperator,
    tfd.Normal,
    tfd.StudentT,
)
_WITH_MEAN = (
    tfd.MultivariateNormalDiag,
    tfd.MultivariateNormalDiagPlusLowRank,
    tfd.MultivariateNormalDiagPlusLowRankCovariance,
    tfd.MultivariateNormalFullCovariance,
    tfd.MultivariateNormalLinearOperator,
    tfd.MultivariateNormalTriL,
)

_NUM_PROBES = 64


def known_reflection(proposal: tfd.Distribution) -> Reflection | None:
    """Returns the reflection of a proposal that is known to be symmetric, or `None`."""
    inner = proposal
    while type(inner) in (tfd.Independent, tfd.Sample):
        # The location of a batch member of `tfd.Sample` would not broadcast against its draws.
        if type(inner) is tfd.Sample and inner.distribution.batch_shape.rank != 0:
            return None
        inner = inner.distribution
    # The center is read at each call, since training may move it.
    if type(inner) in _WITH_LOCATION:
        return lambda z: 2.0 * tf.convert_to_tensor(inner.loc) - z
    if type(inner) in _WITH_MEAN:
        return lambda z: 2.0 * inner.mean() - z
    if type(inner) is tfd.Uniform:
        return lambda z: tf.convert_to_tensor(inner.low) + inner.high - z
    return None


def checked_reflection(reflect_fn: Any, proposal: tfd.Distribution) -> Reflection:
    """Returns `reflect_fn`, or raises if it does not preserve the density of the proposal."""
    if not callable(reflect_fn):
        raise TypeError(f"`reflect_fn` must be a function of z; got {reflect_fn!r}.")
    reflection: Any = reflect_fn
    with _compat.no_recording(), _compat.inference_mode():
        z = _proposal_draws.sample(proposal, _NUM_PROBES, tf.constant([_NUM_PROBES, 1]))
        reflected = tf.convert_to_tensor(reflection(z))
        if reflected.shape != z.shape or reflected.dtype != z.dtype:
            raise ValueError(
                f"`reflect_fn` returned {reflected.dtype.name} of shape {tuple(reflected.shape)} "
                f"for draws of type {z.dtype.name} and shape {tuple(z.shape)}; expected the same."
            )
        same_place = np.allclose(reflection(reflected), z, rtol=1e-3, atol=1e-3)
        densities = [proposal.log_prob(x).numpy() for x in (z, reflected)]
        if not same_place or not np.allclose(*densities, rtol=1e-3, atol=1e-2):
            raise ValueError(
                "`reflect_fn` must map each z to a point with the same density under the proposal, "
                "and that point back to z, such as `lambda z: 2 * center - z` for a proposal that "
                "is symmetric around `center`."
            )
    return reflection


def log_pair_means(log_accept: tf.Tensor) -> tf.Tensor:
    """Returns the log of the mean of each pair.

    Args:
      log_accept: Log a(z) of `n` draws, followed by that of their reflections, shape `[2 n] + B`.

    Returns:
      log_means: Shape `[n] + B`.
    """
    first, second = tf.split(tf.cast(log_accept, tf.float64), 2)
    larger, smaller = tf.maximum(first, second), tf.minimum(first, second)
    # The difference of two infinities is NaN.
    difference = tf.where(larger > smaller, smaller - larger, tf.zeros_like(larger))
    return larger + tf.math.log1p(tf.exp(difference)) - np.log(2.0)


def variance_ratio(draws: Sums, pairs: Sums) -> float:
    """Returns the variance of a mean of pairs over that of as many independent draws.

    It is 0 for perfect pairs, 1 for independent ones and 2 for an even a(z). Batch members are
    averaged.

    Args:
      draws: Sums over all points.
      pairs: Sums over the means of pairs of these points.
    """
    single = draws.relative_square - 1.0
    if single.size == 0 or not np.all(np.isfinite(single)) or np.any(single <= 0.0):
        return 1.0  # an empty batch, nothing accepted, or a constant a(z)
    return float(np.mean(2.0 * (pairs.relative_square - 1.0) / single))
