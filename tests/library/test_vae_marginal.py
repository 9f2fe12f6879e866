"""Resampled outputs of a VAE with 8 pixels: all 256 outputs, with quadrature over the latent."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tests.bounds import FALSE_ALARM_RATE, chi_square_p_value, normal_bound
from tfp_lars import (
    AcceptanceNetwork,
    DistributionLayer,
    MovingAverage,
    Resampled,
    estimate_log_normalizer,
    proposals,
)
from tfp_lars.normalizer.training_estimate import log_mean_accept

tfd = tfp.distributions

PIXELS = 8
ALL = np.array(list(itertools.product([0.0, 1.0], repeat=PIXELS)))  # [256, 8]
GRID = np.linspace(-8.0, 8.0, 81)[:, None]  # [G, 1]


def f64(value):
    return tf.constant(value, tf.float64)


class TinyVAE(tf.Module):
    """One latent, 8 binary pixels, weights that make some outputs likelier than others."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.encoder_kernel = tf.Variable(0.3 * rng.normal(size=[PIXELS, 1]))
        self.encoder_log_scale = tf.Variable(f64([-0.1]))
        self.kernel = tf.Variable(rng.normal(size=[1, PIXELS]))
        self.bias = tf.Variable(0.5 * rng.normal(size=[PIXELS]))
        self.prior_loc = tf.Variable(f64([0.2]))
        self.accept_kernel = tf.Variable(rng.normal(size=[PIXELS]))

    @property
    def prior(self):
        return tfd.MultivariateNormalDiag(self.prior_loc, f64([1.0]))

    def encode(self, x):
        loc = (x - 0.5) @ self.encoder_kernel
        return tfd.MultivariateNormalDiag(loc, tf.exp(self.encoder_log_scale))

    def decode(self, z):
        logits = tf.tanh(z) @ self.kernel * 2.0 + self.bias
        return tfd.Independent(tfd.Bernoulli(logits=logits, dtype=tf.float64), 1)

    def accept(self, x):
        return tf.sigmoid(tf.linalg.matvec(x, self.accept_kernel) + x[..., 0] * x[..., 1] - 1.0)

    def exact_log_marginal(self, x):
        """Returns log pi(x) from the trapezoidal rule, shape `[N]`, for `x` of shape `[N, 8]`."""
        log_joint = self.decode(f64(GRID)).log_prob(x[:, tf.newaxis]) + self.prior.log_prob(GRID)
        return tf.reduce_logsumexp(log_joint, axis=1) + np.log(GRID[1, 0] - GRID[0, 0])

    def exact_z(self):
        return tf.reduce_sum(tf.exp(self.exact_log_marginal(f64(ALL))) * self.accept(f64(ALL)))

    def marginal(self, kind=proposals.vae_marginal, **kwargs):
        return kind(self.prior, self.encode, self.decode, **kwargs)


class ExactMarginal(type(TinyVAE().marginal())):
    """The same draws, with the exact log density instead of the bound."""

    def __init__(self, vae):
        self.vae = vae
        super().__init__(vae.prior, vae.encode, vae.decode)

    def _log_prob(self, x):
        return self.vae.exact_log_marginal(x)

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {}


def resampled_probabilities(pi, a, T):
    """Returns p_T from its recursion, p_T = pi a + (1 - Z) p_(T-1), p_1 = pi."""
    z = np.sum(pi * a)
    if T is None:
        return pi * a / z
    p = pi
    for _ in range(T - 1):
        p = pi * a + (1.0 - z) * p
    return p


def t_bound(num_samples, num_statistics):
    """Returns how many standard errors the worst of several means may deviate."""
    return stats.t.isf(FALSE_ALARM_RATE / (2 * num_statistics), num_samples - 1)


@pytest.fixture(scope="module")
def vae():
    return TinyVAE()


@pytest.fixture(scope="module")
def exact(vae):
    """Returns probabilities and acceptances of all outputs."""
    pi = np.exp(vae.exact_log_marginal(f64(ALL)))
    np.testing.assert_allclose(pi.sum(), 1.0, rtol=1e-9)
    return pi, vae.accept(f64(ALL)).numpy()


def test_shapes_and_types(vae):
    marginal = vae.marginal()
    assert (marginal.batch_shape, marginal.event_shape) == ([], [PIXELS])
    assert marginal.dtype == tf.float64
    x = marginal.sample([3, 2], seed=1)
    assert x.shape == [3, 2, PIXELS]
    assert marginal.log_prob(x).shape == [3, 2]
    assert marginal.log_prob(x[0, 0]).shape == []


