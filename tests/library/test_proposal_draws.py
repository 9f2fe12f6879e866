"""Box-Muller normal numbers: their distribution, and that of every proposal."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tests.bounds import FALSE_ALARM_RATE, normal_bound
from tfp_lars import MovingAverage, Resampled, _proposal_draws, proposals

tfb = tfp.bijectors
tfd = tfp.distributions


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_numbers_are_standard_normal_and_independent(dtype, seed, n=200_001):
    z = _proposal_draws.standard_normal([n], tf.constant([seed, 1]), dtype).numpy()
    assert z.shape == (n,) and z.dtype == dtype.as_numpy_dtype
    assert stats.kstest(z, stats.norm.cdf).pvalue > FALSE_ALARM_RATE
    half = (n + 1) // 2
    # The two numbers of a pair, from one radius and one angle, are half of the array apart.
    pairs = [(z[1:], z[:-1]), (z[: n - half], z[half:])]
    for x, y in pairs:
        assert abs(np.corrcoef(x, y)[0, 1]) * np.sqrt(len(x)) < normal_bound(4)
        assert abs(np.corrcoef(x**2, y**2)[0, 1]) * np.sqrt(len(x)) < normal_bound(4)


def test_tails_are_as_heavy_as_they_should_be(seed, n=4_000_000):
    """A normal has a mass of 6.8e-6 beyond 4.5. A coarse uniform would lose a part of it."""
    z = _proposal_draws.standard_normal([n], tf.constant([seed, 2])).numpy()
    count = int(np.sum(np.abs(z) > 4.5))
    tail = 2 * stats.norm.sf(4.5)
    p_value = 2 * min(stats.binom.cdf(count, n, tail), stats.binom.sf(count - 1, n, tail))
    assert p_value > FALSE_ALARM_RATE
    assert np.all(np.isfinite(z))


def test_extreme_bits_give_finite_numbers(monkeypatch):
    extreme = np.array([0, 1, -1, 2**31 - 1, -(2**31)], np.int32)
    x, y = (v.ravel() for v in np.meshgrid(extreme, extreme))
    monkeypatch.setattr(tf.random, "stateless_uniform", lambda *_, **__: tf.constant([x, y]))
    z = _proposal_draws.standard_normal([50], tf.constant([0, 0])).numpy()
    assert np.all(np.isfinite(z))
    assert np.sqrt(2 * np.log(2.0**32)) == pytest.approx(np.max(np.hypot(z[:25], z[25:])), rel=1e-4)


PROPOSALS = {
    "normal": lambda: tfd.Normal([0.0, 3.0], [1.0, 0.5]),
    "shifted": lambda: tfd.Normal(3.0, 1.0),
    "diagonal": lambda: tfd.MultivariateNormalDiag([1.0, -1.0], [0.5, -2.0]),
    "independent": lambda: tfd.Independent(tfd.Normal([0.0, 3.0], [1.0, 0.5]), 1),
    "sample": lambda: tfd.Sample(tfd.Normal(2.0, 0.1), [3]),
    "sample of int64": lambda: tfd.Sample(tfd.Normal(2.0, 0.1), tf.constant([3], tf.int64)),
    "transformed": lambda: tfd.TransformedDistribution(tfd.Normal(0.0, 0.3), tfb.Exp()),
    "log_normal": lambda: tfd.LogNormal([0.0, 1.0], 0.3),
    "real_nvp": lambda: proposals.real_nvp(3, num_couplings=2, hidden_units=(4,), seed=1),
    "float64": lambda: tfd.Normal(tf.constant(1.0, tf.float64), 2.0),
    "uniform": lambda: tfd.Uniform(0.0, [1.0, 2.0]),
    "poisson": lambda: tfd.Poisson([1.0, 4.0]),
    "sample_of_batch": lambda: tfd.Sample(tfd.Normal([0.0, 9.0], 1.0), [3]),
    "student": lambda: tfd.StudentT(5.0, 0.0, 1.0),
    # The bijector adds batch members.
    "shift_of_one": lambda: tfb.Shift([0.0, 0.0])(tfd.Normal([0.0], 1.0)),
    "shift_of_vectors": lambda: tfb.Shift(tf.zeros([4, 2]))(
        tfd.MultivariateNormalDiag(tf.zeros(2))
    ),
}
OWN_WAY = ("uniform", "poisson", "sample_of_batch", "student", "shift_of_one", "shift_of_vectors")


@pytest.mark.parametrize("name", PROPOSALS)
def test_draws_have_the_law_of_the_proposal(name, seed, n=20_000):
    proposal = PROPOSALS[name]()
    ours = _proposal_draws.sample(proposal, n, tf.constant([seed, 3]))
    theirs = proposal.sample(n, seed=tf.constant([seed, 4]))
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    assert _proposal_draws._is_transformed_gaussian(proposal) == (name not in OWN_WAY)
    columns = [np.reshape(x, [n, -1]).T for x in (ours, theirs)]
    for x, y in zip(*columns, strict=True):
        assert stats.ks_2samp(x, y).pvalue > FALSE_ALARM_RATE / 3
    if len(columns[0]) > 1:
        correlation = np.corrcoef(columns[0])[0, 1] - np.corrcoef(columns[1])[0, 1]
        assert abs(correlation) * np.sqrt(n / 2) < normal_bound()


def test_parameters_get_the_gradient_of_a_reparameterized_draw(seed):
    loc, scale = tf.Variable([0.5, 1.0]), tf.Variable([2.0, 0.1])
    with tf.GradientTape() as tape:
        z = _proposal_draws.sample(tfd.Normal(loc, scale), 5, tf.constant([seed, 5]))
        total = tf.reduce_sum(z)
    by_loc, by_scale = tape.gradient(total, [loc, scale])
    np.testing.assert_allclose(by_loc, [5.0, 5.0])
    np.testing.assert_allclose(by_scale, np.sum((z - loc) / scale, axis=0), rtol=1e-4)


class Shifted(tfd.Normal):
    """A subclass that draws in its own way."""

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return tfd.Normal._parameter_properties(dtype, num_classes)

    def _sample_n(self, n, seed=None):
        return 7.0 + 0.0 * super()._sample_n(n, seed)


class Sevens(tfd.TransformedDistribution):
    """TFP calls this method instead of `_sample_n` for transformed distributions."""

    def _call_sample_n(self, sample_shape, seed, **kwargs):
        return tf.fill(tf.reshape(sample_shape, [-1]), 7.0)


def test_subclasses_draw_in_their_own_way(seed):
    for proposal in (
        Shifted(0.0, 1.0),
        Sevens(tfd.Normal(0.0, 1.0), tfb.Exp()),
        tfd.TransformedDistribution(Shifted(0.0, 1.0), tfb.Shift(0.0)),
    ):
        np.testing.assert_array_equal(
            _proposal_draws.sample(proposal, 3, tf.constant([seed, 6])), 7.0
        )


def test_variables_that_are_standard_at_first_get_their_gradient_in_eager_mode(seed):
    """Also in `log_prob`: eager mode and graphs agree."""
    loc = tf.Variable(0.0)
    with tf.GradientTape() as tape:
        z = _proposal_draws.sample(
            tfd.Normal(loc, 1.0), 5, tf.constant([seed, 5]), differentiable=True
        )
        total = tf.reduce_sum(z)
    assert float(tape.gradient(total, loc)) == 5.0
    zero = tf.constant(0.0)
    with tf.GradientTape() as tape:
        tape.watch(zero)
        z = _proposal_draws.sample(
            tfd.Normal(zero, 1.0), 5, tf.constant([seed, 5]), differentiable=True
        )
        total = tf.reduce_sum(z)
    assert float(tape.gradient(total, zero)) == 5.0


def test_eager_and_graph_have_the_same_gradient_of_z_at_the_standard_normal(seed):
    loc = tf.Variable(0.0)
    dist = Resampled(
        tfd.Normal(loc, 1.0), tf.sigmoid, T=None, normalizer=MovingAverage(decay=0.0, seed=seed)
    )

    def gradient():
        with tf.GradientTape() as tape:
            value = dist.log_prob(0.5)
        return tape.gradient(value, loc)

    eager = gradient()
    # E[a'] / E[a] is 0.207 / 0.5. With 1,024 draws the error is below 0.05.
    assert abs(float(eager) - (0.5 - 0.414)) < 0.1
    assert abs(float(tf.function(gradient)()) - float(eager)) < 0.1


def _multiplications(draw):
    graph = tf.function(draw).get_concrete_function().graph
    return sum(op.type == "Mul" for op in graph.get_operations())


@pytest.mark.parametrize(
    ("proposal", "scaled"),
    [
        (tfd.Normal(0.0, 1.0), False),
        (tfd.Normal(tf.zeros([2]), np.float32(1.0)), False),
        (tfd.MultivariateNormalDiag(tf.zeros([3])), False),
        (proposals.standard_normal(3), False),
        (tfd.Independent(tfd.Normal(tf.zeros([3]), tf.ones([3])), 1), False),
        (tfd.Normal(0.0, 2.0), True),
        (tfd.Normal(tf.zeros([2]), tf.constant([1.0, 2.0])), True),
        (tfd.Normal(1.0, 1.0), True),
        (tfd.Normal(tf.Variable(0.0), 1.0), True),
        (tfd.Normal(keras.Variable(0.0), 1.0), True),
        (tfd.Normal(0.0, tfp.util.DeferredTensor(tf.Variable(1.0), tf.identity)), True),
    ],
)
def test_graphs_scale_no_draws_of_a_standard_normal(proposal, scaled):
    """Scaling by 1 would be another pass over all draws."""
    seed = tf.constant([1, 2])
    shape = [5, *proposal.batch_shape, *proposal.event_shape]
    plain = _multiplications(lambda: _proposal_draws.standard_normal(shape, seed))
    found = _multiplications(lambda: _proposal_draws.sample(proposal, 5, seed))
    assert (found > plain) == scaled


def test_draws_follow_a_variable_that_was_standard_when_they_were_traced(seed):
    loc = tf.Variable(0.0)
    dist = Resampled(tfd.Normal(loc, 1.0), lambda z: 0.5 + 0.0 * z, T=3)
    assert abs(np.mean(dist.sample(100, seed=seed))) < 1.0
    loc.assign(50.0)
    assert abs(np.mean(dist.sample(100, seed=seed)) - 50.0) < 1.0


def test_members_that_a_bijector_brings_have_draws_of_their_own(seed):
    dist = Resampled(tfb.Shift([0.0, 0.0])(tfd.Normal([0.0], 1.0)), tf.sigmoid, T=5)
    z = dist.sample(1000, seed=seed).numpy()
    assert z.shape == (1000, 2) and not np.any(z[:, 0] == z[:, 1])
    assert abs(np.corrcoef(z.T)[0, 1]) * np.sqrt(1000) < normal_bound()


def test_a_visible_gpu_draws_its_own_normal_numbers(seed, monkeypatch):
    proposal, key = tfd.Normal(0.0, 1.0), tf.constant([seed, 7])
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["gpu"])
    np.testing.assert_array_equal(
        _proposal_draws.sample(proposal, 3, key), proposal.sample(3, seed=key)
    )


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: tfd.Independent(d, 0), tfb.Scale(2.0)])
@pytest.mark.parametrize("T", [3, None])
def test_reparameterized_mixtures_are_resampled(wrap, T):
    """TFP draws them with a `GradientTape` of its own, which the sampler must not stop."""
    loc = tf.Variable([-1.0, 1.0])
    mixture = tfd.MixtureSameFamily(
        tfd.Categorical(logits=[0.0, 0.0]), tfd.Normal(loc, 1.0), reparameterize=True
    )
    dist = Resampled(wrap(mixture), tf.sigmoid, T)
    assert np.all(np.isfinite(dist.sample(20, seed=1)))
    assert np.all(np.isfinite(tf.function(dist.sample)(20, seed=(1, 2))))
    assert np.isfinite(dist.freeze(num_samples=1000, seed=1).log_normalizer)
    with tf.GradientTape() as tape:
        value = dist.log_prob(0.3)
    assert np.isfinite(value) and np.any(tape.gradient(value, loc) != 0.0)
    loc.assign([50.0, 60.0])
    assert np.all(dist.sample(20, seed=1) > 40.0)


def mixture_problem(seed):
    """A resampled mixture whose average has no memory, so that each call has its own gradient."""
    return Resampled(
        proposals.gaussian_mixture(2, 3, init_spread=0.9, seed=1),
        lambda z: tf.sigmoid(3.0 * z[..., 0] - z[..., 1]),
        normalizer=MovingAverage(256, decay=0.0, seed=seed),
    )


@pytest.mark.parametrize("in_graph", [False, True])
def test_recompute_grad_gives_the_gradient_of_its_second_call_for_mixtures(in_graph, seed):
    """The first call runs where recording is stopped, the second one under a tape."""
    z = tf.constant([[0.3, -0.2], [1.0, 0.5]])

    def value_and_gradients(dist, log_prob):
        with tf.GradientTape() as tape:
            tape.watch(z)
            value = log_prob(z)
            total = tf.reduce_sum(value)
        return value, *tape.gradient(total, [z, *dist.trainable_variables])

    plain, recomputed = mixture_problem(seed), mixture_problem(seed)
    first, _, *not_used = value_and_gradients(plain, plain.log_prob)
    _, *expected = value_and_gradients(plain, plain.log_prob)

    def actual():
        return value_and_gradients(recomputed, tf.recompute_grad(recomputed.log_prob))

    value, *gradients = tf.function(actual)() if in_graph else actual()
    np.testing.assert_allclose(value, first, rtol=1e-5)
    assert recomputed.normalizer.num_updates == 2
    assert len(gradients) == 1 + len(not_used) == 4
    for gradient, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-5)
    # The draws differ from call to call, so that these could not pass for the first call.
    assert np.all(np.abs(gradients[1] - not_used[0]) > 1e-4)
