"""Invariants of draws, for random proposals and acceptance functions."""

import numpy as np
import tensorflow as tf
from hypothesis import given

from tests.library import strategies
from tests.library.strategies import cases, examples
from tfp_lars import _seeds


@examples(0.4)
@given(cases())
def test_draws(case):
    dist = case.build()
    inner = (*case.batch_shape, *dist.event_shape)
    z, attempts = dist.sample_with_attempts(20, seed=5)
    assert z.shape == (20, *inner) and z.dtype == dist.dtype
    assert attempts.shape == (20, *case.batch_shape)
    assert np.all(attempts >= 1) and (case.T is None or np.all(attempts <= case.T))
    log_prob = dist.log_prob(z)
    assert np.all(np.isfinite(log_prob))
    for shape in ((), 1, (0,), (2, 3), (2, 0)):
        lead = (shape,) if isinstance(shape, int) else shape
        assert dist.sample(shape, seed=5).shape == (*lead, *inner)
    np.testing.assert_array_equal(dist.sample(20, seed=5), z)
    np.testing.assert_array_equal(dist.sample([4, 5], seed=5), tf.reshape(z, [4, 5, *inner]))
    if case.family in strategies.CONTINUOUS and np.size(z):
        assert not np.any(np.all(dist.sample(20, seed=6) == z, axis=tuple(range(1, z.ndim))))


@examples(0.15)
@given(cases(strategies.CONTINUOUS_SCALAR, batch_shapes=[(), (2,)], truncations=[2, 10, None]))
def test_draws_do_not_repeat(case):
    """The draws need several blocks of candidates. A repeated block would halve the share.

    A few float32 draws coincide by chance, hence not 1.
    """
    dist = case.build()
    z = np.concatenate([dist.sample(500, seed=seed) for seed in (1, 2)])
    assert len(np.unique(z)) > 0.99 * z.size


@examples(0.15)
@given(cases())
def test_graph_draws_the_same(case):
    dist = case.build()

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)], autograph=False)
    def draw(n):
        return dist.sample(n, seed=5)

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)], autograph=False)
    def draw_of_proposal(n):
        return dist.proposal.sample(n, seed=_seeds.stateless_seed(5))

    # At T = 1 this is the proposal, some of which round differently in graphs (TensorFlow 2.18).
    expected = draw_of_proposal if case.T == 1 else lambda n: dist.sample(n, seed=5)
    for n in (0, 1, 20):
        np.testing.assert_array_equal(draw(n), expected(n))


@examples(0.1)
@given(cases(batch_shapes=[(), (2,), (0,)]))
def test_distribution_made_in_a_graph_draws_and_computes(case):
    """Parameters are tensors of the graph, and the batch shape is static."""
    expected = case.build()
    z = expected.proposal.sample(3, seed=(1, 2))

    @tf.function(autograph=False)
    def in_graph():
        proposal = case.proposal()
        dist = expected.copy(proposal=proposal, normalizer=expected.log_normalizer)
        return dist.sample(3, seed=5), dist.log_prob(z)

    draws, log_prob = in_graph()
    np.testing.assert_allclose(draws, expected.sample(3, seed=5), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(log_prob, expected.log_prob(z), rtol=1e-5, atol=1e-5)
