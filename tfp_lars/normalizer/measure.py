"""Whether the densities of two distributions belong to the same measure.

TFP's densities on the simplex, for example, count all but one coordinate, while a bijector to the
simplex measures its surface. The ratio of two such densities is off by a factor.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _compat, _proposal_draws

__all__ = ["check_same_measure"]

tfd = tfp.distributions

_NUM_DRAWS = 4096
_MOST_STDERR = 0.1  # the overlap is too small for an answer beyond this error
_NUM_STDERRS = 6.0
_SLACK = 0.01  # for the rounding of densities


def check_same_measure(
    proposal: tfd.Distribution, other: tfd.Distribution, seed: tf.Tensor, remedy: str
) -> None:
    """Raises if the densities pi and q of two distributions with one support do not compare.

    The means of `pi / (pi + q)` under q and of `q / (pi + q)` under pi are both the integral of
    `pi q / (pi + q)`, so they are equal. Both functions are bounded, so the error of the means is
    known. If a density is off by a factor, so is the ratio of the means. Nothing is known, and
    nothing is raised, where the distributions hardly overlap.

    Args:
      proposal: Distribution with density pi.
      other: Distribution with density q, of the same shape.
      seed: Stateless seed, `int32[2]`.
      remedy: End of the error message.
    """
    means, errors = [], []
    with _compat.no_recording(), _compat.inference_mode():
        # With one seed for both, their draws could be the same, and the errors correlated.
        seeds = tf.unstack(tf.random.split(seed, 2))
        for (one, sign), key in zip(((other, -1.0), (proposal, 1.0)), seeds, strict=True):
            z = _proposal_draws.sample(one, _NUM_DRAWS, key)
            log_odds = other.log_prob(tf.identity(z)) - proposal.log_prob(tf.identity(z))
            share = tf.sigmoid(sign * tf.cast(log_odds, tf.float64)).numpy()
            means.append(np.mean(share, axis=0))
            errors.append(np.std(share, axis=0) / np.sqrt(_NUM_DRAWS))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.log(means[0]) - np.log(means[1])
        stderr = np.hypot(errors[0] / means[0], errors[1] / means[1])
        differ = np.abs(log_ratio) > _NUM_STDERRS * stderr + _SLACK
    if np.any(differ & (stderr < _MOST_STDERR)):
        factor = float(np.exp(log_ratio[differ & (stderr < _MOST_STDERR)].flat[0]))
        raise ValueError(
            f"The densities of the proposal {proposal.name!r} and of {other.name!r} belong to "
            f"different measures: their ratio is off by a factor of {factor:.3g}. {remedy}"
        )
