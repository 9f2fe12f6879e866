"""A resampled distribution inside TFP's meta-distributions and joint distributions."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import integrate, special, stats

from tests.bounds import normal_bound
from tfp_lars import MovingAverage, Resampled

tfb = tfp.bijectors
tfd = tfp.distributions


# A standard normal with a(z) = sigmoid(z), so that Z = 1/2 by symmetry,
# and T = 3: p(z) = normal(z) * (1.5 * sigmoid(z) + 0.25).

LOG_HALF = np.log(np.float32(0.5))


def tilted(batch_shape=(), **kwargs):
    kwargs = {"T": 3, "normalizer": LOG_HALF, **kwargs}
    return Resampled(tfd.Normal(tf.zeros(batch_shape), 1.0), tf.sigmoid, **kwargs)


def tilted_prob(z):
    z = np.asarray(z, np.float64)
    return stats.norm.pdf(z) * (1.5 * special.expit(z) + 0.25)


def tilted_moment(fn):
    return integrate.quad(lambda z: tilted_prob(z) * fn(z), -12.0, 12.0, epsabs=1e-12)[0]


def test_the_tilted_density_is_one():
    assert tilted_moment(lambda z: 1.0) == pytest.approx(1.0, abs=1e-10)


def assert_mean(samples, mean, variance, msg=""):
    """Checks the mean of independent samples, with the false-alarm rate of `bounds`."""
    stderr = np.sqrt(variance / np.size(samples))
    assert abs(np.mean(samples) - mean) < normal_bound() * stderr, msg


Z_1D = np.linspace(-2.5, 2.5, 12).astype(np.float32)


def test_independent_sums_over_its_members():
    dist = tfd.Independent(tilted([3]), 1)
    z = Z_1D.reshape(4, 3)
    np.testing.assert_allclose(dist.log_prob(z), np.log(tilted_prob(z)).sum(-1), rtol=1e-5)
    draws = dist.sample(2000, seed=1)
    mean = tilted_moment(lambda z: z)
    assert_mean(draws, mean, tilted_moment(lambda z: (z - mean) ** 2))


def test_independent_passes_the_target_on():
    """Both calls update an average with the same seed, hence with the same draws."""
    z, target = Z_1D.reshape(4, 3), np.full((4, 3), -1.3, np.float32)
    wrapped = tfd.Independent(tilted([3], normalizer=MovingAverage(16, seed=1)), 1)
    bare = tilted([3], normalizer=MovingAverage(16, seed=1))
    np.testing.assert_allclose(
        wrapped.log_prob(z, target_log_prob=target),
        np.sum(bare.log_prob(z, target_log_prob=target), -1),
        rtol=1e-5,
    )
    without = tilted([3], normalizer=MovingAverage(16, seed=1))
    without.log_prob(z)
    assert np.all(bare.log_normalizer != without.log_normalizer)


def test_sample_sums_over_its_copies():
    dist = tfd.Sample(tilted(), [2, 3])
    z = Z_1D.reshape(2, 2, 3)
    np.testing.assert_allclose(dist.log_prob(z), np.log(tilted_prob(z)).sum((-1, -2)), rtol=1e-5)
    draws = dist.sample(1000, seed=1)
    mean = tilted_moment(lambda z: z)
    assert_mean(draws, mean, tilted_moment(lambda z: (z - mean) ** 2))


def test_transformed_distribution_changes_variables():
    base = tilted()
    dist = tfd.TransformedDistribution(base, tfb.Exp())
    x = np.exp(Z_1D)
    np.testing.assert_allclose(
        dist.log_prob(x), np.log(tilted_prob(Z_1D)) - Z_1D, rtol=1e-5, atol=1e-6
    )
    below = tilted_moment(lambda z: float(z < 0.2))
    draws = dist.sample(2000, seed=1)
    assert_mean(draws < np.exp(0.2), below, below * (1 - below))


def test_transformed_distribution_of_a_shifted_batch():
    dist = tfd.TransformedDistribution(
        tilted([3]), tfb.Shift([0.0, 1.0, 2.0])(tfb.Scale([1.0, 2.0, 0.5]))
    )
    x = Z_1D.reshape(4, 3)
    base = (x - [0.0, 1.0, 2.0]) / [1.0, 2.0, 0.5]
    np.testing.assert_allclose(
        dist.log_prob(x), np.log(tilted_prob(base)) - np.log([1.0, 2.0, 0.5]), rtol=1e-5
    )


def test_mixture_same_family_mixes_its_members():
    locs, weights = np.float32([-2.0, 0.0, 3.0]), np.float32([0.2, 0.3, 0.5])
    components = Resampled(
        tfd.Normal(locs, 1.0),
        lambda z: tf.sigmoid(z - locs),  # Z = 1/2 for each of them
        T=3,
        normalizer=LOG_HALF,
    )
    dist = tfd.MixtureSameFamily(tfd.Categorical(probs=weights), components)
    expected = np.sum(weights * tilted_prob(Z_1D[:, np.newaxis] - locs), -1)
    np.testing.assert_allclose(dist.prob(Z_1D), expected, rtol=1e-5)
    draws = dist.sample(4000, seed=1)
    mean = np.sum(weights * locs) + tilted_moment(lambda z: z)
    second = np.sum(weights * locs**2) - np.sum(weights * locs) ** 2
    within = tilted_moment(lambda z: z**2) - tilted_moment(lambda z: z) ** 2
    assert_mean(draws, mean, second + within)


def test_mixture_tells_unequal_members_apart():
    log_z = np.log(np.float32([0.2, 0.9]))
    dist = tfd.MixtureSameFamily(
        tfd.Categorical(probs=[0.25, 0.75]),
        Resampled(tfd.Normal(tf.zeros([2]), 1.0), tf.sigmoid, T=None, normalizer=log_z),
    )
    base = stats.norm.pdf(Z_1D) * special.expit(Z_1D)
    expected = base * (0.25 / 0.2 + 0.75 / 0.9)
    np.testing.assert_allclose(dist.prob(Z_1D), expected, rtol=1e-5)


def test_batch_broadcast_repeats_the_density():
    dist = tfd.BatchBroadcast(tilted([3]), [2, 3])
    z = Z_1D.reshape(2, 2, 3)
    np.testing.assert_allclose(dist.log_prob(z), np.log(tilted_prob(z)), rtol=1e-5)
    draws = dist.sample(5, seed=1)
    assert draws.shape == (5, 2, 3)
    assert np.unique(draws).size == 30  # members have independent draws


def test_batch_reshape_keeps_members_in_order():
    log_z = np.log(np.linspace(0.1, 0.9, 6, dtype=np.float32))
    base = Resampled(tfd.Normal(tf.zeros([6]), 1.0), tf.sigmoid, T=None, normalizer=log_z)
    dist = tfd.BatchReshape(base, [2, 3])
    z = Z_1D.reshape(2, 2, 3)
    log_joint = np.log(stats.norm.pdf(z) * special.expit(z))
    np.testing.assert_allclose(dist.log_prob(z), log_joint - log_z.reshape(2, 3), rtol=1e-5)
    assert dist.sample(5, seed=1).shape == (5, 2, 3)


def test_masked_members_count_for_nothing():
    dist = tfd.Masked(tilted([3]), [True, False, True])
    z = Z_1D.reshape(4, 3)
    expected = np.log(tilted_prob(z)) * [1.0, 0.0, 1.0]
    np.testing.assert_allclose(dist.log_prob(z), expected, rtol=1e-5)


def test_blockwise_joins_events():
    dist = tfd.Blockwise([tilted(), tfd.Normal(1.0, 2.0)])
    z = Z_1D.reshape(6, 2)
    expected = np.log(tilted_prob(z[:, 0])) + stats.norm.logpdf(z[:, 1], 1.0, 2.0)
    np.testing.assert_allclose(dist.log_prob(z), expected, rtol=1e-5)


# Joint distributions: z from the tilted density, then x given z.

NOISE = 0.5


def likelihood(z):
    return tfd.Normal(z, NOISE)


def coroutine():
    z = yield tfd.JointDistributionCoroutine.Root(tilted(name="z"))
    yield likelihood(z)


def coroutine_auto_batched():
    z = yield tilted(name="z")
    yield likelihood(z)


JOINTS = {
    "JointDistributionSequential": lambda cls: cls([tilted(), likelihood]),
    "JointDistributionNamed": lambda cls: cls({"z": tilted(), "x": likelihood}),
    "JointDistributionCoroutine": lambda cls: cls(coroutine),
    "JointDistributionSequentialAutoBatched": lambda cls: cls([tilted(), likelihood]),
    "JointDistributionNamedAutoBatched": lambda cls: cls({"z": tilted(), "x": likelihood}),
    "JointDistributionCoroutineAutoBatched": lambda cls: cls(coroutine_auto_batched),
}


@pytest.mark.parametrize("name", JOINTS)
def test_joint_distribution_computes_with_it(name):
    # The auto-batched ones run each draw in its own loop, in code that they share.
    num_samples = 60 if "AutoBatched" in name else 2000
    joint = JOINTS[name](getattr(tfd, name))
    z, x = Z_1D, Z_1D[::-1]
    value = {"z": z, "x": x} if "Named" in name else (z, x)
    expected = np.log(tilted_prob(z)) + stats.norm.logpdf(x, z, NOISE)
    np.testing.assert_allclose(joint.log_prob(value), expected, rtol=1e-5)
    if name in ("JointDistributionNamedAutoBatched", "JointDistributionCoroutineAutoBatched"):
        return
    draws = joint.sample(num_samples, seed=5)
    z, x = (draws["z"], draws["x"]) if "Named" in name else tuple(draws)
    mean = tilted_moment(lambda z: z)
    variance = tilted_moment(lambda z: (z - mean) ** 2)
    assert_mean(z, mean, variance, "z")
    assert_mean(x, mean, variance + NOISE**2, "x")
    assert_mean(x - z, 0.0, NOISE**2, "x - z")
    assert np.unique(z).size == num_samples


def test_hamiltonian_monte_carlo_finds_the_mean():
    """Chains start far from the mass. Their last states are independent of each other."""
    num_chains = 4000
    dist = tilted()
    kernel = tfp.mcmc.HamiltonianMonteCarlo(dist.log_prob, step_size=0.5, num_leapfrog_steps=3)

    @functools.partial(tf.function, autograph=False)
    def run():
        return tfp.mcmc.sample_chain(
            num_results=1,
            num_burnin_steps=14,
            current_state=tf.fill([num_chains], -2.0),
            kernel=kernel,
            trace_fn=lambda _, results: results.is_accepted,
            seed=tf.constant([1, 2]),
        )

    states, accepted = run()
    mean = tilted_moment(lambda z: z)
    assert_mean(states, mean, tilted_moment(lambda z: (z - mean) ** 2))
    assert np.mean(accepted) > 0.9
    # The density without its tilt is outside of the band.
    assert mean > 2 * normal_bound() / np.sqrt(num_chains)


def test_nested_in_itself_it_is_resampled_twice():
    """Resampling twice with sigmoid(z), untruncated, has a(z) = sigmoid(z)**2."""
    half = tilted(T=None)
    second = integrate.quad(lambda z: stats.norm.pdf(z) * special.expit(z) ** 2, -12, 12)[0]
    twice = Resampled(half, tf.sigmoid, T=None, normalizer=np.log(second / 0.5))
    expected = stats.norm.pdf(Z_1D) * special.expit(Z_1D) ** 2 / second
    np.testing.assert_allclose(twice.prob(Z_1D), expected, rtol=1e-5)
    draws = twice.sample(2000, seed=1)
    moments = [
        integrate.quad(
            lambda z, k=k: z**k * stats.norm.pdf(z) * special.expit(z) ** 2 / second, -12, 12
        )[0]
        for k in (1, 2)
    ]
    assert_mean(draws, moments[0], moments[1] - moments[0] ** 2)
