"""The standard normal."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _arguments

__all__ = ["standard_normal"]

tfd = tfp.distributions


def standard_normal(
    d: int, *, dtype: Any = tf.float32, name: str = "standard_normal"
) -> tfd.Distribution:
    """Returns the standard normal in `d` dimensions. It has nothing to train.

    Args:
      d: Number of dimensions, at least 1.
      dtype: Floating-point type of the draws.
      name: Name of the distribution.

    Returns:
      A `tfd.MultivariateNormalDiag` with `event_shape` `[d]`.

    #### Example

    >>> pi = standard_normal(3)
    >>> pi.log_prob(pi.sample(5, seed=1)).shape
    TensorShape([5])
    """
    d = _arguments.checked_count("d", d)
    dtype = _arguments.checked_dtype("dtype", dtype)
    return tfd.MultivariateNormalDiag(
        loc=tf.zeros([d], dtype), scale_diag=tf.ones([d], dtype), name=name
    )
