"""Distributions in models of tf_keras."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tests.library.keras_cases import (
    BATCH_SIZE,
    NUM_DATA,
    STEPS_PER_EPOCH,
    data,
    negative_log_likelihood,
    values,
)
from tests.seeding import set_random_seed
from tfp_lars import AcceptanceNetwork, MovingAverage, Resampled

tfd = tfp.distributions
tfpl = tfp.layers


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
