"""Sums over batches of random values, in constant memory and in float64.

Values are given by their logs. A sum is stored relative to its largest term, so that values of
exp(-1e4) are as precise as values near 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfp_lars._traced_once import TracedOnce
from tfp_lars.normalizer.training_estimate import LOG_ZERO

__all__ = ["BatchSums", "Sums", "add_sums"]


class Sums(NamedTuple):
    """Sums of values `v = exp(log v)`, for each batch member.

    Attributes:
      count: Number of values, shape `[]`.
      largest: The largest log v, shape `B`.
      total: Sum of `v / exp(largest)`, shape `B`.
      squares: Sum of `(v / exp(largest))**2`, shape `B`.
    """

    count: Any  # arrays; tensors in graphs
    largest: Any
    total: Any
    squares: Any

    @property
    def log_mean(self) -> np.ndarray:
        """Log of the mean; -inf if all values are 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.total) + self.largest - np.log(self.count)

    @property
    def relative_square(self) -> np.ndarray:
        """Mean of the squares, divided by the square of the mean."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.count * self.squares / self.total**2

    @property
    def effective_count(self) -> np.ndarray:
        """`(sum of v)**2 / (sum of v**2)`: the number of equal values with the same error."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.squares > 0.0, self.total**2 / self.squares, 0.0)


def add_sums(a: Sums | None, b: Sums) -> Sums:
    """Returns the sums over the values of both; `None` stands for no values."""
    if a is None:
        return b
    largest = np.maximum(a.largest, b.largest)
    of_a, of_b = np.exp(a.largest - largest), np.exp(b.largest - largest)
    return Sums(
        a.count + b.count,
        largest,
        a.total * of_a + b.total * of_b,
        a.squares * of_a**2 + b.squares * of_b**2,
    )


class BatchSums:
    """Sums over numbered batches, in a graph that is traced once.

    Args:
      log_values_fn: `(n, seed) -> logs of values`, for `n` draws: a list of tensors, each of shape
        `[number of values] + B`. Each tensor has its own sums.
      batch_shape_fn: Returns the batch shape `B` as a tensor.
      num_kinds: Length of that list.
    """

    def __init__(
        self,
        log_values_fn: Callable[[tf.Tensor, tf.Tensor], list[tf.Tensor]],
        batch_shape_fn: Callable[[], tf.Tensor],
        num_kinds: int = 1,
    ):
        self._log_values_fn = log_values_fn
        self._batch_shape_fn = batch_shape_fn
        self._num_kinds = num_kinds
        self._traced = TracedOnce(self.add_up)

    def __call__(
        self, first: int, stride: int, num_batches: int, batch_size: int, seed: tf.Tensor
    ) -> list[Sums]:
        """Returns the sums over the batches `first`, `first + stride`, ..., for each kind of value.

        Args:
          first: Number of the first batch.
          stride: Distance of the numbers.
          num_batches: Number of batches.
          batch_size: Number of draws in each batch.
          seed: Stateless seed, `int32[2]`. Each batch derives its own from this and its number.
        """
        numbers = [tf.constant(i) for i in (first, stride, num_batches, batch_size)]
        return as_sums(self._traced(*numbers, seed))

    def add_up(
        self,
        first: tf.Tensor,
        stride: tf.Tensor,
        num_batches: tf.Tensor,
        batch_size: tf.Tensor,
        seed: tf.Tensor,
    ) -> list[tf.Tensor]:
        """Same as a call, for graphs. Returns the fields of all sums in one list."""

        def add_batch(i, *sums):
            key = tf.random.fold_in(seed, first + i * stride)
            values = self._log_values_fn(batch_size, key)  # pyright: ignore[reportArgumentType]
            added = [
                _add_values(Sums(*sums[4 * k : 4 * k + 4]), tf.cast(v, tf.float64))
                for k, v in enumerate(values)
            ]
            return i + 1, *(field for kind in added for field in kind)

        zero = tf.constant(0.0, tf.float64)
        zeros = tf.zeros(self._batch_shape_fn(), tf.float64)
        nothing = [zero, zeros + LOG_ZERO, zeros, zeros]
        _, *sums = tf.while_loop(
            lambda i, *_: i < num_batches, add_batch, [0, *nothing * self._num_kinds]
        )
        return sums


def as_sums(fields: list[tf.Tensor]) -> list[Sums]:
    """Returns the results of `BatchSums.add_up` as arrays."""
    arrays = [np.asarray(field) for field in fields]
    return [Sums(*arrays[k : k + 4]) for k in range(0, len(arrays), 4)]


def _add_values(sums: Sums, log_values: tf.Tensor) -> Sums:
    """Adds values of shape `[n] + B`."""
    largest = tf.maximum(sums.largest, tf.reduce_max(log_values, axis=0))
    values = tf.exp(log_values - largest)
    shrink = tf.exp(sums.largest - largest)
    return Sums(
        sums.count + tf.cast(tf.shape(log_values)[0], tf.float64),
        largest,
        sums.total * shrink + tf.reduce_sum(values, axis=0),
        sums.squares * shrink**2 + tf.reduce_sum(tf.square(values), axis=0),
    )