def test_draws_follow_the_marginal(vae, exact, seed, num_samples=20_000):
    draws = vae.marginal().sample(num_samples, seed=[seed, 1]).numpy()
    counts = np.bincount(np.int64(draws @ 2.0 ** np.arange(7, -1, -1)), minlength=256)
    assert chi_square_p_value(counts, exact[0]) > FALSE_ALARM_RATE


def test_bound_is_the_mean_weight_of_its_draws(vae):
    """Compares with the formula, draw by draw. With one draw it is the ELBO."""
    x = f64(ALL[[3, 77, 200]])
    q = vae.encode(x)
    for k in (1, 5):
        z = q.sample(k, seed=tf.constant([7, 0]))
        log_w = [vae.decode(z[i]).log_prob(x) + vae.prior.log_prob(z[i]) for i in range(k)]
        expected = np.log(np.mean(np.exp(log_w - q.log_prob(z)), axis=0))
        found = vae.marginal(num_samples=k).log_prob(x, seed=7)
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_mean_weight_is_unbiased(vae, exact, seed, num_seeds=200):
    marginal = vae.marginal(num_samples=2)
    log_prob = tf.function(lambda s: marginal.log_prob(f64(ALL), seed=s))
    weights = np.exp([log_prob(tf.constant([seed, i])) for i in range(num_seeds)])
    stderr = weights.std(0, ddof=1) / np.sqrt(num_seeds)
    assert np.all(np.abs(weights.mean(0) - exact[0]) < t_bound(num_seeds, 256) * stderr)
    # The log is a bound, which improves with more draws.
    bounds = [np.mean(vae.marginal(num_samples=k).log_prob(f64(ALL))) for k in (1, 10, 1000)]
    assert bounds[0] < bounds[1] < bounds[2] < np.mean(np.log(exact[0])) + 0.01


def test_draws_of_the_encoder_depend_on_the_seed_alone(vae):
    marginal, x = vae.marginal(), f64(ALL[:5])
    by_seed = [marginal.log_prob(x, seed=s).numpy() for s in (1, 1, 2)]
    np.testing.assert_array_equal(by_seed[0], by_seed[1])
    assert np.all(by_seed[0] != by_seed[2])
    in_graph = tf.function(lambda s: marginal.log_prob(x, seed=s))(tf.constant([1, 0]))
    np.testing.assert_allclose(in_graph, by_seed[0], rtol=1e-12)
    np.testing.assert_array_equal(marginal.log_prob(x), marginal.log_prob(x))
    np.testing.assert_array_equal(marginal.log_prob(x), vae.marginal(seed=0).log_prob(x))
    assert np.all(marginal.log_prob(x) != vae.marginal(seed=4).log_prob(x))


@pytest.mark.parametrize("T", [1, 5, 100, None])
def test_density_sums_to_one(vae, exact, T):
    pi, a = exact
    dist = Resampled(ExactMarginal(vae), vae.accept, T, normalizer=np.log(np.sum(pi * a)))
    p = dist.prob(f64(ALL)).numpy()
    np.testing.assert_allclose(p.sum(), 1.0, rtol=1e-9)
    np.testing.assert_allclose(p, resampled_probabilities(pi, a, T), rtol=1e-9)
    # The ratio does not depend on the density of the proposal.
    bound = dist.copy(proposal=vae.marginal(), normalizer=dist.normalizer)
    np.testing.assert_allclose(pi * np.exp(bound.log_ratio(f64(ALL))), p, rtol=1e-9)


@pytest.mark.parametrize("T", [5, None])
def test_estimated_density_sums_to_one_within_its_error(vae, seed, T, num_seeds=30):
    """Z by Monte Carlo, the marginal by importance weighting."""
    dist = Resampled(vae.marginal(num_samples=50), vae.accept, T)
    estimate = estimate_log_normalizer(dist, 40_000, seed=seed)
    prob = tf.function(lambda s: dist.freeze(estimate).prob(f64(ALL), seed=s))
    sums = np.array([prob(tf.constant([seed, i])).numpy().sum() for i in range(num_seeds)])
    stderr = sums.std(ddof=1) / np.sqrt(num_seeds)
    # For untruncated resampling the error of log Z is that of the sum. Truncation reduces it.
    error_of_z = normal_bound(2) * estimate.stderr
    assert abs(sums.mean() - 1.0) < t_bound(num_seeds, 2) * stderr + error_of_z
    assert error_of_z < 0.03


