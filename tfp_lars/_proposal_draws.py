"""Draws from proposals, with normal numbers in about half of the CPU time that TensorFlow takes.

Normal numbers are the largest part of the cost of sampling. TensorFlow computes them one by one.
This module uses the same method, Box-Muller, on whole arrays, so that a CPU computes several
numbers at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _compat, _nested

__all__ = ["sample", "standard_normal", "without_implicit_gradients"]

tfd = tfp.distributions

# Draws at a time from proposals that need a static number.
_CHUNK = 256


def sample(
    proposal: tfd.Distribution,
    n: int | tf.Tensor,
    seed: tf.Tensor,
    *,
    differentiable: bool = False,
) -> tf.Tensor:
    """Returns draws from a proposal.

    They have the same distribution and gradients as `proposal.sample`, but different values for a
    given seed.

    Diagonal Gaussians use `standard_normal`, and so do `tfd.Independent`, `tfd.Sample` and
    `tfd.TransformedDistribution` (flows) on top of them. All other proposals use their own
    `sample`, and so does every proposal where a GPU is visible.

    Args:
      proposal: Any TFP distribution.
      n: Number of draws, shape `[]`.
      seed: Stateless seed, `int32[2]`.
      differentiable: Whether the draws carry gradients to the parameters of the proposal. Where
        recording is stopped, as in the first pass of `tf.recompute_grad`, they never do.

    Returns:
      z: Shape `[n]` + batch + event.
    """
    if not differentiable or _compat.recording_is_stopped():
        proposal = without_implicit_gradients(proposal)
    if tf.config.get_visible_devices("GPU") or not _is_transformed_gaussian(proposal):
        return _plain_sample(proposal, n, seed)
    return _sample(proposal, n, seed, differentiable)


def without_implicit_gradients(proposal: tfd.Distribution) -> tfd.Distribution:
    """Returns a distribution of the same law, on the same variables, without reparameterization.

    Draws of a reparameterized `tfd.MixtureSameFamily` get their gradient from a `GradientTape`
    inside of TFP. Where recording is stopped, these draws are NaN.
    """

    def replace(part):
        if isinstance(part, tfd.MixtureSameFamily) and part.parameters.get("reparameterize"):
            return part.copy(reparameterize=False)
        return None

    parts = (proposal, *proposal.submodules)
    if all(replace(part) is None for part in parts if isinstance(part, tfd.Distribution)):
        return proposal
    return _nested.rebuild(proposal, replace)


def standard_normal(shape: tf.Tensor, seed: tf.Tensor, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """Returns independent standard normal numbers.

    Args:
      shape: Shape of the result, `int32`, shape `[rank]`.
      seed: Stateless seed, `int32[2]`.
      dtype: `tf.float32` or `tf.float64`.

    Returns:
      z: Tensor of the given shape and type.
    """
    shape = tf.convert_to_tensor(shape, tf.int32)
    size = tf.reduce_prod(shape)
    half = (size + 1) // 2
    integer = tf.int32 if dtype == tf.float32 else tf.int64
    num_bits = 8 * integer.size
    # No limits mean all integers. TensorFlow's stubs do not know this.
    bits = tf.random.stateless_uniform(
        tf.stack([2, half]),
        seed,
        minval=None,  # pyright: ignore[reportArgumentType]
        maxval=None,
        dtype=integer,
        alg="philox",
    )
    x, y = tf.unstack(tf.cast(bits, dtype), axis=0)
    # The radius is sqrt(-2 log u), with u = |x + 1/2| / 2**(num_bits - 1). Small integers become
    # the tails and are exact as floats. In float32 the largest draw is 6.66.
    inverse_square = 4.0 ** (num_bits - 1) / tf.math.squared_difference(x, -0.5)  # u**-2
    radius = tf.sqrt(tf.math.log(inverse_square))
    angle = y * (np.pi * 2.0 ** (1 - num_bits))
    z = tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=0)
    return tf.reshape(z[:size], shape)


def _plain_sample(proposal: tfd.Distribution, n: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    try:
        return proposal.sample(n, seed=seed)
    except (TypeError, NotImplementedError):
        if tf.get_static_value(n) is not None:
            raise
    # LKJ, CholeskyLKJ and BatchConcat of TFP 0.25 need a static number of draws. Dropping the rest
    # is exact.
    num_chunks = (n + _CHUNK - 1) // _CHUNK
    chunks = tf.map_fn(
        lambda i: proposal.sample(_CHUNK, seed=tf.random.fold_in(seed, i)),
        tf.range(num_chunks),
        fn_output_signature=proposal.dtype,
    )
    z = tf.reshape(chunks, tf.concat([[num_chunks * _CHUNK], tf.shape(chunks)[2:]], 0))
    return _compat.ensure_shape(z[:n], [None, *proposal.batch_shape, *proposal.event_shape])


def _is_transformed_gaussian(proposal: tfd.Distribution) -> bool:
    # Only these exact types: a subclass may draw in its own way.
    if type(proposal) in (tfd.Normal, tfd.MultivariateNormalDiag):
        return proposal.dtype in (tf.float32, tf.float64)
    if type(proposal) is tfd.Sample:
        return proposal.distribution.batch_shape.rank == 0 and _is_transformed_gaussian(
            proposal.distribution
        )
    if type(proposal) is tfd.Independent:
        return _is_transformed_gaussian(proposal.distribution)
    return _draws_by_transforming(proposal) and _is_transformed_gaussian(proposal.distribution)


def _draws_by_transforming(proposal: tfd.Distribution) -> bool:
    plain = _compat.TransformedDistribution
    if not isinstance(proposal, plain) or type(proposal)._call_sample_n is not plain._call_sample_n:
        return False
    # The bijector's parameters may add batch members. These need independent draws.
    base = proposal.distribution.batch_shape
    return base.is_fully_defined() and base == proposal.batch_shape


def _sample(
    proposal: tfd.Distribution, n: int | tf.Tensor, seed: tf.Tensor, differentiable: bool
) -> tf.Tensor:
    if type(proposal) is tfd.Independent:
        return _sample(proposal.distribution, n, seed, differentiable)
    if type(proposal) is tfd.Sample:
        sample_shape = tf.cast(tf.reshape(proposal.sample_shape, [-1]), tf.int32)
        shape = tf.concat([[n], sample_shape], 0)
        z = _sample(proposal.distribution, tf.reduce_prod(shape), seed, differentiable)
        return _with_leading_shape(z, shape, [None, *proposal.event_shape])
    if type(proposal) not in (tfd.Normal, tfd.MultivariateNormalDiag):
        return proposal.bijector.forward(_sample(proposal.distribution, n, seed, differentiable))
    shape = tf.concat([[n], proposal.batch_shape_tensor(), proposal.event_shape_tensor()], 0)
    z = standard_normal(shape, seed, proposal.dtype)
    z.set_shape([tf.get_static_value(n), *proposal.batch_shape, *proposal.event_shape])
    if not differentiable and _is_always_standard(proposal):
        return z
    return proposal.mean() + proposal.stddev() * z


def _with_leading_shape(z, lead, static_shape):
    z = tf.reshape(z, tf.concat([lead, tf.shape(z)[1:]], 0))
    return _compat.ensure_shape(z, static_shape)


def _is_always_standard(proposal: tfd.Distribution) -> bool:
    """Whether the proposal is N(0, 1) now and cannot change."""
    scale = "scale" if type(proposal) is tfd.Normal else "scale_diag"
    return _is_constant(proposal.parameters["loc"], 0.0) and _is_constant(
        proposal.parameters[scale], 1.0
    )


def _is_constant(parameter: Any, value: float) -> bool:
    """Whether a parameter is known to have this value, in eager mode and in graphs.

    `mean()` and `stddev()` of the proposal do not show this: in graphs their values are unknown.
    """
    if parameter is None:  # TFP's defaults are those of the standard normal
        return True
    static = tf.get_static_value(parameter)  # `None` for variables and symbolic tensors
    return isinstance(static, (float, np.ndarray, np.generic)) and bool(np.all(static == value))
