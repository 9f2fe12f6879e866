"""`DistributionLayer`, and priors inside Keras 3 and tf_keras models that are trained by `fit`."""

import gc
import os
import subprocess
import sys
import warnings
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tests.seeding import set_random_seed
from tfp_lars import AcceptanceNetwork, DistributionLayer, MovingAverage, Resampled, proposals

tfb = tfp.bijectors
tfd = tfp.distributions
tfpl = tfp.layers


def autoregressive_flow():
    """Returns a flow of TFP whose network has no variables yet."""
    network = tfb.AutoregressiveNetwork(params=2, hidden_units=[4], activation="tanh")
    return tfd.TransformedDistribution(
        tfd.Sample(tfd.Normal(0.0, 1.0), [2]), tfb.MaskedAutoregressiveFlow(network)
    )


def resampled_flow(num_samples=32, seed=None):
    return Resampled(
        autoregressive_flow(),
        AcceptanceNetwork(hidden_units=(4,)),
        T=10,
        normalizer=MovingAverage(num_samples, seed=seed),
    )


# Kernel and bias of two layers each, in the flow and in the acceptance network.
NUM_TRAINABLE = 4 + 4
# And the three of the moving average.
NUM_VARIABLES = NUM_TRAINABLE + 3


@keras.saving.register_keras_serializable(package="tfp_lars_tests")
class DensityModel(keras.Model):
    """A model that consists of its prior, built from a configuration."""

    def __init__(self, num_samples=32, **kwargs):
        super().__init__(**kwargs)
        self.num_samples = num_samples
        self.prior = DistributionLayer(resampled_flow(num_samples))

    def call(self, z):
        return self.prior(z)

    def get_config(self):
        return {**super().get_config(), "num_samples": self.num_samples}


class PlainAttributeModel(keras.Model):
    """A model with its prior in a plain attribute, which the documentation advises against."""

    def __init__(self):
        super().__init__()
        self.prior = resampled_flow()
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, z):
        return self.scale * self.prior.log_prob(z)


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


def compiled(model_class=DensityModel, seed=1, steps_per_execution=1, **kwargs):
    set_random_seed(seed)
    model = model_class(**kwargs)
    model.build([None, 2])
    model.compile(
        keras.optimizers.Adam(0.02),
        negative_log_likelihood,
        steps_per_execution=steps_per_execution,
    )
    return model


def fit(model, epochs=1, **kwargs):
    x = data()
    return model.fit(
        x, np.zeros(NUM_DATA), BATCH_SIZE, epochs, verbose=0, shuffle=False, **kwargs
    ).history["loss"]


def values(variables):
    return [np.array(v) for v in variables]


def assert_same(actual, expected):
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def held_log_prob(model):
    dist = model.prior.distribution
    with dist.normalizer.held():
        return np.array(dist.log_prob(data()[:20]))


def inner(variables):
    return [id(v.value) for v in variables]


@pytest.fixture(scope="module")
def trained():
    """Returns a model after two epochs, its initial weights, its losses and its warnings."""
    model = compiled()
    before = values(model.trainable_variables)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        losses = fit(model, epochs=2)
    return model, before, losses, caught


# Keras 3


def test_model_sees_every_variable_of_its_prior_once():
    model = DensityModel()
    dist = model.prior.distribution
    assert len(dist.trainable_variables) == NUM_TRAINABLE
    assert len(dist.variables) == NUM_VARIABLES
    assert sorted(inner(model.variables)) == sorted(id(v) for v in dist.variables)
    assert sorted(inner(model.trainable_variables)) == sorted(
        id(v) for v in dist.trainable_variables
    )
    assert len({v.path for v in model.variables}) == NUM_VARIABLES


def test_fit_changes_every_trainable_variable(trained):
    model, before, losses, _ = trained
    assert len(before) == NUM_TRAINABLE
    for old, new in zip(before, model.trainable_variables, strict=True):
        assert np.any(old != np.array(new)), new.path
    assert model.prior.distribution.normalizer.num_updates == 2 * STEPS_PER_EPOCH
    # The clusters are 2.5 apart in two dimensions, so the loss falls by one nat quickly.
    assert losses[1] < losses[0] - 0.1


