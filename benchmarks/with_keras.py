"""Contenders that train the VAE of the examples, with the thread settings of the examples.

Each contender is a function that returns a callable without arguments, with its graph traced.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import tfp_lars
from examples.common import cores
from examples.vae import datasets, models
from examples.vae.batches import training_batches, untuned
from examples.vae.build import build
from examples.vae.config import Config, PriorConfig
from tfp_lars import _proposal_draws

__all__ = ["acceptance_alone", "train", "train_by_hand", "use_threads", "vae"]

Call = Callable[[], object]

_WARM_UP_STEPS = 50


def use_threads(threads: int) -> None:
    """Sets the number of threads. Call this before any computation."""
    cores.share(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def vae(prior: str) -> models.LatentVariableModel:
    """Returns the VAE of the examples, compiled for training."""
    return build(Config("mnist", "vae", PriorConfig(prior), steps=10**5, schedule="paper"))


def train(*, prior: str, steps: int, pipeline: bool = False) -> Call:
    """Trains for `steps` steps with Keras `fit`.

    Args:
      prior: `"standard"` or `"lars"`.
      steps: Number of steps per call, a multiple of 50.
      pipeline: Whether to use the data pipeline of the examples. Otherwise one batch is repeated.
    """
    model = vae(prior)
    one_batch = untuned(tf.data.Dataset.from_tensors(_batch()).repeat())
    batches = _pipeline(steps) if pipeline else one_batch

    def fit(num_steps):
        model.fit(batches, steps_per_epoch=num_steps, shuffle=False, verbose=0)

    fit(_WARM_UP_STEPS)
    return lambda: fit(steps)


def train_by_hand(*, prior: str, steps: int, keras_step: bool = False) -> Call:
    """Trains with a hand-written loop over the data pipeline of the examples.

    Args:
      prior: `"standard"` or `"lars"`.
      steps: Number of steps per call.
      keras_step: Whether each step calls Keras's `train_step`, which updates metrics.
    """
    model = vae(prior)
    batches = _pipeline(steps)

    def step(x):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, None, model(x))
        variables = model.trainable_variables
        gradients = tape.gradient(loss, [v.value for v in variables])
        model.optimizer.apply(gradients, variables)

    step = model.train_step if keras_step else step

    @tf.function
    def loop(iterator):
        for _ in tf.range(steps):
            step(next(iterator))

    def call():
        loop(iter(batches))

    call()
    return call


def acceptance_alone(*, steps: int, d: int = 50, S: int = 1024, batch: int = 128) -> Call:
    """Runs the work that LARS adds to a step: `S` proposals, a(z) and its gradients."""
    network = tfp_lars.AcceptanceNetwork()
    network.build((None, d))
    weights = [v.value for v in network.trainable_variables]
    proposal, z = tfp_lars.proposals.standard_normal(d), tf.ones([batch, d])

    @tf.function(autograph=False)
    def loop(seed):
        def step(i, total):
            draws = _proposal_draws.sample(proposal, S, tf.stack([seed, i]))
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(
                    tf.math.log_sigmoid(network.logits(tf.concat([z, draws], axis=0)))
                )
            # The sum prevents TensorFlow from optimizing the work away.
            return i + 1, total + tf.add_n([tf.reduce_sum(g) for g in tape.gradient(loss, weights)])

        return tf.while_loop(lambda i, _: i < steps, step, [tf.constant(0), tf.constant(0.0)])

    seeds = itertools.count(1)
    loop(tf.constant(0))
    return lambda: loop(tf.constant(next(seeds)))


def _batch() -> tf.Tensor:
    """Returns a batch of random binary images with the share of white pixels of MNIST."""
    return tf.constant(np.float32(np.random.default_rng(0).random((128, 28, 28)) < 0.13))


def _pipeline(steps: int) -> tf.data.Dataset:
    """Returns the data pipeline of the examples on random images in the shape of MNIST."""
    grey = np.random.default_rng(0).integers(0, 256, (50_000, 28, 28), np.uint8)
    images = datasets.Images("mnist", grey, grey[:0], grey[:0], dynamic=True, source="made up")
    return training_batches(images, batch_size=128, seed=0, start=0, stop=steps)
