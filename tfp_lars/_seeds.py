"""Stateless seeds from what users pass as `seed`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _compat

__all__ = ["integers", "new_seed", "stateless_seed"]


def stateless_seed(seed: Any, name: str = "seed") -> tf.Tensor:
    """Returns an `int32[2]` seed, the same for the same `seed` in eager mode and in graphs.

    TFP's `sanitize_seed` maps an `int` to a different pair at every call. Its auto-batched joint
    distributions rely on this: they trace one draw and repeat it.

    Args:
      seed: Python `int`, a stateless seed (two integers), or a function that returns one of these,
        such as `tfp.util.SeedStream`.
      name: Argument name for error messages.

    Returns:
      seed: `int32[2]`.

    Raises:
      TypeError: If `seed` is not made of integers.
      ValueError: If `seed` has another shape than `[]` (Python `int`) or `[2]`.
    """
    seed = seed() if callable(seed) else seed
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        if _compat.in_autobatched_joint_distribution():
            return tfp.random.sanitize_seed(int(seed))
        low, high = int(seed) & 0xFFFFFFFF, (int(seed) >> 32) & 0xFFFFFFFF
        return tf.constant(np.array([low, high], np.uint32).view(np.int32))
    expected = "expected a Python int, or a stateless seed: a tensor of two integers, shape [2]"
    try:
        pair = tf.convert_to_tensor(seed)
    except (TypeError, ValueError):
        raise TypeError(f"`{name}` is {seed!r}; {expected}.") from None
    if not pair.dtype.is_integer:
        raise TypeError(f"`{name}` is {seed!r} of type {pair.dtype.name}; {expected}.")
    if not pair.shape.is_compatible_with([2]):
        remedy = " Pass `int(seed)`, or stack two numbers." if pair.shape.rank == 0 else ""
        raise ValueError(f"`{name}` has shape {tuple(pair.shape)}; {expected}.{remedy}")
    return tf.ensure_shape(tf.cast(pair, tf.int32), [2])


def new_seed() -> tf.Tensor:
    """Returns a new `int32[2]` seed that follows `tf.random.set_seed`."""
    return tfp.random.sanitize_seed(None)


def integers(seed: Any) -> Iterator[int]:
    """Yields independent Python integers for libraries that take these as seeds.

    Args:
      seed: Python `int`, stateless seed, or `None` for one that follows `tf.random.set_seed`.
    """
    pair = new_seed() if seed is None else stateless_seed(seed)
    rng = np.random.default_rng(np.asarray(pair).view(np.uint32))
    while True:
        yield int(rng.integers(2**31))
