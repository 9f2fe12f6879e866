"""A fixed log Z: where it is kept, what is frozen with it, and which copies may share it."""

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tfp_lars import (
    AcceptanceNetwork,
    LogNormalizer,
    MovingAverage,
    Resampled,
    estimate_log_normalizer,
)

tfb = tfp.bijectors
tfd = tfp.distributions

Z = tf.constant([0.1, 0.5, -1.0])
FEW = {"num_samples": 1000, "seed": 1}


def make(**kwargs):
    return Resampled(tfd.Normal(0.2, 1.1), tf.sigmoid, T=7, **kwargs)


def with_network():
    return Resampled(tfd.MultivariateNormalDiag(tf.zeros(2)), AcceptanceNetwork((4,)), T=7)


# Where log Z is kept.


@pytest.mark.parametrize(
    "log_z",
    [-0.7, np.float32(-0.7), tf.constant(-0.7), LogNormalizer(-0.7, 0.1, 100, "monte_carlo")],
    ids=["number", "array", "tensor", "estimate"],
)
def test_fixed_log_z_is_a_variable_that_is_not_trained(log_z):
    dist = make(normalizer=log_z)
    assert isinstance(dist.normalizer, tf.Variable)
    assert dist.parameters["normalizer"] is dist.normalizer
    assert dist.variables == (dist.normalizer,)
    assert dist.trainable_variables == ()
    assert dist.copy(T=3).normalizer is dist.normalizer


def test_frozen_log_z_is_restored_with_the_network(tmp_path):
    """Other weights have another Z."""
    saved, other = (with_network().freeze(**FEW) for _ in range(2))
    z = tf.constant([[0.1, 0.2], [0.3, -0.4]])
    assert np.all(saved.log_prob(z) != other.log_prob(z))
    path = tf.train.Checkpoint(dist=saved).save(tmp_path / "ckpt")
    tf.train.Checkpoint(dist=other).restore(path).assert_consumed()
    np.testing.assert_array_equal(other.log_prob(z), saved.log_prob(z))
    assert saved.estimate is not None
    assert other.estimate is None  # the old value belongs to other weights


def test_trainable_variable_is_refused():
    with pytest.raises(ValueError, match=r"`normalizer`.*trainable variable.*trainable=False"):
        make(normalizer=tf.Variable(-0.5))


def test_a_users_variable_is_used_as_it_is():
    log_z = tf.Variable(-0.5, trainable=False)
    dist = make(normalizer=log_z)
    assert dist.normalizer is log_z
    before = dist.log_prob(Z)
    log_z.assign(-1.0)
    assert np.all(before != dist.log_prob(Z))


def test_gradient_reaches_a_tensor_under_a_tape():
    log_z = tf.Variable(-0.7)
    with tf.GradientTape() as tape:
        eager = tf.reduce_sum(make(normalizer=1.0 * log_z).log_prob(Z))
    eager = tape.gradient(eager, log_z)

    @tf.function
    def graph():
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(make(normalizer=1.0 * log_z).log_prob(Z))
        return tape.gradient(value, log_z)

    assert eager is not None
    np.testing.assert_allclose(graph(), eager, rtol=1e-6)


def test_a_distribution_made_inside_a_function_takes_numbers():
    value = tf.function(lambda z: make(normalizer=-0.7).log_prob(z))(Z)
    np.testing.assert_allclose(value, make(normalizer=-0.7).log_prob(Z), rtol=1e-6)


# What `freeze` returns.


def test_estimate_stays_with_the_frozen_distribution():
    dist = make()
    frozen = dist.freeze(**FEW)
    assert frozen.estimate.log_z == estimate_log_normalizer(dist, **FEW).log_z
    assert frozen.estimate.stderr > 0.0
    assert frozen.copy(T=None).estimate is frozen.estimate
    estimate = frozen.estimate
    assert dist.freeze(estimate).estimate is estimate
    assert Resampled(dist.proposal, tf.sigmoid, normalizer=estimate).estimate is estimate
    assert tf.function(lambda: [float(frozen.estimate.log_z)])()[0] == np.float32(estimate.log_z)


def test_there_is_no_estimate_where_log_z_is_a_number_or_an_average():
    dist = make()
    assert dist.estimate is None
    assert dist.freeze(-0.5).estimate is None
    frozen = dist.freeze(**FEW)
    assert frozen.copy(normalizer=-0.5).estimate is None
    assert frozen.copy(normalizer=MovingAverage()).estimate is None
    frozen.normalizer.assign(-0.5)
    assert frozen.estimate is None


