"""The current estimate of log Z in training: the mean of a(z) over fresh proposals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _proposal_draws
from tfp_lars.density import log_near_one

__all__ = ["LOG_ZERO", "log_mean_accept"]

tfd = tfp.distributions

# Replaces log 0 where no draw can be accepted: -inf would turn gradients into NaN.
LOG_ZERO = -1e9


def log_mean_accept(
    proposal: tfd.Distribution,
    log_accept_fn: Callable[[tf.Tensor], tf.Tensor],
    num_samples: int,
    seed: tf.Tensor,
    score_function: bool = False,
    proposal_kwargs: Mapping[str, Any] | None = None,
) -> tf.Tensor:
    """Returns the log of the mean of a(z) over draws from the proposal, with gradients.

    Args:
      proposal: Distribution with batch shape `B`.
      log_accept_fn: `z -> log a(z)`, shape sample + batch.
      num_samples: Number of draws.
      seed: Stateless seed, `int32[2]`.
      score_function: Whether to add the gradient with respect to a proposal that is not
        reparameterized.
      proposal_kwargs: Arguments for the proposal's `log_prob`, which the score function calls.

    Returns:
      log_z: Shape `B`.
    """
    if score_function:
        _check_score_function(proposal)
    z = _proposal_draws.sample(proposal, num_samples, seed, differentiable=True)
    # Draws that are not reparameterized may still carry a part of the gradient, for example those
    # of a mixture. The score function contains that part.
    z = tf.stop_gradient(z) if score_function else z
    log_accept = tf.maximum(log_accept_fn(z), LOG_ZERO)
    log_z = log_near_one(
        tfp.math.reduce_logmeanexp(log_accept, axis=0),
        tf.reduce_mean(tf.math.expm1(log_accept), axis=0),
    )
    if not score_function:
        return log_z
    log_proposal = tf.cast(proposal.log_prob(z, **(proposal_kwargs or {})), log_z.dtype)
    return log_z + _score_term(log_accept, log_z, log_proposal)


def _score_term(log_accept: tf.Tensor, log_z: tf.Tensor, log_proposal: tf.Tensor) -> tf.Tensor:
    """Returns zero, with the score-function gradient of the log of the mean of `a`.

    The baseline of each draw is the mean of the others. With `Z` the mean of all `S` draws,
    `a_s - b_s = (a_s - Z) * S / (S - 1)`. The log divides by `Z`.

    Args:
      log_accept: `log a` of the draws, shape `[S] + B`.
      log_z: Log of its mean, shape `B`.
      log_proposal: `log pi` of the draws, shape `[S] + B`.

    Returns:
      zero: Shape `B`.
    """
    num_others = tf.cast(tf.shape(log_accept)[0] - 1, log_accept.dtype)
    weight = tf.stop_gradient(tf.math.expm1(log_accept - log_z) / num_others)
    return tf.reduce_sum(weight * (log_proposal - tf.stop_gradient(log_proposal)), axis=0)


def _check_score_function(proposal: tfd.Distribution) -> None:
    if proposal.reparameterization_type == tfd.FULLY_REPARAMETERIZED:
        raise ValueError(
            "`score_function=True` is for proposals that are not reparameterized. The draws of "
            f"{proposal.name!r} already carry the gradient of Z. Use `score_function=False`."
        )
