"""Dimension-wise resampling: each latent dimension has its own acceptance function."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf


class DimensionwiseAcceptance(tf.Module):
    """`d` networks, each of which maps one number `z_i` to the logit of `a_i(z_i)`.

    The networks share no weights. Each layer is one batched product for all networks, with kernels
    of shape `[d, in, out]`. Kernels have Glorot uniform initialization, and hidden layers use tanh.

    Args:
      d: Number of dimensions.
      hidden_units: Sizes of the hidden layers of each network.
      seed: Seed for the initial weights.
    """

    def __init__(self, d: int, hidden_units: Sequence[int] = (20, 20), seed: int = 0):
        super().__init__(name="dimensionwise_acceptance")
        rng = np.random.default_rng(seed)
        sizes = (1, *hidden_units, 1)
        self.kernels, self.biases = [], []
        for fan_in, fan_out in itertools.pairwise(sizes):
            limit = np.sqrt(6.0 / (fan_in + fan_out))
            kernel = rng.uniform(-limit, limit, size=[d, fan_in, fan_out])
            self.kernels.append(tf.Variable(np.float32(kernel), name="kernel"))
            self.biases.append(tf.Variable(tf.zeros([d, fan_out]), name="bias"))

    def logits(self, z: tf.Tensor) -> tf.Tensor:
        """Returns the logits of `a_i(z_i)`, with the shape of `z`, `[..., d]`."""
        # Networks on the first axis, which avoids two transposes in every product.
        h = tf.transpose(tf.reshape(z, [-1, z.shape[-1]]))[..., tf.newaxis]  # [d, N, 1]
        for layer, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            h = tf.tanh(h) if layer > 0 else h
            h = tf.matmul(h, kernel) + bias[:, tf.newaxis]
        return tf.reshape(tf.transpose(h[..., 0]), tf.shape(z))
