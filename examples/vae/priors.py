"""The priors that the examples compare, by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lars
from examples.vae.dimensionwise import DimensionwiseAcceptance
from tfp_lars import proposals

tfd = tfp.distributions


@dataclasses.dataclass(frozen=True)
class PriorConfig:
    """What there is to say about a prior.

    Attributes:
      name: One of `PRIORS`.
      accept_units: Hidden layers of the acceptance network; of each one, where every dimension has
        its own.
      T: Truncation, `None` for resampling without end.
      num_samples: Proposals for each estimate of Z while training.
      decay: Of the moving average of Z.
      num_components: Of the mixtures: Gaussians, or pseudo-inputs of the VampPrior.
      seed: Of initial weights and of the draws for Z.
    """

    name: str = "lars"
    accept_units: tuple[int, ...] = (100, 100)
    T: int | None = 100
    num_samples: int = 1024
    decay: float = 0.9
    num_components: int = 500
    seed: int = 0


def _resampled(
    proposal: tfd.Distribution, config: PriorConfig, accept_fn: Callable | None = None
) -> tfp_lars.Resampled:
    return tfp_lars.Resampled(
        proposal,
        accept_fn or tfp_lars.AcceptanceNetwork(config.accept_units),
        T=config.T,
        normalizer=tfp_lars.MovingAverage(config.num_samples, config.decay, seed=config.seed),
    )


def _dimensionwise(d: int, config: PriorConfig) -> tfd.Independent:
    """Each dimension with its own a_i.

    It trains on Z from the proposals alone: in one dimension a thousand of them leave no place
    that a sample of the encoder would have to make up for.
    """
    proposal = tfd.Normal(tf.zeros([d]), tf.ones([d]))
    accept_fn = DimensionwiseAcceptance(d, config.accept_units, seed=config.seed)
    return tfd.Independent(_resampled(proposal, config, accept_fn), 1)


# name: (dimensions, config, encoder of the topmost latent) -> prior
PRIORS: dict[str, Callable[[int, PriorConfig, Callable], tfd.Distribution]] = {
    "standard": lambda d, config, encode: proposals.standard_normal(d),
    "lars": lambda d, config, encode: _resampled(proposals.standard_normal(d), config),
    "lars_dimensionwise": lambda d, config, encode: _dimensionwise(d, config),
    "real_nvp": lambda d, config, encode: proposals.real_nvp(d, seed=config.seed),
    "maf": lambda d, config, encode: proposals.masked_autoregressive_flow(d, seed=config.seed),
    "lars_real_nvp": lambda d, config, encode: _resampled(
        proposals.real_nvp(d, seed=config.seed), config
    ),
    "vamp": lambda d, config, encode: proposals.vamp_prior(
        encode, (28, 28), num_components=config.num_components, seed=config.seed
    ),
    "mog": lambda d, config, encode: proposals.gaussian_mixture(
        d, config.num_components, seed=config.seed
    ),
}


# Hidden layers of a(z), unless `lars` over latents has its 100-100.
_ACCEPT_UNITS = {"lars_dimensionwise": (20, 20)}
_ACCEPT_UNITS_OF_IMAGES = (300, 300)  # as the encoder has


def default_accept_units(prior: str, model: str) -> tuple[int, ...]:
    """Hidden layers of a(z), where none are asked for."""
    if model == "output_vae":
        return _ACCEPT_UNITS_OF_IMAGES
    return _ACCEPT_UNITS.get(prior, PriorConfig.accept_units)


def make(d: int, config: PriorConfig, encode: Callable) -> tfd.Distribution:
    """A prior of event shape `[d]`.

    Args:
      d: Dimensions of the latent.
      config: Which prior, and its settings.
      encode: Encoder of the topmost latent, images `[N, 28, 28]` to a distribution.
    """
    return PRIORS[config.name](d, config, encode)


def resampled_images(marginal: tfd.Distribution, config: PriorConfig) -> tfp_lars.Resampled:
    """Images resampled by an acceptance network of the image.

    Args:
      marginal: Marginal of the VAE, event shape `[784]`.
      config: Settings of the acceptance network, of `T` and of the estimate of Z; `name` is `lars`.
    """
    return _resampled(marginal, config)


def resampled_part(prior: tfd.Distribution) -> tfp_lars.Resampled | None:
    """What is resampled in a prior: all of it, or each dimension, or nothing (`None`)."""
    part = getattr(prior, "distribution", prior)  # what `tfd.Independent` wraps
    return part if isinstance(part, tfp_lars.Resampled) else None


def freeze(prior: tfd.Distribution, log_z) -> tfd.Distribution:
    """A resampled prior with a fixed log Z, a `LogNormalizer` or one number for each Z in it."""
    frozen = resampled_part(prior).freeze(log_z)
    return frozen if isinstance(prior, tfp_lars.Resampled) else prior.copy(distribution=frozen)
