"""The VampPrior: a mixture of posteriors at pseudo-inputs that are learned."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tests.bounds import FALSE_ALARM_RATE, chi_square_p_value
from tfp_lars import AcceptanceNetwork, DistributionLayer, Resampled, proposals

tfd = tfp.distributions


class Encoder(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)
        self.dense.build((None, 6))

    def distribution(self, x):
        loc, log_scale = tf.split(self.dense(tf.reshape(x, [-1, 6])), 2, axis=-1)
        return tfd.Independent(tfd.Normal(3.0 * loc, tf.exp(0.3 * log_scale)), 1)


def make(encoder=None, **kwargs):
    kwargs = {"num_components": 5, "seed": 1, **kwargs}
    return proposals.vamp_prior((encoder or Encoder()).distribution, (2, 3), **kwargs)


def test_density_is_the_mean_of_the_posteriors():
    encoder = Encoder()
    prior = make(encoder)
    z = np.linspace(-4.0, 4.0, 9, dtype=np.float32)[:, None]
    posteriors = encoder.distribution(prior.pseudo_inputs)
    expected = np.log(np.mean(posteriors.prob(z[:, None]), axis=1))
    np.testing.assert_allclose(prior.log_prob(z), expected, rtol=1e-5)
    assert prior.event_shape == [1]
    assert prior.batch_shape == []


def multivariate(loc, scale):
    return tfd.MultivariateNormalDiag(loc, scale)


def independent(loc, scale):
    return tfd.Independent(tfd.Normal(loc, scale), 1)


@pytest.mark.parametrize("family", [multivariate, independent])
@pytest.mark.parametrize("shape", [[3], [7, 3], [2, 0, 3], [2, 4, 3]])
def test_values_and_gradients_of_normal_posteriors_are_those_of_the_mixture(family, shape):
    """Scales down to 1e-4 and means up to 30, where the terms of the square nearly cancel."""
    rng = np.random.default_rng(0)
    loc = tf.constant(rng.normal(scale=10.0, size=[6, 3]), tf.float32)
    scale = tf.constant(10.0 ** rng.uniform(-4.0, 1.0, size=[6, 3]), tf.float32)
    prior = proposals.vamp_prior(lambda x: family(loc[: len(x)], scale[: len(x)]), (2,), 6, seed=1)
    near = loc.numpy()[rng.integers(6, size=shape[:-1])]  # [..., 3]
    z = tf.constant(near + 1e-4 * rng.normal(size=shape), tf.float32)

    def value_and_gradients(log_prob):
        with tf.GradientTape() as tape:
            tape.watch([z, loc, scale])
            value = log_prob(z)
        return value, *tape.gradient(value, [z, loc, scale])

    def exact(z):
        """The same in float64, without an expanded square."""
        z, m, s = (tf.cast(x, tf.float64) for x in (z, loc, scale))
        mixture = tfd.MixtureSameFamily(
            tfd.Categorical(logits=tf.zeros([6], tf.float64)), family(m, s)
        )
        return mixture.log_prob(z)

    for actual, expected in zip(
        value_and_gradients(prior.log_prob), value_and_gradients(exact), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("family", [multivariate, independent])
@pytest.mark.parametrize("shared", ["loc", "scale"])
def test_posteriors_may_share_a_parameter(family, shared):
    def encode(x):
        constant = tf.constant([0.5, 2.0])
        return family(constant, 0.5 + x) if shared == "loc" else family(3.0 * x, constant)

    prior = proposals.vamp_prior(encode, (2,), 4, seed=1)
    z = np.linspace(-4.0, 4.0, 10, dtype=np.float32).reshape(5, 2)
    expected = np.log(np.mean(encode(prior.pseudo_inputs).prob(z[:, None]), axis=1))
    np.testing.assert_allclose(prior.log_prob(z), expected, rtol=1e-5)


def test_other_posteriors_are_mixtures_of_their_family():
    def encode(x):
        return tfd.Independent(tfd.Laplace(3.0 * x, tf.ones_like(x)), 1)

    prior = proposals.vamp_prior(encode, (2,), 4, seed=1)
    z = np.linspace(-4.0, 4.0, 10, dtype=np.float32).reshape(5, 2)
    expected = np.log(np.mean(encode(prior.pseudo_inputs).prob(z[:, None]), axis=1))
    np.testing.assert_allclose(prior.log_prob(z), expected, rtol=1e-5)


def test_draws_follow_the_density(seed, num_samples=20_000):
    prior = make()
    edges = np.linspace(-12.0, 12.0, 2401)
    middle = np.float32(0.5 * (edges[1:] + edges[:-1]))[:, None]
    mass = prior.prob(middle).numpy() * (edges[1] - edges[0])
    draws = prior.sample(num_samples, seed=[seed, 1])[:, 0]
    counts = np.histogram(draws, edges[::40])[0]
    assert counts.sum() == num_samples
    cells = mass.reshape(-1, 40).sum(1)
    assert chi_square_p_value(counts, cells / cells.sum()) > FALSE_ALARM_RATE


def test_pseudo_inputs_start_around_the_mean_and_stay_in_the_unit_interval():
    mean = np.full((2, 3), 0.3)
    prior = make(num_components=2000, mean=mean, stddev=0.5)
    logits = np.log(prior.pseudo_inputs / (1.0 - prior.pseudo_inputs))
    # 12,000 numbers: the standard error of their mean is 0.0046.
    assert abs(logits.mean() - np.log(0.3 / 0.7)) < 5 * 0.5 / np.sqrt(logits.size)
    assert np.all((prior.pseudo_inputs > 0.0) & (prior.pseudo_inputs < 1.0))


def test_without_a_seed_tensorflow_s_own_decides():
    values = []
    for s in [1, 1, 2]:
        tf.random.set_seed(s)
        values.append([make(seed=None).pseudo_inputs.numpy() for _ in range(2)])
    np.testing.assert_array_equal(values[0], values[1])
    assert np.all(values[0][0] != values[0][1]) and np.all(values[0][0] != values[2][0])


def test_pseudo_inputs_follow_the_seed():
    """The stored results of the examples depend on the numbers of integer seeds."""
    noise = np.random.default_rng(7).standard_normal((5, 2, 3))
    expected = 1.0 / (1.0 + np.exp(-np.log(0.3 / 0.7) - 0.5 * noise))
    for seed in (7, np.int64(7)):
        prior = make(seed=seed, mean=0.3, stddev=0.5)
        np.testing.assert_allclose(prior.pseudo_inputs, expected, rtol=1e-5)
    pairs = [make(seed=tf.constant(pair)).pseudo_inputs for pair in ([-1, 2], [-1, 2], [3, 2])]
    np.testing.assert_array_equal(pairs[0], pairs[1])
    assert np.all(pairs[0] != pairs[2])


def test_gradient_reaches_pseudo_inputs_and_encoder():
    encoder = Encoder()
    prior = make(encoder)
    assert len(prior.trainable_variables) == 1
    weights = [v.value for v in encoder.trainable_variables]
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(prior.log_prob([[0.5], [1.0]]))
    for gradient in tape.gradient(value, [*prior.trainable_variables, *weights]):
        assert np.any(gradient.numpy() != 0.0)


def test_it_is_a_proposal_and_a_layer():
    dist = Resampled(make(), AcceptanceNetwork((4,)), T=10)
    assert dist.sample(3, seed=1).shape == [3, 1]
    assert len(DistributionLayer(dist).trainable_variables) == 1 + 4


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"num_components": 0}, ValueError, "`num_components`.*got 0"),
        ({"num_components": 2.5}, ValueError, "`num_components`.*got 2.5"),
        ({"mean": 0.0}, ValueError, "`mean`.*got 0.0"),
        ({"mean": 1.5}, ValueError, "`mean`.*got 1.5"),
    ],
)
def test_bad_arguments_are_named(kwargs, error, message):
    with pytest.raises(error, match=message):
        make(**kwargs)


def test_encoder_must_be_callable():
    with pytest.raises(TypeError, match="`encode` must be callable; got 3"):
        proposals.vamp_prior(3, (2, 3))