def test_a_number_of_samples_is_not_taken_for_log_z():
    with pytest.raises(
        ValueError, match=r"`estimate` must be log Z.*10000.*freeze\(num_samples=10000\)"
    ):
        make().freeze(10**4)
    with pytest.raises(ValueError, match=r"`estimate` must be log Z.*freeze\(num_samples=1\)"):
        make().freeze(1)


@pytest.mark.parametrize("log_z", [-0.5, [-0.5]])
def test_one_log_z_serves_all_members_also_after_slicing(log_z):
    dist = Resampled(tfd.Normal([0.0, 1.0, 2.0], 1.0), tf.sigmoid, normalizer=log_z)
    np.testing.assert_array_equal(dist.log_normalizer.numpy().tolist(), [-0.5, -0.5, -0.5])
    np.testing.assert_array_equal(dist[1:].log_normalizer.numpy().tolist(), [-0.5, -0.5])


# Nested distributions.


def inner(shape=()):
    return Resampled(
        tfd.Normal(tf.zeros(shape), 1.0), tf.sigmoid, T=5, normalizer=MovingAverage(16)
    )


def two_inner():
    return [inner(), inner()]


PARENTS = {
    "itself": lambda: inner([2]),
    "Independent": lambda: tfd.Independent(inner([2]), 1),
    "Sample": lambda: tfd.Sample(inner(), [2]),
    "TransformedDistribution": lambda: tfb.Shift(0.3)(inner([2])),
    "Mixture": lambda: tfd.Mixture(tfd.Categorical(logits=[0.1, 0.2]), two_inner()),
    "MixtureSameFamily": lambda: tfd.MixtureSameFamily(
        tfd.Categorical(logits=[0.1, 0.2]), inner([2])
    ),
    "Blockwise": lambda: tfd.Blockwise(two_inner()),
    "three deep": lambda: tfd.Sample(
        Resampled(tfb.Scale(2.0)(tfd.Independent(inner([]), 0)), tf.sigmoid, normalizer=-0.7), [2]
    ),
    "BatchBroadcast": lambda: tfd.BatchBroadcast(inner(), [2]),
}


def outer(proposal):
    def accept(z):
        ndims = proposal.event_shape.rank
        return tf.sigmoid(tf.reduce_sum(z, axis=tf.range(-ndims, 0)))

    return Resampled(proposal, accept, T=4, normalizer=MovingAverage(16))


def averages(dist):
    return [m for m in dist.submodules if isinstance(m, MovingAverage)]


@pytest.mark.parametrize("name", PARENTS)
def test_freeze_freezes_what_is_inside(name):
    dist = outer(PARENTS[name]())
    inside = [a for a in averages(dist) if a is not dist.normalizer]
    assert inside
    frozen = dist.freeze(**FEW)
    assert averages(frozen) == []
    z = dist.sample(3, seed=1)
    first = frozen.log_prob(z)
    np.testing.assert_array_equal(first, frozen.log_prob(z))
    assert all(a.num_updates == 0 for a in inside)
    assert dist.proposal.event_shape == frozen.proposal.event_shape
    np.testing.assert_array_equal(frozen.sample(3, seed=1), z)
    # The original continues to train.
    dist.log_prob(z)
    assert all(a.num_updates > 0 for a in inside)


def test_freeze_with_an_estimate_of_the_outer_z_passes_options_to_the_inner():
    dist = outer(tfd.Independent(inner([2]), 1))
    frozen = dist.freeze(-0.5, **FEW)
    np.testing.assert_allclose(frozen.log_normalizer, -0.5)
    assert frozen.proposal.distribution.estimate.num_samples == 1000


@pytest.mark.parametrize("normalizer", [None, -0.5], ids=["average", "fixed"])
def test_freeze_estimates_by_importance_sampling_on_the_frozen_proposal(normalizer):
    """Uniform with a(z) = z inside: p(z) = 2 z, and E[z] = 2/3."""
    part = Resampled(tfd.Uniform(), lambda z: z, T=None)
    dist = Resampled(part, lambda z: z, T=None, normalizer=normalizer)
    frozen = dist.freeze(method="importance", num_samples=4096, seed=1)
    for estimate, exact in ((frozen.proposal.estimate, 1 / 2), (frozen.estimate, 2 / 3)):
        assert estimate.method == "importance"
        assert abs(estimate.log_z - np.log(exact)) < stats.t.isf(1e-6, 31) * estimate.stderr
        assert estimate.stderr < 0.05
    assert averages(frozen) == [] and part.normalizer.num_updates == 0


