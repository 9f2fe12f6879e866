"""Importance sampling: weighted draws from a mixture of the proposal and another distribution."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _compat, _proposal_draws
from tfp_lars.normalizer import interval, monte_carlo
from tfp_lars.normalizer.batch_sums import BatchSums, Sums, add_sums
from tfp_lars.normalizer.importance_fit import is_discrete, mixture_draws
from tfp_lars.normalizer.log_normalizer import LogNormalizer
from tfp_lars.normalizer.measure import check_same_measure
from tfp_lars.normalizer.run import BatchFn, State

__all__ = ["FEWEST_SAMPLES", "ImportanceSampling", "checked_distribution"]

tfd = tfp.distributions

_NUM_REPLICATES = 32
_DRAWS_PER_PROPOSAL = 10  # which bounds the weights, wherever the other distribution has no mass
FEWEST_SAMPLES = 16 * _NUM_REPLICATES

# The error from replicates is known to 13 %. Stopping where it happens to be small would favor
# small errors, so the error from all weights decides, with this factor.
_SAFETY = 0.85

_FEWEST_EFFECTIVE = 100
_LEAST_EFFECTIVE_SHARE = 1e-3
_DISAGREEMENT_LEVEL = 0.999
_NUM_PROBES = 64


class ImportanceSampling:
    """The mean of `a(z) pi(z) / (share * pi(z) + (1 - share) * q(z))` over draws from the mixture.

    It is unbiased for every q. Its error comes from independent replicates.

    Args:
      proposal: Distribution with density pi.
      log_accept_fn: `z -> log a(z)`, shape sample + batch.
      other: Distribution with density q.
      warning: What is wrong with q; `None` if nothing is known.
      spread: Spreads the batches over devices.
    """

    name = "importance"
    num_replicates = _NUM_REPLICATES
    draws_per_value = 1

    def __init__(
        self,
        proposal: tfd.Distribution,
        log_accept_fn: Callable[[tf.Tensor], tf.Tensor],
        other: tfd.Distribution,
        warning: str | None = None,
        spread: Callable[[BatchSums], BatchFn] = lambda sums: sums,
    ):
        self._other = other
        self._warning = warning

        def log_values(n, seed):
            num_proposals = tf.maximum(1, n // _DRAWS_PER_PROPOSAL)
            z, log_weight = mixture_draws(proposal, other, n, num_proposals, seed)
            log_accept = tf.cast(log_accept_fn(z), tf.float64)
            outside = log_weight < tf.float64.min  # there a(z) may have any value, also NaN
            log_value = tf.where(outside, log_weight, log_weight + log_accept)
            return [log_value, log_accept[:num_proposals]]

        self.sums = spread(BatchSums(log_values, proposal.batch_shape_tensor, num_kinds=2))

    def result(self, state: State) -> LogNormalizer:
        """Returns the estimate."""
        weights, plain = (
            functools.reduce(add_sums, kind) for kind in zip(*state.sums, strict=True)
        )
        monte_carlo.check_probabilities(plain)
        if np.any(np.isnan(weights.total)):
            raise ValueError(
                "A weight of importance sampling is NaN. Check the log_prob of the proposal and of "
                "`importance_distribution`, and a(z), for draws from `importance_distribution`."
            )
        estimate = LogNormalizer(
            weights.log_mean,
            replicate_stderr(weights.log_mean, [values.log_mean for values, _ in state.sums]),
            state.num_samples,
            self.name,
            num_values=int(plain.count),
            effective_samples=weights.effective_count,
            degrees_of_freedom=self.num_replicates - 1,
            importance_distribution=self._other,
            state=state,
        )
        problems = [
            self._warning,
            _low_effective_samples(estimate),
            _disagreement(estimate, plain),
        ]
        return estimate.with_warning("; ".join(p for p in problems if p) or None)

    def error(self, estimate: LogNormalizer) -> float:
        """Returns the standard error, or that from all weights if it is larger."""
        with np.errstate(divide="ignore"):
            # The variance of weights with mean 1 is count / effective count - 1.
            effective = np.asarray(estimate.effective_samples)
            variance = 1.0 / effective - 1.0 / estimate.num_samples
        errors = np.fmax(estimate.stderr, np.sqrt(variance) / _SAFETY)
        return float(np.max(errors, initial=0.0))


def replicate_stderr(log_mean: np.ndarray, log_means: list[np.ndarray]) -> np.ndarray:
    """Returns the standard error of the log of a mean from those of its independent parts.

    Args:
      log_mean: Log of the mean of all parts, shape `B`.
      log_means: Logs of the means of the parts, each of shape `B`.
    """
    with np.errstate(invalid="ignore"):
        ratios = np.exp(np.stack(log_means) - log_mean)
    stderr = np.std(ratios, axis=0, ddof=1) / np.sqrt(len(log_means))
    return np.where(np.isneginf(log_mean), np.inf, stderr)


def checked_distribution(other: Any, proposal: tfd.Distribution) -> tfd.Distribution:
    """Returns `importance_distribution` with the batch shape of the proposal, or raises."""
    name = "`importance_distribution`"
    if not isinstance(other, tfd.Distribution):
        raise TypeError(f"{name} must be a TFP distribution; got {other!r}.")
    expected = f"expected that of the proposal {proposal.name!r}"
    if other.dtype != proposal.dtype:
        raise TypeError(f"{name} has type {other.dtype}; {expected}, {proposal.dtype}.")
    if not other.event_shape.is_compatible_with(proposal.event_shape):
        raise ValueError(
            f"{name} has event shape {other.event_shape}; {expected}, {proposal.event_shape}."
        )
    if other.batch_shape != proposal.batch_shape:
        with contextlib.suppress(ValueError):
            other = tfd.BatchBroadcast(other, with_shape=proposal.batch_shape)
        if other.batch_shape != proposal.batch_shape:
            raise ValueError(
                f"{name} has batch shape {other.batch_shape}; {expected}, {proposal.batch_shape}."
            )
    if is_discrete(other) != is_discrete(proposal) or not _same_support(other, proposal):
        raise ValueError(
            f"{name} {other.name!r} has another support than the proposal {proposal.name!r}. For a "
            "proposal on a part of the real numbers, transform a distribution with "
            "`proposal.experimental_default_event_space_bijector()`."
        )
    if not is_discrete(proposal):
        remedy = f"Pass an {name} of the family of the proposal."
        check_same_measure(proposal, other, tf.constant([_NUM_PROBES, 4]), remedy)
    return other


def _same_support(other: tfd.Distribution, proposal: tfd.Distribution) -> bool:
    """Whether each distribution has a density at draws from the other one."""
    with _compat.no_recording(), _compat.inference_mode():
        for one, two in ((other, proposal), (proposal, other)):
            z = _proposal_draws.sample(one, _NUM_PROBES, tf.constant([_NUM_PROBES, 2]))
            if not np.all(two.log_prob(tf.identity(z)).numpy() > -np.inf):
                return False
    return True


def _low_effective_samples(estimate: LogNormalizer) -> str | None:
    lowest = float(np.min(np.asarray(estimate.effective_samples), initial=np.inf))
    if lowest >= max(_FEWEST_EFFECTIVE, _LEAST_EFFECTIVE_SHARE * estimate.num_samples):
        return None
    return (
        f"the effective sample size is only {lowest:.3g} of {estimate.num_samples}, so the error "
        "may be too small: pass an `importance_distribution` that is closer to the accepted region"
    )


def _disagreement(estimate: LogNormalizer, plain: Sums) -> str | None:
    """Compares with plain Monte Carlo over the draws that come from the proposal."""
    low, high = estimate.interval(_DISAGREEMENT_LEVEL)
    plain_low, plain_high = interval.log_mean_interval(
        plain.log_mean, plain.relative_square, int(plain.count), _DISAGREEMENT_LEVEL
    )
    if not np.any((low > plain_high) | (high < plain_low)):
        return None
    return (
        f"plain Monte Carlo over {int(plain.count)} draws of the same run gives log Z = "
        f"{plain.log_mean}, beyond both errors: `importance_distribution` may miss a part of the "
        "accepted region"
    )
