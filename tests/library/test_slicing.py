"""A slice of a frozen batch is the distribution of the members that remain."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import AcceptanceNetwork, LogNormalizer, Resampled

tfd = tfp.distributions

SHIFT = np.linspace(-2.0, 3.0, 12, dtype=np.float32).reshape(4, 3)
LOC = np.linspace(1.0, -1.0, 12, dtype=np.float32).reshape(4, 3)
LOG_Z = np.linspace(-0.2, -1.5, 12, dtype=np.float32).reshape(4, 3)
Z = np.linspace(-1.0, 1.0, 5 * 12, dtype=np.float32).reshape(5, 4, 3)


def batch(accept_fn=None, **kwargs):
    """A batch of 4 x 3 members, each with its own a(z)."""
    if accept_fn is None:
        shift = tf.Variable(SHIFT)

        def accept_fn(z):
            return tf.sigmoid(z - shift)

    return Resampled(tfd.Normal(LOC, 1.0), accept_fn, T=4, normalizer=LOG_Z, **kwargs)


INDICES = {
    "integer": 1,
    "negative integer": -1,
    "range": slice(1, 3),
    "reversed": slice(None, None, -1),
    "strided": slice(None, None, 2),
    "reversed and strided": (slice(None, None, -2), slice(None, None, -1)),
    "ellipsis": (Ellipsis, 2),
    "all": Ellipsis,
    "new axis": (slice(None), tf.newaxis, 1),
    "two new axes": (tf.newaxis, Ellipsis, tf.newaxis),
    "member": (2, 1),
    "tensor": tf.constant(2),
    "two tensors": (tf.constant(2), tf.constant(1)),
    "range of tensors": slice(tf.constant(1), tf.constant(3)),
}


@pytest.mark.parametrize("name", INDICES)
def test_slice_has_the_density_and_acceptance_of_its_members(name):
    index = INDICES[name]
    index = index if isinstance(index, tuple) else (index,)
    dist = batch()
    sliced = dist[index]
    for method in ("log_prob", "accept_log_prob", "log_ratio"):
        whole = getattr(dist, method)(Z)
        expected = tf.stack([member[index] for member in whole])
        z = tf.stack([member[index] for member in tf.constant(Z)])
        assert sliced.batch_shape == expected.shape[1:]
        np.testing.assert_allclose(getattr(sliced, method)(z), expected, rtol=1e-6, atol=1e-6)
        # All members get the same z.
        expected = tf.convert_to_tensor(getattr(dist, method)(0.3))[index]
        np.testing.assert_allclose(getattr(sliced, method)(0.3), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(sliced.log_normalizer, dist.log_normalizer[index])


def estimate_of_batch(**kwargs):
    """Each member has its own numbers."""
    return LogNormalizer(
        LOG_Z.astype(np.float64),
        np.linspace(0.1, 0.2, 12).reshape(4, 3),
        1000,
        "monte_carlo",
        effective_samples=np.linspace(500.0, 900.0, 12).reshape(4, 3),
        warning="few draws",
        **kwargs,
    )


@pytest.mark.parametrize("name", INDICES)
def test_slice_has_the_estimate_of_its_members(name):
    index = INDICES[name]
    whole = estimate_of_batch(num_values=500, degrees_of_freedom=31, state="of the whole batch")
    sliced = batch().freeze(whole)[index]
    estimate = sliced.estimate
    for field in ("log_z", "stderr", "effective_samples"):
        expected = tf.constant(getattr(whole, field))[index]
        np.testing.assert_array_equal(getattr(estimate, field), expected, strict=True)
    for field in ("num_samples", "method", "num_values", "degrees_of_freedom", "warning"):
        assert getattr(estimate, field) == getattr(whole, field)
    assert estimate.state is None
    np.testing.assert_array_equal(sliced.log_normalizer, estimate.log_z.astype(np.float32))
    for end, expected in zip(estimate.interval(), whole.interval(), strict=True):
        np.testing.assert_allclose(end, tf.constant(expected)[index], rtol=1e-12)


def test_slice_of_an_estimate_without_effective_samples_and_with_one_error():
    """As users may build it."""
    estimate = LogNormalizer(LOG_Z, 0.1, 1000, "monte_carlo")
    sliced = batch().freeze(estimate)[1, 1:].estimate
    np.testing.assert_array_equal(sliced.stderr, [0.1, 0.1])
    assert sliced.effective_samples is None


def test_slice_of_a_single_distribution_keeps_its_estimate():
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid)
    frozen = dist.freeze(num_samples=1000, method="importance", seed=1)
    estimate = frozen[tf.newaxis].estimate
    assert estimate.log_z == [frozen.estimate.log_z]
    # It has the batch shape of the whole, and only a continued estimate would use it.
    assert estimate.importance_distribution is None


def test_slice_has_no_estimate_where_the_batch_has_none():
    assert batch()[1].estimate is None
    frozen = batch().freeze(estimate_of_batch())
    sliced = frozen[1]
    frozen.normalizer.assign(LOG_Z - 1.0)
    assert frozen[1].estimate is None
    np.testing.assert_array_equal(frozen[1].log_normalizer, LOG_Z[1] - 1.0)
    assert sliced.estimate is not None
    assert tf.function(lambda: [] if frozen[1].estimate is None else [1])() == []


@pytest.mark.parametrize(
    "slices",
    [(slice(1, None), 0), (slice(None, None, -1), (slice(1, 3), 2), 0), (tf.newaxis, (0, 1), 2)],
    ids=["range", "three times", "new axis"],
)
def test_slice_of_a_slice(slices):
    sliced, expected = batch(), batch().log_prob(0.3)
    for index in slices:
        sliced, expected = sliced[index], expected[index]
    np.testing.assert_allclose(sliced.log_prob(0.3), expected, rtol=1e-6)


def test_slice_of_a_batch_of_vectors_and_a_module():
    class PerMember(tf.Module):
        def __init__(self):
            super().__init__()
            self.center = tf.Variable(tf.random.stateless_normal([3, 2], [1, 2]))

        def logits(self, z):
            return -tf.reduce_sum((z - self.center) ** 2, -1, keepdims=True)

    module = PerMember()
    dist = Resampled(tfd.MultivariateNormalDiag(tf.zeros([3, 2])), module, normalizer=-1.0)
    z = tf.random.stateless_normal([4, 5, 1, 2], [3, 4])
    np.testing.assert_allclose(dist[1:].log_prob(z), dist.log_prob(z)[..., 1:], rtol=1e-6)
    np.testing.assert_allclose(dist[2].log_prob(z[:, :, 0]), dist.log_prob(z)[..., 2], rtol=1e-6)
    assert [id(v) for v in dist[1:].trainable_variables] == [id(module.center)]


def test_slice_of_a_single_distribution_adds_an_axis():
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, normalizer=-0.7)
    assert dist[tf.newaxis].batch_shape == [1]
    np.testing.assert_allclose(dist[tf.newaxis].log_prob([0.3]), [dist.log_prob(0.3)], rtol=1e-6)


def test_empty_slice_is_empty():
    sliced = batch()[1:1]
    assert sliced.batch_shape == [0, 3]
    assert sliced.log_prob(tf.zeros([5, 0, 3])).shape == [5, 0, 3]
    assert len(sliced.trainable_variables) == 1


def test_slice_in_a_graph_by_a_tensor():
    dist = batch()

    @tf.function
    def log_prob(i, z):
        return dist[i].log_prob(z)

    expected = dist.log_prob(0.3)
    for i in range(4):
        np.testing.assert_allclose(log_prob(tf.constant(i), 0.3), expected[i], rtol=1e-6)


def test_slice_of_a_batch_of_unknown_size():
    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None])])
    def log_prob(loc, shift):
        dist = Resampled(tfd.Normal(loc, 1.0), lambda z: tf.sigmoid(z - shift), normalizer=-0.7)
        return dist.log_prob(0.3), dist[2].log_prob(0.3), dist[1:].log_prob(0.3)

    whole, third, rest = log_prob(LOC[0], SHIFT[0])
    np.testing.assert_allclose(third, whole[2], rtol=1e-6)
    np.testing.assert_allclose(rest, whole[1:], rtol=1e-6)


def test_slice_draws_from_its_members():
    """Members accept disjoint ranges, so each draw shows its member."""
    lower = tf.constant([-9.0, -0.5, 0.5])
    upper = tf.constant([-0.5, 0.5, 9.0])
    dist = Resampled(
        tfd.Normal(tf.zeros(3), 1.0),
        lambda z: tf.cast((z > lower) & (z < upper), tf.float32),
        T=None,
        normalizer=np.log([0.3, 0.4, 0.3]),
    )
    for index in (1, slice(None, None, -1), slice(1, None)):
        z = dist[index].sample(100, seed=1).numpy()
        assert np.all((z > lower[index].numpy()) & (z < upper[index].numpy()))
    estimate = dist[::-1].freeze(num_samples=10_000, seed=1).acceptance_rate
    exact = np.diff(tfd.Normal(0.0, 1.0).cdf([-9.0, -0.5, 0.5, 9.0]))[::-1]
    # Six standard deviations of the mean of 10,000 draws, each at most 0.005.
    np.testing.assert_allclose(estimate, exact, atol=0.03)


def test_slice_reads_variables_at_each_call_and_passes_gradients():
    shift = tf.Variable(SHIFT)
    dist = batch(lambda z: tf.sigmoid(z - shift))
    sliced = dist[1:3, ::-1]
    shift.assign(-SHIFT)
    np.testing.assert_allclose(
        sliced.accept_log_prob(0.3), dist.accept_log_prob(0.3)[1:3, ::-1], rtol=1e-6
    )
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(sliced.log_prob(0.3))
    gradient = tape.gradient(value, shift).numpy()
    assert np.all(gradient[1:3] != 0.0) and np.all(gradient[[0, 3]] == 0.0)


def test_slice_shares_variables_and_checkpoints_with_the_batch(tmp_path):
    class PerMember(tf.Module):
        def __init__(self):
            super().__init__()
            self.shift = tf.Variable(SHIFT)

        def __call__(self, z):
            return tf.sigmoid(z - self.shift)

    dist = batch(PerMember())
    sliced = dist[1]
    assert [id(v) for v in sliced.trainable_variables] == [id(v) for v in dist.trainable_variables]
    path = tf.train.Checkpoint(dist=sliced).save(tmp_path / "ckpt")
    twin = batch(PerMember())[1]
    twin.trainable_variables[0].assign(tf.zeros([4, 3]))
    tf.train.Checkpoint(dist=twin).restore(path).assert_consumed()
    np.testing.assert_array_equal(twin.log_prob(0.3), sliced.log_prob(0.3))


def test_copy_of_a_slice_is_the_same_slice():
    sliced = batch()[1:, 0]
    np.testing.assert_array_equal(sliced.copy().log_prob(0.3), sliced.log_prob(0.3))
    again = Resampled(sliced.proposal, sliced.accept_fn, 4, normalizer=sliced.log_normalizer)
    np.testing.assert_array_equal(again.log_prob(0.3), sliced.log_prob(0.3))
    np.testing.assert_allclose(
        sliced.accept_fn(tf.fill([2, 3], 0.3)),
        tf.exp(sliced.accept_log_prob(tf.fill([2, 3], 0.3))),
        rtol=1e-6,
    )


def test_slice_of_a_network_calls_it_on_the_remaining_members_only():
    net = AcceptanceNetwork((3,))
    dist = Resampled(tfd.Normal(LOC, 1.0), net, normalizer=LOG_Z)
    assert dist[1].accept_fn is net
    np.testing.assert_allclose(dist[1].log_prob(0.3), dist.log_prob(0.3)[1], rtol=1e-5)


def test_slices_pass_through_tfp_wrappers():
    dist = tfd.Independent(batch(), 1)
    np.testing.assert_allclose(
        dist[::-1].log_prob(Z[:, ::-1]), dist.log_prob(Z)[:, ::-1], rtol=1e-5
    )
