"""Draws from the proposal of a resampled distribution, in any number, and their log a."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

import tfp_lars


class ProposalDraws:
    """A numbered sequence of draws from the proposal, of which nothing is kept.

    They come in chunks, each a function of the seed and its number alone: what is to be seen
    again is drawn again, so that memory does not grow with the number of draws.

    Args:
      dist: A resampled distribution without a batch shape.
      seed: Python `int` of at most 31 bits.
      chunk_size: Draws at a time.
      draw: Instead of the proposal's `sample`, if there is more to a draw than what a judges:
        maps a number and a stateless seed to what is to be seen and to what is judged, both with
        that number as their leading dimension.
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
        """Logs of a at draws 0 to `num_draws - 1`, in order: pieces of float64 `[chunk_size]`.

        Args:
          num_draws: Altogether; the last piece is as short as it must be.
          progress: Whether to show a bar.
        """
        bar = keras.utils.Progbar(num_draws, unit_name="draw") if progress else None
        for start in range(0, num_draws, self.chunk_size):
            stop = min(num_draws, start + self.chunk_size)
            piece = self._log_accept(tf.constant(start // self.chunk_size)).numpy()
            yield piece[: stop - start].astype(np.float64)
            if bar is not None:
                bar.update(stop)

    def at(self, indices: np.ndarray) -> np.ndarray:
        """What is to be seen of the draws of these numbers, `[len(indices), ...]`."""
        numbers, offsets = np.divmod(indices, self.chunk_size)
        chunks = {n: self._draw(tf.constant(n, tf.int32)).numpy()[offsets[numbers == n]]
                  for n in np.unique(numbers)}  # fmt: skip
        draws = np.empty([len(indices), *next(iter(chunks.values())).shape[1:]], np.float32)
        for n, chunk in chunks.items():
            draws[numbers == n] = chunk
        return draws
