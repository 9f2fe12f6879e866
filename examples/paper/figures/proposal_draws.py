"""Streams draws from the proposal of a resampled distribution and their log a."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

import tfp_lars
from examples.common.progress import ProgressBar


class ProposalDraws:
    """A numbered sequence of draws from the proposal that uses constant memory.

    Draws are generated in chunks. A chunk depends only on the seed and on its number, so any draw
    can be regenerated instead of stored.

    Args:
      dist: A resampled distribution without a batch shape.
      seed: Python `int` of at most 31 bits.
      chunk_size: Number of draws in a chunk.
      draw: Optional replacement for the proposal's `sample`, for draws that have more parts than
        the input of a. Maps a number `n` and a stateless seed to a pair: the values that `at`
        returns, `[n, ...]`, and the inputs of a, `[n, ...]`.
    """

    def __init__(
        self,
        dist: tfp_lars.Resampled,
        seed: int,
        chunk_size: int = 8192,
        draw: Callable[[int, tf.Tensor], tuple[tf.Tensor, tf.Tensor]] | None = None,
    ):
        self.chunk_size = chunk_size

        def chunk(number):
            stateless_seed = tf.stack([seed, number])
            if draw is not None:
                return draw(chunk_size, stateless_seed)
            z = dist.proposal.sample(chunk_size, seed=stateless_seed)
            return z, z

        number = tf.TensorSpec([], tf.int32)
        self._draw = tf.function(
            lambda number: chunk(number)[0], input_signature=[number], autograph=False
        )
        self._log_accept = tf.function(
            lambda number: dist.accept_log_prob(chunk(number)[1]),
            input_signature=[number],
            autograph=False,
        )

    def log_accept(self, num_draws: int, *, progress: bool = False) -> Iterator[np.ndarray]:
        """Yields log a at draws 0 to `num_draws - 1`, in order: float64 `[chunk_size]` arrays.

        Args:
          num_draws: Total number of draws. The last array may be shorter than `chunk_size`.
          progress: Whether to show a progress bar.
        """
        bar = ProgressBar(num_draws, "draw") if progress else None
        for start in range(0, num_draws, self.chunk_size):
            stop = min(num_draws, start + self.chunk_size)
            piece = self._log_accept(tf.constant(start // self.chunk_size)).numpy()
            yield piece[: stop - start].astype(np.float64)
            if bar is not None:
                bar.update(stop)

    def at(self, indices: np.ndarray) -> np.ndarray:
        """Returns the draws with these indices, `[len(indices), ...]`."""
        numbers, offsets = np.divmod(indices, self.chunk_size)
        chunks = {n: self._draw(tf.constant(n, tf.int32)).numpy()[offsets[numbers == n]]
                  for n in np.unique(numbers)}  # fmt: skip
        draws = np.empty([len(indices), *next(iter(chunks.values())).shape[1:]], np.float32)
        for n, chunk in chunks.items():
            draws[numbers == n] = chunk
        return draws
