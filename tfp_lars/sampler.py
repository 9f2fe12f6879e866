"""Exact draws from p_T: streams of candidates, accepted, or kept as the T-th.

The sequential sampler draws a candidate, keeps it if it is accepted or if it is the T-th
since the last kept one, and begins again. Laid end to end, its runs are one stream of
candidates, in which candidate `i` is kept when it is accepted, or when its distance `k`
from the last accepted one is a multiple of `T`. The distance needs no loop over candidates,
so a block of them is decided at once, and what is left open at its end is carried over.
Each candidate is used exactly once: the draws are exact, independent, and cost no more
candidates than the sequential sampler needs, rounded up to blocks.

Taking what a fixed number of candidates yields would be biased: runs that are long would
be cut off at the end more often than short ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

__all__ = ["Draws", "block_size", "draw", "stateless_seed"]

# Blocks of this many candidates cost least: smaller ones pay for the loop and for waking threads,
# larger ones for leaving the cache. Below a few hundred, a block costs what the loop costs.
_CANDIDATES_PER_BLOCK = 16_384
_CANDIDATES_PER_SMALL_BLOCK = 256
_NUMBERS_PER_BLOCK = 2**20


class Draws(NamedTuple):
    """What `draw` returns.

    Attributes:
      samples: Shape `[n, M, E]`.
      attempts: Candidates that each draw took, the kept one included, `int32`, shape `[n, M]`.
      invalid: Whether a log acceptance probability was NaN or above 0, `bool`, shape `[]`.
      gave_up: Whether a draw took more than `max_attempts`, `bool`, shape `[]`. `samples` is then
        incomplete.
      acceptance_rate: Of the candidates seen, by stream, `float64`, shape `[M]`.
    """

    samples: tf.Tensor
    attempts: tf.Tensor
    invalid: tf.Tensor
    gave_up: tf.Tensor
    acceptance_rate: tf.Tensor


def stateless_seed(seed: int | tf.Tensor) -> tf.Tensor:
    """An `int32[2]` seed, the same for the same `seed` in eager mode and in graphs.

    TFP's own `sanitize_seed` maps an `int` to another pair at every call. Its auto-batched joint
    distributions count on that: they trace one draw, under a scope of this name, and repeat it.
    """
    if isinstance(seed, (int, np.integer)):
        if "iid_sample_fn_stateful_body" in tf.get_current_name_scope():
            return tfp.random.sanitize_seed(int(seed))
        low, high = int(seed) & 0xFFFFFFFF, (int(seed) >> 32) & 0xFFFFFFFF
        return tf.constant(np.array([low, high], np.uint32).view(np.int32))
    return tf.ensure_shape(tf.cast(seed, tf.int32), [2])


def block_size(
    missing: tf.Tensor,
    num_candidates: tf.Tensor,
    num_drawn: tf.Tensor,
    T: tf.Tensor,
    numbers_per_candidate: tf.Tensor,
) -> tf.Tensor:
    """How many candidates to draw next, for each stream.

    As many as the missing draws will take at the rate seen so far, and some more, lest a small
    block is missing in the end.

    Args:
      missing: Draws that a stream is short of, `int32`, shape `[]`.
      num_candidates: Seen so far by that stream, `int32` or `int64`, shape `[]`.
      num_drawn: Draws that came of these, `int32`, shape `[]`.
      T: Truncation, `int32`, 0 for none, shape `[]`.
      numbers_per_candidate: Over all streams, `int32`, shape `[]`; bounds the memory.

    Returns:
      block: `int32`, shape `[]`.
    """
    missing, seen = tf.cast(missing, tf.float32), tf.cast(num_candidates, tf.float32)
    # Half a draw is added, so that a rate is known before the first. At first it is a guess.
    attempts = tf.maximum(seen / (tf.cast(num_drawn, tf.float32) + 0.5), 2.0)
    limit = tf.where(T > 0, tf.cast(T, tf.float32), float(2**30))
    attempts = tf.minimum(attempts, limit)
    # The number of attempts has about the spread of a geometric law, its mean.
    wanted = attempts * (missing + tf.sqrt(missing))
    wanted = tf.maximum(wanted, _CANDIDATES_PER_SMALL_BLOCK)
    # No more than this can be needed.
    wanted = tf.minimum(tf.math.ceil(wanted), missing * limit)
    fits = _NUMBERS_PER_BLOCK // tf.maximum(numbers_per_candidate, 1)
    ceiling = tf.minimum(_CANDIDATES_PER_BLOCK, tf.maximum(fits, 16))
    return tf.maximum(tf.cast(tf.minimum(wanted, tf.cast(ceiling, tf.float32)), tf.int32), 1)


def draw(
    propose: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    log_accept_fn: Callable[[tf.Tensor], tf.Tensor],
    n: tf.Tensor,
    T: tf.Tensor,
    seed: tf.Tensor,
    *,
    num_streams: int | tf.Tensor,
    event_size: int | tf.Tensor,
    dtype: tf.DType,
    max_attempts: int,
) -> Draws:
    """Draws `n` samples from each of `M` streams.

    Args:
      propose: `(block, seed) -> z`, shape `[block] + batch + event`, `M` members in the batch
        and `E` numbers in the event.
      log_accept_fn: `z -> log a(z)`, shape `[block] + batch`.
      n: Number of draws from each stream, `int32`, shape `[]`.
      T: Truncation, `int32`, shape `[]`; 0 for resampling without end.
      seed: `int32[2]`.
      num_streams: `M`.
      event_size: `E`.
      dtype: Of `z`.
      max_attempts: Without end, how many candidates a draw may take before it is given up.

    Returns:
      draws: See `Draws`.
    """
    n, T = tf.convert_to_tensor(n, tf.int32), tf.convert_to_tensor(T, tf.int32)
    M, E = num_streams, event_size
    # As `tf.random.fold_in` does it, but once for all blocks.
    keys = tf.random.stateless_uniform([2], seed, minval=None, maxval=None, dtype=tf.int32)
    rows = _Scattered if _is_vectorized() else _InPlace

    def out_of_patience(state):
        waiting = tf.logical_and(state.count < n, state.since >= max_attempts)
        return tf.logical_and(tf.equal(T, 0), tf.reduce_any(waiting))

    def unfinished(state):
        return tf.logical_and(
            tf.reduce_any(state.count < n), tf.logical_not(out_of_patience(state))
        )

    def step(state):
        fewest = tf.reduce_min(state.count)  # the slowest stream sets the time
        block = block_size(n - fewest, state.num_candidates, fewest, T, tf.convert_to_tensor(M * E))
        z = propose(block, tf.stack([keys[0], state.num_blocks]))
        log_accept = tf.reshape(log_accept_fn(z), [block, M])
        accepted = _accept(log_accept, tf.stack([keys[1], state.num_blocks]))  # [block, M]
        kept, attempts, since = _keep(tf.transpose(accepted), state.since, T)  # [M, block]
        kept_before = tf.cumsum(tf.cast(kept, tf.int32), axis=1, exclusive=True)
        position = state.count[:, tf.newaxis] + kept_before
        row = position * M + tf.range(M)[:, tf.newaxis]
        row = tf.where(tf.logical_and(kept, position < n), row, -1)
        row, take = rows.select(tf.reshape(tf.transpose(row), [block * M]))
        z = take(tf.reshape(z, [block * M, E]))
        z = _mark_nan(z, take(tf.reshape(log_accept, [block * M, 1])))
        attempts = take(tf.reshape(tf.transpose(attempts), [block * M]))
        return [
            _State(
                num_blocks=state.num_blocks + 1,
                num_candidates=state.num_candidates + tf.cast(block, tf.int64),
                since=since,
                count=tf.minimum(n, state.count + tf.reduce_sum(tf.cast(kept, tf.int32), axis=1)),
                samples=rows.write(state.samples, row, z),
                attempts=rows.write(state.attempts, row, attempts),
                num_accepted=state.num_accepted
                + tf.reduce_sum(tf.cast(accepted, tf.int64), axis=0),
                invalid=tf.logical_or(state.invalid, _any_invalid(log_accept)),
            )
        ]

    state = _State(
        num_blocks=tf.constant(0),
        num_candidates=tf.zeros([], tf.int64),
        since=tf.zeros([M], tf.int32),
        count=tf.zeros([M], tf.int32),
        samples=rows.empty(n * M, E, dtype=dtype),
        attempts=rows.empty(n * M, dtype=tf.int32),
        num_accepted=tf.zeros([M], tf.int64),
        invalid=tf.constant(False),
    )
    (state,) = tf.while_loop(unfinished, step, [state])
    num_candidates = tf.cast(state.num_candidates, tf.float64)
    return Draws(
        samples=tf.reshape(rows.result(state.samples), [n, M, E]),
        attempts=tf.reshape(rows.result(state.attempts), [n, M]),
        invalid=state.invalid,
        gave_up=out_of_patience(state),
        acceptance_rate=tf.cast(state.num_accepted, tf.float64) / tf.maximum(num_candidates, 1.0),
    )


class _State(NamedTuple):
    """What the loop of `draw` carries from block to block."""

    num_blocks: tf.Tensor
    num_candidates: tf.Tensor  # [], of each stream
    since: tf.Tensor  # [M], candidates since the last accepted one (modulo T)
    count: tf.Tensor  # [M], draws made
    samples: tf.Tensor  # [n * M, E]
    attempts: tf.Tensor  # [n * M]
    num_accepted: tf.Tensor  # [M]
    invalid: tf.Tensor  # []


class _InPlace:
    """Collects rows in the memory of the result.

    `tf.tensor_scatter_nd_update` would copy all of it for each block: it writes in place only where
    TF can see that nothing else will read, and in a loop it does not see that.
    """

    @staticmethod
    def empty(num_rows, *shape, dtype):
        # Unlike zeros, never a constant of the graph, which the next call would find written on.
        return tf.raw_ops.Empty(shape=tf.stack([num_rows, *shape]), dtype=dtype, init=True)

    @staticmethod
    def select(row):
        """Rows that are not negative, shape `[K]`, and a function that takes what is theirs."""
        kept = tf.where(row >= 0)[:, 0]
        return tf.gather(row, kept), lambda values: tf.gather(values, kept)

    @staticmethod
    def write(tensor, row, values):
        """Writes `values[k]` to `tensor[row[k]]`."""
        return tf.raw_ops.InplaceUpdate(x=tensor, i=row, v=values)

    @staticmethod
    def result(tensor):
        return tensor


class _Scattered:
    """The same for `tf.vectorized_map`, which takes neither that op nor sizes known only later.

    What is not kept goes to one more row at the end.
    """

    @staticmethod
    def empty(num_rows, *shape, dtype):
        return tf.zeros(tf.stack([num_rows + 1, *shape]), dtype)

    @staticmethod
    def select(row):
        return row, lambda values: values

    @staticmethod
    def write(tensor, row, values):
        row = tf.where(row >= 0, row, tf.shape(tensor)[0] - 1)
        return tf.tensor_scatter_nd_update(tensor, row[:, tf.newaxis], values)

    @staticmethod
    def result(tensor):
        return tensor[:-1]


def _is_vectorized() -> bool:
    """Whether this is being traced by `tf.vectorized_map`, which leaves no other sign."""
    return "loop_body" in tf.get_current_name_scope().split("/")


def _accept(log_accept: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Accepts with probability `a`; a NaN is let through, to be seen.

    The uniform numbers have 53 bits: with the 23 of float32, everything of `a < 1e-7` would
    be accepted at a rate of 1e-7, whatever its `a`.
    """
    u = tf.random.stateless_uniform(tf.shape(log_accept), seed, dtype=tf.float64)
    accepted = tf.math.log(u) < tf.cast(log_accept, tf.float64)
    return tf.logical_or(accepted, tf.math.is_nan(log_accept))


