"""Data and distributions for the tests of `fit`."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import AcceptanceNetwork, MovingAverage, Resampled, _fit_samples

tfd = tfp.distributions


FEW = {"num_steps": 40, "progress": False, "seed": 1}


def mixture():
    """Two clusters, which a normal cannot separate."""
    return tfd.MixtureSameFamily(
        tfd.Categorical(probs=[0.5, 0.5]),
        tfd.MultivariateNormalDiag([[-1.0, -1.0], [1.0, 1.0]], [0.3, 0.3]),
    )


def data(n=3000, seed=0):
    return mixture().sample(n, seed=[seed, 5]).numpy()


def resampled(proposal=None, **kwargs):
    proposal = tfd.MultivariateNormalDiag(tf.zeros(2)) if proposal is None else proposal
    kwargs.setdefault("normalizer", MovingAverage(256, seed=3))
    return Resampled(proposal, AcceptanceNetwork((16, 16)), **kwargs)


class Table(tf.Module):
    """A logit for each value."""

    def __init__(self, n):
        super().__init__()
        self.values = tf.Variable(tf.zeros([n]))

    def logits(self, z):
        return tf.gather(self.values, z)


def read(samples, batch_size=64):
    shape, batch_shape = tf.TensorShape([2]), tf.TensorShape([])
    rng = np.random.default_rng(0)
    return _fit_samples.read(samples, shape, batch_shape, tf.float32, batch_size, 0.1, rng)
