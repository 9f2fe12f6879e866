"""`Resampled` behaves as TFP's own distributions: generic tests over one table of constructors."""

import dataclasses
import functools
import json
import subprocess
import sys
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras
from tensorflow_probability.python.internal import batch_shape_lib

from tests.seeding import set_random_seed
from tfp_lars import AcceptanceNetwork, MovingAverage, Resampled

tfb = tfp.bijectors
tfd = tfp.distributions


class Bump(tf.Module):
    """An acceptance function that is a module and returns logits."""

    def __init__(self, rng):
        super().__init__()
        self.center = tf.Variable(rng.normal(size=2).astype(np.float32))
        self.sharpness = tf.Variable(rng.uniform(0.5, 1.5, size=()).astype(np.float32))

    def logits(self, z):
        return 1.0 - self.sharpness * tf.reduce_sum((z - self.center) ** 2, -1)


def variable(rng, *shape, dtype=np.float32):
    return tf.Variable((0.3 * rng.normal(size=shape)).astype(dtype))


def normal(rng):
    return Resampled(
        tfd.Normal(variable(rng), tfp.util.TransformedVariable(1.2, tfb.Softplus())),
        lambda z: tf.sigmoid(2.0 * z),
        T=5,
        normalizer=MovingAverage(64),
    )


def multivariate_normal(rng):
    return Resampled(
        tfd.MultivariateNormalDiag(variable(rng, 2), tf.exp(np.float32([0.1, -0.1]))),
        AcceptanceNetwork(hidden_units=(4,)),
        normalizer=MovingAverage(64),
    )


def batch_of_normals(rng):
    slope = variable(rng)
    return Resampled(
        tfd.Normal(variable(rng, 3), [0.5, 1.0, 2.0]),
        lambda z: tf.sigmoid(1.0 + slope * z),
        T=4,
        normalizer=MovingAverage(64),
    )


def categorical(rng):
    table = variable(rng, 4)
    return Resampled(
        tfd.Categorical(logits=variable(rng, 4)),
        lambda i: tf.sigmoid(tf.gather(table, i)),
        T=None,
        normalizer=MovingAverage(64),
    )


def float64(rng):
    return Resampled(
        tfd.Normal(variable(rng, dtype=np.float64), 1.0),
        AcceptanceNetwork(hidden_units=(3,), dtype="float64"),
        T=3,
        normalizer=MovingAverage(64),
    )


def tf_keras_network(rng):
    network = tf_keras.Sequential(
        [
            tf_keras.layers.Input((2,)),
            tf_keras.layers.Dense(3, activation="tanh"),
            tf_keras.layers.Dense(1),
        ]
    )
    return Resampled(
        tfd.MultivariateNormalDiag(variable(rng, 2)),
        network,
        T=10,
        from_logits=True,
        normalizer=MovingAverage(64),
    )


def module(rng):
    return Resampled(
        tfd.MultivariateNormalDiag(variable(rng, 2)),
        Bump(rng),
        T=10,
        normalizer=MovingAverage(64),
    )


