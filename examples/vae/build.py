"""From a configuration to a compiled model, and what its weights are compared by."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

import keras
import numpy as np
import tensorflow as tf

from examples.vae import models, priors
from examples.vae.config import MODELS, Config
from examples.vae.fused_adam import FusedAdam
from examples.vae.schedule import Schedule

# 50 steps for each call from Python cost what a hand-written loop costs, single steps twice that.
MOST_STEPS_PER_CALL = 50


def on_gpu() -> bool:
    """Whether TensorFlow sees a GPU."""
    return bool(tf.config.list_physical_devices("GPU"))


def build(config: Config, *, jit_compile: bool | None = None) -> models.LatentVariableModel:
    """The untrained, compiled model of a configuration.

    Args:
      config: What to build.
      jit_compile: Whether XLA compiles the training step; `None` for "on a GPU". It pays there, and
        halves the speed on a CPU.
    """
    keras.utils.set_random_seed(config.seed)
    schedule = Schedule.of(config)

    def make_prior(part):
        if config.resamples_images:
            return priors.resample(part, config.prior, config.seed)
        return priors.make(config.num_latents, config.prior, part, config.seed)

    model = getattr(models, MODELS[config.model].class_name)(
        make_prior,
        num_latents=config.num_latents,
        kl_weight=schedule.kl_weight,
        seed=config.seed,
    )
    if config.post_hoc:
        for network in networks(model):
            network.trainable = False
    model.compile(
        optimizer=FusedAdam(schedule.learning_rate()),
        steps_per_execution=math.gcd(MOST_STEPS_PER_CALL, config.steps),
        jit_compile=on_gpu() if jit_compile is None else jit_compile,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def networks(model: models.LatentVariableModel) -> list[keras.Layer]:
    """All of a model but its prior: what a post-hoc fit leaves as it is."""
    return [layer for layer in model.layers if layer is not model.prior_layer]


def networks_digest(model: models.LatentVariableModel) -> str:
    """The same for the same weights of `networks`, to the last bit."""
    return _digest(w for network in networks(model) for w in network.get_weights())


def weights_digest(model: models.LatentVariableModel) -> str:
    """The same for all weights of a model, the prior's included."""
    return _digest(model.get_weights())


def _digest(weights: Iterable[np.ndarray]) -> str:
    return hashlib.md5(b"".join(w.tobytes() for w in weights)).hexdigest()


def take_weights(
    base: models.LatentVariableModel, model: models.LatentVariableModel, config: Config
) -> None:
    """Gives a model the weights of another: those of its networks, or, to continue it, all."""
    if config.continues:
        model.set_weights(base.get_weights())
        return
    for source, network in zip(networks(base), networks(model), strict=True):
        network.set_weights(source.get_weights())
