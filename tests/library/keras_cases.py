"""Keras 3 models for the tests of layers."""

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import AcceptanceNetwork, DistributionLayer, MovingAverage, Resampled

tfb = tfp.bijectors
tfd = tfp.distributions


def autoregressive_flow():
    """Returns a flow of TFP whose network has no variables yet."""
    network = tfb.AutoregressiveNetwork(params=2, hidden_units=[4], activation="tanh")
    return tfd.TransformedDistribution(
        tfd.Sample(tfd.Normal(0.0, 1.0), [2]), tfb.MaskedAutoregressiveFlow(network)
    )


@keras.saving.register_keras_serializable(package="tfp_lars_tests")
def negative_log_likelihood(_, log_prob):
    return -log_prob


NUM_DATA, BATCH_SIZE = 400, 8
STEPS_PER_EPOCH = NUM_DATA // BATCH_SIZE


def data():
    """Returns two clusters with correlated coordinates."""
    rng = np.random.default_rng(0)
    noise = 0.3 * rng.normal(size=[NUM_DATA, 2]) @ [[1.0, 0.5], [0.0, 1.0]]
    return (noise + np.where(np.arange(NUM_DATA)[:, np.newaxis] % 2, 1.5, -1.0)).astype(np.float32)


def values(variables):
    return [np.array(v) for v in variables]


def assert_same(actual, expected):
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def inner(variables):
    return [id(v.value) for v in variables]


def resampled_pair():
    """Returns a distribution on the same space as the flow, which is traced faster."""
    return Resampled(
        tfd.MultivariateNormalDiag(tf.Variable([0.3, -0.1])),
        AcceptanceNetwork(hidden_units=(4,)),
        T=10,
        normalizer=MovingAverage(32),
    )


def functional(make_prior=resampled_pair):
    inputs = keras.Input([2])
    prior = DistributionLayer(make_prior())
    model = keras.Model(inputs, prior(inputs))
    model.prior = prior
    return model
