"""Finds a distribution near the accepted region, for importance sampling.

The target pi(z) a(z) may be too far from the proposal pi for a direct fit. Rounds of draws approach
it through pi(z) a(z)**beta, with beta growing from 0 to 1. Each round draws from the last fit and
fits a mixture of Gaussians to the weighted draws, in the unconstrained space of the proposal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _compat, _proposal_draws
from tfp_lars._traced_once import TracedOnce
from tfp_lars.normalizer.gaussian_mixture import GaussianMixture, Parameters, fit
from tfp_lars.normalizer.measure import check_same_measure

__all__ = ["effective_share", "fit_importance_distribution", "is_discrete", "mixture_draws"]

tfb = tfp.bijectors
tfd = tfp.distributions

_NUM_COMPONENTS = 4
_PROPOSAL_SHARE = 0.1
_MOST_ROUNDS = 60
_LAST_ROUNDS = 3  # at beta = 1
_EFFECTIVE_SHARE = 0.3  # of the draws of a round, for the next beta
_LEAST_SHARE = 0.02
_INFLATION = 1.1  # of the fitted covariances
_NUM_PROBES = 1024


def fit_importance_distribution(
    proposal: tfd.Distribution, log_accept_fn: Callable[[tf.Tensor], tf.Tensor], seed: tf.Tensor
) -> tuple[tfd.Distribution, bool]:
    """Fits a distribution to pi(z) a(z).

    Args:
      proposal: Continuous distribution with batch shape `B`.
      log_accept_fn: `z -> log a(z)`, shape sample + batch.
      seed: Stateless seed, `int32[2]`.

    Returns:
      distribution: Distribution with the batch and event shape of the proposal.
      reached: Whether the rounds arrived at beta = 1 for all batch members.
    """
    if is_discrete(proposal):
        raise ValueError(
            f"`method` is 'importance', and the proposal {proposal.name!r} is discrete. No "
            "distribution can be fitted to it. Pass `importance_distribution`."
        )
    dtype = tf.as_dtype(proposal.dtype)
    if dtype in (tf.float16, tf.bfloat16):
        raise ValueError(
            f"`method` is 'importance', and the proposal {proposal.name!r} has type {dtype.name}, "
            "to which no distribution can be fitted. Use method='monte_carlo', pass "
            "`importance_distribution`, or use a proposal of type float32."
        )
    bijector, d = _from_vectors(proposal)
    batch_shape = tuple(proposal.batch_shape)
    num_members = int(np.prod(batch_shape))
    draw = TracedOnce(lambda *args: _weighted_draws(proposal, log_accept_fn, bijector, *args))
    rng = np.random.default_rng(np.asarray(seed).view(np.uint32))
    n = int(np.clip(256 * d, 4096, 16384))
    beta, threshold = np.zeros(num_members), np.full(num_members, _EFFECTIVE_SHARE)
    parameters, num_proposals, rounds_left = _start(num_members, d), n, _LAST_ROUNDS
    for i in range(_MOST_ROUNDS):
        tensors = _tensors(parameters, batch_shape, dtype)
        key = tf.convert_to_tensor(tf.random.fold_in(seed, i))  # annotated as an `int`
        x, log_weight, log_accept = (
            np.asarray(a) for a in draw(tf.constant(n), tf.constant(num_proposals), key, *tensors)
        )
        x = x.reshape([n, num_members, d])
        log_weight, log_accept = (a.reshape([n, -1]) for a in (log_weight, log_accept))
        # Draws that round to the boundary of the support are infinitely far away.
        at_boundary = ~np.all(np.isfinite(x), axis=-1)
        x = np.where(at_boundary[..., np.newaxis], 0.0, x)
        log_weight = np.where(at_boundary, -np.inf, log_weight)
        fits = []
        for m in range(num_members):
            beta[m], advanced = next_beta(log_weight[:, m], log_accept[:, m], beta[m], threshold[m])
            # A round without progress may still improve the fit. If not, fewer draws must do.
            smaller = max(0.5 * threshold[m], _LEAST_SHARE)
            threshold[m] = _EFFECTIVE_SHARE if advanced else smaller
            weights = _normalized(log_weight[:, m] + _power(log_accept[:, m], beta[m]))
            fits.append(fit(x[:, m], weights, _NUM_COMPONENTS, rng))
        parameters = Parameters(*(np.stack(p) for p in zip(*fits, strict=True)))
        if i == 0:  # later fits may hardly overlap with the proposal
            first = _distribution(parameters, batch_shape, dtype, bijector)
            remedy = "Pass an `importance_distribution` of the family of the proposal."
            other_key = tf.convert_to_tensor(tf.random.fold_in(key, 1))
            check_same_measure(proposal, first, other_key, remedy)
        num_proposals = round(_PROPOSAL_SHARE * n)
        rounds_left -= bool(np.all(beta == 1.0))
        if rounds_left == 0:
            break
    log_weights, means, scales = parameters
    parameters = Parameters(log_weights, means, scales * np.sqrt(_INFLATION))
    found = _distribution(parameters, batch_shape, dtype, bijector)
    return found, bool(np.all(beta == 1.0))


def mixture_draws(
    proposal: tfd.Distribution,
    other: tfd.Distribution,
    n: tf.Tensor,
    num_proposals: tf.Tensor,
    seed: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws from both distributions, with the weights of their mixture.

    The numbers of draws are fixed. The mean of `exp(log_weight) * f(z)` is still an unbiased
    estimate of the mean of f under the proposal, with a smaller variance than random numbers give.

    Args:
      proposal: Distribution with density pi.
      other: Distribution with density q.
      n: Number of draws.
      num_proposals: Number of those from the proposal, which come first.
      seed: Stateless seed, `int32[2]`.

    Returns:
      z: Shape `[n] + B + event`.
      log_weight: Log of `pi / (share * pi + (1 - share) * q)`, shape `[n] + B`; -inf outside the
        support of the proposal.
    """
    seeds = tf.random.split(seed, 2)
    z = tf.concat(
        [
            _proposal_draws.sample(proposal, num_proposals, seeds[0]),
            _proposal_draws.sample(other, n - num_proposals, seeds[1]),
        ],
        axis=0,
    )
    log_proposal = tf.cast(proposal.log_prob(z), tf.float64)
    log_other = tf.cast(other.log_prob(z), tf.float64)
    share = tf.cast(num_proposals, tf.float64) / tf.cast(n, tf.float64)
    log_odds = tf.math.log1p(-share) - tf.math.log(share) + log_other - log_proposal
    log_weight = -tf.math.log(share) - tf.math.softplus(log_odds)
    outside = log_proposal < tf.float64.min
    return z, tf.where(outside, log_proposal, log_weight)


