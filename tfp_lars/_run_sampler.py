"""Runs the sampler on a proposal and an acceptance function, and reports its failures."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _compat, _proposal_draws, sampler
from tfp_lars._traced_once import TracedOnce

__all__ = ["SamplerRun"]

tfd = tfp.distributions


class SamplerRun:
    """Draws from a resampled proposal. Eager calls run one graph that is traced once.

    Args:
      proposal: Distribution with batch shape `B`.
      log_accept_fn: `z -> log a(z)`, shape sample + batch.
      max_attempts: Untruncated resampling gives up a draw after this many proposals.
      complaint: Error message for invalid values of `a(z)`.
      validate_args: Whether graphs raise on invalid values. Eager calls always do.
    """

    def __init__(
        self,
        proposal: tfd.Distribution,
        log_accept_fn: Callable[[tf.Tensor], tf.Tensor],
        *,
        max_attempts: int,
        complaint: str,
        validate_args: bool,
    ):
        self._proposal = proposal
        self._log_accept_fn = log_accept_fn
        self._max_attempts = max_attempts
        self._complaint = complaint
        self._validate_args = validate_args
        self._traced = TracedOnce(self._draw)

    def __call__(self, n: int | tf.Tensor, T: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns `n` draws of each batch member and the number of proposals for each.

        Args:
          n: Number of draws, shape `[]`.
          T: Truncation, 0 for untruncated resampling.
          seed: `int32[2]`.

        Returns:
          samples: Shape `[n] + B + event`. Under XLA, draws that were given up are NaN, or the
            lowest value of an integer type.
          attempts: Shape `[n] + B`. Under XLA, 0 for draws that were given up.
        """
        if tf.executing_eagerly():
            draws = self._traced(tf.convert_to_tensor(n, tf.int32), tf.constant(T), seed)
            self._raise_errors(draws)
            return draws.samples, draws.attempts
        draws = self._traced(n, tf.constant(T), seed)
        if _compat.in_xla():  # XLA cannot compile assertions and strings
            return _mark_unfinished(draws)
        with tf.control_dependencies(self._assertions(draws)):
            return tf.identity(draws.samples), tf.identity(draws.attempts)

    def _draw(self, n, T, seed) -> sampler.Draws:
        batch, event = self._proposal.batch_shape_tensor(), self._proposal.event_shape_tensor()
        draws = sampler.draw(
            functools.partial(_proposal_draws.sample, self._proposal),
            self._log_accept_fn,
            n,
            T,
            seed,
            num_streams=_size(self._proposal.batch_shape, batch),
            event_size=_size(self._proposal.event_shape, event),
            dtype=tf.as_dtype(self._proposal.dtype),
            max_attempts=self._max_attempts,
        )
        samples = tf.reshape(draws.samples, tf.concat([[n], batch, event], 0))
        by_member = tf.concat([[n], batch], 0)
        return draws._replace(
            # A pathwise gradient through accept or reject would be wrong.
            samples=tf.stop_gradient(samples),
            attempts=tf.reshape(draws.attempts, by_member),
            count=tf.reshape(draws.count, batch),
        )

    def _raise_errors(self, draws: sampler.Draws) -> None:
        if draws.invalid_proposal:
            raise ValueError(self._proposal_complaint)
        if draws.invalid_accept:
            raise ValueError(self._complaint)
        if not _all_finished(draws):
            raise RuntimeError(tf.compat.as_str(self._gave_up_message(draws).numpy()))

    def _assertions(self, draws: sampler.Draws) -> list[tf.Operation]:
        finished = _all_finished(draws)
        if not self._validate_args:
            return [tf.debugging.Assert(finished, [self._gave_up_message(draws)])]
        return [
            tf.debugging.Assert(tf.logical_not(draws.invalid_proposal), [self._proposal_complaint]),
            tf.debugging.Assert(
                tf.logical_or(draws.invalid_proposal, tf.logical_not(draws.invalid_accept)),
                [self._complaint],
            ),
            tf.debugging.Assert(finished, [self._gave_up_message(draws)]),
        ]

    @property
    def _proposal_complaint(self) -> str:
        return (
            f"`proposal` {self._proposal.name!r} drew NaN. Check its parameters: a training step "
            "may have made them NaN."
        )

    def _gave_up_message(self, draws: sampler.Draws) -> tf.Tensor:
        return tf.strings.format(
            "Untruncated resampling (T=None) gave up: a draw took more than max_attempts="
            + str(self._max_attempts)
            + " proposals. The observed acceptance rate is {}. Raise `max_attempts`, pass a "
            "finite `T`, or check whether `accept_fn` accepts anything.",
            draws.acceptance_rate,
        )


def _all_finished(draws: sampler.Draws) -> tf.Tensor:
    return tf.reduce_all(draws.count >= tf.shape(draws.samples)[0])


def _mark_unfinished(draws: sampler.Draws) -> tuple[tf.Tensor, tf.Tensor]:
    samples = draws.samples
    if samples.dtype.is_bool:
        missing = False
    else:
        missing = np.nan if samples.dtype.is_floating else samples.dtype.min
    position = tf.range(tf.shape(samples)[0])
    batch_ndims = draws.attempts.shape.rank - 1
    finished = tf.reshape(position, [-1] + [1] * batch_ndims) < draws.count
    event_ndims = samples.shape.rank - finished.shape.rank
    known = tf.reshape(finished, tf.concat([tf.shape(finished), [1] * event_ndims], 0))
    samples = tf.where(known, samples, tf.constant(missing, samples.dtype))
    return samples, tf.where(finished, draws.attempts, 0)


def _size(static_shape: tf.TensorShape, shape: tf.Tensor) -> int | tf.Tensor:
    static = static_shape.num_elements()
    return tf.reduce_prod(shape) if static is None else static
