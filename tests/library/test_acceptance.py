"""Every kind of acceptance function gives the same log a(z) and lists its variables."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tfp_lars import AcceptanceNetwork, Resampled

tfd = tfp.distributions

D = 3
KERNEL = np.array([[0.5], [-1.0], [2.0]], np.float32)
Z = np.linspace(-2.0, 2.0, 5 * 2 * D, dtype=np.float32).reshape(5, 2, D)
LOGITS = (Z @ KERNEL)[..., 0] - 0.7
LOG_ACCEPT = -np.log1p(np.exp(-LOGITS.astype(np.float64)))


def linear(framework, activation, bias=-0.7):
    """A network with the logits above, in Keras 3 or tf_keras."""
    layer = framework.layers.Dense(1, activation=activation)
    net = framework.Sequential([framework.layers.Input((D,)), layer])
    layer.set_weights([KERNEL, np.array([bias], np.float32)])
    return net


class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.kernel = tf.Variable(KERNEL)
        self.offset = tf.Variable(-0.7)

    def raw(self, z):
        return (
            tf.linalg.matmul(z, tf.broadcast_to(self.kernel, [*z.shape[:-2], D, 1])) + self.offset
        )

    def probabilities(self, z):
        return tf.sigmoid(self.raw(z))

    __call__ = probabilities


class WithLogits(Module):
    def logits(self, z):
        return self.raw(z)

    def __call__(self, z):
        raise AssertionError("`logits` should be called")


def closure(trailing_one=False):
    kernel, offset = tf.Variable(KERNEL), tf.Variable(-0.7)

    def accept(z):
        a = tf.sigmoid(tf.tensordot(z, kernel, 1) + offset)
        return a if trailing_one else a[..., 0]

    return accept


def logits_partial():
    kernel, offset = tf.Variable(KERNEL), tf.Variable(-0.7)
    return functools.partial(
        lambda z, shift: tf.tensordot(z, kernel, 1) + offset + shift, shift=0.0
    )


def lazy_keras():
    net = keras.Sequential([keras.layers.Dense(1, activation="sigmoid")])
    net.build((None, D))
    net.layers[0].set_weights([KERNEL, np.array([-0.7], np.float32)])
    return net


class ListOfLayers(keras.Model):
    """Checkpoints do not look into lists of Keras 3 layers."""

    def __init__(self):
        super().__init__()
        self.blocks = [linear(keras, None)]

    def logits(self, z):
        return self.blocks[0](z)


class LayerNamedLogits(keras.Model):
    """An attribute is not a method, even if it is callable."""

    def __init__(self):
        super().__init__()
        self.logits = linear(keras, None, bias=0.3)

    def call(self, z):
        return keras.ops.sigmoid(self.logits(z) - 1.0)


class TfKerasLayerNamedLogits(tf_keras.Model):
    def __init__(self):
        super().__init__()
        self.logits = linear(tf_keras, None, bias=0.3)

    def call(self, z):
        return tf.sigmoid(self.logits(z) - 1.0)


class ModuleAttributeNamedLogits(Module):
    def __init__(self):
        super().__init__()
        self.logits = lambda z: pytest.fail("`__call__` should be called")


class LogitsOnceTraced(WithLogits):
    @tf.function
    def logits(self, z):
        return self.raw(z)


class Holder(tf.Module):
    """A module that calls a Keras 3 network, which it keeps in various places."""

    def __init__(self, held, find):
        super().__init__()
        self.held = held
        self._find = find

    def __call__(self, z):
        flat = tf.reshape(z, [-1, D])
        return tf.reshape(self._find(self.held)(flat), tf.shape(z)[:-1])


def holder_of_lazy_network():
    bias = keras.initializers.Constant(-0.7)
    kernel = keras.initializers.Constant(KERNEL)
    layer = keras.layers.Dense(1, "sigmoid", kernel_initializer=kernel, bias_initializer=bias)
    return Holder(keras.Sequential([layer]), lambda net: net)


class ListOfLayersCalled(ListOfLayers):
    def call(self, z):
        return keras.ops.sigmoid(self.logits(z))


class Plain:
    """Neither a module nor a layer."""

    def __init__(self):
        self.net = linear(keras, "sigmoid")

    def __call__(self, z):
        return tf.reshape(self.net(tf.reshape(z, [-1, D])), tf.shape(z)[:-1])

    def probabilities(self, z):
        return self(z)


# name: (constructor, from_logits); each has two trainable variables.
KINDS = {
    "keras 3 probabilities": (lambda: linear(keras, "sigmoid"), False),
    "keras 3 logits": (lambda: linear(keras, None), True),
    "keras 3 without input": (lazy_keras, False),
    "keras 3 list of layers": (ListOfLayers, False),
    "keras 3 partial": (
        lambda: functools.partial(linear(keras, "sigmoid"), training=False),
        False,
    ),
    "tf_keras probabilities": (lambda: linear(tf_keras, "sigmoid"), False),
    "tf_keras logits": (lambda: linear(tf_keras, None), True),
    "module": (Module, False),
    "module with logits": (WithLogits, False),
    "bound method": (lambda: Module().probabilities, False),
    "closure": (closure, False),
    "closure with trailing 1": (lambda: closure(trailing_one=True), False),
    "partial": (logits_partial, True),
    "tf.function": (lambda: tf.function(closure()), False),
    "keras 3 layer named logits": (LayerNamedLogits, False),
    "tf_keras layer named logits": (TfKerasLayerNamedLogits, False),
    "module with an attribute named logits": (ModuleAttributeNamedLogits, False),
    "module with logits as tf.function": (LogitsOnceTraced, False),
    "module with a keras 3 network": (
        lambda: Holder(linear(keras, "sigmoid"), lambda net: net),
        False,
    ),
    "module with a lazy keras 3 network": (holder_of_lazy_network, False),
    "module with a list of keras 3 networks": (
        lambda: Holder([[linear(keras, "sigmoid")]], lambda nets: nets[0][0]),
        False,
    ),
    "module with a dict of keras 3 networks": (
        lambda: Holder({"a": (linear(keras, "sigmoid"),)}, lambda nets: nets["a"][0]),
        False,
    ),
    "module with a module with a keras 3 network": (
        lambda: Holder(Holder(linear(keras, "sigmoid"), lambda net: net), lambda m: m.held),
        False,
    ),
    "module with a keras 3 list of layers": (
        lambda: Holder(ListOfLayersCalled(), lambda net: net),
        False,
    ),
    "module with a keras 3 network twice": (
        lambda: Holder([net := linear(keras, "sigmoid"), net.layers[0], net], lambda nets: nets[0]),
        False,
    ),
    "plain object": (Plain, False),
    "bound method of a plain object": (lambda: Plain().probabilities, False),
}


@pytest.fixture(params=KINDS)
def dist(request):
    make, from_logits = KINDS[request.param]
    proposal = tfd.MultivariateNormalDiag(tf.zeros([2, D]))
    return Resampled(proposal, make(), from_logits=from_logits)


def test_every_kind_gives_the_same_log_acceptance(dist):
    np.testing.assert_allclose(dist.accept_log_prob(Z), LOG_ACCEPT, rtol=1e-5)


def test_every_kind_shows_its_variables_once(dist):
    assert len(dist.trainable_variables) == 2
    assert len({id(v) for v in dist.variables}) == len(dist.variables) == 2 + 3
    assert all(isinstance(v, tf.Variable) for v in dist.variables)
    wrapped = tfd.Independent(tfd.BatchBroadcast(dist, [4, 2]), 1)
    assert len(wrapped.trainable_variables) == 2


def test_every_kind_is_trained(dist):
    with tf.GradientTape() as tape:
        loss = -tf.reduce_mean(dist.log_prob(Z))
    gradients = tape.gradient(loss, dist.trainable_variables)
    assert all(g is not None and np.any(g.numpy() != 0.0) for g in gradients)


def test_every_kind_survives_a_checkpoint_once(dist, request, tmp_path):
    make, from_logits = KINDS[request.node.callspec.params["dist"]]
    dist.log_prob(Z)
    for v in dist.trainable_variables:
        v.assign(v + 1.0)
    path = tf.train.Checkpoint(dist=dist).save(tmp_path / "ckpt")
    # Two weights, three parts of the average, and the counter and graph of the checkpoint.
    assert len(tf.train.list_variables(path)) == 5 + 2
    twin = Resampled(dist.proposal, make(), from_logits=from_logits)
    tf.train.Checkpoint(dist=twin).restore(path).assert_consumed()
    np.testing.assert_array_equal(twin.accept_log_prob(Z), dist.accept_log_prob(Z))
    np.testing.assert_array_equal(twin.log_prob(Z), dist.log_prob(Z))


def test_images_reach_a_convolutional_network_as_one_flat_batch():
    shapes = []

    class Spy(keras.layers.Layer):
        def call(self, x):
            shapes.append(tuple(x.shape))
            return x

    net = keras.Sequential(
        [
            keras.layers.Input((4, 4, 1)),
            Spy(),
            keras.layers.Conv2D(2, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    proposal = tfd.Independent(tfd.Bernoulli(logits=tf.zeros([3, 4, 4, 1])), 3)
    dist = Resampled(proposal, net, T=5, from_logits=True)
    x = proposal.sample(7, seed=1)
    expected = tf.math.log_sigmoid(net(tf.reshape(x, [21, 4, 4, 1])))
    np.testing.assert_allclose(
        dist.accept_log_prob(x), tf.reshape(expected, [7, 3]), rtol=1e-5, atol=1e-6
    )
    assert shapes[-1] == (21, 4, 4, 1)


def test_scalar_events_reach_a_keras_network_as_a_column():
    net = keras.Sequential([keras.layers.Dense(1, activation="sigmoid")])
    dist = Resampled(tfd.Normal([0.0, 1.0], 1.0), net)
    assert dist.accept_log_prob(tf.zeros([5, 2])).shape == [5, 2]
    assert net.input_shape == (None, 1) or net.layers[0].kernel.shape == (1, 1)


def test_acceptance_network_is_the_one_of_the_paper():
    net = AcceptanceNetwork()
    z = tf.random.stateless_normal([6, 50], [1, 2])
    a = net(z)
    assert a.shape == (6, 1)
    assert net.count_params() == 50 * 100 + 100 + 100 * 100 + 100 + 100 + 1 == 15_301
    kernels = [v.numpy() for v in net.variables]
    h = np.tanh(np.tanh(z @ kernels[0] + kernels[1]) @ kernels[2] + kernels[3])
    logits = h @ kernels[4] + kernels[5]
    np.testing.assert_allclose(net.logits(z), logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(a, 1 / (1 + np.exp(-logits)), rtol=1e-4)
    # Glorot uniform fills the range up to sqrt(6 / (fan_in + fan_out)).
    assert 0.97 < np.abs(kernels[0]).max() / np.sqrt(6 / 150) <= 1.0


def test_acceptance_network_works_in_logits_where_probabilities_are_gone():
    net = AcceptanceNetwork((4,))
    dist = Resampled(tfd.MultivariateNormalDiag(tf.zeros(2)), net, T=100)
    net.variables[-1].assign([-5000.0])
    z = tf.zeros([1, 2])
    assert net(z).numpy() == 0.0
    np.testing.assert_allclose(dist.accept_log_prob(z), -5000.0, rtol=1e-3)
    with tf.GradientTape() as tape:
        value = dist.accept_log_prob(z)
    assert np.isclose(tape.gradient(value, net.variables[-1].value), 1.0)


def test_acceptance_network_saves_and_loads_as_a_keras_model(tmp_path):
    net = AcceptanceNetwork((7, 5), activation="relu", dtype="float64")
    z = np.ones((2, 3))
    expected = net(z)
    net.save(tmp_path / "net.keras")
    loaded = keras.saving.load_model(tmp_path / "net.keras")
    assert isinstance(loaded, AcceptanceNetwork)
    np.testing.assert_array_equal(loaded(z), expected)
    assert loaded.dtype == "float64"


def test_acceptance_network_of_no_hidden_layer_is_linear():
    net = AcceptanceNetwork(hidden_units=())
    assert net.logits(tf.zeros([1, 4])).shape == (1, 1)
    assert net.count_params() == 5


def test_acceptance_network_refuses_empty_layers():
    with pytest.raises(ValueError, match=r"`hidden_units\[1\]`.*got 0"):
        AcceptanceNetwork((10, 0))


def test_hard_rules_have_gradients_of_zero_not_nan():
    scale = tf.Variable(1.0)
    dist = Resampled(
        tfd.Normal(0.0, 1.0), lambda z: tf.nn.relu(tf.tanh(scale * z)), T=3, normalizer=np.log(0.2)
    )
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(dist.log_prob([-1.0, 1.0]))
    assert np.isfinite(tape.gradient(value, scale))
    assert dist.copy(T=None).log_prob(-1.0) == -np.inf


@pytest.mark.parametrize(
    ("units", "error", "message"),
    [
        (10, TypeError, r"`hidden_units` must be a sequence.*got 10\. For one layer, pass \(10,\)"),
        (np.int64(10), TypeError, r"`hidden_units` must be a sequence.*pass \(10,\)"),
        ((10.5,), ValueError, r"`hidden_units\[0\]` must be an integer.*got 10\.5"),
        ("10", TypeError, "`hidden_units` must be a sequence.*got '10'"),
        (None, TypeError, "`hidden_units` must be a sequence.*got None"),
    ],
)
def test_acceptance_network_names_a_wrong_argument(units, error, message):
    with pytest.raises(error, match=message):
        AcceptanceNetwork(units)


@pytest.fixture(params=["mixed_float16", "mixed_bfloat16"])
def policy(request):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_dtype_policy(before)


def test_acceptance_network_returns_single_precision_under_mixed_policies(policy, tmp_path):
    net = AcceptanceNetwork((8,))
    dist = Resampled(tfd.MultivariateNormalDiag(tf.zeros(2)), net)
    z = tf.random.stateless_normal([5, 2], [1, 2])
    assert net.logits(z).dtype == net(z).dtype == tf.float32
    assert net.compute_dtype == policy.removeprefix("mixed_")
    assert {v.dtype for v in dist.trainable_variables} == {tf.float32}
    with tf.GradientTape() as tape:
        value = tf.reduce_mean(dist.log_prob(z))
    assert value.dtype == tf.float32
    assert all(g.dtype == tf.float32 for g in tape.gradient(value, dist.trainable_variables))
    assert dist.sample(3, seed=1).dtype == tf.float32
    net.save(tmp_path / "net.keras")
    loaded = keras.saving.load_model(tmp_path / "net.keras")
    assert loaded.compute_dtype == net.compute_dtype
    np.testing.assert_array_equal(loaded(z), net(z))


def float64_proposal():
    return tfd.MultivariateNormalDiag(tf.zeros(2, tf.float64))


def test_acceptance_network_follows_a_double_precision_proposal(tmp_path):
    net = AcceptanceNetwork((4,))
    dist = Resampled(float64_proposal(), net, normalizer=-1.0)
    z = dist.sample(5, seed=1)
    assert {v.dtype for v in dist.trainable_variables} == {tf.float64}
    kernel, bias, out, offset = [v.numpy() for v in net.variables]
    logits = (np.tanh(z @ kernel + bias) @ out + offset)[:, 0]
    np.testing.assert_allclose(dist.accept_log_prob(z), -np.log1p(np.exp(-logits)), rtol=1e-13)
    assert dist.log_prob(z).dtype == tf.float64
    net.save(tmp_path / "net.keras")
    loaded = keras.saving.load_model(tmp_path / "net.keras")
    np.testing.assert_array_equal(loaded(z), net(z))
    assert loaded.dtype == "float64"
    assert AcceptanceNetwork.from_config(net.get_config()).dtype == "float64"


def built_network():
    net = AcceptanceNetwork((4,))
    net.build((None, 2))
    return net


@pytest.mark.parametrize(
    "make",
    [built_network, lambda: AcceptanceNetwork((4,), dtype="float32")],
    ids=["built", "explicit"],
)
def test_acceptance_network_that_has_its_precision_keeps_it(make):
    net = make()
    dist = Resampled(float64_proposal(), net)
    assert {v.dtype for v in dist.trainable_variables} == {tf.float32}
    z = dist.sample(3, seed=1)
    assert dist.accept_log_prob(z).dtype == dist.log_prob(z).dtype == tf.float64


def test_acceptance_network_in_double_precision_serves_a_single_precision_proposal():
    net = AcceptanceNetwork((4,), dtype="float64")
    dist = Resampled(tfd.MultivariateNormalDiag(tf.zeros(2)), net)
    assert dist.log_prob(dist.sample(3, seed=1)).dtype == tf.float32
    assert {v.dtype for v in dist.trainable_variables} == {tf.float64}
