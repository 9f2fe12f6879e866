"""What `fit` trains on: arrays, tensors, data sets and functions, as batches of NumPy arrays."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["Sampled", "checked_array", "read"]

Part = tuple[np.ndarray, ...]  # samples and, if known, their log densities

_EXPECTED = "an array of numbers, a tensor, a `tf.data.Dataset`, or a function of a seed"
_FEWEST = 20  # samples
_MOST_HELD_OUT = 50_000  # samples of an array
_HELD_OUT_OF_STREAM = 10_000  # samples
_LARGEST_IN_MEMORY = 2**26  # numbers of a data set
_READ_AT_ONCE = 1024  # elements of a data set
_PIECE = 2**13  # samples of an array that are copied at once
_MOST_COINCIDENCES = 10  # training samples that equal held-out ones, in a stream of real numbers


@dataclasses.dataclass
class Sampled:
    """Held-out samples, and an infinite stream of training batches.

    Attributes:
      held_out: Shape `[M]` + batch + event.
      num_train: Number of training samples, `None` for a stream.
      batch_size: Number of samples of a batch.
      parts: Training samples in random order, in parts of any size.
    """

    held_out: np.ndarray
    num_train: int | None
    batch_size: int
    parts: Iterator[Part]

    def __post_init__(self):
        self._left: list[Part] = []

    def take(self, num_batches: int) -> Part:
        """Returns the next batches: samples and, if known, their log densities.

        Args:
          num_batches: Number of batches `K`.

        Returns:
          arrays: Shape `[K, batch_size]` + batch + event, and `[K, batch_size]` + batch.
        """
        wanted = num_batches * self.batch_size
        while sum(len(part[0]) for part in self._left) < wanted:
            self._left.append(next(self.parts))
        joined = [np.concatenate(arrays) for arrays in zip(*self._left, strict=True)]
        self._left = [tuple(array[wanted:] for array in joined)]
        lead = (num_batches, self.batch_size)
        return tuple(array[:wanted].reshape(lead + array.shape[1:]) for array in joined)


def read(
    samples: Any,
    shape: tf.TensorShape,
    batch_shape: tf.TensorShape,
    dtype: tf.DType,
    batch_size: int,
    validation_split: float,
    rng: np.random.Generator,
) -> Sampled:
    """Reads samples and sets some of them aside.

    Args:
      samples: An array, a tensor, a `tf.data.Dataset`, or a function of a seed.
      shape: Static shape of one sample, batch + event.
      batch_shape: Static batch shape of the distribution, the start of `shape`.
      dtype: Type of the distribution.
      batch_size: Number of samples of a batch.
      validation_split: Share of the samples to hold out, if their number is known.
      rng: Source of random numbers.

    Returns:
      sampled: Held-out samples and batches.
    """
    if isinstance(samples, tf.data.Dataset):
        chunks = _chunks_of(samples, shape, dtype)
        reader = chunks()
        endless = bool(samples.cardinality() == tf.data.INFINITE_CARDINALITY)
        start, ended = _head(reader, 1 if endless else _LARGEST_IN_MEMORY)
        if not start:
            raise ValueError("`samples` is a data set without elements.")
        array = np.concatenate(start)
        if not ended:
            num_held_out = _HELD_OUT_OF_STREAM
            if not endless:  # the data set may end soon
                num_held_out = max(2, min(num_held_out, len(array) // 2))
            parts = _repeated(array, reader, chunks, num_held_out)
            sampled = _stream(parts, num_held_out, batch_size, rng)
            if endless and dtype.is_floating:
                sampled.parts = _checked_for_repetition(sampled.parts, sampled.held_out)
            return sampled
    elif callable(samples) and not tf.is_tensor(samples) and not isinstance(samples, tf.Variable):
        parts = _drawn(samples, shape, batch_shape, dtype, rng)
        return _stream(parts, _HELD_OUT_OF_STREAM, batch_size, rng)
    else:
        array = checked_array(samples, shape, dtype)
    return _split(array, batch_size, validation_split, rng)


def checked_array(
    samples: Any, shape: tf.TensorShape, dtype: tf.DType, expected: str = _EXPECTED
) -> np.ndarray:
    """Returns samples as an array of shape `[N]` + `shape` and of type `dtype`, or raises.

    Args:
      samples: An array, a tensor, or what NumPy turns into an array.
      shape: Static shape of one sample, batch + event.
      dtype: Type of the distribution.
      expected: What `samples` may be, for the message of an error.
    """
    if tf.is_tensor(samples) and not hasattr(samples, "numpy"):
        raise TypeError(
            "`samples` is a symbolic tensor. Call this function outside of `tf.function` and Keras "
            "models."
        )
    try:
        array = np.asarray(samples)
        kind = tf.as_dtype(array.dtype)
    except (TypeError, ValueError):
        kind = tf.string
    if kind == tf.string:  # also any other object
        raise TypeError(f"`samples` must be {expected}; got {type(samples).__name__}.")
    _check_shape("samples", array, shape)
    if not (kind.is_floating or kind.is_integer or kind.is_bool):
        raise TypeError(f"`samples` has type {kind.name}; expected {dtype.name}.")
    if kind.is_floating and not dtype.is_floating:
        raise TypeError(
            f"`samples` has type {kind.name}, but the distribution is over {dtype.name}. Round the "
            "samples and cast them, or use a continuous distribution."
        )
    _check_finite("samples", array)
    with np.errstate(over="ignore"):  # reported below
        cast = array.astype(dtype.as_numpy_dtype)
    _check_finite("samples", cast, f" after the cast from {kind.name} to {dtype.name}")
    if not dtype.is_floating and np.any(cast != array):
        first = tuple(int(i) for i in np.argwhere(cast != array)[0])
        raise ValueError(
            f"`samples` has the value {array[first]} at index {first}, which is outside of "
            f"{dtype.name}, the type of the distribution. Give the distribution a larger integer "
            "type, or correct the sample."
        )
    return cast


def _check_shape(name: str, array: np.ndarray, shape: tf.TensorShape) -> None:
    expected = (None, *shape.as_list())
    if not tf.TensorShape(array.shape).is_compatible_with(expected):
        text = ", ".join("N" if n is None else str(n) for n in expected)
        text += "," if len(expected) == 1 else ""
        raise ValueError(
            f"`{name}` has shape {array.shape}; expected ({text}), one row for each of N samples "
            f"of shape {tuple(shape)}."
        )


def _check_finite(name: str, array: np.ndarray, when: str = "") -> None:
    if array.dtype.kind not in "fV":  # V: bfloat16
        return
    bad = ~np.isfinite(array)
    if np.any(bad):
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        num_nan = int(np.sum(np.isnan(array)))
        num_rows = len(np.unique(np.argwhere(bad)[:, 0]))
        raise ValueError(
            f"`{name}` has {num_nan} NaN and {int(np.sum(bad)) - num_nan} infinite values{when}, "
            f"in {num_rows} of {len(array)} rows. The first is at index {first}."
        )


def _split(
    array: np.ndarray, batch_size: int, validation_split: float, rng: np.random.Generator
) -> Sampled:
    """Holds out a random part of an array."""
    if len(array) == 0:
        raise ValueError(f"`samples` is empty: it has shape {array.shape}.")
    if len(array) < _FEWEST:
        raise ValueError(f"`samples` has {len(array)} rows; at least {_FEWEST} are needed.")
    _check_spread(array)
    order = rng.permutation(len(array))
    num_held_out = int(np.clip(round(validation_split * len(array)), 2, _MOST_HELD_OUT))
    num_train = len(array) - num_held_out
    if num_train < 1:
        raise ValueError(
            f"`validation_split={validation_split}` leaves none of {len(array)} samples to "
            "train on."
        )
    held_out, train = order[:num_held_out], order[num_held_out:]

    def epochs():
        while True:
            shuffled = rng.permutation(train)
            for first in range(0, num_train, _PIECE):
                yield (array[shuffled[first : first + _PIECE]],)

    return Sampled(array[held_out], num_train, min(batch_size, num_train), epochs())


def _check_spread(array: np.ndarray) -> None:
    if len(array) > 1 and np.all(array == array[0]):
        raise ValueError(
            f"`samples` is constant: all {len(array)} rows are equal. There is no density to fit."
        )


def _stream(
    parts: Iterator[Part], num_held_out: int, batch_size: int, rng: np.random.Generator
) -> Sampled:
    """Holds out the first samples of a stream."""
    start = [next(parts)]
    while sum(len(part[0]) for part in start) < num_held_out:
        start.append(next(parts))
    joined = tuple(np.concatenate(arrays) for arrays in zip(*start, strict=True))
    held_out = joined[0][:num_held_out]
    _check_spread(held_out)

    def shuffled():
        rest = tuple(array[num_held_out:] for array in joined)
        for part in itertools.chain([rest], parts):
            order = rng.permutation(len(part[0]))
            yield tuple(array[order] for array in part)

    return Sampled(held_out, None, batch_size, shuffled())


def _chunks_of(
    dataset: tf.data.Dataset, shape: tf.TensorShape, dtype: tf.DType
) -> Callable[[], Iterator[np.ndarray]]:
    """Returns a function that starts to read a data set, batched or not."""
    spec = dataset.element_spec
    if not isinstance(spec, tf.TensorSpec):
        raise TypeError(
            f"`samples` is a data set with elements {spec}; expected one tensor. Select it with "
            "`samples.map(lambda z, *others: z)`."
        )
    if spec.shape.rank == shape.rank:
        dataset = dataset.batch(_READ_AT_ONCE)
    elif spec.shape.rank != shape.rank + 1:
        raise ValueError(
            f"`samples` is a data set with elements of shape {spec.shape}; expected samples of "
            f"shape {tuple(shape)} or batches of them."
        )
    return lambda: (checked_array(chunk, shape, dtype) for chunk in dataset.as_numpy_iterator())


def _head(reader: Iterator[np.ndarray], most: int) -> tuple[list[np.ndarray], bool]:
    """Reads a data set until it ends or until `most` numbers have been read.

    Returns:
      start: What was read.
      ended: Whether the data set ended.
    """
    start, size = [], 0
    for chunk in reader:
        if len(chunk):
            start.append(chunk)
        size += chunk.size
        if size >= most:
            return start, False
    return start, True


def _repeated(
    start: np.ndarray,
    reader: Iterator[np.ndarray],
    chunks: Callable[[], Iterator[np.ndarray]],
    num_held_out: int,
) -> Iterator[Part]:
    """Yields the samples of a data set that does not fit into memory, again and again.

    The held-out samples, the first ones, are yielded once. Later they are known by their values,
    because a data set may be in another order each time it is read.

    Args:
      start: What was read to learn the size.
      reader: Reads the rest.
      chunks: Starts to read from the beginning.
      num_held_out: Number of held-out samples.
    """
    first = [start]
    while sum(map(len, first)) < num_held_out and (chunk := next(reader, None)) is not None:
        first.append(chunk)
    held_out = _keys(np.concatenate(first)[:num_held_out])
    for chunk in itertools.chain(first, reader):
        yield (chunk,)
    while True:
        num_read = num_kept = 0
        left = collections.Counter(held_out)  # how often each one is still to be dropped
        for chunk in chunks():
            num_read += len(chunk)
            keep = np.ones(len(chunk), bool)
            for i, key in enumerate(_keys(chunk)):
                if left[key]:
                    left[key] -= 1
                    keep[i] = False
            num_kept += np.count_nonzero(keep)
            if np.any(keep):
                yield (chunk[keep],)
        if not num_kept:
            raise ValueError(
                f"`samples` is a data set that had {num_read} samples when it was read again, too "
                "few to train on. Pass a data set that can be read several times, or an array."
            )


def _keys(array: np.ndarray) -> list[bytes]:
    """Returns a key for each row, equal for equal rows."""
    return [row.tobytes() for row in array]


def _checked_for_repetition(parts: Iterator[Part], held_out: np.ndarray) -> Iterator[Part]:
    """Yields training samples, or raises if held-out samples are among them."""
    known = set(_keys(held_out))
    num_known = 0
    for part in parts:
        num_known += sum(key in known for key in _keys(part[0]))
        if num_known >= _MOST_COINCIDENCES:
            raise ValueError(
                "`samples` is an infinite data set that repeats its samples, so that held-out "
                "samples would be trained on. Pass it without `.repeat()`: `fit` reads a data set "
                "as often as it needs to. If it draws new samples that can be equal, pass a "
                "function of a seed."
            )
        yield part


def _drawn(
    draw: Callable, shape: tf.TensorShape, batch_shape: tf.TensorShape, dtype: tf.DType, rng
) -> Iterator[Part]:
    """Yields fresh samples from a function of a seed."""
    while True:
        # Not negative, so that NumPy takes them, too.
        result = draw(tf.constant(rng.integers(2**31 - 1, size=2), tf.int32))
        has_log_prob = isinstance(result, (tuple, list))
        if has_log_prob and len(result) != 2:
            raise ValueError(
                f"`samples` returned {len(result)} values; expected samples, or samples and their "
                "log densities."
            )
        z = checked_array(result[0] if has_log_prob else result, shape, dtype)
        if len(z) == 0:
            raise ValueError(f"`samples` returned no samples: shape {z.shape}.")
        if not has_log_prob:
            yield (z,)
            continue
        log_prob = np.asarray(result[1])
        expected = (len(z), *batch_shape.as_list())
        if log_prob.shape != expected:
            raise ValueError(
                f"`samples` returned log densities of shape {log_prob.shape} for samples of shape "
                f"{z.shape}; expected {expected}. Sum over the dimensions of an event with "
                "`tfd.Independent`."
            )
        if not tf.as_dtype(log_prob.dtype).is_floating:
            raise TypeError(
                f"`samples` returned log densities of type {log_prob.dtype}; expected real numbers."
            )
        _check_finite("samples(seed)[1]", log_prob)
        # NumPy computes in float64. A distribution over integers computes in its own type.
        yield z, log_prob.astype(dtype.as_numpy_dtype) if dtype.is_floating else log_prob
