"""Exact draws from p_T, from streams of candidates.

A sequential sampler draws candidates and keeps each one that is accepted or that is the T-th since
the last kept one. Its candidates form one stream. A candidate is kept if it is accepted, or if its
distance from the last accepted one is a multiple of `T`. `decide` computes this for a whole block
of candidates at once and passes the incomplete run on to the next block. Each candidate is used
exactly once. The draws are exact and independent. They need as many candidates as those of a
sequential sampler, rounded up to blocks.

Returning all draws that a fixed number of candidates yields would be biased: the end of the stream
would cut off long runs more often than short ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _compat
from tfp_lars._arguments import PROBABILITY_SLACK
from tfp_lars._stores import Store, default_store

__all__ = ["Draws", "block_size", "decide", "draw"]

# Large blocks leave the cache; small ones are dominated by the overhead of the loop.
_CANDIDATES_PER_BLOCK = 16_384
_CANDIDATES_PER_SMALL_BLOCK = 256
_NUMBERS_PER_BLOCK = 2**20


class Draws(NamedTuple):
    """The result of `draw`.

    Attributes:
      samples: Shape `[n, M, E]`.
      attempts: Number of candidates for each draw, including the kept one, `int32`, shape `[n, M]`.
      count: Number of complete draws of each stream, `int32`, shape `[M]`. Untruncated resampling
        can give up; the draws from this number on then have arbitrary values. Otherwise it is `n`.
      acceptance_rate: Lowest share of accepted candidates over all streams, `float64`, shape `[]`.
        Meaningful for untruncated resampling only.
      invalid_accept: Whether a log acceptance probability was NaN or above 0, `bool`, shape `[]`.
      invalid_proposal: Whether this happened in a block in which a candidate was NaN, `bool`,
        shape `[]`.
    """

    samples: tf.Tensor
    attempts: tf.Tensor
    count: tf.Tensor
    acceptance_rate: tf.Tensor
    invalid_accept: tf.Tensor
    invalid_proposal: tf.Tensor


def decide(
    log_accept: tf.Tensor, since: tf.Tensor, T: tf.Tensor, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Decides which candidates of a block become draws.

    A candidate whose acceptance probability is NaN is kept: rejecting it would bias the sample.

    Args:
      log_accept: `log a(z)` of the candidates, shape `[block, M]`.
      since: Number of candidates since the last accepted one before the block, modulo `T`, `int32`,
        shape `[M]`.
      T: Truncation, `int32`, shape `[]`; 0 for untruncated resampling.
      seed: Stateless seed for the decisions, `int32[2]`.

    Returns:
      kept: Whether each candidate becomes a draw, `bool`, shape `[block, M]`.
      attempts: Number of candidates since the last kept one, including this one, `int32`, shape
        `[block, M]`.
      since: The value to pass with the next block, shape `[M]`.
    """
    accepted = _accept(log_accept, seed)
    period = tf.where(T > 0, T, tf.int32.max)
    attempts = tf.math.floormod(_distance_to_last_accepted(accepted, since) - 1, period) + 1
    kept = tf.logical_or(accepted, tf.equal(attempts, period))
    since = tf.where(accepted[-1], 0, tf.math.floormod(attempts[-1], period))
    return kept, attempts, since


def block_size(
    missing: tf.Tensor,
    num_candidates: tf.Tensor,
    num_drawn: tf.Tensor,
    T: tf.Tensor,
    numbers_per_candidate: tf.Tensor,
) -> tf.Tensor:
    """Returns how many candidates to draw next for each stream.

    This is the number of candidates still needed at the observed rate, plus a margin against a
    small last block.

    Args:
      missing: Number of draws that a stream still needs, `int32`, shape `[]`.
      num_candidates: Number of candidates drawn so far, `int32` or `int64`, shape `[]`.
      num_drawn: Number of draws made from them, `int32`, shape `[]`.
      T: Truncation, `int32`, 0 for none, shape `[]`.
      numbers_per_candidate: Over all streams, `int32`, shape `[]`. Limits the memory.

    Returns:
      block: `int32`, shape `[]`.
    """
    missing, seen = tf.cast(missing, tf.float32), tf.cast(num_candidates, tf.float32)
    # The extra half draw gives a rate before the first draw.
    attempts = tf.maximum(seen / (tf.cast(num_drawn, tf.float32) + 0.5), 2.0)
    limit = tf.where(T > 0, tf.cast(T, tf.float32), float(2**30))
    attempts = tf.minimum(attempts, limit)
    # The standard deviation of a geometric number of attempts is about its mean.
    wanted = attempts * (missing + tf.sqrt(missing))
    wanted = tf.maximum(wanted, _CANDIDATES_PER_SMALL_BLOCK)
    # The missing draws cannot need more than this.
    wanted = tf.minimum(tf.math.ceil(wanted), missing * limit)
    fits = _NUMBERS_PER_BLOCK // tf.maximum(numbers_per_candidate, 1)
    ceiling = tf.minimum(_CANDIDATES_PER_BLOCK, tf.maximum(fits, 16))
    return tf.maximum(tf.cast(tf.minimum(wanted, tf.cast(ceiling, tf.float32)), tf.int32), 1)