@pytest.mark.parametrize("name", ["pairs", "continued", "importance"])
def test_arguments_for_one_distribution_do_not_reach_the_inner(name):
    """The outer proposal is symmetric around 3, the inner one around 0."""
    mixture = tfd.MixtureSameFamily(tfd.Categorical(logits=[0.0, 0.0]), tfd.Normal([-1.0, 1.0], 1))
    part = Resampled(mixture, lambda z: tf.exp(-z * z), T=5)
    dist = Resampled(tfb.Shift(3.0)(part), lambda z: z - 3.0, T=4, from_logits=True)
    q = tfd.Normal(3.0, 1.0)
    kwargs = {
        "pairs": {"antithetic": True, "reflect_fn": lambda z: 6.0 - z},
        "continued": {"continue_from": estimate_log_normalizer(dist, **FEW)},
        "importance": {"method": "importance", "importance_distribution": q},
    }[name]
    frozen = dist.freeze(num_samples=1024, seed=2, **kwargs)
    outside, inside = frozen.estimate, frozen.proposal.distribution.estimate
    # Of the draws of importance sampling, one in ten is from the proposal.
    expected = {"pairs": (512, 1024), "continued": (2024, 1024), "importance": (96, 96)}
    assert (outside.num_values, inside.num_values) == expected[name]
    assert (outside.importance_distribution is q) == (name == "importance")
    assert inside.importance_distribution is not q
    with pytest.raises(TypeError, match=rf"`freeze` got an `estimate` and also \['{min(kwargs)}'"):
        dist.freeze(-0.5, num_samples=1024, **{min(kwargs): kwargs[min(kwargs)]})


def test_a_fixed_log_z_in_between_stays():
    fixed = Resampled(inner(), tf.sigmoid, normalizer=LogNormalizer(-0.7, 0.1, 9, "monte_carlo"))
    frozen = outer(fixed).freeze(**FEW)
    assert frozen.proposal.normalizer is fixed.normalizer
    assert averages(frozen) == []


def test_a_part_that_is_used_twice_stays_one():
    part = inner()
    frozen = outer(tfd.Mixture(tfd.Categorical(logits=[0.1, 0.2]), [part, part])).freeze(**FEW)
    first, second = frozen.proposal.components
    assert first is second


class Hidden(tfd.Normal):
    """A distribution that creates its resampled part itself."""

    def __init__(self, loc, scale):
        super().__init__(loc, scale)
        self._part = inner()

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return tfd.Normal._parameter_properties(dtype, num_classes)

    def _log_prob(self, z):
        return self._part.log_prob(z)


def test_what_cannot_be_frozen_is_an_error():
    dist = Resampled(Hidden(0.0, 1.0), tf.sigmoid)
    with pytest.raises(ValueError, match="`freeze` cannot reach a moving average inside"):
        dist.freeze(**FEW)


def test_held_holds_nested_averages_and_nothing_where_log_z_is_fixed():
    dist = outer(tfd.Independent(inner([2]), 1))
    z = tf.zeros([3, 2])
    step = tf.function(dist.log_prob)
    step(z)
    with dist.held() as same:
        assert same is dist
        np.testing.assert_array_equal(step(z), step(z))
    assert [int(a.num_updates) for a in averages(dist)] == [1, 1]
    step(z)
    assert [int(a.num_updates) for a in averages(dist)] == [2, 2]
    frozen = make(normalizer=-0.5)
    with frozen.held():
        frozen.log_prob(Z)


# Copies.


@pytest.mark.parametrize(
    "change",
    [
        {"accept_fn": lambda z: tf.sigmoid(-z)},
        {"proposal": tfd.Normal(1.0, 1.0)},
        {"from_logits": True},
    ],
    ids=lambda change: "".join(change),
)
def test_copy_with_another_density_has_another_z(change):
    average = MovingAverage(16, 0.8, seed=3)
    dist = make(normalizer=average)
    dist.log_prob(Z)
    other = dist.copy(**change)
    assert other.normalizer is not average
    assert (other.normalizer.num_samples, other.normalizer.decay) == (16, 0.8)
    assert other.normalizer.seed == 3
    other.log_prob(Z)
    assert average.num_updates == 1
    (name,) = change
    with pytest.raises(ValueError, match=f"`copy` got another `{name}`.*`normalizer=`"):
        dist.freeze(-0.5).copy(**change)
    assert dist.copy(**change, normalizer=-0.5).log_normalizer == -0.5
    with pytest.raises(ValueError, match="created outside"):
        tf.function(lambda: dist.copy(**change).log_prob(Z))()


def test_copy_with_the_same_density_shares_the_normalizer():
    dist = make(normalizer=-0.5)
    same = dist.copy(proposal=dist.proposal, accept_fn=dist.accept_fn, T=3)
    assert same.normalizer is dist.normalizer


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("method", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copy_and_pickle_are_refused(method, sampled):
    dist = with_network()
    if sampled:
        dist.sample(3, seed=1)
    with pytest.raises(TypeError, match=r"dist.copy\(\).*tf.train.Checkpoint"):
        method(dist)
