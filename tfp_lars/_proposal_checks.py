"""Checks and facts about a proposal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _compat, _proposal_draws

__all__ = ["check_proposal", "probe_draws", "tangent_space"]

tfb = tfp.bijectors
tfd = tfp.distributions

# Distributions that are discrete if the wrapped one is.
_WRAPPERS = (
    tfd.BatchBroadcast,
    tfd.BatchReshape,
    tfd.Independent,
    tfd.Masked,
    tfd.Sample,
    _compat.TransformedDistribution,
)

# Number of draws that show whether `accept_fn` fits the proposal.
_NUM_PROBES = 16


def check_proposal(proposal: Any) -> None:
    """Raises if `proposal` cannot be resampled."""
    if isinstance(proposal, type) and issubclass(proposal, tfd.Distribution):
        raise TypeError(
            f"`proposal` must be a TFP distribution; got the class {proposal.__name__}. Pass an "
            f"instance of it, such as `{proposal.__name__}(...)`."
        )
    if not isinstance(proposal, tfd.Distribution):
        raise TypeError(f"`proposal` must be a TFP distribution; got {proposal!r}.")
    if isinstance(proposal, tfd.JointDistribution) or tf.nest.is_nested(proposal.dtype):
        raise TypeError(
            f"`proposal` must have a single tensor as its event; {proposal.name!r} is joint, with "
            f"events of type {proposal.dtype}. `tfd.Blockwise` makes one tensor of several."
        )
    for kind, shape in (("event", proposal.event_shape), ("batch", proposal.batch_shape)):
        if shape.rank is None:
            raise ValueError(
                f"`proposal` must have event and batch shapes of known rank; the {kind} shape of "
                f"{proposal.name!r} has an unknown rank. Set the rank of its parameters, such as "
                "by `tf.ensure_shape(loc, [None])`."
            )


def probe_draws(proposal: tfd.Distribution) -> tf.Tensor | None:
    """Returns a few draws, the same each time, or `None` if drawing is slow or impossible."""
    # A draw from an autoregressive flow takes one pass per dimension: seconds in eager mode.
    slow = any(isinstance(part, tfb.MaskedAutoregressiveFlow) for part in proposal.submodules)
    if slow or not tf.executing_eagerly():
        return None
    try:
        with _compat.no_recording(), _compat.inference_mode():
            plain = _proposal_draws.without_implicit_gradients(proposal)
            return plain.sample(_NUM_PROBES, seed=tf.constant([_NUM_PROBES, 0]))
    except Exception:  # Sampling may not be implemented, or not possible yet.
        return None


def tangent_space(dist: tfd.Distribution) -> Callable | None:
    """Returns TFP's hook for the tangent space of the support, or `None` if there is none.

    TFP's wrappers lack the hook, even around a discrete distribution, which has no Jacobian.
    """
    base = dist
    while isinstance(base, _WRAPPERS):
        base = base.distribution
    if isinstance(base, _compat.DiscreteDistribution):
        return base._experimental_tangent_space
    return getattr(dist, "_experimental_tangent_space", None)
