"""Invariants of densities, copies and slices, for random proposals and acceptance functions."""

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st
from tensorflow_probability.python.internal import batch_shape_lib

from tests.library import strategies
from tests.library.strategies import Case, cases, examples
from tfp_lars import MovingAverage

tfb = tfp.bijectors
tfd = tfp.distributions

SEED = (1, 2)


def rtol(dist):
    return 1e-12 if strategies.density_dtype(dist.proposal) == np.float64 else 1e-5


def reference(dist, z):
    """Returns log p_T, term by term in float64."""
    log_proposal, accept, Z = (
        np.asarray(x, np.float64)
        for x in (dist.proposal.log_prob(z), tf.exp(dist.accept_log_prob(z)), dist.acceptance_rate)
    )
    if dist.T is None:
        return log_proposal + np.log(accept / Z)
    tests_before = sum((1.0 - Z) ** t for t in range(dist.T - 1))
    return log_proposal + np.log(accept * tests_before + (1.0 - Z) ** (dist.T - 1))


@examples(1.2)
@given(cases())
def test_shapes_and_values(case):
    dist = case.build()
    proposal, event_shape = dist.proposal, tuple(dist.proposal.event_shape)
    assert tuple(dist.batch_shape) == tuple(dist.batch_shape_tensor()) == case.batch_shape
    assert tuple(dist.event_shape) == tuple(dist.event_shape_tensor()) == event_shape
    assert dist.dtype == proposal.dtype
    np.testing.assert_array_equal(
        batch_shape_lib.inferred_batch_shape_tensor(dist), case.batch_shape
    )
    assert batch_shape_lib.inferred_batch_shape(dist) == case.batch_shape
    z = proposal.sample(4, seed=SEED)
    log_prob = dist.log_prob(z)
    assert log_prob.shape == (4, *case.batch_shape)
    assert log_prob.dtype == proposal.log_prob(z).dtype
    assert np.all(np.isfinite(log_prob))
    np.testing.assert_allclose(log_prob, reference(dist, z), rtol=rtol(dist), atol=10 * rtol(dist))
    # Other sample shapes
    close = {"rtol": rtol(dist), "atol": rtol(dist)}
    np.testing.assert_allclose(dist.log_prob(z[0]), log_prob[0], **close)
    folded = dist.log_prob(tf.reshape(z, [2, 1, 2, *case.batch_shape, *event_shape]))
    np.testing.assert_allclose(folded, tf.reshape(log_prob, [2, 1, 2, *case.batch_shape]), **close)
    none = dist.log_prob(z[:0])
    assert none.shape == (0, *case.batch_shape)
    # One event for all members
    event = tf.reshape(z, [-1, *event_shape])[:1]
    if event.shape[0] and case.family != "BatchReshape":  # TFP's does not broadcast
        everywhere = tf.broadcast_to(event[0], [*case.batch_shape, *event_shape])
        np.testing.assert_allclose(dist.log_prob(event[0]), dist.log_prob(everywhere), **close)


@examples(0.5)
@given(cases())
def test_gradients_are_finite(case):
    dist = case.build()
    z = dist.proposal.sample(4, seed=SEED)
    with tf.GradientTape() as tape:
        if z.dtype.is_floating:
            tape.watch(z)
        value = tf.reduce_sum(dist.log_prob(z))
    sources = [*dist.trainable_variables, *([z] if z.dtype.is_floating else [])]
    for gradient in tape.gradient(value, sources, unconnected_gradients="zero"):
        assert np.all(np.isfinite(gradient))


@examples(0.4)
@given(cases())
def test_training_updates_once_and_is_finite(case):
    dist = case.build(normalizer=MovingAverage(16, seed=3))
    z = dist.proposal.sample(4, seed=SEED)
    with tf.GradientTape() as tape:
        log_prob = dist.log_prob(z, target_log_prob=dist.proposal.log_prob(z))
    assert log_prob.shape == (4, *case.batch_shape)
    assert np.all(np.isfinite(log_prob))
    for gradient in tape.gradient(log_prob, dist.trainable_variables, unconnected_gradients="zero"):
        assert np.all(np.isfinite(gradient))
    if dist.T == 1 or 0 in case.batch_shape:
        return
    assert dist.normalizer.num_updates == 1
    with dist.held():
        np.testing.assert_array_equal(dist.log_prob(z), dist.log_prob(z))
        frozen = dist.freeze(dist.log_normalizer)
        np.testing.assert_allclose(
            dist.log_prob(z), frozen.log_prob(z), rtol=rtol(dist), atol=rtol(dist)
        )


@examples(0.4)
@given(cases(forms=["probability", "trailing one", "logits", "module"]))
def test_single_precision_agrees_with_double(case):
    """The ratio to the proposal is compared: densities themselves are TFP's."""
    single, double = case.build(dtype="float32"), case.build(dtype="float64")
    z = single.proposal.sample(4, seed=SEED)
    found, expected = single.log_ratio(z), double.log_ratio(tf.cast(z, double.dtype))
    # a(z) and log Z are rounded to 6e-8. The ratio has a slope of at most T in either.
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@examples(0.3)
@given(cases())
def test_graph_of_unknown_shapes_computes_the_same(case):
    dist = case.build()
    z = dist.proposal.sample(4, seed=SEED)
    expected = dist.log_prob(z)
    for shape in (z.shape, [None] * z.shape.rank, None):
        try:  # not all of TFP's distributions take an unknown rank
            proposal = tf.function(dist.proposal.log_prob, autograph=False)
            proposal.get_concrete_function(tf.TensorSpec(shape, z.dtype))
        except (TypeError, ValueError):
            continue
        graph = tf.function(
            dist.log_prob, input_signature=[tf.TensorSpec(shape, z.dtype)], autograph=False
        )
        np.testing.assert_allclose(graph(z), expected, rtol=rtol(dist), atol=10 * rtol(dist))