def next_beta(
    log_weight: np.ndarray, log_accept: np.ndarray, beta: float, threshold: float
) -> tuple[float, bool]:
    """Returns the largest power of a(z) with enough effective draws, and whether it is larger.

    Args:
      log_weight: Log weights of the draws for beta = 0, shape `[n]`.
      log_accept: Log a(z), shape `[n]`.
      beta: Current power.
      threshold: Least effective share of the draws.
    """

    def enough(power):
        return effective_share(log_weight + _power(log_accept, power)) >= threshold

    if enough(1.0):
        return 1.0, True
    low, high = np.log(max(beta, 1e-12)), 0.0
    if not enough(np.exp(low)):
        return beta, False
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if enough(np.exp(middle)) else (low, middle)
    return float(np.exp(low)), bool(np.exp(low) > 1.01 * beta)


def effective_share(log_weight: np.ndarray) -> float:
    """Returns `(sum of w)**2 / (n * sum of w**2)`, or 0 if all weights are 0."""
    if np.all(np.isneginf(log_weight)):
        return 0.0
    weights = np.exp(log_weight - np.max(log_weight))
    return float(np.sum(weights) ** 2 / np.sum(weights**2) / len(weights))


def is_discrete(dist: tfd.Distribution) -> bool:
    """Whether a distribution, or what it wraps, is one of TFP's discrete ones."""
    while isinstance(getattr(dist, "distribution", None), tfd.Distribution):
        dist = dist.distribution
    return isinstance(dist, _compat.DiscreteDistribution)


def _power(log_accept: np.ndarray, beta: float) -> np.ndarray:
    return np.zeros_like(log_accept) if beta == 0.0 else beta * log_accept


