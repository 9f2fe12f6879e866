"""A resampled normal with a moving average, shared by the tests of normalizers."""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import MovingAverage, Resampled

tfd = tfp.distributions


def accept_fn(z):
    return tf.sigmoid(2.0 * z - 1.0)


def make(decay=0.9, num_samples=64, T=None, seed=3, proposal=None, fn=accept_fn):
    average = MovingAverage(num_samples, decay, seed=seed)
    return Resampled(proposal or tfd.Normal(0.2, 1.1), fn, T=T, normalizer=average)
