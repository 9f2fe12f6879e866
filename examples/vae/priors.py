"""The priors that the examples compare: to add one, add an entry to `PRIORS`.

Imports no TensorFlow until a prior is made, so that a command can list the names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import tensorflow_probability as tfp

    import tfp_lars
    from examples.vae.config import PriorConfig

    Distribution = tfp.distributions.Distribution


@dataclasses.dataclass(frozen=True)
class Prior:
    """A sort of prior.

    Attributes:
      title: Name for a reader.
      make: Maps the number of dimensions, the settings, an encoder of the topmost latent (images
        `[N, 28, 28]` to a distribution) and a seed to a prior of event shape `[d]`.
      accept_units: The usual hidden layers of a(z); `None` if nothing is resampled.
    """

    title: str
    make: Callable[[int, PriorConfig, Callable, int], Distribution]
    accept_units: tuple[int, ...] | None = None

    @property
    def is_resampled(self) -> bool:
        return self.accept_units is not None


def _standard(d, config, encode, seed):
    from tfp_lars import proposals

    return proposals.standard_normal(d)


def _real_nvp(d, config, encode, seed):
    from tfp_lars import proposals

    return proposals.real_nvp(d, seed=seed)


def _maf(d, config, encode, seed):
    from tfp_lars import proposals

    return proposals.masked_autoregressive_flow(d, seed=seed)


def _vamp(d, config, encode, seed):
    from tfp_lars import proposals

    return proposals.vamp_prior(encode, (28, 28), num_components=config.num_components, seed=seed)


def _mog(d, config, encode, seed):
    from tfp_lars import proposals

    return proposals.gaussian_mixture(d, config.num_components, seed=seed)


def _resampled(make_proposal):
    def make(d, config, encode, seed):
        return resample(make_proposal(d, config, encode, seed), config, seed)

    return make


def _dimensionwise(d, config, encode, seed):
    """Each dimension with its own a_i.

    It trains on Z from the proposals alone: in one dimension a thousand of them leave no place
    that a sample of the encoder would have to make up for.
    """
    import tensorflow as tf
    from tensorflow_probability import distributions as tfd

    from examples.vae.dimensionwise import DimensionwiseAcceptance

    proposal = tfd.Normal(tf.zeros([d]), tf.ones([d]))
    accept_fn = DimensionwiseAcceptance(d, config.accept_units, seed=seed)
    return tfd.Independent(resample(proposal, config, seed, accept_fn), 1)


PRIORS: Mapping[str, Prior] = {
    "standard": Prior("standard", _standard),
    "lars": Prior("LARS", _resampled(_standard), (100, 100)),
    "lars_dimensionwise": Prior("LARS in each dimension", _dimensionwise, (20, 20)),
    "real_nvp": Prior("RealNVP", _real_nvp),
    "maf": Prior("MAF", _maf),
    "lars_real_nvp": Prior("LARS on RealNVP", _resampled(_real_nvp), (100, 100)),
    "vamp": Prior("VampPrior", _vamp),
    "mog": Prior("mixture of Gaussians", _mog),
}


def resample(
    proposal: Distribution, config: PriorConfig, seed: int, accept_fn: Callable | None = None
) -> tfp_lars.Resampled:
    """Resamples a proposal, by default with an acceptance network.

    Args:
      proposal: What to resample: latents, or images of event shape `[784]`.
      config: Settings of the acceptance network, of `T` and of the estimate of Z.
      seed: Seed for the draws that estimate Z.
      accept_fn: Instead of the network.
    """
    import tfp_lars

    return tfp_lars.Resampled(
        proposal,
        accept_fn or tfp_lars.AcceptanceNetwork(config.accept_units),
        T=config.T,
        normalizer=tfp_lars.MovingAverage(config.num_samples, config.decay, seed=seed),
    )


def make(d: int, config: PriorConfig, encode: Callable, seed: int = 0) -> Distribution:
    """A prior of event shape `[d]`.

    Args:
      d: Dimensions of the latent.
      config: Which prior, and its settings.
      encode: Encoder of the topmost latent, images `[N, 28, 28]` to a distribution.
      seed: Seed for initial weights and for the draws that estimate Z.
    """
    return PRIORS[config.name].make(d, config, encode, seed)


def resampled_part(prior: Distribution) -> tfp_lars.Resampled | None:
    """What is resampled in a prior: all of it, or each dimension, or nothing (`None`)."""
    import tfp_lars

    part = getattr(prior, "distribution", prior)  # what `tfd.Independent` wraps
    return part if isinstance(part, tfp_lars.Resampled) else None


def freeze(prior: Distribution, log_z: tfp_lars.LogNormalizer | np.ndarray) -> Distribution:
    """A resampled prior with a fixed log Z, a `LogNormalizer` or one number for each Z in it."""
    part = resampled_part(prior)
    frozen = part.freeze(log_z)
    return frozen if part is prior else prior.copy(distribution=frozen)
