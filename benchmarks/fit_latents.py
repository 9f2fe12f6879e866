"""Trains a VAE on MNIST and stores latents, a target for `benchmarks.fit_defaults`.

    python -m benchmarks.fit_latents latents.npz
    python -m benchmarks.fit_defaults --latents latents.npz

Only the prior differs between the VAE before and after `fit`. Each test image has one latent. The
mean gain on the test latents is therefore an unbiased estimate of the gain in the evidence lower
bound on test images.
"""

from __future__ import annotations

import argparse
import gzip
import os
import pathlib
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from examples.common import command_line

NUM_LATENTS, NUM_UNITS, BATCH_SIZE = 20, 400, 128


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains the VAE and writes latents of training and test images."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fit_latents", description=__doc__.splitlines()[0]
    )
    parser.add_argument("out", type=pathlib.Path, help="NumPy file to write")
    parser.add_argument("--steps", type=int, default=5000, help="training steps (default: 5000)")
    parser.add_argument(
        "--data-dir",
        type=pathlib.Path,
        default=os.environ.get("TFP_LARS_DATA_DIR"),
        help="directory with mnist/*-images-idx3-ubyte.gz (default: TFP_LARS_DATA_DIR)",
    )
    args = parser.parse_args(arguments)
    if args.data_dir is None:
        parser.error("argument --data-dir: required, because TFP_LARS_DATA_DIR is not set")
    folder = pathlib.Path(args.data_dir) / "mnist"
    train, test = (images(folder / f"{part}-images-idx3-ubyte.gz") for part in ("train", "t10k"))
    encoder = trained_encoder(train, args.steps)
    np.savez(args.out, train=latents(encoder, train, 0), test=latents(encoder, test, 1))


def images(path: pathlib.Path) -> np.ndarray:
    """Returns gray levels in [0, 1], shape `[N, 784]`."""
    with gzip.open(path) as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16)
    return pixels.reshape(-1, 784).astype(np.float32) / 255.0


def trained_encoder(x: np.ndarray, num_steps: int) -> keras.Model:
    """Trains a VAE with the prior N(0, I) and returns its encoder: means and log variances."""
    keras.utils.set_random_seed(0)
    encoder, decoder = network(784, 2 * NUM_LATENTS), network(NUM_LATENTS, 784)
    variables = [v.value for v in encoder.trainable_variables + decoder.trainable_variables]
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(variables)

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            mean, log_var = tf.split(encoder(batch), 2, axis=-1)
            z = mean + tf.exp(0.5 * log_var) * tf.random.normal(tf.shape(mean))
            loss = tf.nn.sigmoid_cross_entropy_with_logits(batch, decoder(z))
            kl = 0.5 * (mean**2 + tf.exp(log_var) - 1.0 - log_var)
            total = tf.reduce_mean(tf.reduce_sum(loss, axis=-1) + tf.reduce_sum(kl, axis=-1))
        optimizer.apply_gradients(zip(tape.gradient(total, variables), variables, strict=True))

    batches = tf.data.Dataset.from_tensor_slices(x).shuffle(len(x)).repeat().batch(BATCH_SIZE)
    for batch in batches.take(num_steps):
        step(batch)
    return encoder


def network(num_inputs: int, num_outputs: int) -> keras.Model:
    """Returns a network with two hidden layers."""
    layers = [keras.layers.Dense(NUM_UNITS, "relu") for _ in range(2)]
    return keras.Sequential([keras.Input([num_inputs]), *layers, keras.layers.Dense(num_outputs)])


def latents(encoder: keras.Model, x: np.ndarray, seed: int) -> np.ndarray:
    """Returns a draw from the encoder for each image, shape `[N, NUM_LATENTS]`."""
    mean, log_var = np.split(encoder.predict(x, verbose=0), 2, axis=-1)
    noise = np.random.default_rng(seed).normal(size=mean.shape)
    return (mean + np.exp(0.5 * log_var) * noise).astype(np.float32)


if __name__ == "__main__":
    command_line.run(main, interrupted="nothing was written")
