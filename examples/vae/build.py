"""Builds a compiled model from a configuration, and computes digests of its weights."""

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

# 50 steps per call from Python are as fast as a hand-written loop; single steps take twice as long.
MOST_STEPS_PER_CALL = 50


def on_gpu() -> bool:
    """Returns whether TensorFlow sees a GPU."""
    return bool(tf.config.list_physical_devices("GPU"))


def gpu_names() -> list[str]:
    """Returns the model names of the GPUs that TensorFlow sees."""
    details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    return [found.get("device_name", "unknown") for found in details]


def build(
    config: Config, *, schedule: Schedule | None = None, jit_compile: bool | None = None
) -> models.LatentVariableModel:
    """Returns the untrained, compiled model of a configuration.

    Args:
      config: Configuration of the run.
      schedule: Training recipe in place of that of the configuration.
      jit_compile: Whether XLA compiles the training step. `None` compiles only on a GPU, because
        XLA halves the speed on a CPU.
    """
    keras.utils.set_random_seed(config.seed)
    schedule = schedule or Schedule.of(config)

    def make_prior(part):
        if config.resamples_images:
            return priors.resample(part, config.prior, config.seed)
        return priors.make(config.num_latents, config.prior, part, config.seed)

    model = getattr(models, MODELS[config.model].class_name)(
        make_prior,
        num_latents=config.num_latents,
        schedule=schedule,
        seed=config.seed,
    )
    if config.post_hoc:
        for network in networks(model):
            network.trainable = False
    model.compile(
        optimizer=schedule.optimizer(FusedAdam),
        steps_per_execution=math.gcd(MOST_STEPS_PER_CALL, config.steps),
        jit_compile=on_gpu() if jit_compile is None else jit_compile,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def networks(model: models.LatentVariableModel) -> list[keras.Layer]:
    """Returns all layers except the prior; a post-hoc fit does not change them."""
    return [layer for layer in model.layers if layer is not model.prior_layer]


def networks_digest(model: models.LatentVariableModel) -> str:
    """Returns a digest of the weights of `networks`, equal only for bitwise equal weights."""
    return _digest(w for network in networks(model) for w in network.get_weights())


def weights_digest(model: models.LatentVariableModel) -> str:
    """Returns a digest of all weights of a model, including the prior's."""
    return _digest(model.get_weights())


def _digest(weights: Iterable[np.ndarray]) -> str:
    return hashlib.md5(b"".join(w.tobytes() for w in weights)).hexdigest()


def take_weights(
    base: models.LatentVariableModel, model: models.LatentVariableModel, config: Config
) -> None:
    """Copies weights from `base` to `model`.

    Copies all weights if the configuration continues a run, otherwise only those of `networks`.
    """
    if config.continues:
        model.set_weights(base.get_weights())
        return
    for source, network in zip(networks(base), networks(model), strict=True):
        network.set_weights(source.get_weights())
