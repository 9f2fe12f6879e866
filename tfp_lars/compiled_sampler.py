"""Runs the sampler of a distribution, as a graph of its own where the caller is eager."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tfp_lars import noise, sampler

__all__ = ["CompiledSampler"]


class CompiledSampler:
    """Draws from a resampled distribution.

    Not a `tf.Module`, so that a graph is no part of what checkpoints and SavedModels hold.

    Args:
      dist: A `Resampled`.
    """

    def __init__(self, dist: Any):
        self._dist = dist
        self._graph = None

    def __call__(self, n, T: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """`n` draws of each batch member, `[n] + B + event`, and their attempts, `[n] + B`.

        Args:
          n: Number of draws, shape `[]`.
          T: Truncation, 0 for none.
          seed: `int32[2]`.
        """
        n, T = tf.convert_to_tensor(n, tf.int32), tf.constant(T, tf.int32)
        if tf.executing_eagerly():
            if self._graph is None:
                # Not autograph: it would rewrite the user's functions. One concrete graph serves
                # all calls; through `tf.function`, TF would take those of other distributions
                # for retracing, and warn.
                draw = tf.function(self._draw, autograph=False)
                self._graph = draw.get_concrete_function(n, T, seed)
            draws = self._graph(n, T, seed)
            if draws.gave_up:
                raise RuntimeError(self._gave_up_message(draws).numpy().decode())
            if draws.invalid:
                raise ValueError(self._dist._log_accept.complaint)
            return draws.samples, draws.attempts
        draws = self._draw(n, T, seed)
        with tf.control_dependencies(self._assertions(draws)):
            return tf.identity(draws.samples), tf.identity(draws.attempts)

    def _draw(self, n, T, seed) -> sampler.Draws:
        dist = self._dist
        batch, event = dist.batch_shape_tensor(), dist.event_shape_tensor()
        draws = sampler.draw(
            functools.partial(noise.sample, dist.proposal),
            dist._log_accept,
            n,
            T,
            seed,
            num_streams=_size(dist.batch_shape, batch),
            event_size=_size(dist.event_shape, event),
            dtype=tf.as_dtype(dist.dtype),
            max_attempts=dist.max_attempts,
        )
        samples = tf.reshape(draws.samples, tf.concat([[n], batch, event], 0))
        return draws._replace(
            # A pathwise gradient through accept or reject would be wrong. Stopped within the graph,
            # so that a tape that watches the call does not ask the loop for one.
            samples=tf.stop_gradient(samples),
            attempts=tf.reshape(draws.attempts, tf.concat([[n], batch], 0)),
        )

    def _assertions(self, draws: sampler.Draws) -> list[tf.Operation]:
        gave_up = tf.debugging.Assert(tf.logical_not(draws.gave_up), [self._gave_up_message(draws)])
        if not self._dist.validate_args:
            return [gave_up]
        complaint = self._dist._log_accept.complaint
        return [gave_up, tf.debugging.Assert(tf.logical_not(draws.invalid), [complaint])]

    def _gave_up_message(self, draws: sampler.Draws) -> tf.Tensor:
        return tf.strings.format(
            "Resampling without end (T=None): a draw took more than max_attempts="
            + str(self._dist.max_attempts)
            + " proposals; the acceptance rate seems to be about {}. Raise `max_attempts`, pass a "
            "finite `T`, or see whether `accept_fn` accepts anything.",
            tf.reduce_min(draws.acceptance_rate),
        )


def _size(static_shape: tf.TensorShape, shape: tf.Tensor) -> int | tf.Tensor:
    static = static_shape.num_elements()
    return tf.reduce_prod(shape) if static is None else static
