"""Plain Monte Carlo: sums of a(z) over batches of proposals, in constant memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _proposal_draws
from tfp_lars._arguments import PROBABILITY_SLACK
from tfp_lars._traced_once import TracedOnce
from tfp_lars.normalizer.training_estimate import LOG_ZERO

__all__ = ["ProposalSums", "add_sums", "default_batch_size", "log_mean_and_stderr"]

tfd = tfp.distributions

# Batches of 4k to 16k proposals are the fastest on a CPU.
_BATCH_SIZE = 8192
_NUMBERS_PER_BATCH = 2**23


class ProposalSums:
    """Sums of a(z) and of its square over batches of proposals, in a graph that is traced once.

    Args:
      proposal: Distribution with batch shape `B`.
      log_accept_fn: `z -> log a(z)`, shape sample + batch.
    """

    def __init__(self, proposal: tfd.Distribution, log_accept_fn: Callable[[tf.Tensor], tf.Tensor]):
        self._proposal = proposal
        self._log_accept_fn = log_accept_fn
        self._traced = TracedOnce(self._add_up)

    def __call__(
        self, first: int, num_batches: int, batch_size: int, seed: tf.Tensor
    ) -> list[np.ndarray]:
        """Returns the sums over some batches, each of shape `B`.

        Args:
          first: Number of the first batch.
          num_batches: Number of batches.
          batch_size: Number of proposals in each batch.
          seed: Stateless seed, `int32[2]`. Each batch derives its own from this and its number.

        Returns:
          sums: The largest log a(z), and the sums of a(z) and of its square, divided by that
            largest a(z) and by its square.
        """
        numbers = [tf.constant(i) for i in (first, num_batches, batch_size)]
        return [np.asarray(s) for s in self._traced(*numbers, seed)]

    def _add_up(self, first, num_batches, batch_size, seed):
        def add_batch(i, largest, total, total_of_squares):
            # TensorFlow annotates `fold_in` as returning an `int`.
            key = tf.random.fold_in(seed, first + i)
            z = _proposal_draws.sample(self._proposal, batch_size, key)  # pyright: ignore[reportArgumentType]
            log_accept = tf.cast(self._log_accept_fn(z), tf.float64)
            new = tf.maximum(largest, tf.reduce_max(log_accept, axis=0))
            scaled = tf.exp(log_accept - new)
            shrink = tf.exp(largest - new)
            total = total * shrink + tf.reduce_sum(scaled, axis=0)
            total_of_squares = total_of_squares * shrink**2 + tf.reduce_sum(scaled**2, axis=0)
            return i + 1, new, total, total_of_squares

        zeros = tf.zeros(self._proposal.batch_shape_tensor(), tf.float64)
        _, *sums = tf.while_loop(
            lambda i, *_: i < num_batches, add_batch, [0, zeros + LOG_ZERO, zeros, zeros]
        )
        return sums


def default_batch_size(numbers_per_draw: int) -> int:
    """Returns a batch size that is fast and limits the memory."""
    return max(16, min(_BATCH_SIZE, _NUMBERS_PER_BATCH // max(1, numbers_per_draw)))


def add_sums(a: list[np.ndarray] | None, b: list[np.ndarray]) -> list[np.ndarray]:
    """Returns the sums over the batches of both; `None` stands for no batches."""
    if a is None:
        return b
    largest = np.maximum(a[0], b[0])
    return [
        largest,
        *(
            x * np.exp(power * (a[0] - largest)) + y * np.exp(power * (b[0] - largest))
            for power, x, y in zip((1, 2), a[1:], b[1:], strict=True)
        ),
    ]


def log_mean_and_stderr(sums: list[np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the log of the mean, and its standard error to first order."""
    largest, total, total_of_squares = sums
    if np.any(np.isnan(total)):
        raise ValueError("`accept_fn` returned NaN for a draw from the proposal.")
    if np.any(largest > PROBABILITY_SLACK):
        raise ValueError(
            f"`accept_fn` must return probabilities in [0, 1], but returned {np.exp(largest)}. If "
            "these are logits, pass from_logits=True."
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        log_mean = np.log(total) + largest - np.log(count)
        # Var[a] / E[a]^2; rounding must not make it negative.
        relative_variance = np.maximum(total_of_squares / total**2 * count - 1.0, 0.0)
        stderr = np.sqrt(relative_variance / max(count - 1, 1)) if count > 1 else np.inf
    return log_mean, np.where(np.isfinite(log_mean), stderr, np.inf)