@pytest.mark.parametrize("T", [3, 100])
def test_resampled_draws_follow_the_enumerated_density(vae, exact, seed, T, num_samples=20_000):
    dist = Resampled(vae.marginal(), vae.accept, T)
    draws = dist.sample(num_samples, seed=[seed, T]).numpy()
    counts = np.bincount(np.int64(draws @ 2.0 ** np.arange(7, -1, -1)), minlength=256)
    assert chi_square_p_value(counts, resampled_probabilities(*exact, T)) > FALSE_ALARM_RATE
    assert chi_square_p_value(counts, exact[0]) < FALSE_ALARM_RATE  # and not the proposal's


def test_without_resampling_it_is_the_proposal(vae):
    marginal = vae.marginal()
    dist = Resampled(marginal, vae.accept, T=1)
    x = f64(ALL[:9])
    np.testing.assert_array_equal(dist.log_prob(x, seed=3), marginal.log_prob(x, seed=3))


def test_the_acceptance_sees_each_point_once(vae):
    calls = []

    def accept(x):
        calls.append(x.shape[0])
        return vae.accept(x)

    average = MovingAverage(16, score_function=True)
    dist = Resampled(vae.marginal(), accept, normalizer=average)
    calls.clear()
    dist.log_prob(f64(ALL[:5]), seed=1)
    dist.log_ratio(f64(ALL[:5]), seed=1)
    assert calls == [5, 16, 5, 16]
    assert average.num_updates == 2


def gradients_of_z(dist, variables, num_steps, **kwargs):
    """Returns the gradients of independent estimates of Z, one row for each update."""
    average = dist.normalizer

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            log_z = average(
                functools.partial(
                    log_mean_accept, dist.proposal, dist.accept_log_prob, proposal_kwargs=kwargs
                )
            )
            # The gradient of log Z is the gradient of the estimate, divided by the average.
            z = tf.exp(log_z)
        gradients = tape.gradient(z, variables, unconnected_gradients="zero")
        return tf.concat([tf.reshape(g, [-1]) for g in gradients], 0)

    return np.array([gradient() for _ in range(num_steps)])


def flat_gradient(fn, variables):
    with tf.GradientTape() as tape:
        value = fn()
    gradients = tape.gradient(value, variables, unconnected_gradients="zero")
    return np.concatenate([np.ravel(g) for g in gradients])


def test_score_function_gradient_of_z_is_the_exact_one(vae, seed, num_steps=500):
    variables = [vae.kernel, vae.bias, vae.prior_loc, vae.accept_kernel]
    average = MovingAverage(64, score_function=True, seed=seed)
    dist = Resampled(ExactMarginal(vae), vae.accept, normalizer=average)
    found = gradients_of_z(dist, variables, num_steps)
    expected = flat_gradient(vae.exact_z, variables)
    stderr = found.std(0, ddof=1) / np.sqrt(num_steps)
    assert np.all(np.abs(found.mean(0) - expected) < t_bound(num_steps, len(expected)) * stderr)
    # The gradient differs from 0 significantly.
    assert np.max(np.abs(expected[:16]) / stderr[:16]) > 40


def test_by_default_z_sends_no_gradient_to_the_vae(vae, seed, num_steps=200):
    variables = [vae.kernel, vae.bias, vae.prior_loc, vae.encoder_kernel]
    dist = Resampled(vae.marginal(), vae.accept, normalizer=MovingAverage(64, seed=seed))
    assert np.all(gradients_of_z(dist, variables, 2) == 0.0)
    found = gradients_of_z(dist, [vae.accept_kernel], num_steps)
    expected = flat_gradient(vae.exact_z, [vae.accept_kernel])
    stderr = found.std(0, ddof=1) / np.sqrt(num_steps)
    assert np.all(np.abs(found.mean(0) - expected) < t_bound(num_steps, len(expected)) * stderr)


def test_score_function_follows_the_gradient_of_the_bound(vae, seed, num_steps=200):
    """With many draws the bound is tight and its gradient is close to that of the marginal."""
    variables = [vae.kernel, vae.bias]
    average = MovingAverage(64, score_function=True, seed=seed)
    dist = Resampled(vae.marginal(num_samples=50), vae.accept, normalizer=average)
    found = gradients_of_z(dist, variables, num_steps, seed=tf.constant([seed, 9]))
    expected = flat_gradient(vae.exact_z, variables)
    stderr = found.std(0, ddof=1) / np.sqrt(num_steps)
    # The slack is for the gap between bound and marginal, of the order of 1/50.
    slack = 0.02 * np.abs(expected).max()
    bound = t_bound(num_steps, len(expected)) * stderr + slack
    assert np.all(np.abs(found.mean(0) - expected) < bound)
    assert np.any(np.abs(expected) > 3 * bound)


