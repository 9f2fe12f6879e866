"""Where the sampler writes its draws: in place, or by scatter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import tensorflow as tf

from tfp_lars import _compat

__all__ = ["InPlace", "Scatter", "Store", "default_store"]

Select = Callable[[tf.Tensor], tf.Tensor]


class Store(Protocol):
    """Collects rows of a tensor, block by block.

    Attributes:
      static_blocks: Whether all blocks must have one size that is known when the graph is traced.
    """

    static_blocks: bool

    def empty(self, num_rows: tf.Tensor, *shape: int | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Returns a buffer for `num_rows` rows."""
        ...

    def select(self, row: tf.Tensor) -> tuple[tf.Tensor, Select]:
        """Returns the rows to write, and a function that selects their values.

        Args:
          row: Target row of each value, `int32`, shape `[N]`; negative for values to drop.
        """
        ...

    def write(self, buffer: tf.Tensor, row: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """Returns the buffer with `values[k]` in `row[k]`."""
        ...

    def result(self, buffer: tf.Tensor) -> tf.Tensor:
        """Returns the collected rows."""
        ...


class InPlace:
    """Writes to the memory of the result. The default."""

    static_blocks = False

    def empty(self, num_rows, *shape, dtype):
        return _compat.allocate(tf.stack([num_rows, *shape]), dtype)

    def select(self, row):
        kept = tf.where(row >= 0)[:, 0]
        return tf.gather(row, kept), lambda values: tf.gather(values, kept)

    def write(self, buffer, row, values):
        return _compat.write_rows(buffer, row, values)

    def result(self, buffer):
        return buffer


class Scatter:
    """Writes by scatter, for XLA and `tf.vectorized_map`, which have no op that writes in place.

    Dropped values go to an extra last row.

    Args:
      static_blocks: Whether all blocks must have one size, which XLA needs.
    """

    def __init__(self, static_blocks: bool):
        self.static_blocks = static_blocks

    def empty(self, num_rows, *shape, dtype):
        return tf.zeros(tf.stack([num_rows + 1, *shape]), dtype)

    def select(self, row):
        return row, lambda values: values

    def write(self, buffer, row, values):
        row = tf.where(row >= 0, row, tf.shape(buffer)[0] - 1)
        return tf.tensor_scatter_nd_update(buffer, row[:, tf.newaxis], values)

    def result(self, buffer):
        return buffer[:-1]


def default_store() -> Store:
    """Returns the fastest store that works where the code is being traced."""
    in_xla = _compat.in_xla()
    if in_xla or _compat.in_vectorized_map() or not _compat.can_write_rows():
        return Scatter(static_blocks=in_xla)
    return InPlace()
