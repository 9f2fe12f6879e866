"""`DistributionLayer`, and priors inside Keras 3 and tf_keras models that are trained by `fit`."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tests.seeding import set_random_seed
from tfp_lars import AcceptanceNetwork, DistributionLayer, MovingAverage, Resampled

tfb = tfp.bijectors
tfd = tfp.distributions
tfpl = tfp.layers


def autoregressive_flow():
    """TFP's own flow as a user writes it: its network has no variables yet."""
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


# Kernel and bias of two layers each: in the flow, in the acceptance network.
NUM_TRAINABLE = 4 + 4
# And the three of the moving average.
NUM_VARIABLES = NUM_TRAINABLE + 3


@keras.saving.register_keras_serializable(package="tfp_lars_tests")
class DensityModel(keras.Model):
    """A model that is nothing but its prior, built from a configuration."""

    def __init__(self, num_samples=32, **kwargs):
        super().__init__(**kwargs)
        self.num_samples = num_samples
        self.prior = DistributionLayer(resampled_flow(num_samples))

    def call(self, z):
        return self.prior(z)

    def get_config(self):
        return {**super().get_config(), "num_samples": self.num_samples}


class PlainAttributeModel(keras.Model):
    """What the documentation tells not to do."""

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
    """Two blobs, correlated within."""
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
    """A model after two epochs, what it was before, its losses, and what was warned of."""
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
    # The blobs are 2.5 apart in two dimensions: a nat is soon gained over the start.
    assert losses[1] < losses[0] - 0.1


def test_fit_of_many_steps_at_a_time_does_the_same_as_one_by_one(trained):
    model = compiled(steps_per_execution=STEPS_PER_EPOCH)
    losses = fit(model, epochs=2)
    np.testing.assert_allclose(losses, trained[2], rtol=1e-4)
    for one, many in zip(trained[0].variables, model.variables, strict=True):
        np.testing.assert_allclose(np.array(one), np.array(many), rtol=1e-3, atol=1e-4)


def test_fit_keeps_the_masks_of_the_flow(trained):
    """TFP's network has its masks as constraints, which are the optimizer's to apply.

    Without them `log_prob` leaves out terms of the determinant and is no density.
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
    layer.trainable = False
    assert layer.trainable_variables == []
    assert len(layer.variables) == NUM_VARIABLES
    layer.trainable = True
    assert len(layer.trainable_variables) == NUM_TRAINABLE


def test_layer_evaluates_log_prob():
    layer = DistributionLayer(resampled_flow())
    z = data()[:6]
    layer(z)
    with layer.distribution.normalizer.held():
        np.testing.assert_array_equal(layer(z), layer.distribution.log_prob(z))
    assert layer.compute_output_shape((6, 2)) == (6,)


def test_layer_passes_the_target_on():
    """Each layer has an average of its own with the same seed, hence with the same draws."""
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


class MixtureModel(keras.Model):
    """One of TFP's own distributions, nothing of ours but the layer."""

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


# tf_keras


NOISE, SPREAD = 0.5, 3.0


def bimodal_data():
    """512 numbers about 3 and -3."""
    rng = np.random.default_rng(0)
    signs = np.where(np.arange(512) % 2, 1.0, -1.0)
    return (signs * SPREAD + NOISE * rng.normal(size=512)).astype(np.float32)[:, np.newaxis]


def batches(batch_size):
    x = bimodal_data()
    return tf.data.Dataset.from_tensor_slices((x, x)).batch(batch_size).repeat()


def autoencoder(prior):
    """A VAE with a linear decoder, in the way of TFP's tutorials."""
    set_random_seed(1)
    encoder = tf_keras.Sequential(
        [
            tf_keras.layers.Input((1,)),
            tf_keras.layers.Dense(8, activation="tanh"),
            tf_keras.layers.Dense(tfpl.IndependentNormal.params_size(1)),
            tfpl.IndependentNormal(
                1,
                # One half, since tf_keras regularizes both the distribution and the draw that a
                # layer of TFP's puts out.
                activity_regularizer=tfpl.KLDivergenceRegularizer(
                    prior, use_exact_kl=False, weight=0.5
                ),
            ),
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


@pytest.fixture(scope="module")
def resampled_autoencoder():
    prior = Resampled(
        tfd.MultivariateNormalDiag(tf.zeros(1)),
        AcceptanceNetwork(hidden_units=(8, 8)),
        normalizer=MovingAverage(128),
    )
    before = values(prior.trainable_variables)
    return train_autoencoder(prior), before


def mean_loss(model):
    return model.evaluate(batches(512), steps=20, verbose=0)


def test_regularized_autoencoder_ends_lower_than_with_a_normal_prior(resampled_autoencoder):
    """A linear decoder of a normal latent makes a normal density, whose best fit is known.

    So no training can bring the loss with a normal prior, a bound on the negative
    log-likelihood, below the entropy of the fitted normal; the data are bimodal.
    """
    model, _ = resampled_autoencoder
    best_normal = 0.5 * np.log(2 * np.pi * np.e * np.var(bimodal_data()))
    plain = mean_loss(train_autoencoder(tfd.MultivariateNormalDiag(tf.zeros(1))))
    resampled = mean_loss(model)
    assert plain > best_normal - 0.05  # the loss is an average over draws of z
    assert resampled < best_normal - 0.3
    # What is left to gain is not below the entropy of the data's own density.
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
    evaluate()  # traces, and moves
    assert state()[0] != before[0]
    # Twice each step, as said at the regularizer.
    assert state()[1] == before[1] + 20
    before = state()
    with average.held():
        evaluate()
        assert state() == before
    assert state() == before
    evaluate()
    assert state()[1] == before[1] + 20


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
