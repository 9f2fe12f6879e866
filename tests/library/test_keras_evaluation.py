"""Evaluation and prediction of Keras 3 models leave moving averages alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tests.library.keras_cases import data, functional, negative_log_likelihood, resampled_pair
from tests.seeding import set_random_seed
from tfp_lars import AcceptanceNetwork, DistributionLayer, MovingAverage, Resampled

tfd = tfp.distributions


class WithTraining(keras.Model):
    """Passes `training` on, as in Keras's guides."""

    def __init__(self):
        super().__init__()
        self.prior = DistributionLayer(resampled_pair())

    def call(self, z, training=None):
        return self.prior(z, training=training)


class WithoutTraining(WithTraining):
    """Keras does not pass `training` to such a model."""

    def call(self, z):
        return self.prior(z)


class Inner(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.prior = DistributionLayer(resampled_pair())

    def call(self, z):
        return self.prior(z)


class Nested(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.prior = self.inner.prior

    def call(self, z):
        return self.inner(z)


class OwnSteps(WithoutTraining):
    def train_step(self, batch):
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(self(batch[0]))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"nll": loss}

    def test_step(self, batch):
        return {"nll": -tf.reduce_mean(self(batch[0]))}


MODELS = [WithTraining, WithoutTraining, Nested, OwnSteps, functional]


@pytest.mark.parametrize(
    ("make", "run_eagerly"),
    # Without a graph, models differ only in who calls the layer: Keras or the model's own step.
    [*((make, False) for make in MODELS), (Nested, True), (OwnSteps, True)],
    ids=lambda value: {False: "graph", True: "eager"}.get(value) or value.__name__,
)
def test_evaluation_leaves_the_average_alone(make, run_eagerly):
    model = make()
    model.compile("adam", negative_log_likelihood, run_eagerly=run_eagerly)
    x, y = data()[:12], np.zeros(12)
    average = model.prior.distribution.normalizer

    def state():
        return int(average.num_updates), average.log_z.numpy()

    # Also before the first update, when there is no value to hold.
    assert np.all(np.isfinite(model.predict(x, batch_size=4, verbose=0)))
    model.fit(x, y, batch_size=4, validation_data=(x, y), verbose=0)
    assert state()[0] == 3
    before = state()
    with model.prior.distribution.held():
        expected = model.prior.distribution.log_prob(x)
    for _ in range(2):
        model.evaluate(x, y, batch_size=4, verbose=0)
        np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-5)
        np.testing.assert_allclose(model(x, training=False), expected, rtol=1e-5)
        model.test_on_batch(x, y)
    assert state() == before
    model.train_on_batch(x, y)
    assert state()[0] == 4
    model.fit(x, y, batch_size=4, verbose=0)  # this graph is already traced
    assert state()[0] == 7
    model(x, training=True)
    model(x)  # outside of Keras: plain `log_prob`
    assert state()[0] == 9


@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_networks_of_both_libraries_train_and_evaluate_as_the_model_does(library, tmp_path):
    """Batch normalization moves its statistics in training mode only."""
    x, y = data()[:12], np.zeros(12)
    after_fit = []
    for validation_data in (None, (x, y)):
        set_random_seed(1)
        layers = library.layers
        norm = layers.BatchNormalization()
        net = library.Sequential([layers.Dense(3), norm, layers.Dense(1, "sigmoid")])
        model = functional(
            lambda net=net: Resampled(
                tfd.MultivariateNormalDiag(tf.zeros(2)), net, normalizer=MovingAverage(16, seed=1)
            )
        )
        model.compile("adam", negative_log_likelihood)
        before = np.array(norm.moving_mean)
        model.fit(x, y, 4, shuffle=False, validation_data=validation_data, verbose=0)
        after_fit.append(np.array(norm.moving_mean))
        assert np.all(after_fit[-1] != before)
    np.testing.assert_array_equal(*after_fit)
    expected = model.predict(x, verbose=0)
    model.evaluate(x, y, verbose=0)
    model.export(tmp_path / "export", verbose=False)
    exported = tf.saved_model.load(tmp_path / "export")
    np.testing.assert_allclose(exported.serve(x), expected, rtol=1e-5)
    np.testing.assert_array_equal(norm.moving_mean, after_fit[-1])


@pytest.mark.parametrize("make", [WithTraining, WithoutTraining, functional])
def test_exported_model_predicts_as_the_model_does(make, tmp_path):
    model, x = make(), data()[:12]
    model(x)
    expected = model.predict(x, verbose=0)
    model.export(tmp_path / "export", verbose=False)
    exported = tf.saved_model.load(tmp_path / "export")
    for _ in range(2):
        np.testing.assert_allclose(exported.serve(x), expected, rtol=1e-5)


def test_training_flag_of_a_layer_wins():
    layer, z = DistributionLayer(resampled_pair()), data()[:6]
    average = layer.distribution.normalizer
    layer(z)
    layer(z, training=False)
    layer(z, training=None)
    assert average.num_updates == 2
    layer(z, training=True)
    assert average.num_updates == 3


def test_evaluation_holds_nested_averages():
    inner = Resampled(tfd.Normal([0.0, 0.0], 1.0), tf.sigmoid, normalizer=MovingAverage(8))
    dist = Resampled(tfd.Independent(inner, 1), AcceptanceNetwork((4,)))
    layer = DistributionLayer(dist)
    layer(data()[:6])
    layer(data()[:6], training=False)
    assert inner.normalizer.num_updates == dist.normalizer.num_updates == 1


def test_a_loop_of_ones_own_can_train_while_an_evaluation_graph_exists():
    """The flag is not a state: a graph for evaluation does not affect one for training."""
    layer, z = DistributionLayer(resampled_pair()), tf.constant(data()[:6])
    train = tf.function(lambda z: layer(z, training=True))
    evaluate = tf.function(lambda z: layer(z, training=False))
    for _ in range(2):
        train(z)
        np.testing.assert_array_equal(evaluate(z), evaluate(z))
    assert layer.distribution.normalizer.num_updates == 2
