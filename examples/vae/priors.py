"""The priors that the examples compare. To add one, add an entry to `PRIORS`.

TensorFlow is imported only when a prior is built, so commands can list the names quickly.
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
    """A type of prior.

    Attributes:
      title: Display name.
      make: Function that returns a prior of event shape `[d]`. Its arguments are the number of
        dimensions, the settings, an encoder of the topmost latent (images `[N, 28, 28]` to a
        distribution) and a seed.
      accept_units: Default hidden layers of a(z); `None` if the prior is not resampled.
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
    """Returns a prior in which each dimension has its own a_i.

    Only proposals contribute to the estimate of Z during training. In one dimension a thousand
    proposals cover the latent well enough without the encoder's samples.
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
      proposal: Distribution to resample, of latents or of images with event shape `[784]`.
      config: Settings of the acceptance network, the truncation and the estimate of Z.
      seed: Seed for the draws that estimate Z.
      accept_fn: Acceptance function; `None` for an acceptance network.
    """
    import tfp_lars

    return tfp_lars.Resampled(
        proposal,
        accept_fn or tfp_lars.AcceptanceNetwork(config.accept_units),
        T=config.T,
        normalizer=tfp_lars.MovingAverage(
            config.num_samples, config.decay, same_draws=True, seed=seed
        ),
    )


def make(d: int, config: PriorConfig, encode: Callable, seed: int = 0) -> Distribution:
    """Returns a prior of event shape `[d]`.

    Args:
      d: Number of dimensions of the latent.
      config: Name and settings of the prior.
      encode: Encoder of the topmost latent, images `[N, 28, 28]` to a distribution.
      seed: Seed for initial weights and for the draws that estimate Z.
    """
    return PRIORS[config.name].make(d, config, encode, seed)


def resampled_part(prior: Distribution) -> tfp_lars.Resampled | None:
    """Returns the resampled distribution in a prior, or `None` if it is not resampled.

    This is the prior itself, or the distribution of the dimensions if each has its own a_i.
    """
    import tfp_lars

    part = getattr(prior, "distribution", prior)  # unwraps `tfd.Independent`
    return part if isinstance(part, tfp_lars.Resampled) else None


def freeze(prior: Distribution, log_z: tfp_lars.LogNormalizer | np.ndarray) -> Distribution:
    """Returns a resampled prior with a fixed log Z.

    `log_z` is a `LogNormalizer`, or an array with one value for each Z of the prior.
    """
    part = resampled_part(prior)
    frozen = part.freeze(log_z)
    return frozen if part is prior else prior.copy(distribution=frozen)
