"""What makes a run: its configuration, its schedule, and the model that follows from them."""

from __future__ import annotations

import dataclasses
import hashlib
import math

import keras
import tensorflow as tf

import tfp_lars
from examples.common.command_line import UserError
from examples.vae import models, priors
from examples.vae.fused_adam import FusedAdam


@dataclasses.dataclass(frozen=True)
class Config:
    """What makes a run; two runs of the same configuration end with the same weights on a CPU.

    Attributes:
      dataset: One of `data.NAMES`.
      model: One of `models.MODELS`.
      prior: Of the topmost latent.
      steps: Of the optimizer.
      num_latents: Dimensions of each latent.
      batch_size: Images for each step.
      seed: Of weights, batches and noise.
      post_hoc: If only the prior is trained, the `fingerprint` of the networks that stay as they
        are.
    """

    dataset: str
    model: str
    prior: priors.PriorConfig
    steps: int
    num_latents: int = 50
    batch_size: int = 128
    seed: int = 0
    post_hoc: str | None = None

    def __post_init__(self):
        if self.model == "output_vae" and self.prior.name != "lars":
            raise UserError(
                "--model output_vae resamples images by the T, S and decay of --prior lars, over a "
                f"standard normal prior; got --prior {self.prior.name}."
            )

    def to_json(self) -> dict:
        return {**dataclasses.asdict(self), "version": tfp_lars.__version__}


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Learning rate and warm-up, as a function of the budget alone, so that priors compare fairly.

    At 10^7 steps it is the paper's: 3e-4, 1e-4 from step 10^6 on, warm-up over 10^5. Budgets below
    10^6 cannot afford so small a rate and take larger ones first; their warm-up is a tenth of them,
    but 3,000 steps where that is more, and at most two fifths: a flow that meets the whole KL term
    before the decoder has learned anything does not recover in a short run. Times are halved where
    the paper halves them, on statically binarized MNIST. Where the networks do not train there is
    nothing to warm up.
    """

    boundaries: tuple[int, ...]
    rates: tuple[float, ...]
    warm_up: int

    @classmethod
    def of(cls, config: Config) -> Schedule:
        half = 0.5 if config.dataset == "static_mnist" else 1.0
        if config.steps >= 10**6:
            boundaries, rates, warm_up = (0.1,), (3e-4, 1e-4), 0.01 * config.steps
        else:
            boundaries, rates = (0.5, 0.8), (1e-3, 3e-4, 1e-4)
            warm_up = max(0.1 * config.steps, min(0.4 * config.steps, 3000))
        return cls(
            tuple(int(half * share * config.steps) for share in boundaries),
            rates,
            0 if config.post_hoc else int(half * warm_up),
        )

    def learning_rate(self) -> keras.optimizers.schedules.LearningRateSchedule:
        return keras.optimizers.schedules.PiecewiseConstantDecay(
            list(self.boundaries), list(self.rates)
        )


def build(config: Config) -> models.LatentVariableModel:
    """The untrained, compiled model of a configuration."""
    keras.utils.set_random_seed(config.seed)
    schedule = Schedule.of(config)

    def make_prior(part):
        if config.model == "output_vae":
            return priors.resampled_images(part, config.prior)
        return priors.make(config.num_latents, config.prior, part)

    model = models.MODELS[config.model](
        make_prior,
        num_latents=config.num_latents,
        warm_up=schedule.warm_up,
        seed=config.seed,
    )
    if config.post_hoc:
        for network in networks(model):
            network.trainable = False
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    # 50 steps for each call from Python cost what a hand-written loop costs, single steps twice
    # that (`train.steps_per_call` adapts the number to the checkpoints); XLA pays on a GPU and
    # halves the speed on a CPU.
    model.compile(
        optimizer=FusedAdam(schedule.learning_rate()),
        steps_per_execution=math.gcd(50, config.steps),
        jit_compile=on_gpu,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def networks(model: models.LatentVariableModel) -> list[keras.Layer]:
    """All of a model but its prior: what a post-hoc fit leaves as it is."""
    return [layer for layer in model.layers if layer is not model.prior_layer]


def fingerprint(model: models.LatentVariableModel) -> str:
    """The same for the same weights of `networks`, to the last bit."""
    weights = (w for network in networks(model) for w in network.get_weights())
    return hashlib.md5(b"".join(w.tobytes() for w in weights)).hexdigest()


def share_networks(base: models.LatentVariableModel, model: models.LatentVariableModel) -> None:
    """Gives a model the encoder and the decoder of another."""
    for source, network in zip(networks(base), networks(model), strict=True):
        network.set_weights(source.get_weights())