@examples(0.5)
@given(cases(), st.sampled_from(strategies.TRUNCATIONS))
def test_copies(case, T):
    dist = case.build()
    z = dist.proposal.sample(4, seed=SEED)
    expected = dist.log_prob(z)
    for twin in (dist.copy(), type(dist)(**dist.parameters)):
        np.testing.assert_array_equal(twin.log_prob(z), expected)
        assert twin.T == dist.T and twin.accept_fn == dist.accept_fn
    other = dist.copy(T=T)
    np.testing.assert_allclose(
        other.log_prob(z), reference(other, z), rtol=rtol(dist), atol=10 * rtol(dist)
    )
    np.testing.assert_array_equal(other.copy(T=dist.T).log_prob(z), expected)
    np.testing.assert_allclose(
        dist.log_prob(z, T=T), other.log_prob(z), rtol=rtol(dist), atol=rtol(dist)
    )


@st.composite
def sliced_cases(draw):
    case = draw(cases(batch_shapes=[s for s in strategies.SHAPES if s]))
    index = draw(np_st.basic_indices(case.batch_shape, allow_newaxis=True, allow_ellipsis=True))
    return case, index if isinstance(index, tuple) else (index,)


@examples(0.6)
@given(sliced_cases())
def test_slices(case_and_index):
    case, index = case_and_index
    dist = case.build()
    z = dist.proposal.sample(4, seed=SEED).numpy()
    rest = [slice(None)] * dist.event_shape.rank if Ellipsis in index else [Ellipsis]
    part = np.stack([x[(*index, *rest)] for x in z])
    expected = np.stack([x[index] for x in dist.log_prob(z).numpy()])
    try:  # not all of TFP's distributions take all indices
        proposal = dist.proposal[index].log_prob(part)
    except (NotImplementedError, TypeError, ValueError, tf.errors.InvalidArgumentError):
        assume(False)
    assume(proposal.shape == expected.shape)
    sliced = dist[index]
    assert sliced.batch_shape == expected.shape[1:]
    np.testing.assert_allclose(
        sliced.log_prob(part), expected, rtol=rtol(dist), atol=10 * rtol(dist)
    )
    assert len(sliced.trainable_variables) == len(dist.trainable_variables)


@examples(0.4)
@given(cases(strategies.CONTINUOUS))
def test_event_space_bijector_lands_in_the_support(case):
    dist = case.build()
    bijector = dist.experimental_default_event_space_bijector()
    assume(bijector is not None)
    shape = bijector.inverse_event_shape([4, *case.batch_shape, *dist.event_shape])
    x = np.random.default_rng(1).normal(size=shape).astype(dist.dtype.as_numpy_dtype)
    assert np.all(np.isfinite(dist.log_prob(bijector.forward(x))))


@examples(0.3)
@given(cases(strategies.CONTINUOUS))
def test_transformed_continuous_distribution_has_the_jacobian_of_the_proposal(case):
    dist = case.build()
    z = dist.proposal.sample(4, seed=SEED)
    double = tfb.Scale(tf.constant(2.0, dist.dtype))
    found = double(dist).log_prob(2.0 * z) - dist.log_prob(z)
    expected = double(dist.proposal).log_prob(2.0 * z) - dist.proposal.log_prob(z)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@examples(0.2)
@given(cases({**strategies.DISCRETE, **strategies.DISCRETE_VECTOR}))
def test_transformed_discrete_distribution_has_no_jacobian(case):
    dist = case.build()
    assume(dist.dtype.is_floating)  # TFP transforms only these
    z = dist.proposal.sample(4, seed=SEED)
    double = tfb.Scale(tf.constant(2.0, dist.dtype))
    np.testing.assert_allclose(
        double(dist).log_prob(2.0 * z), dist.log_prob(z), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("family", ["Normal", "Categorical", "Independent, rank 2"])
@pytest.mark.parametrize("store", [pickle.dumps, copy.copy, copy.deepcopy])
def test_pickle_and_the_copy_module_are_refused(family, store):
    with pytest.raises(TypeError, match=r"`dist.copy\(\)`"):
        store(Case(family).build())


@examples(0.15)
@given(cases(batch_shapes=[(), (2,), (2, 1, 3)]))
def test_vectorized_map_computes_log_prob(case):
    dist = case.build()
    z = dist.proposal.sample(4, seed=SEED)
    try:  # not all of TFP's densities can be vectorized
        tf.vectorized_map(dist.proposal.log_prob, z, fallback_to_while_loop=False)
    except (NotImplementedError, ValueError):
        assume(False)
    found = tf.vectorized_map(dist.log_prob, z, fallback_to_while_loop=False)
    np.testing.assert_allclose(found, dist.log_prob(z), rtol=rtol(dist), atol=10 * rtol(dist))
