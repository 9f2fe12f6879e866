"""Argument checks that several modules share. Each returns the value in its canonical form."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = [
    "PROBABILITY_SLACK",
    "UNSET",
    "check_accept_dtype",
    "check_sample_shape",
    "checked_count",
    "checked_dtype",
    "checked_hidden_units",
    "checked_positive",
    "checked_target",
    "checked_truncation",
    "is_real_number",
    "truncation_of_call",
]

# Default of arguments for which `None` has a meaning.
UNSET = object()

# How far above 1 rounding may push a probability, and above 0 its log.
PROBABILITY_SLACK = 1e-5


def is_real_number(value: Any) -> bool:
    """Whether `value` is a number of Python or NumPy, and no `bool`."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def checked_count(name: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """Returns `value` as an `int`, or raises an error that names the argument.

    Args:
      name: Argument name.
      value: Anything; integers of NumPy and floats without a fraction (`1e6`) count as integers.
      least: Smallest allowed value.
      most: Largest allowed value, `None` for no limit.

    >>> checked_count("num_samples", 1e6)
    1000000
    """
    limits = f"of at least {least}" if most is None else f"from {least} to {most}"
    message = f"`{name}` must be an integer {limits}; got {value!r}."
    if not is_real_number(value):
        raise TypeError(message)
    if not np.isfinite(value) or int(value) != value or value < least:
        raise ValueError(message)
    if most is not None and value > most:
        raise ValueError(message)
    return int(value)


def checked_positive(name: str, value: Any) -> float:
    """Returns `value` as a positive and finite `float`, or raises an error."""
    message = f"`{name}` must be a positive number; got {value!r}."
    if not is_real_number(value):
        raise TypeError(message)
    if not 0 < value < np.inf:
        raise ValueError(message)
    return float(value)


def checked_hidden_units(name: str, value: Any) -> tuple[int, ...]:
    """Returns the widths of hidden layers as a tuple, or raises an error."""
    if isinstance(value, (str, bytes)) or not isinstance(value, (Sequence, np.ndarray)):
        remedy = f" For one layer, pass ({value},)." if isinstance(value, numbers.Integral) else ""
        raise TypeError(
            f"`{name}` must be a sequence with the width of each hidden layer, such as (100, 100); "
            f"got {value!r}.{remedy}"
        )
    return tuple(checked_count(f"{name}[{i}]", units) for i, units in enumerate(value))


def checked_dtype(name: str, value: Any) -> tf.DType:
    """Returns `value` as a floating-point `tf.DType`, or raises an error."""
    dtype = tf.as_dtype(value)
    if not dtype.is_floating:
        raise ValueError(f"`{name}` must be a floating-point type; got {dtype.name}.")
    return dtype


def checked_truncation(T: Any) -> int | None:
    """Returns the truncation `T` as an `int`, or `None` for untruncated resampling."""
    if T is None or (isinstance(T, (float, np.floating)) and math.inf == T):
        return None
    expected = "`T` must be an integer from 1 to 2**31 - 1, or None for untruncated resampling"
    if isinstance(T, (bool, np.bool_)) or not isinstance(T, (int, np.integer)):
        raise TypeError(f"{expected}; got {T!r} of type {type(T).__name__}.")
    if not 1 <= T < 2**31:
        raise ValueError(f"{expected}; got {T!r}.")
    return int(T)


def truncation_of_call(T: Any, default: int | None, validate: bool) -> int | tf.Tensor | None:
    """Returns the truncation of one call of `log_prob`, which may be a scalar tensor.

    Args:
      T: `UNSET`, or as for `checked_truncation`, or a scalar tensor or variable, real or integer.
      default: Truncation if `T` is `UNSET`.
      validate: Whether to check the value of a tensor also in graphs.
    """
    if T is UNSET:
        return default
    if not (tf.is_tensor(T) or isinstance(T, tf.Variable)):
        return checked_truncation(T)
    T = tf.convert_to_tensor(T)
    expected = "`T` as a tensor must be a real number or an integer, of shape []"
    if not (T.dtype.is_floating or T.dtype.is_integer):
        raise TypeError(f"{expected}; got type {T.dtype.name}.")
    if T.shape.rank not in (0, None):
        raise ValueError(f"{expected}; got shape {tuple(T.shape)}.")
    if tf.executing_eagerly() and not T >= 1:
        raise ValueError(f"`T` must be at least 1; got {T.numpy()!r}.")
    if not validate:
        return T
    check = tf.debugging.assert_greater_equal(T, tf.ones([], T.dtype), "`T` must be at least 1.")
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(T)


def check_sample_shape(sample_shape: Any) -> None:
    """Raises if `sample_shape` is not a shape. Tensors of a graph are not checked."""
    if isinstance(sample_shape, tf.TensorShape):
        return
    if tf.is_tensor(sample_shape) or isinstance(sample_shape, tf.Variable):
        if not tf.executing_eagerly():
            return
        shape = sample_shape.numpy()
    else:
        shape = np.asarray(sample_shape)
    expected = "`sample_shape` must be a non-negative integer or a shape of such integers"
    if shape.size and not np.issubdtype(shape.dtype, np.integer):
        raise TypeError(f"{expected}; got {sample_shape!r}.")
    if np.any(shape < 0):
        raise ValueError(f"{expected}; got {sample_shape!r}.")


def checked_target(target_log_prob: Any, log_proposal: tf.Tensor) -> tf.Tensor:
    """Returns `target_log_prob` as a tensor of the type and shape of the proposal's log density."""
    target_log_prob = tf.convert_to_tensor(target_log_prob, dtype_hint=log_proposal.dtype)
    if target_log_prob.dtype != log_proposal.dtype:
        raise TypeError(
            f"`target_log_prob` has type {target_log_prob.dtype.name}; expected "
            f"{log_proposal.dtype.name}, the type of the proposal's log_prob."
        )
    if not target_log_prob.shape.is_compatible_with(log_proposal.shape):
        raise ValueError(
            f"`target_log_prob` has shape {tuple(target_log_prob.shape)}; expected "
            f"{tuple(log_proposal.shape)}, one log density for each z. Sum over the dimensions of "
            "an event with `tfd.Independent`."
        )
    return target_log_prob


def check_accept_dtype(accept_dtype: tf.DType, proposal_dtype: tf.DType) -> None:
    """Raises if a(z) and the proposal's log density have different precisions.

    Half precision proposals are evaluated with an a(z) in `float32`.
    """
    if proposal_dtype not in (accept_dtype, tf.float16, tf.bfloat16):
        raise TypeError(
            f"`accept_fn` returned {accept_dtype.name}, but the proposal's log_prob is "
            f"{proposal_dtype.name}. Return {proposal_dtype.name} from `accept_fn`, too."
        )