def _keep(
    accepted: tf.Tensor, since: tf.Tensor, T: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Which candidates of a block become draws.

    Args:
      accepted: `bool`, shape `[M, block]`.
      since: Candidates since the last accepted one before the block, shape `[M]`.
      T: Truncation, 0 for none, shape `[]`.

    Returns:
      kept: `bool`, shape `[M, block]`.
      attempts: Candidates since the last kept one, itself included, shape `[M, block]`.
      since: The same as above, after the block.
    """
    index = tf.range(tf.shape(accepted)[1])  # [block]
    accepted_up_to = tf.cumsum(tf.cast(accepted, tf.int32), axis=1)
    accepted_before = accepted_up_to - tf.cast(accepted, tf.int32)
    # The r-th accepted candidate stands where the running count first reaches r.
    last_accepted = tf.where(
        accepted_before > 0,
        tf.searchsorted(accepted_up_to, accepted_before),
        -1 - since[:, tf.newaxis],
    )
    distance = index - last_accepted  # from 1
    period = tf.where(T > 0, T, tf.int32.max)
    attempts = (distance - 1) % period + 1
    kept = tf.logical_or(accepted, tf.equal(attempts, period))
    since = tf.where(accepted[:, -1], 0, distance[:, -1] % period)
    return kept, attempts, since


def _any_invalid(log_accept: tf.Tensor) -> tf.Tensor:
    # Rounding may carry a probability a little above 1. `not (x <= 1e-5)` would be shorter, but
    # TF's graph optimizer turns it into `x > 1e-5`, which is false for NaN.
    return tf.reduce_any(tf.logical_or(tf.math.is_nan(log_accept), log_accept > 1e-5))


def _mark_nan(z: tf.Tensor, log_accept: tf.Tensor) -> tf.Tensor:
    """Draws of unknown probability come out as NaN: rejecting them would bend the rest."""
    if not z.dtype.is_floating:
        return z
    return tf.where(tf.math.is_nan(log_accept), tf.constant(np.nan, z.dtype), z)
