"""Unusual events: outside the support, of size 1, of unknown rank, discrete, half precision."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import AcceptanceNetwork, MovingAverage, Resampled

tfb = tfp.bijectors
tfd = tfp.distributions

# Outside the support of the proposal
# -----------------------------------


@pytest.mark.parametrize("T", [3, None])
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("normalizer", [-0.7, MovingAverage])
def test_density_is_zero_outside_the_support(T, graph, normalizer):
    """Outside the support a(z) = sqrt(w z) is NaN or above 1."""
    w = tf.Variable(1.0)
    normalizer = normalizer if isinstance(normalizer, float) else normalizer(64)
    dist = Resampled(tfd.Uniform(), lambda z: tf.sqrt(w * z), T, normalizer=normalizer)

    def value_and_gradients(z):
        with tf.GradientTape() as tape:
            tape.watch(z)
            log_prob = dist.log_prob(z)
            inside = tf.reduce_sum(tf.where(tf.math.is_inf(log_prob), 0.0, log_prob))
        return log_prob, *tape.gradient([log_prob, inside], [w, z])

    function = tf.function(value_and_gradients) if graph else value_and_gradients
    log_prob, *gradients = function(tf.constant([-1.0, 0.25, 4.0, -5.0]))
    np.testing.assert_array_equal(np.isneginf(log_prob), [True, False, True, True])
    assert np.isfinite(log_prob[1])
    assert all(np.all(np.isfinite(g)) for g in gradients)
    np.testing.assert_array_equal(gradients[1] != 0.0, [False, True, False, False])
    log_prob, *gradients = function(tf.fill([4], -2.0))  # no point inside
    assert np.all(np.isneginf(log_prob))
    assert all(np.all(np.isfinite(g)) for g in gradients)
    # The density is 0 for any a(z).
    assert all(np.all(g == 0.0) for g in gradients)


@pytest.mark.parametrize("target", [-0.3, -np.inf])
def test_target_outside_the_support_weighs_nothing(target):
    """A z outside the support counts as one more draw, with weight 0."""
    dist = Resampled(
        tfd.Uniform(), lambda z: tf.sqrt(0.5 * z), 5, normalizer=MovingAverage(16, seed=1)
    )
    twin = dist.copy(normalizer=MovingAverage(16, seed=1))
    dist.log_prob([-3.0], target_log_prob=[target])
    twin.log_prob([0.5])
    expected = twin.normalizer.log_z + np.log(16 / 17)
    np.testing.assert_allclose(dist.normalizer.log_z, expected, rtol=1e-6)


def test_vector_outside_the_support_gets_the_proposals_density():
    proposal = tfd.Independent(
        tfd.Uniform(tf.zeros([3, 2]), [[1.0, 1.0], [2.0, 2.0], [9.0, 9.0]]), 1
    )
    dist = Resampled(
        proposal, lambda z: tf.reduce_prod(tf.sqrt(z / 9.0), -1), normalizer=[-1.0, -2.0, -3.0]
    )
    log_prob = dist.log_prob([[[0.5, 1.5]], [[-1.0, 0.5]]])
    np.testing.assert_array_equal(np.isneginf(log_prob), [[True, False, False], [True, True, True]])
    assert not np.any(np.isnan(log_prob))


def test_acceptance_itself_is_defined_everywhere():
    dist = Resampled(tfd.Uniform(), lambda z: tf.exp(-tf.abs(z)), normalizer=-1.0)
    np.testing.assert_allclose(dist.accept_log_prob([-1.0, 3.0]), [-1.0, -3.0], rtol=1e-6)


# Transformed discrete proposals
# ------------------------------


def pairs(dist):
    return tfd.Independent(dist, 1)


DISCRETE = {
    # TFP transforms only distributions with a floating type.
    "Bernoulli": (lambda: tfd.Bernoulli(0.3, dtype=tf.float32), [[0.0], [1.0]]),
    "Independent": (
        lambda: pairs(tfd.Bernoulli([0.3, 0.2], dtype=tf.float32)),
        [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]],
    ),
    "Sample": (
        lambda: tfd.Sample(tfd.Bernoulli(0.3, dtype=tf.float32), 2),
        [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]],
    ),
    "transformed": (lambda: tfb.Shift(1.0)(tfd.Bernoulli(0.3, dtype=tf.float32)), [[1.0], [2.0]]),
    "resampled": (
        lambda: Resampled(
            pairs(tfd.Bernoulli([0.3, 0.2], dtype=tf.float32)), accept, normalizer=np.log(0.5), T=3
        ),
        [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]],
    ),
}


def accept(z):
    return tf.fill(tf.shape(z)[:1], 0.5)


@pytest.mark.parametrize("name", DISCRETE)
def test_transformed_discrete_distribution_has_no_jacobian(name):
    """A constant a(z) and a scale do not change the probabilities, which sum to 1."""
    make, outcomes = DISCRETE[name]
    proposal = make()
    dist = Resampled(proposal, accept, normalizer=np.log(0.5), T=3)
    outcomes = tf.reshape(tf.constant(outcomes, tf.float32), [-1, *proposal.event_shape])
    scaled = tfb.Scale(2.0)(dist)
    expected = proposal.prob(tf.cast(outcomes, proposal.dtype))
    np.testing.assert_allclose(scaled.prob(2.0 * outcomes), expected, rtol=1e-5)
    np.testing.assert_allclose(tf.reduce_sum(scaled.prob(2.0 * outcomes)), 1.0, rtol=1e-5)


def test_continuous_distribution_keeps_its_jacobian():
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, normalizer=-0.7)
    assert not hasattr(dist, "_experimental_tangent_space")
    np.testing.assert_allclose(
        tfb.Scale(2.0)(dist).log_prob(0.6), dist.log_prob(0.3) - np.log(2.0), rtol=1e-5
    )


def test_tangent_space_of_a_manifold_is_the_proposals():
    proposal = tfd.VonMisesFisher([0.0, 1.0], 2.0)
    dist = Resampled(proposal, lambda z: tf.sigmoid(z[..., 0]), normalizer=-0.7)
    z = tf.constant([0.6, 0.8])
    _, space = dist.experimental_local_measure(z)
    assert type(space) is type(proposal.experimental_local_measure(z)[1])


# Shapes of z
# -----------


@pytest.mark.parametrize("normalizer", [-0.7, MovingAverage])
def test_event_dimensions_of_size_one_broadcast(normalizer):
    """This holds for the proposal and for a(z)."""

    def make():
        return Resampled(
            tfd.MultivariateNormalDiag(tf.zeros([2, 3])),
            lambda z: tf.sigmoid(tf.reduce_sum(z, -1)),
            normalizer=normalizer if isinstance(normalizer, float) else normalizer(16, seed=1),
        )

    for z in (tf.fill([4, 2, 1], 0.3), tf.fill([1], 0.3), tf.fill([4, 1, 1], 0.3)):
        whole = tf.broadcast_to(z, tf.broadcast_static_shape(z.shape, tf.TensorShape([2, 3])))
        np.testing.assert_array_equal(make().log_prob(z), make().log_prob(whole))
        np.testing.assert_array_equal(make().accept_log_prob(z), make().accept_log_prob(whole))
        np.testing.assert_array_equal(make().log_ratio(z), make().log_ratio(whole))


def test_z_of_a_wrong_event_shape_is_named():
    dist = Resampled(tfd.MultivariateNormalDiag(tf.zeros([2, 3])), AcceptanceNetwork((3,)))
    with pytest.raises(ValueError, match=r"`z` has shape \(5, 2, 4\); expected .* \(2, 3\)"):
        dist.accept_log_prob(tf.zeros([5, 2, 4]))


def network(z):
    return tf.sigmoid(tf.reduce_sum(z, -1))


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("batch", lambda loc: tfd.Normal(loc, 1.0)),
        ("event", lambda loc: tfd.Independent(tfd.Normal(loc, 1.0))),
    ],
)
def test_proposal_of_unknown_rank_is_refused(kind, make):
    @tf.function(input_signature=[tf.TensorSpec(None)], autograph=False)
    def sample(loc):
        return Resampled(make(loc), tf.sigmoid, normalizer=-0.7).sample(3, seed=1)

    with pytest.raises(ValueError, match=f"the {kind} shape of .* has an unknown rank.*ensure_sh"):
        sample(tf.zeros([2]))


@pytest.mark.parametrize("accept_fn", [network, AcceptanceNetwork])
@pytest.mark.parametrize("normalizer", [-0.7, MovingAverage])
def test_z_of_unknown_rank(accept_fn, normalizer):
    proposal = tfd.MultivariateNormalDiag(tf.zeros([2, 3]))
    accept_fn = accept_fn((4,)) if accept_fn is AcceptanceNetwork else accept_fn

    def make():
        average = normalizer if isinstance(normalizer, float) else normalizer(16, seed=1)
        return Resampled(proposal, accept_fn, normalizer=average)

    for method in ("log_prob", "accept_log_prob", "log_ratio"):
        graph = tf.function(getattr(make(), method), input_signature=[tf.TensorSpec(None)])
        eager = getattr(make(), method)
        for shape in ([3], [2, 3], [5, 2, 3], [5, 4, 2, 3], [5, 1, 3]):
            z = tf.random.stateless_normal(shape, [1, 2])
            np.testing.assert_allclose(graph(z), eager(z), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(0, 1, 2, 0), (3, 1, 2, 0), (2, 0, 1, 2, 0), (1, 2, 0)])
@pytest.mark.parametrize("form", [network, AcceptanceNetwork])
def test_events_of_size_zero_keep_their_number(shape, form):
    """The number of points cannot be found from the number of values, which is 0."""
    proposal = tfd.Independent(tfd.Normal(tf.zeros([1, 2, 0]), 1.0), 2)

    def constant(z):
        return tf.fill(tf.shape(z)[:2], 0.5)

    accept_fn = AcceptanceNetwork((3,)) if form is AcceptanceNetwork else constant
    dist = Resampled(proposal, accept_fn, T=3, normalizer=-0.7)
    assert dist.log_prob(tf.zeros(shape)).shape == shape[:-2]
    assert dist.accept_log_prob(tf.zeros(shape)).shape == shape[:-2]
    if form is not AcceptanceNetwork:  # a dense layer without inputs aborts in TensorFlow's graphs
        assert dist.sample(3, seed=1).shape == [3, 1, 2, 0]


def test_empty_batch_trains_with_a_target():
    dist = Resampled(tfd.Normal(tf.zeros([0]), 1.0), tf.sigmoid, normalizer=MovingAverage(4))
    assert dist.log_prob(tf.zeros([3, 0]), target_log_prob=tf.zeros([3, 0])).shape == [3, 0]


# Batch dimensions of size 1
# --------------------------


def to_samples(x, batch, event_ndims):
    """Moves the axes of `x` that are wider than in `batch` to the front."""
    x = np.asarray(x)
    start = x.ndim - event_ndims - len(batch)
    wide = [start + i for i, n in enumerate(batch) if n == 1 and x.shape[start + i] != 1]
    moved = np.moveaxis(x, wide, range(len(wide)))
    return np.expand_dims(moved, tuple(len(wide) + axis for axis in wide))


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("normalizer", [-0.7, MovingAverage])
@pytest.mark.parametrize(
    ("batch", "event", "shape"),
    [
        ([2, 1], [], [2, 4]),
        ([2, 1], [], [4]),
        ([1, 2, 1], [3], [6, 4, 2, 5, 3]),
    ],
    ids=str,
)
def test_wider_batch_dimensions_are_more_points_of_the_same_member(
    batch, event, shape, normalizer, graph
):
    """As in TFP: the results are those of the same points along sample dimensions."""
    z = tf.random.stateless_normal(shape, [1, 2])
    loc = tf.random.stateless_normal([*batch, *event], [1, 3])
    proposal = tfd.Independent(tfd.Normal(loc, 1.0), len(event))
    scale = np.arange(1.0, 1.0 + np.prod(batch), dtype=np.float32).reshape(batch)

    def by_member(z):
        return tf.sigmoid(scale * (tf.reduce_sum(z, -1) if event else z))

    whole_shape = tf.broadcast_static_shape(z.shape, loc.shape)
    points = tf.constant(to_samples(tf.broadcast_to(z, whole_shape), batch, len(event)))
    for accept_fn in (by_member, AcceptanceNetwork((4,))):
        make = functools.partial(Resampled, proposal, accept_fn, T=5)
        if normalizer is MovingAverage:
            dist, twin = (make(normalizer=MovingAverage(16, seed=1)) for _ in range(2))
        else:
            dist, twin = make(normalizer=normalizer), make(normalizer=normalizer)

        def results(dist, z):
            target = 0.9 * dist.proposal.log_prob(z)
            return [
                dist.log_prob(z),
                dist.accept_log_prob(z),
                dist.log_ratio(z),
                dist.log_prob(z, target_log_prob=target),
                dist.log_prob(z),
            ]

        function = functools.partial(results, dist)
        if graph:  # which does not know how wide z is
            signature = [tf.TensorSpec([None] * len(shape))]
            function = tf.function(function, input_signature=signature)
        for actual, expected in zip(function(z), results(twin, points), strict=True):
            assert actual.shape == proposal.log_prob(z).shape
            np.testing.assert_allclose(to_samples(actual, batch, 0), expected, rtol=1e-4, atol=1e-5)
        if normalizer is MovingAverage:
            np.testing.assert_allclose(dist.log_normalizer, twin.log_normalizer, rtol=1e-4)


def test_wider_batch_dimensions_in_batch_broadcast_and_outside_the_support():
    proposal = tfd.Uniform(tf.zeros([3, 1]), [[1.0], [2.0], [3.0]])
    dist = Resampled(proposal, lambda z: tf.sqrt(z / 3.0), T=5, normalizer=-0.7)
    wide = tfd.BatchBroadcast(dist, [3, 4])
    z = tf.concat([wide.sample(5, seed=1), tf.fill([1, 3, 4], -1.0)], 0)
    with tf.GradientTape() as tape:
        tape.watch(z)
        log_prob = wide.log_prob(z)
    expected = tf.concat([dist.log_prob(z[..., i : i + 1]) for i in range(4)], -1)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)
    assert np.all(np.isfinite(log_prob[:5])) and np.all(np.isneginf(log_prob[5]))
    gradient = tape.gradient(log_prob, z)
    assert np.all(np.isfinite(gradient)) and np.all(gradient[:5] != 0.0)


# Types and kinds of proposals
# ----------------------------


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
@pytest.mark.parametrize("T", [2, 10**6, None])
def test_half_precision(dtype, T):
    """The result is computed in float32 from half precision values and rounded once."""
    loc = tf.Variable(tf.zeros([], dtype))
    proposal = tfd.Normal(loc, tf.ones([], dtype))
    dist = Resampled(proposal, lambda z: tf.sigmoid(z - 1.0), T, normalizer=-1.0)
    z = tf.constant([-1.0, 0.5, 2.0], dtype)
    exact = Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.sigmoid(z - 1.0), T, normalizer=-1.0)
    expected = exact.log_prob(tf.cast(z, tf.float32))
    value = dist.log_prob(z)
    assert value.dtype == dist.sample(3, seed=1).dtype == dtype
    rounding = 2.0 ** (-8 if dtype == tf.bfloat16 else -11)
    # The proposal's density, a(z) and the sum are rounded. Each is below 4.
    np.testing.assert_allclose(tf.cast(value, tf.float32), expected, atol=3 * 4 * rounding)
    training = Resampled(proposal, AcceptanceNetwork((4,)), T, normalizer=MovingAverage(16))
    assert training.normalizer.log_z.dtype == tf.float32
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(training.log_prob(z, target_log_prob=proposal.log_prob(z)))
    gradients = tape.gradient(loss, training.trainable_variables)
    assert all(np.all(np.isfinite(tf.cast(g, tf.float32))) for g in gradients)


MATRICES = {
    "CholeskyLKJ": lambda: tfd.CholeskyLKJ(3, 2.0),
    "batch of CholeskyLKJ": lambda: tfd.CholeskyLKJ(3, [2.0, 5.0]),
    "LKJ": lambda: tfd.LKJ(3, 2.0),
    "WishartTriL": lambda: tfd.WishartTriL(5.0, tf.eye(3)),
    "transformed": lambda: tfb.CholeskyOuterProduct()(tfd.CholeskyLKJ(3, 2.0)),
}


@pytest.mark.parametrize("name", MATRICES)
def test_matrices_as_events(name):
    proposal = MATRICES[name]()

    def corner(z):
        return tf.sigmoid(z[..., 1, 0])

    dist = Resampled(proposal, corner, T=None)
    z = dist.sample(300, seed=1)  # more than one chunk
    assert z.shape == [300, *proposal.batch_shape, 3, 3]
    assert (
        len({float(v) for v in tf.reshape(z[..., 1, 0], [-1])})
        > 0.99 * z[..., 1, 0].shape.num_elements()
    )
    assert dist.log_prob(z).shape == z.shape[:-2]
    frozen = dist.freeze(num_samples=1000, seed=1)
    expected = proposal.log_prob(z) + tf.math.log(corner(z)) - frozen.log_normalizer
    np.testing.assert_allclose(frozen.log_prob(z), expected, rtol=1e-4, atol=1e-4)


def test_a_concatenated_batch_is_resampled(n=600):
    """TFP draws from it only with a static number of draws."""
    proposal = tfd.BatchConcat([tfd.Normal([0.0], 1.0), tfd.Normal([9.0], 1.0)], 0)
    dist = Resampled(proposal, lambda z: tf.fill(tf.shape(z), 0.5), T=None, normalizer=np.log(0.5))
    z = dist.sample(n, seed=1)
    assert z.shape == [n, 2]
    np.testing.assert_allclose(np.mean(z, axis=0), [0.0, 9.0], atol=6 / np.sqrt(n))
    np.testing.assert_allclose(dist.log_prob(z), proposal.log_prob(z), rtol=1e-5)


# `tf.debugging.enable_check_numerics`
# ------------------------------------


@pytest.fixture
def _check_numerics():
    tf.debugging.enable_check_numerics()
    yield
    tf.debugging.disable_check_numerics()


def probabilities(z):
    return tf.sigmoid(tf.reduce_sum(z, -1))


@pytest.mark.usefixtures("_check_numerics")
@pytest.mark.parametrize("T", [2, 100, None])
@pytest.mark.parametrize("log_z", [-1e-3, -0.7, -40.0])
@pytest.mark.parametrize("graph", [False, True])
def test_no_infinity_appears_where_nothing_is_wrong(T, log_z, graph):
    z = tf.random.stateless_normal([7, 2], [1, 2])
    for accept_fn in (AcceptanceNetwork((4,)), probabilities):
        dist = Resampled(tfd.MultivariateNormalDiag(tf.zeros(2)), accept_fn, T, normalizer=log_z)

        def value_and_gradient(z, dist=dist):
            with tf.GradientTape() as tape:
                tape.watch(z)
                value = dist.log_prob(z) + dist.accept_log_prob(z)
            return value, tape.gradient(value, z)

        function = tf.function(value_and_gradient) if graph else value_and_gradient
        assert all(np.all(np.isfinite(x)) for x in function(z))
