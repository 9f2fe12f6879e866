"""The fused optimizer takes the steps of Keras's own."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from examples.fused_adam import FusedAdam


def train(optimizer, in_graph, num_steps=20):
    """A few steps of logistic regression, with a rate that changes on the way."""
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


@pytest.mark.parametrize("in_graph", [False, True])
def test_steps_are_those_of_adam(in_graph):
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([10], [0.1, 0.01])
    expected = train(keras.optimizers.Adam(schedule, beta_1=0.8, epsilon=1e-5), in_graph)
    found = train(FusedAdam(schedule, beta_1=0.8, epsilon=1e-5), in_graph)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)  # 1 - 0.999 in float32
    assert np.all(np.abs(found[0] - 1.0) > 0.1)  # it did move
