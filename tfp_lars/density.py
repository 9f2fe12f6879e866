"""The formulas of the resampled density, as pure functions of `log a`, `log Z` and `T`.

A candidate `z` from the proposal `pi` is accepted with probability `a(z)`. A test therefore
succeeds with probability `Z = E_pi[a]`. Up to `T - 1` candidates are tested. If all of them fail,
candidate `T` is kept without a test. The candidate accepted in test `t` has density
`(1 - Z)**(t - 1) * pi(z) * a(z)`, the untested one `(1 - Z)**(T - 1) * pi(z)`. The sum over
`t = 1, ..., T - 1` is geometric:

    alpha  = (1 - Z)**(T - 1)
    p_T(z) = pi(z) * (a(z) * (1 - alpha) / Z + alpha)

`T = None` means untruncated resampling, `p(z) = pi(z) * a(z) / Z`. The formula is also defined for
real `T`, so training can let `T` grow: `T` may be a scalar tensor in `log_ratio`.

All computations are in log space. In float32, `1 - (1 - Z)**99` rounds to 0 at `Z = 1e-8`, although
`(1 - alpha) / Z` is 99. Both ends of the range of `Z` need care. At `Z = 1` the derivative of
`log(1 - Z)` is infinite. For `Z` near the smallest float, `log(1 - Z)` rounds to 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

__all__ = [
    "log_add_exp",
    "log_expected_attempts",
    "log_near_one",
    "log_ratio",
    "log_truncation_weight",
]


def log_ratio(log_accept: tf.Tensor, log_z: tf.Tensor, T: int | tf.Tensor | None) -> tf.Tensor:
    """Returns what resampling adds to the proposal's log density, `log p_T(z) - log pi(z)`.

    Args:
      log_accept: `log a(z)`, at most 0, shape `[S, B]`.
      log_z: `log Z`, at most 0, shape `[B]` or `[S, B]`.
      T: Python `int` of at least 1, or `None` for untruncated resampling, or a scalar tensor of at
        least 1. An infinite `T` is untruncated.

    Returns:
      log_ratio: Shape `[S, B]`; exactly 0 if `T` is 1.

    >>> log_ratio(tf.constant([-0.5, -2.0]), tf.constant(-1.0), T=None).numpy()
    array([ 0.5, -1. ], dtype=float32)
    """
    log_accept, log_z = tf.convert_to_tensor(log_accept), tf.convert_to_tensor(log_z)
    if T is None:
        return log_accept - log_z
    if not tf.is_tensor(T):
        if T == 1:
            return tf.zeros_like(log_accept + log_z)
        return _log_truncated(log_accept, log_z, tf.cast(T - 1, log_z.dtype))
    tests = tf.cast(T - 1, log_z.dtype)
    is_finite, is_one = tf.math.is_finite(tests), tests <= 0.0
    # The unused branch must have a finite gradient, too.
    some_tests = tf.where(tf.logical_or(~is_finite, is_one), tf.ones_like(tests), tests)
    truncated = _log_truncated(log_accept, log_z, some_tests)
    result = tf.where(is_finite, truncated, log_accept - log_z)
    return tf.where(is_one, tf.zeros_like(result), result)


def _log_truncated(log_accept: tf.Tensor, log_z: tf.Tensor, tests: tf.Tensor) -> tf.Tensor:
    """Returns `log_ratio` for a positive, finite number of tests, `T - 1`."""
    kept = log_accept + _log_mean_tests(log_z, tests)
    return log_add_exp(kept, tests * _log1mexp(log_z))


def log_truncation_weight(log_z: tf.Tensor, T: int | None) -> tf.Tensor:
    """Returns the log of the probability that all tests fail, `(T - 1) * log(1 - Z)`.

    Args:
      log_z: `log Z`, at most 0, shape `[B]`.
      T: Python `int` of at least 1, or `None` for untruncated resampling.

    Returns:
      log_alpha: Shape `[B]`; 0 if `T` is 1, minus infinity if `T` is `None`.

    >>> round(float(tf.exp(log_truncation_weight(tf.math.log(0.5), T=3))), 6)
    0.25
    """
    log_z = tf.convert_to_tensor(log_z)
    if T is None:
        return tf.fill(tf.shape(log_z), tf.constant(-np.inf, log_z.dtype))
    if T == 1:
        return tf.zeros_like(log_z)
    return tf.cast(T - 1, log_z.dtype) * _log1mexp(log_z)


def log_expected_attempts(log_z: tf.Tensor, T: int | None) -> tf.Tensor:
    """Returns the log of the mean number of candidates per draw, `(1 - (1 - Z)**T) / Z`.

    With `T - 1` instead of `T` this is also the weight of `a(z)` in the density: both are the sum
    of `(1 - Z)**t` over the tests.

    Args:
      log_z: `log Z`, at most 0, shape `[B]`.
      T: Python `int` of at least 1, or `None` for untruncated resampling.

    Returns:
      log_attempts: Shape `[B]`, from 0 to `log T`.

    >>> round(float(tf.exp(log_expected_attempts(tf.math.log(0.5), T=3))), 6)
    1.75
    """
    log_z = tf.convert_to_tensor(log_z)
    if T is None:
        return -log_z
    return _log_mean_tests(log_z, tf.cast(T, log_z.dtype))


def _log_mean_tests(log_z: tf.Tensor, most: tf.Tensor) -> tf.Tensor:
    """Returns the log of the mean number of tests until one succeeds, if there are at most `most`.

    This is the sum of `(1 - Z)**t` over `t` from 0 to `most - 1`.
    """
    # Below this value the sum equals `most` in floating point, and `log(1 - Z)` rounds to 0.
    log_z = tf.maximum(log_z, tf.constant(_log_tiny(log_z.dtype), log_z.dtype))
    return _log1mexp(most * _log1mexp(log_z)) - log_z


def _log_tiny(dtype: tf.DType) -> float:
    """Returns the log of the smallest distance of `Z` from 0 and from 1 that is resolved.

    The smallest float is too small: its inverse times `T` would overflow.
    """
    return 0.8 * float(np.log(np.finfo(dtype.name).tiny))


@tf.custom_gradient
def _log1mexp(x: tf.Tensor) -> Any:
    """Returns `log(1 - exp(x))`, with `x` clamped just below 0. The gradient ignores the clamp.

    An estimate of Z with reweighted samples can exceed 1, which makes `x` positive.

    `tfp.math.log1mexp` has the right values, but its unused branch makes the gradient NaN for `x`
    near 0. The gradient at 0 matters for `T = 2`, where d p_T / dZ at `Z = 1` is not 0.
    """
    x = tf.minimum(x, -tf.exp(tf.constant(_log_tiny(x.dtype), x.dtype)))
    near_zero = x > -np.log(2.0)
    # The unused branch must be finite, too: `tf.debugging.enable_check_numerics` checks both.
    far = tf.where(near_zero, -tf.ones_like(x), x)
    y = tf.where(near_zero, tf.math.log(-tf.math.expm1(x)), tf.math.log1p(-tf.exp(far)))
    return y, lambda upstream: -upstream * tf.exp(x - y)


def log_add_exp(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Returns `log(exp(x) + exp(y))`, with a finite gradient where one of the two is -inf."""
    larger = tf.stop_gradient(tf.maximum(x, y))
    return larger + tf.math.log(tf.exp(x - larger) + tf.exp(y - larger))


def log_near_one(log_z: tf.Tensor, z_minus_one: tf.Tensor) -> tf.Tensor:
    """Returns `log_z`, computed from `z_minus_one` where Z is between 1/2 and 2.

    The log of a sum of probabilities rounds to 0 for `Z` near 1, and `log(1 - Z)` is lost. A sum of
    `1 - a`, by `expm1`, keeps it.

    Args:
      log_z: `log Z`, any shape.
      z_minus_one: `Z - 1`, without the rounding of `Z`. Where it is not used, it may be inaccurate.
    """
    is_near = tf.abs(log_z) < np.log(2.0)
    # The unused branch must have a finite value and gradient, too.
    near = tf.math.log1p(tf.where(is_near, z_minus_one, tf.zeros_like(z_minus_one)))
    return tf.where(is_near, near, log_z)
