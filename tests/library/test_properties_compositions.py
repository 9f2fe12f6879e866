"""Invariants of random resampled distributions inside TFP's other distributions."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from hypothesis import given

from tests.library import strategies
from tests.library.strategies import cases, examples
from tfp_lars import Resampled

tfb = tfp.bijectors
tfd = tfp.distributions

# The first two differ between members, the network does not.
FORMS = ["probability", "logits", "network"]
CONTINUOUS = {k: f for k, f in strategies.CONTINUOUS.items() if k != "Independent, empty event"}


def over_batch(values):
    """Sums over all dimensions but the first."""
    return np.sum(values, axis=tuple(range(1, np.ndim(values))))


def independent(dist):
    return tfd.Independent(dist, dist.batch_shape.rank), lambda z: over_batch(dist.log_prob(z))


def sample(dist):
    wrapped = tfd.Sample(dist, [3])

    def expected(z):
        # [n] + batch + [3] + event to [3, n] + batch + event
        axis = 1 + dist.batch_shape.rank
        return np.sum([dist.log_prob(tf.gather(z, i, axis=axis)) for i in range(3)], axis=0)

    return wrapped, expected


def transformed(dist):
    event_size = int(np.prod(dist.event_shape))
    return (
        tfb.Scale(tf.constant(2.0, dist.dtype))(dist),
        lambda y: dist.log_prob(y / 2.0) - event_size * np.log(2.0),
    )


def mixture(dist):
    weights = tf.nn.softmax(tf.range(dist.batch_shape[-1], dtype=dist.dtype))
    wrapped = tfd.MixtureSameFamily(tfd.Categorical(probs=weights), dist)

    def expected(z):
        member = tf.expand_dims(z, z.shape.rank - dist.event_shape.rank)
        return tf.reduce_logsumexp(dist.log_prob(member) + tf.math.log(weights), -1)

    return wrapped, expected


def broadcast(dist):
    return tfd.BatchBroadcast(dist, [2, *dist.batch_shape]), dist.log_prob


def masked(dist):
    mask = np.arange(dist.batch_shape[-1]) % 2 == 0
    return tfd.Masked(dist, mask), lambda z: np.where(mask, dist.log_prob(z), 0.0)


def joint(dist):
    def second(z):
        shape = [*z.shape[: z.shape.rank - dist.event_shape.rank]]
        return tfd.Normal(tf.zeros(shape, dist.dtype), tf.ones([], dist.dtype))

    wrapped = tfd.JointDistributionSequential([dist, second])

    def expected(value):
        z, x = value
        return dist.log_prob(z) + second(z).log_prob(x)

    return wrapped, expected


def resampled(dist):
    def accept_fn(z):
        return tf.fill(tf.shape(z)[: z.shape.rank - dist.event_shape.rank], half)

    half = tf.constant(0.5, dist.dtype)
    # A constant a(z) changes nothing.
    return Resampled(dist, accept_fn, T=4, normalizer=tf.math.log(half)), dist.log_prob


WRAPPERS = {
    f.__name__: f
    for f in (independent, sample, transformed, mixture, broadcast, masked, joint, resampled)
}


@pytest.mark.parametrize("name", WRAPPERS)
@examples(0.1)
@given(case=cases(CONTINUOUS, batch_shapes=[(2,), (2, 3)], forms=FORMS))
def test_composition(name, case):
    if name == "transformed" and case.family == "VonMisesFisher":
        return  # a sphere has another Jacobian; `test_properties` compares it with the proposal's
    dist = case.build()
    wrapped, expected = WRAPPERS[name](dist)
    # TFP turns an integer seed into another one at each call.
    z = wrapped.sample(3, seed=(5, 0))
    found = wrapped.log_prob(z)
    assert np.all(np.isfinite(found))
    if name != "joint":
        assert found.shape == (3, *wrapped.batch_shape)
    tolerance = 1e-10 if case.dtype == "float64" else 1e-4
    np.testing.assert_allclose(found, expected(z), rtol=tolerance, atol=tolerance)
    tf.nest.map_structure(np.testing.assert_array_equal, wrapped.sample(3, seed=(5, 0)), z)
    first, other = (tf.nest.flatten(x)[0] for x in (z, wrapped.sample(3, seed=(6, 0))))
    assert np.all(np.any(first != other, axis=tuple(range(1, first.shape.rank))))
    if name != "joint":
        assert {id(v) for v in dist.variables} <= {id(v) for v in wrapped.variables}
