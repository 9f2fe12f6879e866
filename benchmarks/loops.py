"""Simple reference loops for the library's sampler and its estimates.

`masked_sampler` is a straightforward sampler of p_T in TensorFlow: all lanes draw in each iteration
until the last lane has accepted. `bare_loop` is the minimum work: it draws candidates and evaluates
a(z), without accepting or storing any. `network_loop` evaluates a(z) on given points.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _proposal_draws

tfd = tfp.distributions

__all__ = ["bare_loop", "masked_sampler", "network_loop"]


def masked_sampler(
    proposal: tfd.Distribution, accept_fn: Callable[[tf.Tensor], tf.Tensor], T: int | None
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns a function that draws from p_T, with one lane per draw.

    Args:
      proposal: Distribution with batch shape `[]`.
      accept_fn: `z -> a(z)`, shape `[n]`.
      T: Truncation; `None` for untruncated resampling.

    Returns:
      sample: `(n, seed) -> z`, shape `[n] + event`, for a seed of type `int32[2]`.
    """

    @tf.function(autograph=False)
    def sample(n, seed):
        def candidates(i):
            seeds = tf.random.split(tf.random.fold_in(seed, i), 2)
            return proposal.sample(n, seed=seeds[0]), seeds[1]

        def unfinished(i, z, done):
            return tf.logical_not(tf.reduce_all(done))

        def step(i, z, done):
            new, seed_u = candidates(i)
            keep = tf.random.stateless_uniform([n], seed_u) < accept_fn(new)
            if T is not None:
                keep = tf.logical_or(keep, i >= T - 1)
            take = tf.logical_and(keep, tf.logical_not(done))
            mask = tf.reshape(take, tf.concat([[n], tf.ones([tf.rank(z) - 1], tf.int32)], 0))
            return i + 1, tf.where(mask, new, z), tf.logical_or(done, keep)

        shape = tf.concat([[n], proposal.event_shape_tensor()], 0)
        z, done = tf.zeros(shape, proposal.dtype), tf.zeros([n], tf.bool)
        return tf.while_loop(unfinished, step, [tf.constant(0), z, done])[1]

    return sample


def bare_loop(
    proposal: tfd.Distribution, accept_fn: Callable[[tf.Tensor], tf.Tensor]
) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Returns a function that draws candidates as the library does and evaluates a(z).

    Args:
      proposal: Distribution with batch shape `[]`.
      accept_fn: `z -> a(z)`, shape `[block]`.

    Returns:
      evaluate: `(num_candidates, block, seed) -> (total, count)`: the sum of a(z) and the number
        of candidates. The sum prevents TensorFlow from optimizing the work away.
    """

    @tf.function(autograph=False)
    def evaluate(num_candidates, block, seed):
        def step(i, total, count):
            size = tf.minimum(block, num_candidates - count)
            a = accept_fn(_proposal_draws.sample(proposal, size, tf.random.fold_in(seed, i)))
            return i + 1, total + tf.reduce_sum(a), count + tf.size(a)

        start = [tf.constant(0), tf.constant(0.0), tf.constant(0)]
        return tf.while_loop(lambda i, total, count: count < num_candidates, step, start)[1:]

    return evaluate


def network_loop(
    points: tf.Tensor, accept_fn: Callable[[tf.Tensor], tf.Tensor]
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function that evaluates a(z) again and again.

    Args:
      points: Values of z, shape `[block, d]`.
      accept_fn: `z -> a(z)`, shape `[block]`.

    Returns:
      evaluate: `num_blocks -> total`: the sum of all a(z).
    """

    @tf.function(autograph=False)
    def evaluate(num_blocks):
        def step(i, total):
            # Points that differ between blocks cannot be moved out of the loop.
            z = points + 1e-6 * tf.cast(i, points.dtype)
            return i + 1, total + tf.reduce_sum(accept_fn(z))

        return tf.while_loop(lambda i, _: i < num_blocks, step, [0, tf.constant(0.0)])[1]

    return evaluate
