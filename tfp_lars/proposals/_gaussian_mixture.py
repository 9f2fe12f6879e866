"""A mixture of Gaussians."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _arguments, _seeds

__all__ = ["gaussian_mixture"]

tfb = tfp.bijectors
tfd = tfp.distributions


def gaussian_mixture(
    d: int,
    num_components: int,
    *,
    init_spread: float = 0.1,
    log_scale_bound: float = 6.0,
    dtype: Any = tf.float32,
    seed: Any = None,
    name: str = "gaussian_mixture",
) -> tfd.MixtureSameFamily:
    """Returns a mixture of Gaussians with diagonal covariances.

    Weights, means and scales are trainable. Draws carry gradients to all three (implicit
    reparameterization).

    Args:
      d: Number of dimensions, at least 1.
      num_components: Number of components, at least 1.
      init_spread: Standard deviation of the initial means, in [0, 1). At 0 all components start
        equal and stay equal. The initial scales are `sqrt(1 - init_spread**2)`, which gives the
        mixture the covariance of the standard normal.
      log_scale_bound: Upper bound on `|log scale|`. It keeps components from collapsing onto a
        single training point.
      dtype: `float32` or `float64`, the type of the variables and the draws.
      seed: Seed for the initial means: an `int`, a stateless seed of shape `[2]`, or `None` for
        one that follows `tf.random.set_seed`.
      name: Name of the distribution.

    Returns:
      A `tfd.MixtureSameFamily` with `event_shape` `[d]`.

    Raises:
      ValueError: If an argument is out of range.

    #### Example

    >>> pi = gaussian_mixture(2, num_components=8, seed=1)
    >>> [tuple(v.shape) for v in pi.trainable_variables]
    [(8, 2), (8, 2), (8,)]
    >>> pi.log_prob(pi.sample(5, seed=2)).shape
    TensorShape([5])
    """
    d = _arguments.checked_count("d", d)
    num_components = _arguments.checked_count("num_components", num_components)
    if not 0 <= init_spread < 1:
        raise ValueError(f"`init_spread` must be at least 0 and below 1; got {init_spread!r}.")
    bound = _arguments.checked_positive("log_scale_bound", log_scale_bound)
    dtype = _arguments.checked_dtype("dtype", dtype)
    if dtype in (tf.float16, tf.bfloat16):
        raise ValueError(
            f"`dtype` must be float32 or float64; got {dtype.name}, in which TFP cannot draw from "
            "a reparameterized mixture."
        )
    shape = [num_components, d]

    normal = keras.initializers.RandomNormal(stddev=init_spread, seed=next(_seeds.integers(seed)))
    # pyright reads the types of another backend of Keras.
    loc = tf.Variable(normal(shape, dtype.name), name="loc")  # pyright: ignore[reportArgumentType]
    log_scale = 0.5 * np.log1p(-(init_spread**2))
    if abs(log_scale) >= bound:
        raise ValueError(
            f"`log_scale_bound` must be above {abs(log_scale):.3g}, the initial log-scale with "
            f"`init_spread={init_spread}`; got {bound}."
        )
    stretch = tfb.Scale(tf.cast(bound, dtype))
    scale = tfp.util.TransformedVariable(
        tf.fill(shape, tf.cast(np.exp(log_scale), dtype)),
        bijector=tfb.Chain([tfb.Exp(), stretch, tfb.Tanh(), tfb.Invert(stretch)]),
        name=f"{name}_scale",
    )
    return tfd.MixtureSameFamily(
        tfd.Categorical(logits=tf.Variable(tf.zeros([num_components], dtype), name="logits")),
        tfd.Independent(tfd.Normal(loc, scale), reinterpreted_batch_ndims=1),
        reparameterize=True,
        name=name,
    )
