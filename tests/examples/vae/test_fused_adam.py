"""The fused optimizer takes the same steps as Keras's Adam."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from examples.vae import fused_adam
from examples.vae.fused_adam import FusedAdam


def train(optimizer, in_graph, num_steps=20):
    """Takes a few steps of logistic regression, with a changing learning rate."""
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=(32, 3)), tf.float32)
    y = tf.constant(rng.integers(0, 2, (32, 1)), tf.float32)
    weights = [keras.Variable(np.ones((3, 1), "float32")), keras.Variable(np.zeros(1, "float32"))]
    optimizer.build(weights)

    def step():
        with tf.GradientTape() as tape:
            logits = x @ weights[0].value + weights[1].value
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(y, logits))
        optimizer.apply(tape.gradient(loss, [w.value for w in weights]), weights)

    step = tf.function(step) if in_graph else step
    for _ in range(num_steps):
        step()
    return [np.array(v) for v in (*weights, *optimizer.variables)]


OPTIONS = {
    "plain": {},
    "amsgrad": {"amsgrad": True},
    "weight decay": {"weight_decay": 0.3},
    "clipped": {"global_clipnorm": 0.05},
    "average": {"use_ema": True, "ema_momentum": 0.5},
}


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_steps_are_those_of_adam(in_graph, options):
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([10], [0.1, 0.01])
    options = {"beta_1": 0.8, "epsilon": 1e-5, **options}
    expected = train(keras.optimizers.Adam(schedule, **options), in_graph)
    found = train(FusedAdam(schedule, **options), in_graph)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)  # 1 - 0.999 in float32
    assert np.all(np.abs(found[0] - 1.0) > 0.1)  # the weights changed


def test_state_that_keras_keeps_elsewhere_is_left_to_keras(monkeypatch):
    monkeypatch.setattr(fused_adam, "_INTERNALS", ("_state_of_another_version",))
    monkeypatch.setattr(tf.raw_ops, "ResourceApplyAdam", None)
    expected = train(keras.optimizers.Adam(0.1), in_graph=False)
    for a, b in zip(train(FusedAdam(0.1), in_graph=False), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_sparse_gradients_are_left_to_keras():
    tables = []
    for optimizer in (keras.optimizers.Adam(0.1), FusedAdam(0.1)):
        table = keras.Variable(np.ones((4, 2), "float32"))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table.value, [1, 3]) ** 2)
        optimizer.apply(tape.gradient(loss, [table.value]), [table])
        tables.append(np.array(table))
    np.testing.assert_array_equal(*tables)
