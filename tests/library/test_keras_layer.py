"""Distributions in Keras 3 models: variables, training, types and files."""

import os
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tests.library.keras_cases import (
    BATCH_SIZE,
    NUM_DATA,
    STEPS_PER_EPOCH,
    assert_same,
    autoregressive_flow,
    data,
    functional,
    inner,
    negative_log_likelihood,
    resampled_pair,
    values,
)
from tests.seeding import set_random_seed
from tfp_lars import AcceptanceNetwork, DistributionLayer, MovingAverage, Resampled

tfb = tfp.bijectors
tfd = tfp.distributions


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


def held_log_prob(model):
    dist = model.prior.distribution
    with dist.normalizer.held():
        return np.array(dist.log_prob(data()[:20]))


@pytest.fixture(scope="module")
def trained():
    """Returns a model after two epochs, its initial weights, its losses and its warnings."""
    model = compiled()
    before = values(model.trainable_variables)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        losses = fit(model, epochs=2)
    return model, before, losses, caught


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