def test_fit_of_many_steps_at_a_time_does_the_same_as_one_by_one(trained):
    model = compiled(steps_per_execution=STEPS_PER_EPOCH)
    losses = fit(model, epochs=2)
    np.testing.assert_allclose(losses, trained[2], rtol=1e-4)
    for one, many in zip(trained[0].variables, model.variables, strict=True):
        np.testing.assert_allclose(np.array(one), np.array(many), rtol=1e-3, atol=1e-4)


def test_fit_keeps_the_masks_of_the_flow(trained):
    """The masks of TFP's network are constraints, which the optimizer applies.

    Without them `log_prob` omits terms of the determinant and is not a density.
    """
    flow = trained[0].prior.distribution.proposal
    x = tf.constant(data()[:5])
    with tf.GradientTape() as tape:
        tape.watch(x)
        noise = flow.bijector.inverse(x)
    jacobian = tape.batch_jacobian(noise, x).numpy()
    np.testing.assert_array_equal(jacobian[:, 0, 1], 0.0)
    assert np.all(jacobian[:, 1, 0] != 0.0)
    np.testing.assert_allclose(
        flow.log_prob(x),
        np.sum(-0.5 * noise.numpy() ** 2 - 0.5 * np.log(2 * np.pi), -1)
        + np.log(np.abs(np.linalg.det(jacobian))),
        rtol=1e-4,
    )


def test_weights_file_restores_all_of_it(trained, tmp_path):
    model = trained[0]
    model.save_weights(tmp_path / "model.weights.h5")
    fresh = DensityModel()
    fresh.build([None, 2])
    fresh.load_weights(tmp_path / "model.weights.h5")
    assert_same(values(fresh.variables), values(model.variables))
    np.testing.assert_array_equal(held_log_prob(fresh), held_log_prob(model))
    assert np.all(np.isfinite(held_log_prob(fresh)))


def test_whole_model_file_restores_a_model_that_builds_its_prior_from_its_configuration(
    trained, tmp_path
):
    model = trained[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded, DensityModel)
    assert loaded.prior.distribution.normalizer.num_samples == 32
    assert_same(values(loaded.variables), values(model.variables))
    np.testing.assert_array_equal(held_log_prob(loaded), held_log_prob(model))