def draw(
    propose: Callable[[tf.Tensor | int, tf.Tensor], tf.Tensor],
    log_accept_fn: Callable[[tf.Tensor], tf.Tensor],
    n: tf.Tensor | int,
    T: tf.Tensor | int,
    seed: tf.Tensor,
    *,
    num_streams: int | tf.Tensor,
    event_size: int | tf.Tensor,
    dtype: tf.DType,
    max_attempts: int,
    store: Store | None = None,
) -> Draws:
    """Draws `n` samples from each of `M` streams.

    Args:
      propose: `(block, seed) -> z`, shape `[block] + batch + event`, with `M` batch members and
        `E` numbers per event.
      log_accept_fn: `z -> log a(z)`, shape `[block] + batch`.
      n: Number of draws from each stream, `int32`, shape `[]`.
      T: Truncation, `int32`, shape `[]`; 0 for untruncated resampling.
      seed: `int32[2]`.
      num_streams: `M`.
      event_size: `E`.
      dtype: Type of `z`.
      max_attempts: Untruncated resampling gives up a draw after this many candidates. This is
        checked after each block.
      store: Where to write the draws. By default the fastest store that works here.

    Returns:
      draws: See `Draws`.
    """
    static_n = tf.get_static_value(n)
    n, T = tf.convert_to_tensor(n, tf.int32), tf.convert_to_tensor(T, tf.int32)
    M, E = num_streams, event_size
    store = store or default_store()
    fixed_block = _fixed_block(static_n, M * E) if store.static_blocks else None
    # The same as `tf.random.fold_in` with the number of the block, but hashed once for all blocks.
    keys = tf.random.stateless_uniform(
        [2],
        seed,
        minval=None,  # pyright: ignore[reportArgumentType]  # None means all integers
        maxval=None,
        dtype=tf.int32,
    )

    def gave_up(state):
        waiting = tf.logical_and(state.count < n, state.since >= max_attempts)
        return tf.logical_and(tf.equal(T, 0), tf.reduce_any(waiting))

    def unfinished(state):
        return tf.logical_and(tf.reduce_any(state.count < n), tf.logical_not(gave_up(state)))

    def step(state):
        fewest = tf.reduce_min(state.count)  # the slowest stream determines the block
        block = fixed_block or block_size(
            n - fewest, state.num_candidates, fewest, T, tf.convert_to_tensor(M * E)
        )
        z = propose(block, tf.stack([keys[0], state.num_blocks]))
        log_accept = tf.reshape(log_accept_fn(z), [block, M])
        kept, attempts, since = decide(
            log_accept, state.since, T, tf.stack([keys[1], state.num_blocks])
        )
        num_kept = tf.cumsum(tf.cast(kept, tf.int32), axis=0)  # [block, M]
        position = state.count + num_kept - 1  # of the kept ones among the draws of their stream
        row = tf.where(tf.logical_and(kept, position < n), position * M + tf.range(M), -1)
        row, select = store.select(tf.reshape(row, [block * M]))
        z = select(tf.reshape(z, [block * M, E]))
        values = _mark_nan(z, select(tf.reshape(log_accept, [block * M, 1])))
        attempts = select(tf.reshape(attempts, [block * M]))
        invalid = _any_invalid(log_accept)
        return [
            _State(
                num_blocks=state.num_blocks + 1,
                num_candidates=state.num_candidates + tf.cast(block, tf.int64),
                since=since,
                count=tf.minimum(n, state.count + num_kept[-1]),
                samples=store.write(state.samples, row, values),
                attempts=store.write(state.attempts, row, attempts),
                invalid_accept=tf.logical_or(state.invalid_accept, invalid),
                invalid_proposal=tf.logical_or(
                    state.invalid_proposal,
                    tf.cond(invalid, lambda: _any_nan(z), lambda: tf.constant(False)),
                ),
            )
        ]

    state = _State(
        num_blocks=tf.constant(0),
        num_candidates=tf.zeros([], tf.int64),
        since=tf.zeros([M], tf.int32),
        count=tf.zeros([M], tf.int32),
        samples=store.empty(n * M, E, dtype=dtype),
        attempts=store.empty(n * M, dtype=tf.int32),
        invalid_accept=tf.constant(False),
        invalid_proposal=tf.constant(False),
    )
    (state,) = tf.while_loop(unfinished, step, [state])
    rates = tf.cast(state.count, tf.float64) / tf.cast(
        tf.maximum(state.num_candidates, 1), tf.float64
    )
    return Draws(
        samples=tf.reshape(store.result(state.samples), [n, M, E]),
        attempts=tf.reshape(store.result(state.attempts), [n, M]),
        count=state.count,
        acceptance_rate=tf.reduce_min(rates),
        invalid_accept=state.invalid_accept,
        invalid_proposal=state.invalid_proposal,
    )