def image(rng):
    network = keras.Sequential(
        [
            keras.layers.Input((4, 4, 1)),
            keras.layers.Conv2D(2, 3, activation="tanh"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    return Resampled(
        tfd.Independent(tfd.Normal(variable(rng, 4, 4, 1), 1.0), 3),
        network,
        normalizer=MovingAverage(64),
    )


def uniform(rng):
    shift = np.float32(rng.uniform(0.0, 0.2))
    return Resampled(
        tfd.Uniform(-1.0, 2.0),
        lambda z: shift + 0.8 * (z + 1.0) / 3.0,
        T=2,
        normalizer=MovingAverage(64),
    )


def by_function(dist, z):
    return dist.accept_fn(z)


def by_network(dist, z):
    """Returns a(z) of each event separately, as a network is used outside of distributions."""
    events = tf.reshape(z, [-1, *(dist.event_shape or [1])])
    return tf.reshape([dist.accept_fn(event[tf.newaxis]) for event in events], z.shape[:1])


@dataclasses.dataclass(frozen=True)
class Case:
    """A constructor and known properties of the distribution."""

    make: Callable[[np.random.Generator], Resampled]
    num_trainable: int
    accept: Callable[[Resampled, tf.Tensor], tf.Tensor] = by_function
    batch_shape: tuple = ()
    event_shape: tuple = ()
    dtype: tf.DType = tf.float32
    density_dtype: tf.DType = tf.float32

    def __call__(self, seed=0):
        set_random_seed(seed + 1)
        return self.make(np.random.default_rng(seed + 1))


CASES = {
    "normal": Case(normal, 2),
    "multivariate_normal": Case(multivariate_normal, 5, by_network, event_shape=(2,)),
    "batch_of_normals": Case(batch_of_normals, 2, batch_shape=(3,)),
    "categorical": Case(categorical, 2, dtype=tf.int32),
    "float64": Case(float64, 5, by_network, dtype=tf.float64, density_dtype=tf.float64),
    "tf_keras_network": Case(
        tf_keras_network,
        5,
        lambda dist, z: tf.sigmoid(by_network(dist, z)),
        event_shape=(2,),
    ),
    "module": Case(
        module, 3, lambda dist, z: tf.sigmoid(dist.accept_fn.logits(z)), event_shape=(2,)
    ),
    "image": Case(image, 5, by_network, event_shape=(4, 4, 1)),
    "uniform": Case(uniform, 0),
}


# The variables of a moving average: log Z, the number of updates, the state of the random numbers.
NUM_OF_AVERAGE = 3


def reference_log_prob(log_proposal, accept, Z, T):
    """Returns log p_T, in float64 and term by term."""
    log_proposal, accept, Z = (np.asarray(x, np.float64) for x in (log_proposal, accept, Z))
    if T is None:
        return log_proposal + np.log(accept / Z)
    tests_before = sum((1.0 - Z) ** t for t in range(T - 1))
    return log_proposal + np.log(accept * tests_before + (1.0 - Z) ** (T - 1))


@dataclasses.dataclass(frozen=True)
class Built:
    """What the generic tests share, so that each case is traced once."""

    case: Case
    dist: Resampled
    frozen: Resampled
    Z: np.ndarray
    z: tf.Tensor

    def reference(self, Z=None, T="own"):
        return reference_log_prob(
            self.dist.proposal.log_prob(self.z),
            self.case.accept(self.dist, self.z),
            self.Z if Z is None else Z,
            self.dist.T if T == "own" else T,
        )

    @property
    def rtol(self):
        return 1e-12 if self.case.density_dtype == tf.float64 else 1e-5


@pytest.fixture(scope="module", params=CASES)
def built(request):
    case = CASES[request.param]
    dist = case()
    z = dist.sample(6, seed=1)
    dist.log_prob(z)
    Z = np.broadcast_to([0.3, 0.4, 0.5] if case.batch_shape else 0.4, case.batch_shape)
    frozen = dist.freeze(tf.constant(np.log(Z), case.density_dtype))
    return Built(case, dist, frozen, Z, z)


def ids(variables):
    return [id(v) for v in variables]


# Shapes and values


def test_shapes_and_types_are_those_of_the_proposal(built):
    for dist in (built.dist, built.frozen):
        assert dist.batch_shape == built.case.batch_shape
        assert dist.event_shape == built.case.event_shape
        assert tuple(dist.batch_shape_tensor()) == built.case.batch_shape
        assert tuple(dist.event_shape_tensor()) == built.case.event_shape
        assert dist.dtype == built.case.dtype
        assert dist.reparameterization_type == tfd.NOT_REPARAMETERIZED


@pytest.mark.parametrize("sample_shape", [(), 4, (2, 3), (2, 0)])
def test_draws_have_sample_batch_and_event_shape(built, sample_shape):
    lead = (sample_shape,) if isinstance(sample_shape, int) else sample_shape
    z = built.dist.sample(sample_shape, seed=1)
    assert z.shape == (*lead, *built.case.batch_shape, *built.case.event_shape)
    assert z.dtype == built.case.dtype
    z, attempts = built.dist.sample_with_attempts(sample_shape, seed=1)
    assert z.shape == (*lead, *built.case.batch_shape, *built.case.event_shape)
    assert attempts.shape == (*lead, *built.case.batch_shape)


def test_log_prob_of_a_frozen_distribution_is_the_formula(built):
    log_prob = built.frozen.log_prob(built.z)
    assert log_prob.shape == (6, *built.case.batch_shape)
    assert log_prob.dtype == built.case.density_dtype
    np.testing.assert_allclose(log_prob, built.reference(), rtol=built.rtol, atol=built.rtol)


def test_log_prob_of_a_moving_average_is_the_formula_at_its_new_value(built):
    count = int(built.dist.normalizer.num_updates)
    log_prob = built.dist.log_prob(built.z)
    assert built.dist.normalizer.num_updates == count + 1
    Z = built.dist.acceptance_rate
    assert Z.shape == built.case.batch_shape
    assert log_prob.dtype == built.case.density_dtype
    np.testing.assert_allclose(log_prob, built.reference(Z), rtol=built.rtol, atol=built.rtol)


def test_accept_log_prob_is_the_log_of_what_the_function_says(built):
    expected = np.log(built.case.accept(built.dist, built.z))
    actual = built.dist.accept_log_prob(built.z)
    np.testing.assert_allclose(actual, expected, rtol=built.rtol, atol=built.rtol)


def test_log_prob_takes_any_leading_shape(built):
    expected = built.frozen.log_prob(built.z)
    rest = [*built.case.batch_shape, *built.case.event_shape]
    actual = built.frozen.log_prob(tf.reshape(built.z, [2, 1, 3, *rest]))
    np.testing.assert_allclose(
        actual, tf.reshape(expected, [2, 1, 3, *built.case.batch_shape]), rtol=built.rtol
    )
    np.testing.assert_allclose(built.frozen.log_prob(built.z[0]), expected[0], rtol=built.rtol)


def test_sample_and_log_prob_agree_with_each_other(built):
    with built.dist.normalizer.held():
        z, log_prob = built.dist.experimental_sample_and_log_prob(5, seed=3)
        np.testing.assert_array_equal(z, built.dist.sample(5, seed=3))
        np.testing.assert_array_equal(log_prob, built.dist.log_prob(z))
    count = int(built.dist.normalizer.num_updates)
    built.dist.experimental_sample_and_log_prob(5, seed=3)
    assert built.dist.normalizer.num_updates == count + 1


# Parameters, copies and slices


def test_copy_shares_the_networks_and_the_average(built):
    copy = built.dist.copy()
    assert copy.normalizer is built.dist.normalizer
    assert copy.accept_fn is built.dist.accept_fn
    assert ids(copy.variables) == ids(built.dist.variables)
    assert copy.T == built.dist.T


def test_copy_shares_an_average_that_was_made_for_the_original():
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid)
    copy = dist.copy(T=7)
    assert copy.normalizer is dist.normalizer
    copy.log_prob(0.3)
    assert dist.normalizer.num_updates == 1


def test_freezing_shares_the_networks_and_has_one_log_z_for_the_average(built):
    assert ids(built.frozen.trainable_variables) == ids(built.dist.trainable_variables)
    assert len(built.frozen.variables) == len(built.dist.variables) - NUM_OF_AVERAGE + 1


@pytest.mark.parametrize("T", [1, 7, None])
def test_copy_with_another_truncation_has_its_density(built, T):
    copy = built.frozen.copy(T=T)
    assert copy.T == T
    actual = copy.log_prob(built.z)
    np.testing.assert_allclose(actual, built.reference(T=T), rtol=built.rtol, atol=built.rtol)
    assert built.frozen.T == built.dist.T


def test_parameters_are_those_of_the_constructor(built):
    assert built.dist.parameters["proposal"] is built.dist.proposal
    assert built.dist.parameters["normalizer"] is built.dist.normalizer
    again = type(built.frozen)(**built.frozen.parameters)
    np.testing.assert_array_equal(again.log_prob(built.z), built.frozen.log_prob(built.z))


def test_parameter_properties_tell_the_batch_shape(built):
    properties = type(built.dist).parameter_properties(dtype=built.case.dtype)
    assert set(properties) == {"proposal", "normalizer"}
    assert isinstance(properties["proposal"], tfp.util.BatchedComponentProperties)
    assert properties["normalizer"].event_ndims == 0
    assert batch_shape_lib.inferred_batch_shape(built.frozen) == built.case.batch_shape
    assert tuple(batch_shape_lib.inferred_batch_shape_tensor(built.frozen)) == (
        built.case.batch_shape
    )


def test_event_space_bijector_maps_the_line_onto_the_support(built):
    bijector = built.dist.experimental_default_event_space_bijector()
    if not built.case.dtype.is_floating:
        assert bijector is None
        return
    shape = bijector.inverse_event_shape([6, *built.case.batch_shape, *built.case.event_shape])
    unconstrained = np.random.default_rng(0).normal(scale=3.0, size=shape)
    z = bijector.forward(tf.constant(unconstrained, built.case.dtype))
    assert np.all(np.isfinite(built.frozen.log_prob(z)))
    if built.case.make is uniform:
        assert np.min(z) > -1.0
        assert np.max(z) < 2.0


@pytest.mark.parametrize(
    "index",
    [1, slice(0, 2), (Ellipsis, slice(1, None)), (tf.newaxis, 2), (Ellipsis, tf.newaxis)],
    ids=str,
)
def test_slice_of_a_frozen_batch_has_the_density_of_its_members(index):
    dist = CASES["batch_of_normals"]().freeze(np.log([0.3, 0.4, 0.5]))
    z = dist.sample(6, seed=1)
    part = (slice(None), *index) if isinstance(index, tuple) else (slice(None), index)
    sliced = dist[index]
    expected = dist.log_prob(z)[part]
    assert sliced.batch_shape == expected.shape[1:]
    np.testing.assert_allclose(sliced.log_prob(z[part]), expected, rtol=1e-6)


def test_slice_of_a_frozen_batch_draws_for_its_members():
    dist = CASES["batch_of_normals"]().freeze(np.log([0.3, 0.4, 0.5]))
    assert dist[1:, tf.newaxis].sample(4, seed=2).shape == (4, 2, 1)


def test_slice_of_a_batch_with_one_log_z_for_all():
    dist = CASES["batch_of_normals"]().freeze(np.log(0.4))
    z = dist.sample(6, seed=1)
    np.testing.assert_allclose(dist[1:].log_prob(z[:, 1:]), dist.log_prob(z)[:, 1:], rtol=1e-6)
    np.testing.assert_allclose(dist[2].log_prob(z[:, 2]), dist.log_prob(z)[:, 2], rtol=1e-6)


def test_slice_keeps_the_variables_of_the_acceptance_function():
    dist = CASES["batch_of_normals"]().freeze(np.log([0.3, 0.4, 0.5]))
    (slope,) = set(ids(dist.trainable_variables)) - set(ids(dist.proposal.trainable_variables))
    assert slope in ids(dist[1].trainable_variables)


def test_slice_with_a_moving_average_says_to_freeze():
    with pytest.raises(ValueError, match="freeze"):
        CASES["batch_of_normals"]()[1]


# Graphs


def test_graph_and_eager_draw_the_same_numbers_for_an_integer_seed(built):
    graph = tf.function(lambda: built.dist.sample(5, seed=42), autograph=False)
    in_graph = graph()
    np.testing.assert_array_equal(in_graph, built.dist.sample(5, seed=42))
    np.testing.assert_array_equal(in_graph, graph())
    assert np.any(in_graph != built.dist.sample(5, seed=43))


@pytest.mark.parametrize("name", ["batch_of_normals", "categorical", "image"])
def test_graph_and_eager_draw_the_same_numbers_for_a_stateless_seed(name):
    dist = CASES[name]()
    graph = tf.function(lambda seed: dist.sample(20, seed=seed), autograph=False)
    draws = []
    for seed in (tf.constant([1, -2]), tf.constant([1, 2]), tf.constant([0, 2])):
        draws.append(graph(seed).numpy())
        np.testing.assert_array_equal(draws[-1], dist.sample(20, seed=seed))
    assert np.any(draws[0] != draws[1])
    assert np.any(draws[1] != draws[2])


def test_all_bits_of_an_integer_seed_count():
    dist = CASES["normal"]()
    draws = [dist.sample(seed=seed) for seed in (17, 2**40 + 17, -17, np.int64(18), 2**31 + 17)]
    assert len({float(z) for z in draws}) == len(draws)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_log_prob_is_the_same_in_graphs(built, jit_compile):
    graph = tf.function(built.frozen.log_prob, jit_compile=jit_compile, autograph=False)
    np.testing.assert_allclose(
        graph(built.z), built.frozen.log_prob(built.z), rtol=built.rtol, atol=built.rtol
    )


def test_average_moves_in_a_graph_as_it_does_outside(built):
    twins = [built.case(seed=5) for _ in range(2)]
    graph = tf.function(twins[0].log_prob, autograph=False)
    for _ in range(2):
        np.testing.assert_allclose(
            graph(built.z), twins[1].log_prob(built.z), rtol=built.rtol, atol=built.rtol
        )
    np.testing.assert_allclose(
        twins[0].log_normalizer, twins[1].log_normalizer, rtol=built.rtol, atol=built.rtol
    )
    assert twins[0].normalizer.num_updates == 2


@pytest.mark.parametrize("name", ["multivariate_normal", "batch_of_normals"])
def test_average_moves_under_jit_compile(name):
    dist = CASES[name]()
    z = dist.sample(6, seed=1)
    graph = tf.function(dist.log_prob, jit_compile=True, autograph=False)
    seen = []
    for _ in range(3):
        log_prob = graph(z)
        seen.append(dist.log_normalizer.numpy())
        with dist.normalizer.held():
            np.testing.assert_allclose(log_prob, dist.log_prob(z), rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(graph(z), log_prob, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(dist.log_normalizer, seen[-1])
    assert dist.normalizer.num_updates == 3
    assert np.all(np.diff(seen, axis=0) != 0.0)


def test_distribution_can_be_an_argument_of_a_graph():
    dist = CASES["multivariate_normal"]().freeze(np.log(0.4))
    z = dist.sample(6, seed=1)
    graph = tf.function(lambda d, x: d.log_prob(x), autograph=False)
    np.testing.assert_allclose(graph(dist, z), dist.log_prob(z), rtol=1e-6)


# Variables


def test_variables_are_listed_once_each(built):
    trainable, every = built.dist.trainable_variables, built.dist.variables
    assert len(trainable) == built.case.num_trainable
    assert len(every) == built.case.num_trainable + NUM_OF_AVERAGE
    assert len(set(ids(every))) == len(every)
    assert set(ids(trainable)) < set(ids(every))
    assert all(isinstance(v, tf.Variable) for v in every)


def test_wrappers_see_every_variable(built):
    wrapped = tfd.BatchBroadcast(built.dist, with_shape=[2, *built.case.batch_shape])
    if built.case.dtype.is_floating:
        wrapped = tfd.Independent(wrapped, 1)
    assert sorted(ids(wrapped.trainable_variables)) == sorted(ids(built.dist.trainable_variables))
    assert sorted(ids(wrapped.variables)) == sorted(ids(built.dist.variables))


class KerasCoupling(tf.Module):
    """Shift and log-scale of a coupling, from a Keras 3 network."""

    def __init__(self):
        super().__init__()
        self.network = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(2)])

    def __call__(self, x, output_units, **_):
        shift, log_scale = tf.split(self.network(x), 2, axis=-1)
        return shift, log_scale


def flow_of_keras_networks():
    return tfd.TransformedDistribution(
        tfd.MultivariateNormalDiag(tf.zeros(2)),
        tfb.RealNVP(1, shift_and_log_scale_fn=KerasCoupling()),
    )


def test_weights_of_a_keras_network_inside_the_proposal_are_listed_and_saved(tmp_path):
    def make():
        return Resampled(flow_of_keras_networks(), Bump(np.random.default_rng(0)))

    dist, twin = make(), make()
    weights, weights_of_twin = (
        [v.value for v in d.proposal.bijector._shift_and_log_scale_fn.network.variables]
        for d in (dist, twin)
    )
    assert len(dist.trainable_variables) == 4  # two here, two of the acceptance function
    assert set(ids(weights)) < set(ids(dist.trainable_variables))
    path = tf.train.Checkpoint(prior=dist).save(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(prior=twin).restore(path).assert_consumed()
    np.testing.assert_array_equal(weights[0], weights_of_twin[0])


@pytest.mark.parametrize("which", ["dist", "frozen"])
def test_gradient_reaches_every_trainable_variable(built, which):
    dist = getattr(built, which)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(dist.log_prob(built.z)[:4])
    gradients = tape.gradient(loss, dist.trainable_variables)
    for v, g in zip(dist.trainable_variables, gradients, strict=True):
        assert g is not None, v.name
        g = tf.convert_to_tensor(g)
        assert np.all(np.isfinite(g)), v.name
        assert np.any(g != 0.0), v.name


def test_no_gradient_flows_through_draws(built):
    with tf.GradientTape() as tape:
        z = tf.cast(built.dist.sample(3, seed=1), tf.float32)
    gradients = tape.gradient(z, built.dist.trainable_variables)
    assert all(g is None for g in gradients)


# Saving


def test_checkpoint_restores_weights_and_average_into_a_twin(built, tmp_path):
    original, twin = built.case(seed=11), built.case(seed=12)
    for _ in range(3):
        original.log_prob(built.z)
    twin.log_prob(built.z[:2])
    path = tf.train.Checkpoint(prior=original).save(str(tmp_path / "checkpoint"))
    status = tf.train.Checkpoint(prior=twin).restore(path)
    status.assert_consumed()
    status.assert_existing_objects_matched()
    for a, b in zip(original.variables, twin.variables, strict=True):
        assert a is not b
        np.testing.assert_array_equal(a, b)
    assert twin.normalizer.num_updates == 3
    if built.case.num_trainable:
        # The same random numbers follow, so all later values are the same.
        np.testing.assert_array_equal(original.log_prob(built.z), twin.log_prob(built.z))
        np.testing.assert_array_equal(original.log_normalizer, twin.log_normalizer)


def test_checkpoint_holds_each_variable_once(built, tmp_path):
    path = tf.train.Checkpoint(prior=built.dist).save(str(tmp_path / "checkpoint"))
    saved = [
        name
        for name, _ in tf.train.list_variables(path)
        if name.endswith("VARIABLE_VALUE") and not name.startswith("save_counter")
    ]
    assert len(saved) == built.case.num_trainable + NUM_OF_AVERAGE


LOADER = """
import json, sys
import numpy as np
import tensorflow as tf

results = {}
for name, path in json.loads(sys.argv[1]).items():
    loaded = tf.saved_model.load(path)
    z = tf.constant(np.load(path + "/z.npy"))
    results[name] = {
        "log_prob": loaded.log_prob(z).numpy().tolist(),
        "draws": loaded.sample(tf.constant([3, 4])).numpy().tolist(),
    }
foreign = [m for m in ("tensorflow_probability", "tfp_lars", "tf_keras") if m in sys.modules]
print(json.dumps([results, foreign]))
"""


def test_saved_model_gives_the_same_values_in_a_fresh_process_with_tensorflow_alone(tmp_path):
    paths, expected = {}, {}
    for name in ("multivariate_normal", "tf_keras_network"):
        dist = CASES[name]().freeze(np.float32(np.log(0.4)))
        z = dist.sample(6, seed=1)
        exported = tf.Module()
        exported.dist = dist
        exported.log_prob = tf.function(
            dist.log_prob, [tf.TensorSpec([None, *z.shape[1:]], z.dtype)], autograph=False
        )
        exported.sample = tf.function(
            functools.partial(lambda dist, seed: dist.sample(5, seed=seed), dist),
            [tf.TensorSpec([2], tf.int32)],
            autograph=False,
        )
        paths[name] = str(tmp_path / name)
        tf.saved_model.save(exported, paths[name])
        np.save(tmp_path / name / "z.npy", z)
        expected[name] = {
            "log_prob": exported.log_prob(z).numpy().tolist(),
            "draws": exported.sample(tf.constant([3, 4])).numpy().tolist(),
        }
        np.testing.assert_allclose(expected[name]["log_prob"], dist.log_prob(z), rtol=1e-6)
        np.testing.assert_array_equal(expected[name]["draws"], dist.sample(5, seed=[3, 4]))
    process = subprocess.run(
        [sys.executable, "-c", LOADER, json.dumps(paths)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=900,
    )
    assert process.returncode == 0, process.stderr
    results, foreign = json.loads(process.stdout.splitlines()[-1])
    assert foreign == []
    assert results == expected