class Interruption(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


def test_resumed_training_ends_where_the_uninterrupted_one_does(trained, tmp_path):
    interrupted = compiled()
    with pytest.raises(KeyboardInterrupt):
        fit(
            interrupted,
            epochs=2,
            callbacks=[keras.callbacks.BackupAndRestore(tmp_path / "backup"), Interruption()],
        )
    assert interrupted.prior.distribution.normalizer.num_updates == STEPS_PER_EPOCH
    resumed = compiled(seed=2)  # starts from other weights
    losses = fit(
        resumed, epochs=2, callbacks=[keras.callbacks.BackupAndRestore(tmp_path / "backup")]
    )
    assert len(losses) == 1
    assert_same(values(resumed.variables), values(trained[0].variables))
    assert_same(values(resumed.optimizer.variables), values(trained[0].optimizer.variables))


def test_fit_warns_of_a_prior_in_a_plain_attribute():
    model = compiled(PlainAttributeModel)
    with pytest.warns(UserWarning, match="DistributionLayer"):
        fit(model)


def test_fit_does_not_warn_of_a_prior_in_a_layer(trained):
    assert not [str(w.message) for w in trained[3] if "DistributionLayer" in str(w.message)]


@pytest.mark.parametrize("when", ["from the start", "later"])
def test_layer_can_be_frozen(when):
    layer = DistributionLayer(resampled_flow(), trainable=when == "later")
    model = keras.Sequential([layer])  # asks the variables, not the layer
    if when == "later":
        layer.trainable = False
    assert layer.trainable_variables == model.trainable_variables == []
    assert len(layer.variables) == len(model.variables) == NUM_VARIABLES
    layer.trainable = True
    assert len(layer.trainable_variables) == len(model.trainable_variables) == NUM_TRAINABLE


def test_layer_evaluates_log_prob():
    layer = DistributionLayer(resampled_flow())
    z = data()[:6]
    layer(z)
    with layer.distribution.normalizer.held():
        np.testing.assert_array_equal(layer(z), layer.distribution.log_prob(z))
    assert layer.compute_output_shape((6, 2)) == (6,)


def test_layer_passes_the_target_on():
    """Each layer has its own average with the same seed, so the draws are the same."""
    set_random_seed(1)
    layer, z = DistributionLayer(resampled_flow(seed=5)), data()[:6]
    twin = layer.distribution.copy(normalizer=MovingAverage(32, seed=5))
    target = np.linspace(-2.0, 0.0, 6, dtype=np.float32)
    np.testing.assert_allclose(
        layer(z, target_log_prob=target), twin.log_prob(z, target_log_prob=target), rtol=1e-6
    )
    without = layer.distribution.copy(normalizer=MovingAverage(32, seed=5))
    without.log_prob(z)
    assert twin.log_normalizer != without.log_normalizer


def test_layer_refuses_what_is_no_distribution():
    with pytest.raises(TypeError, match="`distribution` must be a TFP distribution"):
        DistributionLayer(AcceptanceNetwork())


# Evaluation in Keras 3


def resampled_pair():
    """Returns a distribution on the same space as the flow, which is traced faster."""
    return Resampled(
        tfd.MultivariateNormalDiag(tf.Variable([0.3, -0.1])),
        AcceptanceNetwork(hidden_units=(4,)),
        T=10,
        normalizer=MovingAverage(32),
    )


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


def functional(make_prior=resampled_pair):
    inputs = keras.Input([2])
    prior = DistributionLayer(make_prior())
    model = keras.Model(inputs, prior(inputs))
    model.prior = prior
    return model


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


def test_layer_of_another_distribution_ignores_the_training_flag():
    layer = DistributionLayer(tfd.Normal(tf.Variable(0.3), 1.0))
    for training in (None, False, True):
        np.testing.assert_array_equal(
            layer(data(), training=training), layer.distribution.log_prob(data())
        )


def test_layer_knows_the_batch_in_its_output_shape():
    layer = DistributionLayer(tfd.Normal([[0.0], [1.0]], [1.0, 2.0, 3.0]))  # batch [2, 3]
    for shape in [(5, 2, 3), (5, 1, 3), (7, 5, 2, 1), (3,), ()]:
        assert layer.compute_output_shape(shape) == layer(np.zeros(shape, np.float32)).shape
    assert layer.compute_output_shape((None, 2, 3)) == (None, 2, 3)
    assert layer(keras.Input([2, 1])).shape == (None, 2, 3)


@pytest.fixture
def mixed_precision():
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy("float32")


def test_layer_keeps_the_type_of_its_distribution(mixed_precision):
    """Keras casts inputs to the type of a layer. By default that is the type of the policy."""
    wide = tfd.Normal(tf.constant(0.0, tf.float64), 1.0)
    for dist in (wide, tfd.Normal(tf.Variable(0.0), 1.0)):
        layer = DistributionLayer(dist)
        assert layer(np.zeros(3, np.float16)).dtype == dist.dtype
        assert layer(keras.Input([])).dtype == dist.dtype.name
        assert layer.compute_dtype == layer.variable_dtype == dist.dtype.name


def test_layer_without_a_floating_type_reports_single_precision(mixed_precision):
    layer = DistributionLayer(tfd.Categorical(logits=tf.Variable([0.0, 1.0])))
    assert layer.compute_dtype == layer.variable_dtype == "float32"


def resampled_labels(dtype, normalizer=-12.0):
    """Returns a distribution of integers, whose density is of type `dtype`."""
    return Resampled(
        tfd.Categorical(logits=tf.constant([0.0, 1.0, 2.0], dtype)),
        lambda z: tf.cast(z, dtype) / 3.0,
        normalizer=normalizer,
    )


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_layer_of_a_discrete_distribution_keeps_the_type_of_its_density(dtype, mixed_precision):
    layer = DistributionLayer(resampled_labels(dtype, MovingAverage(8)))
    z, target = tf.constant([0, 1]), tf.constant([-1.0, -2.0], dtype)
    assert layer(z, target_log_prob=target).dtype == dtype
    symbolic = layer(keras.Input([], dtype="int32"))
    assert symbolic.dtype == dtype.name
    assert symbolic.shape == (None,)


def test_layer_casts_the_target_to_the_type_of_a_floating_distribution():
    """Keras makes tensors of arrays, whose type `Resampled` does not change."""
    layer, z = DistributionLayer(resampled_pair()), data()[:3]
    assert layer(z, target_log_prob=np.zeros(3)).dtype == tf.float32
    assert layer(z, target_log_prob=tf.zeros([3], tf.float16)).dtype == tf.float32


def test_layer_does_not_cast_the_truncation(mixed_precision):
    """In half precision a truncation of 1e5 is infinite."""
    half = Resampled(
        tfd.Normal(tf.constant(0.0, tf.float16), 1.0),
        lambda z: tf.cast(z > 0.0, z.dtype),
        normalizer=-12.0,
    )
    for dist, z in [(resampled_labels(tf.float32), 0), (half, tf.constant(-1.0, tf.float16))]:
        T = tf.constant(1e5)
        expected = dist.log_prob(z, T=T)
        assert np.isfinite(expected)  # a(z) is 0: the density of untruncated resampling is 0
        np.testing.assert_array_equal(DistributionLayer(dist)(tf.constant(z), T=T), expected)


def test_frozen_log_z_is_in_the_weights_file(tmp_path):
    class Frozen(keras.Model):
        def __init__(self):
            super().__init__()
            self.prior = DistributionLayer(resampled_flow().freeze(num_samples=1000, seed=1))

        def call(self, z):
            return self.prior(z)

    model, other = Frozen(), Frozen()
    for m in (model, other):
        m.build([None, 2])
    assert np.any(model(data()) != other(data()))
    model.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(model(data()), other(data()))
    assert len(model.trainable_variables) == NUM_TRAINABLE


def test_weights_file_written_while_held_restores_as_not_held(tmp_path):
    model, other = DensityModel(), DensityModel()
    for m in (model, other):
        m.build([None, 2])
        m(data())
    with model.prior.distribution.held():
        model.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    other(data())
    assert other.prior.distribution.normalizer.num_updates == 2


def test_weights_file_of_other_variables_is_refused(tmp_path):
    """Keras compares only shapes, and all of these variables are scalars."""

    class Model(keras.Model):
        def __init__(self, *state):
            super().__init__()
            dist = tfd.Normal(tf.Variable(0.0), 1.0)
            dist.state = [tf.Variable(value, trainable=False) for value in state]
            self.prior = DistributionLayer(dist)

        def call(self, z):
            return self.prior(z)

    models = [Model(False, 0.5, 3), Model(0.5, 3, 4)]
    for model in models:
        model.build([None])
    models[0].save_weights(tmp_path / "model.weights.h5")
    # Keras reports the message of its last attempt, which differs.
    with pytest.raises(ValueError, match="could not be loaded"):
        models[1].load_weights(tmp_path / "model.weights.h5")
    store = {}
    models[0].prior.save_own_variables(store)
    stored = {key: np.array(value) for key, value in store.items()}
    with pytest.raises(ValueError, match="1 has type bool.* has type float32.*another version"):
        models[1].prior.load_own_variables(stored)


def test_functional_model_file_is_refused_with_the_remedy(tmp_path):
    model = functional(resampled_flow)
    with pytest.raises(NotImplementedError, match=r"save_weights\(.*constructor.*`get_config`"):
        model.save(tmp_path / "model.keras")


# Variables that several layers use


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


def test_layer_refuses_a_keras_that_copies_variables(monkeypatch):
    class Copying(keras.Variable):
        def __init__(self, variable, **kwargs):
            super().__init__(variable.numpy(), **kwargs)

    monkeypatch.setattr(keras, "Variable", Copying)
    with pytest.raises(RuntimeError, match=f"Keras {keras.__version__} with TensorFlow.*copies"):
        DistributionLayer(tfd.Normal(tf.Variable(0.0), 1.0))


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_another_backend_of_keras_is_an_import_error(backend):
    """Also if the library of that backend is not installed."""
    process = subprocess.run(
        [sys.executable, "-c", "import tfp_lars"],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    last = process.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: tfp_lars needs Keras with the TensorFlow backend")
    assert f"is '{backend}'" in last
    assert "KERAS_BACKEND=tensorflow" in last


class MixtureModel(keras.Model):
    """Uses a distribution of TFP and only the layer of this package."""

    def __init__(self):
        super().__init__()
        mixture = tfd.MixtureSameFamily(
            tfd.Categorical(logits=tf.Variable([0.1, -0.1], name="logits")),
            tfd.MultivariateNormalDiag(
                tf.Variable([[0.5, 0.2], [-0.5, 0.1]], name="loc"),
                tfp.util.TransformedVariable(tf.ones([2, 2]), tfb.Softplus(), name="scale"),
            ),
        )
        self.prior = DistributionLayer(mixture)

    def call(self, z):
        return self.prior(z)


def test_layer_trains_and_saves_any_distribution(tmp_path):
    model = compiled(MixtureModel, steps_per_execution=STEPS_PER_EPOCH)
    assert len(model.trainable_variables) == len(model.variables) == 3
    before = values(model.variables)
    losses = fit(model, epochs=3)
    for old, new in zip(before, model.variables, strict=True):
        assert np.any(old != np.array(new)), new.path
    assert losses[-1] < losses[0] - 0.1
    model.save_weights(tmp_path / "model.weights.h5")
    fresh = MixtureModel()
    fresh.build([None, 2])
    fresh.load_weights(tmp_path / "model.weights.h5")
    dist, expected = fresh.prior.distribution, model.prior.distribution
    np.testing.assert_array_equal(dist.log_prob(data()), expected.log_prob(data()))
    np.testing.assert_array_equal(
        dist.components_distribution.stddev(), expected.components_distribution.stddev()
    )


def sequential_joint():
    """Returns a distribution of a number, a vector and a count that depends on the number."""
    return tfd.JointDistributionSequential(
        [
            tfd.Normal(tf.Variable(0.5), 1.0),
            tfd.MultivariateNormalDiag(tf.Variable([0.1, 0.2])),
            lambda _, z: tfd.Poisson(tf.exp(z)),
        ]
    )


def named_joint():
    """Returns a batch of three."""
    parts = {"b": tfd.Normal(tf.Variable([0.0, 1.0, 2.0]), 1.0)}
    parts["a"] = tfd.Categorical(logits=tf.Variable(tf.eye(3)))
    return tfd.JointDistributionNamed(parts)


def coroutine_joint():
    """Returns a joint distribution whose event shapes differ from those of its parts."""
    loc = tf.Variable([0.5, 0.1, 0.3])

    def parts():
        z = yield tfd.Normal(loc, 1.0, name="z")
        yield tfd.Normal(z[..., :2], 1.0, name="x")

    dist = tfd.JointDistributionCoroutineAutoBatched(parts)
    dist.loc = loc
    return dist


@pytest.mark.parametrize("make", [sequential_joint, named_joint, coroutine_joint])
def test_layer_of_a_joint_distribution(make, mixed_precision):
    dist = make()
    layer, z = DistributionLayer(dist), dist.sample(5, seed=1)
    assert len(layer.trainable_variables) == len(dist.trainable_variables) > 0
    expected = dist.log_prob(z)
    np.testing.assert_array_equal(layer(z), expected)
    shapes = tf.nest.map_structure(lambda part: tuple(part.shape), z)
    assert layer.compute_output_shape(shapes) == expected.shape

    def as_input(part):
        return keras.Input(part.shape[1:], dtype=part.dtype.name)

    inputs = tf.nest.map_structure(as_input, z)
    symbolic = layer(inputs)
    assert symbolic.shape == (None, *expected.shape[1:])
    assert symbolic.dtype == expected.dtype.name
    model = keras.Model(tf.nest.flatten(inputs), symbolic)
    np.testing.assert_allclose(model(tf.nest.flatten(z)), expected, rtol=1e-6)


# tf_keras


NOISE, SPREAD = 0.5, 3.0


def bimodal_data():
    """Returns 512 numbers near 3 and -3."""
    rng = np.random.default_rng(0)
    signs = np.where(np.arange(512) % 2, 1.0, -1.0)
    return (signs * SPREAD + NOISE * rng.normal(size=512)).astype(np.float32)[:, np.newaxis]


def batches(batch_size):
    x = bimodal_data()
    return tf.data.Dataset.from_tensor_slices((x, x)).batch(batch_size).repeat()


def autoencoder(prior):
    """Returns a VAE with a linear decoder, built as in TFP's tutorials."""
    set_random_seed(1)
    encoder = tf_keras.Sequential(
        [
            tf_keras.layers.Input((1,)),
            tf_keras.layers.Dense(8, activation="tanh"),
            tf_keras.layers.Dense(tfpl.IndependentNormal.params_size(1)),
            tfpl.IndependentNormal(1),
            # No `KLDivergenceRegularizer` of the layer above is used: tf_keras regularizes both the
            # distribution and the draw that such a layer returns, and would count the KL twice.
            tfpl.KLDivergenceAddLoss(prior, use_exact_kl=False),
        ]
    )
    decoder = tf_keras.Sequential(
        [
            tf_keras.layers.Input((1,)),
            tf_keras.layers.Dense(1, kernel_initializer="ones"),
            tfpl.DistributionLambda(lambda loc: tfd.Independent(tfd.Normal(loc, NOISE), 1)),
        ]
    )
    model = tf_keras.Model(encoder.inputs, decoder(encoder.outputs[0]))
    model.prior = prior
    model.compile(
        tf_keras.optimizers.Adam(0.02),
        lambda x, decoded: -decoded.log_prob(x),
        steps_per_execution=10,
    )
    return model


def train_autoencoder(prior):
    model = autoencoder(prior)
    model.fit(batches(64), steps_per_epoch=300, verbose=0)
    return model


def resampled_normal():
    return Resampled(
        tfd.MultivariateNormalDiag(tf.zeros(1)),
        AcceptanceNetwork(hidden_units=(8, 8)),
        normalizer=MovingAverage(128),
    )


@pytest.fixture(scope="module")
def resampled_autoencoder():
    prior = resampled_normal()
    before = values(prior.trainable_variables)
    return train_autoencoder(prior), before


def mean_loss(model):
    return model.evaluate(batches(512), steps=20, verbose=0)


def test_regularized_autoencoder_ends_lower_than_with_a_normal_prior(resampled_autoencoder):
    """A normal latent and a linear decoder give a normal density, whose best fit is known.

    With a normal prior the loss, a bound on the negative log-likelihood, therefore cannot fall
    below the entropy of the fitted normal. The data are bimodal.
    """
    model, _ = resampled_autoencoder
    best_normal = 0.5 * np.log(2 * np.pi * np.e * np.var(bimodal_data()))
    plain = mean_loss(train_autoencoder(tfd.MultivariateNormalDiag(tf.zeros(1))))
    resampled = mean_loss(model)
    assert plain > best_normal - 0.05  # the loss is an average over draws of z
    assert resampled < best_normal - 0.3
    # The loss cannot fall below the entropy of the data.
    assert resampled > np.log(2) + 0.5 * np.log(2 * np.pi * np.e * NOISE**2) - 0.1


def test_regularized_autoencoder_trains_all_of_its_prior(resampled_autoencoder):
    model, before = resampled_autoencoder
    ids = [id(v) for v in model.trainable_variables]
    assert len(set(ids)) == len(ids)
    for old, new in zip(before, model.prior.trainable_variables, strict=True):
        assert id(new) in ids
        assert np.any(old != new.numpy()), new.name


def test_held_average_is_left_alone_by_evaluate_also_in_graphs_traced_before(
    resampled_autoencoder,
):
    model, _ = resampled_autoencoder
    average = model.prior.normalizer

    def state():
        return average.log_z.numpy().tobytes(), int(average.num_updates)

    def evaluate():
        model.evaluate(batches(256), steps=10, verbose=0)

    before = state()
    evaluate()  # traces, and updates the average
    assert state()[0] != before[0]
    assert state()[1] == before[1] + 10
    before = state()
    with model.prior.held():
        evaluate()
        assert state() == before
    assert state() == before
    evaluate()
    assert state()[1] == before[1] + 10


def test_kl_of_the_autoencoder_is_counted_once():
    """With the prior N(0, 1) the KL is known, except for the noise of the draws of z."""

    class Counting(tfd.MultivariateNormalDiag):
        calls = 0

        def _log_prob(self, z):
            type(self).calls += 1
            return super()._log_prob(z)

        @classmethod
        def _parameter_properties(cls, dtype, num_classes=None):
            return tfd.MultivariateNormalDiag._parameter_properties(dtype, num_classes)

    model = autoencoder(Counting(tf.zeros(1)))
    Counting.calls = 0
    with tf.GradientTape():
        model(bimodal_data())
    assert Counting.calls == 1
    assert len(model.losses) == 1
    prior = resampled_normal()
    autoencoder(prior).fit(batches(64), steps_per_epoch=10, verbose=0)
    assert prior.normalizer.num_updates == 10


def tf_keras_autoencoder():
    """The prior is in a layer, that of the KL."""
    model = autoencoder(resampled_normal())
    model(bimodal_data())
    return model


def tf_keras_subclass():
    """The prior is in an attribute of the model."""
    model = TfKerasModel(AcceptanceNetwork((4,)))
    model(data()[:4])
    return model


@pytest.mark.parametrize(
    ("make", "file", "kept"),
    [
        (tf_keras_autoencoder, "a", True),
        (tf_keras_autoencoder, "a.h5", True),
        (tf_keras_autoencoder, "a.weights.h5", True),
        (tf_keras_subclass, "a", True),
        (tf_keras_subclass, "a.h5", False),
        (tf_keras_subclass, "a.weights.h5", False),
    ],
)
def test_files_of_tf_keras_that_keep_a_prior(make, file, kept, tmp_path):
    """As documented: tf_keras silently drops variables that no layer holds."""
    model, other = make(), make()
    for variable in model.weights:
        variable.assign_add(tf.ones_like(variable))
    model.save_weights(tmp_path / file)
    other.load_weights(tmp_path / file)
    pairs = zip(values(model.prior.variables), values(other.prior.variables), strict=True)
    same = [np.all(a == b) for a, b in pairs]
    assert all(same) if kept else not any(same)


class TfKerasModel(tf_keras.Model):
    def __init__(self, network):
        super().__init__()
        self.prior = Resampled(
            tfd.MultivariateNormalDiag(tf.Variable([0.3, 0.1])),
            network,
            T=10,
            normalizer=MovingAverage(32),
        )

    def call(self, z):
        return self.prior.log_prob(z)


@pytest.mark.parametrize("kind", ["keras", "tf_keras"])
def test_prior_in_an_attribute_of_a_tf_keras_model_trains(kind):
    set_random_seed(1)
    model = TfKerasModel(
        AcceptanceNetwork(hidden_units=(4,))
        if kind == "keras"
        else tf_keras.Sequential(
            [
                tf_keras.layers.Dense(4, activation="tanh"),
                tf_keras.layers.Dense(1, activation="sigmoid"),
            ]
        )
    )
    assert sorted(id(v) for v in model.trainable_variables) == sorted(
        id(v) for v in model.prior.trainable_variables
    )
    assert sorted(id(v) for v in model.variables) == sorted(id(v) for v in model.prior.variables)
    assert len(model.trainable_variables) == 5
    before = values(model.trainable_variables)
    model.compile(
        tf_keras.optimizers.Adam(0.02), negative_log_likelihood, steps_per_execution=STEPS_PER_EPOCH
    )
    losses = model.fit(data(), np.zeros(NUM_DATA), BATCH_SIZE, 3, verbose=0).history["loss"]
    assert losses[-1] < losses[0] - 0.1
    for old, new in zip(before, model.trainable_variables, strict=True):
        assert np.any(old != new.numpy()), new.name