def test_gradient_of_log_prob_is_the_exact_one(vae, seed, T=5, num_steps=400):
    """The gradient of the exact density includes that of Z. Without it the test would fail."""
    variables = [vae.kernel, vae.bias, vae.accept_kernel]
    x = vae.marginal().sample(40, seed=[1, 2])
    average = MovingAverage(128, score_function=True, seed=seed)
    dist = Resampled(ExactMarginal(vae), vae.accept, T, normalizer=average)

    def exact_log_prob(stop_z=False):
        log_pi, a, z = vae.exact_log_marginal(x), vae.accept(x), vae.exact_z()
        z = tf.stop_gradient(z) if stop_z else z
        alpha = (1.0 - z) ** (T - 1)
        return tf.reduce_mean(log_pi + tf.math.log(a * (1.0 - alpha) / z + alpha))

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(dist.log_prob(x))
        return tf.concat([tf.reshape(g, [-1]) for g in tape.gradient(value, variables)], 0)

    for _ in range(50):  # until the average has forgotten its first value
        gradient()
    found = np.array([gradient() for _ in range(num_steps)])
    # Neighbours share an average that moves with a time constant of 10.
    found = found.reshape(40, -1, found.shape[1]).mean(1)
    expected = flat_gradient(exact_log_prob, variables)
    stderr = found.std(0, ddof=1) / np.sqrt(len(found))
    # The slack allows for the bias of 1/Z due to the variance of the average: 1e-4.
    bound = t_bound(len(found), len(expected)) * stderr + 1e-3 * np.abs(expected).max()
    assert np.all(np.abs(found.mean(0) - expected) < bound)
    wrong = flat_gradient(lambda: exact_log_prob(stop_z=True), variables)
    assert np.any(np.abs(found.mean(0) - wrong)[:16] > 3 * bound[:16])


def test_score_function_leaves_the_value_as_it_is(vae):
    values = []
    for score_function in (False, True):
        average = MovingAverage(32, score_function=score_function, seed=5)
        dist = Resampled(vae.marginal(), vae.accept, normalizer=average)
        values.append([dist.log_prob(f64(ALL[:5]), seed=i).numpy() for i in range(3)])
    np.testing.assert_array_equal(*values)


def test_gradient_of_the_bound_reaches_everything():
    vae = TinyVAE()
    dist = Resampled(vae.marginal(), vae.accept)
    variables = [vae.encoder_kernel, vae.encoder_log_scale, vae.kernel, vae.bias, vae.accept_kernel]
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(dist.log_prob(f64(ALL[3:9]), seed=1))
    for gradient in tape.gradient(value, variables):
        assert np.any(gradient.numpy() != 0.0)
    loc = tf.Variable(f64([0.3]))
    prior = tfd.MultivariateNormalDiag(loc, f64([1.0]))
    marginal = proposals.vae_marginal(prior, vae.encode, vae.decode)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(marginal.log_prob(f64(ALL[3:9]), seed=1))
    assert np.any(tape.gradient(value, loc).numpy() != 0.0)


