"""Argument checks that several modules share. Each returns the value in its canonical form."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = [
    "PROBABILITY_SLACK",
    "checked_count",
    "checked_dtype",
    "checked_hidden_units",
    "checked_positive",
]

# How far above 1 rounding may push a probability, and above 0 its log.
PROBABILITY_SLACK = 1e-5


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
    is_number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if not is_number:
        raise TypeError(message)
    if not np.isfinite(value) or int(value) != value or value < least:
        raise ValueError(message)
    if most is not None and value > most:
        raise ValueError(message)
    return int(value)


def checked_positive(name: str, value: Any) -> float:
    """Returns `value` as a positive and finite `float`, or raises an error."""
    message = f"`{name}` must be a positive number; got {value!r}."
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
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
