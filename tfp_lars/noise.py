"""Draws from proposals, with normal numbers at about half the price of TensorFlow's.

Most of what sampling costs are the normal numbers of the candidates. TensorFlow makes them one
by one; here they are made by the same method, Box and Muller's, in whole arrays, which a CPU
works through several numbers at a time.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

__all__ = ["sample", "standard_normal"]

tfd = tfp.distributions


def sample(proposal: tfd.Distribution, n: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """`proposal.sample(n, seed=seed)`: other numbers, of the same law and with the same gradients.

    Diagonal Gaussians, and what is built on them by `tfd.Independent`, `tfd.Sample` and
    `tfd.TransformedDistribution` (flows), are drawn with `standard_normal`, all else by their own
    `sample`.

    Args:
      proposal: Any TFP distribution.
      n: Number of draws, shape `[]`.
      seed: Stateless seed, `int32[2]`.

    Returns:
      z: Shape `[n]` + batch + event.
    """
    if not _is_gaussian_at_heart(proposal):
        return proposal.sample(n, seed=seed)
    return _sample(proposal, n, seed)


def standard_normal(shape: tf.Tensor, seed: tf.Tensor, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """Independent standard normal numbers.

    Args:
      shape: Of the result, `int32`, shape `[rank]`.
      seed: Stateless seed, `int32[2]`.
      dtype: `tf.float32` or `tf.float64`.

    Returns:
      z: Of that shape and type.
    """
    shape = tf.convert_to_tensor(shape, tf.int32)
    size = tf.reduce_prod(shape)
    half = (size + 1) // 2
    integer = tf.int32 if dtype == tf.float32 else tf.int64
    num_bits = 8 * integer.size
    bits = tf.random.stateless_uniform(
        tf.stack([2, half]), seed, minval=None, maxval=None, dtype=integer, alg="philox"
    )
    # Whole numbers symmetric about 0: those next to it, on which the tails hang, keep all of their
    # bits as floating-point numbers. The farthest draws of float32 are at 6.66.
    x, y = tf.unstack(tf.cast(bits, dtype), axis=0)
    radius = tf.sqrt(-2.0 * tf.math.log((tf.abs(x) + 0.5) * 2.0 ** (1 - num_bits)))
    angle = y * (np.pi * 2.0 ** (1 - num_bits))
    z = tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=0)
    return tf.reshape(z[:size], shape)


def _is_gaussian_at_heart(proposal: tfd.Distribution) -> bool:
    # Of these very types: a subclass may draw in a way of its own.
    if type(proposal) in (tfd.Normal, tfd.MultivariateNormalDiag):
        return proposal.dtype in (tf.float32, tf.float64)
    if type(proposal) is tfd.Sample:
        return proposal.distribution.batch_shape.rank == 0 and _is_gaussian_at_heart(
            proposal.distribution
        )
    if type(proposal) is tfd.Independent or _draws_by_transforming(proposal):
        return _is_gaussian_at_heart(proposal.distribution)
    return False


def _draws_by_transforming(proposal: tfd.Distribution) -> bool:
    # TFP's flows come in two classes, of which one inherits from the other.
    plain = tfd.TransformedDistribution.__mro__[1]
    return isinstance(proposal, plain) and type(proposal)._sample_n is plain._sample_n


def _sample(proposal: tfd.Distribution, n: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    if type(proposal) is tfd.Independent:
        return _sample(proposal.distribution, n, seed)
    if type(proposal) is tfd.Sample:
        shape = tf.concat([[n], tf.reshape(proposal.sample_shape, [-1])], 0)
        z = _sample(proposal.distribution, tf.reduce_prod(shape), seed)
        return _with_leading_shape(z, shape, [None, *proposal.event_shape])
    if type(proposal) not in (tfd.Normal, tfd.MultivariateNormalDiag):
        return proposal.bijector.forward(_sample(proposal.distribution, n, seed))
    shape = tf.concat([[n], proposal.batch_shape_tensor(), proposal.event_shape_tensor()], 0)
    z = standard_normal(shape, seed, proposal.dtype)
    z.set_shape([None, *proposal.batch_shape, *proposal.event_shape])
    loc, scale = proposal.mean(), proposal.stddev()
    if _all_equal(scale, 1.0) and _all_equal(loc, 0.0):
        return z
    return loc + scale * z


def _with_leading_shape(z, lead, static_shape):
    z = tf.reshape(z, tf.concat([lead, tf.shape(z)[1:]], 0))
    return tf.ensure_shape(z, static_shape)


def _all_equal(tensor: tf.Tensor, value: float) -> bool:
    static = tf.get_static_value(tensor)
    return static is not None and bool(np.all(static == value))
