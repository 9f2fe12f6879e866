"""Variables that several layers of a Keras 3 model use."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tests.library.keras_cases import (
    assert_same,
    autoregressive_flow,
    data,
    inner,
    negative_log_likelihood,
    values,
)
from tfp_lars import DistributionLayer, Resampled, proposals

tfd = tfp.distributions


class SharedFlow(keras.Model):
    """The proposal of the prior is also a layer of its own."""

    def __init__(self, frozen=False):
        super().__init__()
        flow = autoregressive_flow()
        self.base = DistributionLayer(flow)
        self.base.trainable = not frozen
        network = tf_keras.Sequential(
            [
                tf_keras.layers.Input((2,)),
                tf_keras.layers.Dense(4),
                tf_keras.layers.Dense(4),
                tf_keras.layers.Dense(1),
            ]
        )
        self.prior = DistributionLayer(Resampled(flow, network, from_logits=True))

    def call(self, z):
        return self.prior(z)


class FunctionOfANetwork(keras.Model):
    """A function reads a layer of the model. `wrap` is applied to the function."""

    def __init__(self, wrap=lambda function: function):
        super().__init__()
        self.net = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        accept_fn = wrap(lambda z: self.net(z))
        proposal = tfd.MultivariateNormalDiag(tf.Variable([0.3, 0.1]))
        self.prior = DistributionLayer(
            Resampled(proposal, accept_fn, T=5, from_logits=True, normalizer=-0.7)
        )

    def call(self, z):
        return self.prior(z)


class FunctionsOfAVAE(keras.Model):
    """The encoder and decoder of the model define the proposal of its prior."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = (
            keras.Sequential([keras.Input([2]), keras.layers.Dense(2)]) for _ in range(2)
        )

        def around(network):
            return lambda x: tfd.MultivariateNormalDiag(network(x), tf.ones(2))

        marginal = proposals.vae_marginal(
            tfd.MultivariateNormalDiag(tf.zeros(2)), around(self.encoder), around(self.decoder)
        )
        self.prior = DistributionLayer(marginal)

    def call(self, z):
        return self.prior(z)


class CompiledFunctionOfANetwork(FunctionOfANetwork):
    """A `tf.function`, whose Python code does not run again once it is traced."""

    def __init__(self):
        super().__init__(wrap=tf.function)


SHARING = [SharedFlow, FunctionOfANetwork, CompiledFunctionOfANetwork, FunctionsOfAVAE]


@pytest.mark.parametrize("make", SHARING)
def test_model_owns_a_variable_once_that_two_of_its_layers_use(make):
    model = make()
    assert len(set(inner(model.variables))) == len(model.variables)
    assert set(inner(model.prior.variables)) == {id(v) for v in model.prior.distribution.variables}


def test_step_moves_shared_weights_by_the_gradient():
    model, x = FunctionOfANetwork(), tf.constant(data()[:8])
    variables = model.net.trainable_variables
    with tf.GradientTape() as tape:
        loss = -tf.reduce_mean(model.prior.distribution.log_prob(x))
    expected = [v - g for v, g in zip(variables, tape.gradient(loss, variables), strict=True)]
    model.compile(keras.optimizers.SGD(1.0), negative_log_likelihood)
    model.fit(x, np.zeros(8), verbose=0)
    for new, old in zip(variables, expected, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", SHARING)
def test_weights_file_restores_shared_variables(make, tmp_path):
    model, other = make(), make()
    for m in (model, other):
        m.build([None, 2])
    for v in model.variables:
        v.assign(keras.ops.ones_like(v))
    model.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    assert_same(values(other.variables), values(model.variables))


def test_order_in_a_weights_file_does_not_depend_on_what_is_frozen(tmp_path):
    """The kernels of the flow and of the acceptance network have the same shapes."""
    model, other = SharedFlow(frozen=True), SharedFlow()
    for m in (model, other):
        m.build([None, 2])
    assert len(model.trainable_variables) == len(other.trainable_variables) - 4
    model.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    x = data()[:5]
    for part in (lambda m: m.base.distribution, lambda m: m.prior.distribution.accept_fn):
        expected, actual = (part(m) for m in (model, other))
        assert_same(values(actual.variables), values(expected.variables))
    np.testing.assert_array_equal(other.base(x), model.base(x))


def test_a_shared_variable_is_not_kept_alive():
    variable = tf.Variable(0.0)
    layer = DistributionLayer(tfd.Normal(variable, 1.0))
    (first,) = layer.own_variables
    assert DistributionLayer(tfd.Normal(variable, 1.0)).own_variables[0] is first
    gone = weakref.ref(first)
    del layer, first
    gc.collect()
    assert gone() is None
    assert DistributionLayer(tfd.Normal(variable, 1.0)).own_variables[0].value is variable


def test_fit_refuses_to_update_a_variable_twice():
    """A concrete function has no Python code that would show which weights it reads."""

    def concrete(function):
        return tf.function(function).get_concrete_function(tf.TensorSpec([None, 2]))

    model = FunctionOfANetwork(wrap=concrete)
    model.compile("adam", negative_log_likelihood)
    with pytest.raises(ValueError, match="/kernel' and 'kernel_.*twice.*`accept_fn=net`"):
        model.fit(data()[:8], np.zeros(8), verbose=0)
