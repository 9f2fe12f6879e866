"""A run of batches that can be looked at, stopped and continued."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np
import tensorflow as tf

from tfp_lars.normalizer.batch_sums import Sums, add_sums
from tfp_lars.normalizer.log_normalizer import LogNormalizer

__all__ = ["BatchFn", "Method", "Run", "State"]

_BATCHES_PER_CHUNK = 64


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """What a run has computed so far. It holds NumPy arrays only and can be pickled.

    Attributes:
      seed: Stateless seed, `int32[2]`.
      num_samples: Number of draws.
      num_batches: Number of batches of each replicate.
      sums: Sums for each replicate and each kind of value.
      fingerprint: Values that identify the distribution.
    """

    seed: np.ndarray
    num_samples: int
    num_batches: int
    sums: tuple[tuple[Sums, ...], ...]
    fingerprint: np.ndarray


class BatchFn(Protocol):
    """Sums over numbered batches, see `BatchSums`."""

    def __call__(
        self, first: int, stride: int, num_batches: int, batch_size: int, seed: tf.Tensor
    ) -> list[Sums]:
        """Returns the sums for each kind of value."""
        ...


class Method(Protocol):
    """A way to estimate Z from batches of draws."""

    name: str
    num_replicates: int  # independent parts of the draws, for errors without a formula
    draws_per_value: int
    sums: BatchFn

    def result(self, state: State) -> LogNormalizer:
        """Returns the estimate from the sums so far, or raises if they are invalid."""
        ...

    def error(self, estimate: LogNormalizer) -> float:
        """Returns what `target_stderr` is compared with."""
        ...


class Run:
    """Draws batches with a method.

    Args:
      method: The method.
      batch_size: Number of draws in each batch.
      state: State to continue from. A new run has 0 samples and empty sums.
    """

    def __init__(self, method: Method, batch_size: int, state: State):
        self._method = method
        # Draws come in groups of this size: the same number for each replicate.
        self.unit = method.num_replicates * method.draws_per_value
        self._batch_size = max(1, batch_size // method.draws_per_value) * method.draws_per_value
        self._chunk = 1
        self.state = state

    def round_up(self, num_samples: int) -> int:
        """Returns the smallest possible number of draws that is at least `num_samples`."""
        return -(-num_samples // self.unit) * self.unit

    def advance(self, goal: int) -> None:
        """Draws a chunk of batches, at most up to `goal` draws in total, a multiple of `unit`."""
        state, method = self.state, self._method
        missing = (goal - state.num_samples) // method.num_replicates
        size = min(self._batch_size, missing)
        # Chunks grow, so that the first result appears soon and later ones cost little. They do not
        # depend on the time that they take: all workers must draw the same ones.
        self._chunk = min(2 * self._chunk, _BATCHES_PER_CHUNK)
        chunk = min(self._chunk, missing // size)
        stride, seed = method.num_replicates, tf.constant(state.seed)
        new = [
            method.sums(stride * state.num_batches + i, stride, chunk, size, seed)
            for i in range(method.num_replicates)
        ]
        old = state.sums or [[None] * len(kinds) for kinds in new]
        self.state = dataclasses.replace(
            state,
            num_samples=state.num_samples + chunk * size * method.num_replicates,
            num_batches=state.num_batches + chunk,
            sums=tuple(
                tuple(add_sums(a, b) for a, b in zip(*pair, strict=True))
                for pair in zip(old, new, strict=True)
            ),
        )
