"""Normal numbers of our own: their law, and that every proposal keeps its own."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tests.bounds import FALSE_ALARM_RATE, normal_bound
from tfp_lars import noise, proposals

tfb = tfp.bijectors
tfd = tfp.distributions


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_numbers_are_standard_normal_and_independent(dtype, seed, n=200_001):
    z = noise.standard_normal([n], tf.constant([seed, 1]), dtype).numpy()
    assert z.shape == (n,) and z.dtype == dtype.as_numpy_dtype
    assert stats.kstest(z, stats.norm.cdf).pvalue > FALSE_ALARM_RATE
    half = (n + 1) // 2
    # The two of a pair, made of one radius and one angle, lie half of the array apart.
    pairs = [(z[1:], z[:-1]), (z[: n - half], z[half:])]
    for x, y in pairs:
        assert abs(np.corrcoef(x, y)[0, 1]) * np.sqrt(len(x)) < normal_bound(4)
        assert abs(np.corrcoef(x**2, y**2)[0, 1]) * np.sqrt(len(x)) < normal_bound(4)


def test_tails_are_as_heavy_as_they_should_be(seed, n=4_000_000):
    """Beyond 4.5 there are 6.8e-6 of a normal law; a careless uniform loses some of them."""
    z = noise.standard_normal([n], tf.constant([seed, 2])).numpy()
    count = int(np.sum(np.abs(z) > 4.5))
    tail = 2 * stats.norm.sf(4.5)
    p_value = 2 * min(stats.binom.cdf(count, n, tail), stats.binom.sf(count - 1, n, tail))
    assert p_value > FALSE_ALARM_RATE
    assert np.all(np.isfinite(z))


def test_extreme_bits_give_finite_numbers(monkeypatch):
    extreme = np.array([0, 1, -1, 2**31 - 1, -(2**31)], np.int32)
    x, y = (v.ravel() for v in np.meshgrid(extreme, extreme))
    monkeypatch.setattr(tf.random, "stateless_uniform", lambda *_, **__: tf.constant([x, y]))
    z = noise.standard_normal([50], tf.constant([0, 0])).numpy()
    assert np.all(np.isfinite(z))
    assert np.sqrt(2 * np.log(2.0**32)) == pytest.approx(np.max(np.hypot(z[:25], z[25:])), rel=1e-4)


PROPOSALS = {
    "normal": lambda: tfd.Normal([0.0, 3.0], [1.0, 0.5]),
    "diagonal": lambda: tfd.MultivariateNormalDiag([1.0, -1.0], [0.5, -2.0]),
    "independent": lambda: tfd.Independent(tfd.Normal([0.0, 3.0], [1.0, 0.5]), 1),
    "sample": lambda: tfd.Sample(tfd.Normal(2.0, 0.1), [3]),
    "transformed": lambda: tfd.TransformedDistribution(tfd.Normal(0.0, 0.3), tfb.Exp()),
    "log_normal": lambda: tfd.LogNormal([0.0, 1.0], 0.3),
    "real_nvp": lambda: proposals.real_nvp(3, num_couplings=2, hidden_units=(4,), seed=1),
    "float64": lambda: tfd.Normal(tf.constant(1.0, tf.float64), 2.0),
    "uniform": lambda: tfd.Uniform(0.0, [1.0, 2.0]),
    "poisson": lambda: tfd.Poisson([1.0, 4.0]),
    "sample_of_batch": lambda: tfd.Sample(tfd.Normal([0.0, 9.0], 1.0), [3]),
    "student": lambda: tfd.StudentT(5.0, 0.0, 1.0),
}
OWN_WAY = ("uniform", "poisson", "sample_of_batch", "student")


@pytest.mark.parametrize("name", PROPOSALS)
def test_draws_have_the_law_of_the_proposal(name, seed, n=20_000):
    proposal = PROPOSALS[name]()
    ours = noise.sample(proposal, n, tf.constant([seed, 3]))
    theirs = proposal.sample(n, seed=tf.constant([seed, 4]))
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    assert noise._is_gaussian_at_heart(proposal) == (name not in OWN_WAY)
    columns = [np.reshape(x, [n, -1]).T for x in (ours, theirs)]
    for x, y in zip(*columns, strict=True):
        assert stats.ks_2samp(x, y).pvalue > FALSE_ALARM_RATE / 3
    if len(columns[0]) > 1:
        correlation = np.corrcoef(columns[0])[0, 1] - np.corrcoef(columns[1])[0, 1]
        assert abs(correlation) * np.sqrt(n / 2) < normal_bound()


def test_parameters_get_the_gradient_of_a_reparameterized_draw(seed):
    loc, scale = tf.Variable([0.5, 1.0]), tf.Variable([2.0, 0.1])
    with tf.GradientTape() as tape:
        z = noise.sample(tfd.Normal(loc, scale), 5, tf.constant([seed, 5]))
        total = tf.reduce_sum(z)
    by_loc, by_scale = tape.gradient(total, [loc, scale])
    np.testing.assert_allclose(by_loc, [5.0, 5.0])
    np.testing.assert_allclose(by_scale, np.sum((z - loc) / scale, axis=0), rtol=1e-4)


class Shifted(tfd.Normal):
    """Draws in a way of its own."""

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return tfd.Normal._parameter_properties(dtype, num_classes)

    def _sample_n(self, n, seed=None):
        return 7.0 + 0.0 * super()._sample_n(n, seed)


def test_subclasses_draw_in_their_own_way(seed):
    for proposal in (
        Shifted(0.0, 1.0),
        tfd.TransformedDistribution(Shifted(0.0, 1.0), tfb.Shift(0.0)),
    ):
        np.testing.assert_array_equal(noise.sample(proposal, 3, tf.constant([seed, 6])), 7.0)