def _normalized(log_weight: np.ndarray) -> np.ndarray:
    if np.all(np.isneginf(log_weight)):
        return np.full(log_weight.shape, 1.0 / log_weight.size)
    weights = np.exp(log_weight - np.max(log_weight))
    return weights / np.sum(weights)


def _start(num_members: int, d: int) -> Parameters:
    """Returns parameters for the first round, which does not draw from them."""
    k = _NUM_COMPONENTS
    return Parameters(
        np.zeros([num_members, k]),
        np.zeros([num_members, k, d]),
        np.tile(np.eye(d), [num_members, k, 1, 1]),
    )


def _from_vectors(proposal: tfd.Distribution) -> tuple[tfb.Bijector, int]:
    """Returns a bijector from unconstrained vectors to events, and the number of dimensions."""
    to_event = _to_event(proposal)
    if to_event is None or not _inverts_draws(to_event, proposal):
        raise ValueError(
            "`method` is 'importance', and no bijector is known from unconstrained vectors to all "
            f"of the support of the proposal {proposal.name!r}. Pass `importance_distribution`."
        )
    shape = to_event.inverse_event_shape(proposal.event_shape)
    if not shape.is_fully_defined() or not proposal.batch_shape.is_fully_defined():
        raise ValueError(
            f"`method` is 'importance', and the shape of the proposal {proposal.name!r} is not "
            "static. Pass `importance_distribution`."
        )
    d = int(np.prod(shape))
    return tfb.Chain([to_event, tfb.Reshape(event_shape_out=shape, event_shape_in=[d])]), d


def _to_event(proposal: tfd.Distribution) -> tfb.Bijector | None:
    """Returns a bijector from unconstrained events to the support, or `None` if none is known."""
    with contextlib.suppress(NotImplementedError):
        if not isinstance(proposal, tfd.MixtureSameFamily):
            bijector = proposal.experimental_default_event_space_bijector()
            is_joint = bijector is not None and tf.nest.is_nested(bijector.forward_min_event_ndims)
            return None if is_joint else bijector
        # TFP has none for mixtures. If that of the components has no batch shape, all components
        # have the same support.
        bijector = _to_event(proposal.components_distribution)
        ndims = proposal.event_shape.rank
        if bijector is None or bijector.experimental_batch_shape(y_event_ndims=ndims).rank == 0:
            return bijector
    return None


def _inverts_draws(bijector: tfb.Bijector, proposal: tfd.Distribution) -> bool:
    """Whether draws from the proposal come back from the unconstrained space.

    TFP's bijectors to the sphere cover a part of it only.
    """
    with _compat.no_recording(), _compat.inference_mode():
        z = _proposal_draws.sample(proposal, _NUM_PROBES, tf.constant([_NUM_PROBES, 3]))
        back = bijector.forward(tf.identity(bijector.inverse(tf.identity(z))))
    return np.allclose(back, z, rtol=0.05, atol=0.05 * float(np.std(z)))


def _tensors(parameters: Parameters, batch_shape: tuple[int, ...], dtype: tf.DType) -> Parameters:
    """Returns the parameters of `M` mixtures, each `[M, ...]`, as tensors `B + [...]`."""
    return Parameters(
        *(tf.constant(np.reshape(p, [*batch_shape, *p.shape[1:]]), dtype) for p in parameters)
    )


def _distribution(
    parameters: Parameters, batch_shape: tuple[int, ...], dtype: tf.DType, bijector: tfb.Bijector
) -> tfd.Distribution:
    return _transformed(_tensors(parameters, batch_shape, dtype), bijector)


def _transformed(parameters: Parameters, bijector: tfb.Bijector) -> tfd.Distribution:
    return tfd.TransformedDistribution(GaussianMixture(parameters), bijector)


def _weighted_draws(
    proposal, log_accept_fn, bijector, n, num_proposals, seed, *parameters
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns unconstrained draws `[n] + B + [d]`, their log weights and log a(z), `[n] + B`."""
    other = _transformed(Parameters(*parameters), bijector)
    z, log_weight = mixture_draws(proposal, other, n, num_proposals, seed)
    return bijector.inverse(tf.identity(z)), log_weight, log_accept_fn(z)