class _State(NamedTuple):
    """The state of the loop of `draw`."""

    num_blocks: tf.Tensor
    num_candidates: tf.Tensor  # [], of each stream
    since: tf.Tensor  # [M], candidates since the last accepted one (modulo T)
    count: tf.Tensor  # [M], draws made
    samples: tf.Tensor  # [n * M, E]
    attempts: tf.Tensor  # [n * M]
    invalid_accept: tf.Tensor  # []
    invalid_proposal: tf.Tensor  # []


def _fixed_block(n: int | None, numbers_per_candidate: int | tf.Tensor) -> int:
    """Returns one size for all blocks, for stores that need static sizes."""
    numbers = tf.get_static_value(numbers_per_candidate)
    fits = _NUMBERS_PER_BLOCK // max(int(numbers), 1) if numbers is not None else 256
    ceiling = min(_CANDIDATES_PER_BLOCK, max(fits, 16))
    wanted = 4 * int(n) if n is not None else ceiling
    return min(max(wanted, _CANDIDATES_PER_SMALL_BLOCK), ceiling)


def _accept(log_accept: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Accepts with probability `a`, and where `a` is NaN.

    The uniform numbers have 52 bits. With the 23 of float32, every candidate with `a < 1e-7` would
    be accepted at a rate of 1e-7.
    """
    u = tf.random.stateless_uniform(tf.shape(log_accept), seed, dtype=tf.float64)
    # Zeros become half of the spacing of the uniform numbers, so that the log is finite.
    accepted = tf.math.log(tf.maximum(u, 2.0**-53)) < tf.cast(log_accept, tf.float64)
    return tf.logical_or(accepted, tf.math.is_nan(log_accept))


def _distance_to_last_accepted(accepted: tf.Tensor, since: tf.Tensor) -> tf.Tensor:
    """Returns how far before each candidate the last accepted one is, from 1, `[block, M]`."""
    index = tf.range(tf.shape(accepted)[0])[:, tf.newaxis]  # [block, 1]
    if _compat.in_xla():
        # Under XLA `searchsorted` takes 28 times as long as a scan. Without XLA it is faster.
        up_to = tfp.math.scan_associative(tf.maximum, tf.where(accepted, index, -1 - since))
        return index - tf.concat([-1 - since[tf.newaxis], up_to[:-1]], axis=0)
    up_to = tf.cumsum(tf.cast(tf.transpose(accepted), tf.int32), axis=1)  # [M, block]
    before = up_to - tf.cast(tf.transpose(accepted), tf.int32)
    # The r-th accepted candidate is where the running count first reaches r.
    last = tf.where(before > 0, tf.searchsorted(up_to, before), -1 - since[:, tf.newaxis])
    return index - tf.transpose(last)


def _any_invalid(log_accept: tf.Tensor) -> tf.Tensor:
    # `not (x <= slack)` would be shorter, but TensorFlow's graph optimizer turns it into
    # `x > slack`, which is false for NaN.
    return tf.reduce_any(tf.logical_or(tf.math.is_nan(log_accept), log_accept > PROBABILITY_SLACK))


def _any_nan(z: tf.Tensor) -> tf.Tensor:
    return tf.reduce_any(tf.math.is_nan(z)) if z.dtype.is_floating else tf.constant(False)


def _mark_nan(z: tf.Tensor, log_accept: tf.Tensor) -> tf.Tensor:
    """Turns draws of unknown probability into NaN, so that callers can detect them."""
    if not z.dtype.is_floating:
        return z
    # A NaN constant would fail under `tf.debugging.enable_check_numerics`, even if unused.
    return tf.where(tf.math.is_nan(log_accept), tf.cast(log_accept, z.dtype), z)