class Encoder(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(4)

    def distribution(self, x):
        loc, log_scale = tf.split(self.dense(x), 2, axis=-1)
        return tfd.MultivariateNormalDiag(loc, tf.exp(log_scale))


class Decoder(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(PIXELS)

    def distribution(self, z):
        return tfd.Independent(tfd.Bernoulli(logits=self.dense(z), dtype=tf.float32), 1)


def prior_2d():
    return tfd.MultivariateNormalDiag(tf.Variable([0.0, 0.1]))


def ids(variables):
    return sorted(id(v.value if isinstance(v, keras.Variable) else v) for v in variables)


@pytest.mark.parametrize("as_functions", [False, True])
def test_variables_are_listed_once_each_and_trained(as_functions, tmp_path):
    encoder, decoder = Encoder(), Decoder()
    functions = [encoder.distribution, decoder.distribution]
    if as_functions:
        functions = [lambda x: encoder.distribution(x), lambda z: decoder.distribution(z)]
    prior = prior_2d()
    dist = Resampled(proposals.vae_marginal(prior, *functions), AcceptanceNetwork((3,)))
    weights = [v.value for v in (*encoder.variables, *decoder.variables)]
    assert len(weights) == 4
    assert ids(dist.proposal.trainable_variables) == ids([*weights, *prior.variables])
    assert len(ids(dist.trainable_variables)) == len(set(ids(dist.trainable_variables))) == 5 + 4
    layer = DistributionLayer(dist)
    assert ids(layer.trainable_variables) == ids(dist.trainable_variables)
    saved = tf.train.Checkpoint(dist=dist).save(str(tmp_path / "a"))
    kept = [v.numpy() for v in weights]
    for v in weights:
        v.assign(v + 1.0)
    tf.train.Checkpoint(dist=dist).restore(saved).assert_consumed()
    for v, value in zip(weights, kept, strict=True):
        np.testing.assert_array_equal(v, value)


def test_weights_that_belong_to_a_model_are_left_to_it():
    encoder, decoder = Encoder(), Decoder()
    functions = encoder.distribution, decoder.distribution
    prior = prior_2d()
    marginal = proposals.vae_marginal(prior, *functions, networks=())
    assert ids(marginal.variables) == ids(prior.variables)
    listed = proposals.vae_marginal(prior, *functions, networks=[decoder])
    assert ids(listed.variables) == ids([*prior.variables, *decoder.variables])


def test_noise_of_the_decoder_is_independent_of_the_latents(seed):
    """x = z + noise has a variance of 2, or 4 with the same numbers. Its error is 0.02."""

    def normal(loc):
        return tfd.Independent(tfd.Normal(loc, 1.0), 1)

    marginal = proposals.vae_marginal(normal(tf.zeros(2)), lambda x: normal(0.5 * x), normal)
    x = marginal.sample(20_000, seed=seed)
    np.testing.assert_allclose(np.var(x, axis=0), 2.0, atol=0.2)


def test_continuous_outputs_are_reparameterized():
    scale = tf.Variable(1.5)
    prior = tfd.MultivariateNormalDiag(tf.zeros(2))
    marginal = proposals.vae_marginal(
        prior,
        lambda x: tfd.MultivariateNormalDiag(0.5 * x, tf.ones(2)),
        lambda z: tfd.MultivariateNormalDiag(scale * z, tf.ones(2)),
    )
    assert marginal.reparameterization_type == tfd.FULLY_REPARAMETERIZED
    with tf.GradientTape() as tape:
        value = tf.reduce_mean(marginal.sample(5, seed=1))
    assert tape.gradient(value, scale) != 0.0
    average = MovingAverage(8, score_function=True)
    dist = Resampled(marginal, AcceptanceNetwork((3,)), normalizer=average)
    with pytest.raises(ValueError, match="`score_function=True` is for .* not reparameterized"):
        dist.log_prob(tf.zeros([3, 2]))


def good_encode(x):
    return tfd.MultivariateNormalDiag(x[:, :2], tf.ones(2))


def good_decode(z):
    return tfd.Independent(tfd.Bernoulli(logits=tf.repeat(z, 4, 1), dtype=tf.float32), 1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"prior": 3}, TypeError, "`prior` must be a TFP distribution; got 3"),
        ({"prior": tfd.Normal([0.0, 1.0], 1.0)}, ValueError, r"`prior` .*shape \(\); got \(2,\)"),
        ({"encode": 3}, TypeError, "`encode` must be callable; got 3"),
        ({"decode": None}, TypeError, "`decode` must be callable; got None"),
        ({"decode": lambda z: z}, TypeError, "`decode` must return a TFP distribution"),
        (
            {"decode": lambda z: good_decode(z).distribution},
            ValueError,
            r"`decode` must return batch shape \[N\].*\(1, 8\).*tfd.Independent",
        ),
        (
            {"encode": lambda x: tfd.MultivariateNormalDiag(x, tf.ones(8))},
            ValueError,
            r"`encode` must return events of shape \(2,\).*\(8,\)",
        ),
        (
            {"encode": lambda x: tfd.Independent(tfd.Bernoulli(logits=x[:, :2]), 1)},
            ValueError,
            "`encode` must return a reparameterized distribution",
        ),
        ({"num_samples": 0}, ValueError, "`num_samples`.*got 0"),
        ({"num_samples": 1.5}, ValueError, "`num_samples`.*got 1.5"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    prior = tfd.MultivariateNormalDiag(tf.zeros(2))
    arguments = {"prior": prior, "encode": good_encode, "decode": good_decode, **arguments}
    with pytest.raises(error, match=message):
        proposals.vae_marginal(**arguments)
