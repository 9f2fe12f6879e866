"""`fit`: what it trains, and with which optimizers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tests.library.fit_cases import FEW, Table, data, resampled
from tfp_lars import AcceptanceNetwork, Resampled, fit, proposals
from tfp_lars._fit_training import Recipe, Trainer

tfb = tfp.bijectors
tfd = tfp.distributions


def test_only_the_acceptance_network_is_trained_by_default():
    dist = resampled(proposals.real_nvp(2, 2, (8,), seed=1))
    before = [v.numpy() for v in dist.proposal.trainable_variables]
    network = [v.numpy() for v in dist.accept_fn.variables]
    fit(dist, data(), **FEW)
    for old, new in zip(before, dist.proposal.trainable_variables, strict=True):
        np.testing.assert_array_equal(old, new)
    for old, new in zip(network, dist.accept_fn.variables, strict=True):
        assert np.any(old != new.numpy())


def test_proposal_is_trained_on_request_and_the_gain_is_over_its_start():
    dist = resampled(tfd.MultivariateNormalDiag(tf.Variable([3.0, 3.0]), [1.0, 1.0]))
    start = np.mean(dist.proposal.log_prob(data()))
    result = fit(dist, data(), **{**FEW, "num_steps": 200}, trainable_proposal=True)
    assert np.all(dist.proposal.loc < 2.9)
    assert abs(result.proposal_log_likelihood - start) < 0.5
    assert result.gain > 1.0


def test_flow_alone_can_be_fitted():
    flow = proposals.real_nvp(2, 2, (32,), seed=1)
    result = fit(flow, data(), **{**FEW, "num_steps": 200})
    assert result.distribution is flow
    assert result.gain > 0.3
    assert result.acceptance_rate is None and result.expected_attempts is None
    assert [line.split()[0] for line in repr(result).splitlines()[2:]] == ["before", "gain"]
    # The weights are those of the result.
    np.testing.assert_allclose(
        np.mean(flow.log_prob(result.held_out)), result.log_likelihood, rtol=1e-5
    )


class Conditioner(tf.Module):
    """Shift and log scale of a coupling layer in two dimensions, from Keras 3 layers."""

    def __init__(self, *layers):
        super().__init__()
        self.network = keras.Sequential([*layers, keras.layers.Dense(2)])

    def __call__(self, x, output_units, **kwargs):
        shift, log_scale = tf.split(self.network(tf.reshape(x, [-1, 1])), 2, -1)
        return shift, tf.tanh(log_scale)


def flow_of_keras3_layers(*layers, loc=(0.0, 0.0)):
    """Returns a flow and its network, whose variables `flow.variables` lacks."""
    conditioner = Conditioner(*layers)
    flow = tfd.TransformedDistribution(
        tfd.MultivariateNormalDiag(loc, [1.0, 1.0]),
        tfb.RealNVP(1, shift_and_log_scale_fn=conditioner),
    )
    return flow, conditioner.network


def test_keras3_layers_of_a_flow_are_trained_and_return_to_the_best_weights():
    """A flow that is not built yet. After 20 steps the rate destroys the weights."""
    keras.utils.set_random_seed(1)
    flow, network = flow_of_keras3_layers(
        keras.layers.Dense(8, "tanh"), loc=tf.Variable([0.0, 0.0])
    )
    rate = keras.optimizers.schedules.PiecewiseConstantDecay([19], [0.05, 100.0])
    result = fit(flow, data(), optimizer=keras.optimizers.SGD(rate, clipnorm=1.0), **FEW)
    assert result.best_step == 20
    assert all(np.any(v != 0.0) for v in network.get_weights())  # biases start at 0
    history = result.history["log_likelihood"]
    np.testing.assert_allclose(result.log_likelihood, np.max(history), rtol=1e-5)


def test_resampled_inside_other_distributions_is_frozen_in_the_result():
    inner = Resampled(tfd.Normal([0.0, 0.0], 1.0), AcceptanceNetwork((8,)))
    dist = tfb.Shift([0.5, 0.5])(tfd.Independent(inner, 1))
    result = fit(dist, data(), **{**FEW, "num_steps": 100})
    z = data()[:5]
    values = [result.distribution.log_prob(z).numpy() for _ in range(2)]
    np.testing.assert_array_equal(*values)
    assert result.gain > 0.1


def stderr_of_mean(values):
    return np.std(np.asarray(values, np.float64), ddof=1) / np.sqrt(len(values))


def test_errors_include_those_of_resampled_distributions_inside_others():
    """Without that of log Z, the error would be smaller by a share of 3e-4."""
    inner = Resampled(tfd.Normal([0.0, 0.0], 1.0), AcceptanceNetwork((8,)))
    result = fit(tfd.Independent(inner, 1), data(), **FEW)
    of_members = result.distribution.distribution.estimate.stderr
    log_prob = result.distribution.log_prob(result.held_out)
    expected = np.hypot(stderr_of_mean(log_prob), np.linalg.norm(of_members))
    np.testing.assert_allclose(result.log_likelihood_stderr, expected, rtol=1e-5)


def test_error_of_the_proposal_cancels_in_the_gain():
    """Its log Z has a standard error of about 0.2, and the same value before and after."""
    proposal = resampled(T=None).freeze(num_samples=20, seed=1)
    dist = resampled(proposal, T=None)
    result = fit(dist, data(), **FEW)
    of_proposal, own = proposal.estimate.stderr, result.distribution.estimate.stderr
    log_prob = result.distribution.log_prob(result.held_out)
    before = proposal.log_prob(result.held_out)
    for found, values, of_log_z in (
        (result.log_likelihood_stderr, log_prob, of_proposal + own),
        (result.proposal_log_likelihood_stderr, before, of_proposal),
        (result.gain_stderr, log_prob - before, own),
    ):
        expected = np.hypot(stderr_of_mean(values), of_log_z)
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_equal_batch_members_have_the_errors_of_one():
    """Members of a batch may depend on each other. The rows are independent."""
    z = np.random.default_rng(0).normal(0.3, 0.5, size=(400, 1))
    one, many = (
        fit(tfd.Normal(tf.Variable(tf.zeros([n])), 1.0), np.repeat(z, n, axis=1), **FEW)
        for n in (1, 9)
    )
    for name in ("log_likelihood_stderr", "proposal_log_likelihood_stderr", "gain_stderr"):
        np.testing.assert_allclose(getattr(many, name), getattr(one, name), rtol=0.01)


def test_integer_samples_fit_a_discrete_distribution():
    dist = Resampled(tfd.Categorical(logits=tf.zeros(4), dtype=tf.int32), Table(4), T=50)
    p = np.array([0.1, 0.2, 0.3, 0.4])
    samples = np.random.default_rng(0).choice(4, size=20_000, p=p)
    result = fit(dist, samples, num_steps=300, progress=False, seed=1)
    fitted = np.exp(result.distribution.log_prob(np.arange(4)))
    np.testing.assert_allclose(fitted, p, atol=0.03)


@pytest.mark.parametrize(
    "optimizer",
    [
        "adam",
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        lambda: tf_keras.optimizers.Adam(tf_keras.optimizers.schedules.CosineDecay(1e-2, 100)),
    ],
    ids=["name", "keras", "tf_keras"],
)
def test_optimizers_of_both_libraries_work(optimizer):
    result = fit(
        resampled(), data(), optimizer=optimizer if optimizer == "adam" else optimizer(), **FEW
    )
    assert result.gain > 0
    assert np.all(result.history["learning_rate"] > 0)


@pytest.mark.parametrize("library", [keras, tf_keras])
def test_constraints_of_keras3_layers_hold(library):
    """The samples ask for negative kernels, also of a layer that only a function reads."""
    held, read = (keras.layers.Dense(1, kernel_constraint="non_neg") for _ in range(2))
    inner = Resampled(tfd.MultivariateNormalDiag(tf.zeros(2)), held, from_logits=True)
    dist = Resampled(inner, lambda z: read(z), from_logits=True)
    optimizer = library.optimizers.SGD(1.0)
    fit(dist, data() - 1.0, optimizer=optimizer, **FEW, trainable_proposal=True)
    for layer in (held, read):
        np.testing.assert_array_equal(layer.kernel, np.zeros([2, 1]))


@pytest.mark.parametrize("library", [keras, tf_keras])
def test_constraints_of_variables_hold(library):
    """In a masked autoregressive flow, they are masks."""
    scale = tf.Variable([1.0, 1.0], constraint=lambda v: tf.maximum(v, 0.9))
    dist = tfd.MultivariateNormalDiag([0.0, 0.0], scale)
    fit(dist, 0.1 * data(), optimizer=library.optimizers.SGD(0.1), **FEW)
    np.testing.assert_array_equal(scale, np.float32([0.9, 0.9]))


def test_optimizers_that_read_the_paths_of_weights_work():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(keras.optimizers.Muon(0.01), "mse")
    try:
        model.fit(np.zeros([4, 2]), np.zeros([4, 1]), verbose=0)
    except AttributeError:
        pytest.skip(f"Muon of Keras {keras.__version__} does not work with TensorFlow")
    dist = resampled(proposals.real_nvp(2, 2, (8,), seed=1))
    optimizer = keras.optimizers.Muon(0.01, exclude_layers=["acceptance_network"])
    fit(dist, data(), optimizer=optimizer, **FEW, trainable_proposal=True)
    # Vectors and excluded matrices have velocities.
    num_velocities = sum("velocity" in v.path for v in optimizer.variables)
    matrices = [v for v in dist.proposal.trainable_variables if v.shape.rank == 2]
    num_trained = len(dist.trainable_variables)
    assert num_velocities == num_trained - len(matrices) < num_trained


def test_a_fixed_loss_scale_changes_nothing():
    results = []
    for scale in (None, 64.0):
        keras.utils.set_random_seed(1)
        optimizer = keras.optimizers.SGD(0.5, loss_scale_factor=scale)
        results.append(fit(resampled(), data(), optimizer=optimizer, **FEW))
    assert results[0].gain == results[1].gain > 0.1


def test_averages_are_not_used_before_the_first_step():
    """Those of Keras 3 are 0 there."""
    normal = tfd.Normal(tf.Variable(2.0), 1.0)
    optimizer = keras.optimizers.SGD(0.1, use_ema=True)
    with Trainer(normal, normal.trainable_variables, optimizer).averaged():
        assert normal.loc == 2.0


@pytest.mark.parametrize(("library", "average"), [(keras, 0.5), (tf_keras, 0.0)])
def test_averages_of_the_weights_are_evaluated_and_returned(library, average):
    """The average of Keras 3 starts with the first step, that of tf_keras before it."""
    loc = tf.Variable(0.0)
    optimizer = library.optimizers.SGD(1.0, clipvalue=0.5, use_ema=True, ema_momentum=0.5)
    samples = np.random.default_rng(0).normal(1000.0, 1.0, 1000)
    result = fit(tfd.Normal(loc, 1.0), samples, optimizer=optimizer, **{**FEW, "num_steps": 3})
    for value in (0.5, 1.0, 1.5):  # of `loc`, after each step
        average = 0.5 * average + 0.5 * value
    np.testing.assert_allclose(loc, average)
    np.testing.assert_allclose(result.history["log_likelihood"][-1], result.log_likelihood)


def test_flows_train_at_a_smaller_rate():
    rates = [Recipe.of(100, 1000, 100, d, flow).learning_rate for d in (1, 4) for flow in (0, 1)]
    np.testing.assert_allclose(rates, [0.03, 0.003, 0.015, 0.003])


def test_learning_rate_rises_from_the_first_step():
    optimizer = Recipe(num_steps=100, learning_rate=2.0).optimizer()
    rates = []
    for step in range(101):
        optimizer.iterations.assign(step)
        rates.append(float(optimizer.learning_rate))
    np.testing.assert_allclose(rates[:5], [0.4, 0.8, 1.2, 1.6, 2.0], rtol=1e-6)
    assert np.all(np.diff(rates[4:]) < 0) and rates[-1] == 0.0


def test_a_single_step_trains():
    loc = tf.Variable(0.0)
    z = np.random.default_rng(0).normal(2.0, 0.5, size=100)
    result = fit(tfd.Normal(loc, 1.0), z, **{**FEW, "num_steps": 1})
    assert result.best_step == 1
    np.testing.assert_allclose(loc, 0.003, rtol=1e-3)  # Adam starts with the rate


def test_mean_over_batches_leaves_out_those_that_are_skipped():
    normal = tfd.Normal(tf.Variable(0.0), 1.0)
    trainer = Trainer(normal, normal.trainable_variables, keras.optimizers.SGD(0.0))
    batches = np.array([[0.0, 1.0], [np.nan, 1.0]], np.float32)
    expected = np.mean(normal.log_prob(batches[0]))
    np.testing.assert_allclose(trainer((batches,)), expected, rtol=1e-6)
    assert trainer.num_skipped == 1


@pytest.mark.parametrize("library", [keras, tf_keras])
def test_a_skipped_step_changes_no_weight(library):
    """Adam would move the weights by its memory of earlier gradients, even with gradients of 0."""
    normal = tfd.Normal(tf.Variable(0.0), 1.0)
    trainer = Trainer(normal, normal.trainable_variables, library.optimizers.Adam(0.1))
    good, bad = np.ones([1, 4], np.float32), np.full([1, 4], np.nan, np.float32)
    trainer((good,))
    before = normal.loc.numpy()
    assert before > 0.05
    trainer((bad,))
    assert normal.loc.numpy() == before
    trainer((good,))
    assert normal.loc.numpy() > before + 0.05


@pytest.mark.parametrize("library", [keras, tf_keras])
def test_networks_train_in_training_mode_and_are_evaluated_in_inference_mode(library):
    dropout, normalization = library.layers.Dropout(0.5), library.layers.BatchNormalization()
    layers = [library.layers.Dense(8), normalization, dropout, library.layers.Dense(1)]
    dist = Resampled(
        tfd.MultivariateNormalDiag(tf.zeros(2)), library.Sequential(layers), from_logits=True
    )
    result = fit(dist, data(), **FEW)
    assert np.any(np.asarray(normalization.moving_mean) != 0.0)
    z = data(5)
    np.testing.assert_array_equal(*(result.distribution.log_prob(z) for _ in range(2)))
    np.testing.assert_array_equal(*(dist.accept_log_prob(z) for _ in range(2)))


class Modes(keras.layers.Layer):
    """Collects the training modes that it is called in."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def call(self, x, training=None):
        self.seen.add(training)
        return x


@pytest.mark.parametrize("trainable_proposal", [False, True])
def test_a_proposal_runs_in_training_mode_only_if_it_is_trained(trainable_proposal):
    """Otherwise `BatchNormalization` and `Dropout` would change it."""
    modes = [Modes() for _ in range(3)]
    normalizations = [keras.layers.BatchNormalization() for _ in range(3)]
    (*of_flow,), *of_accept_fns = zip(modes, normalizations, strict=True)
    inner, outer = (keras.Sequential([*part, keras.layers.Dense(1)]) for part in of_accept_fns)
    proposal = Resampled(flow_of_keras3_layers(*of_flow)[0], inner, from_logits=True)
    dist = Resampled(proposal, outer, from_logits=True)
    few = {**FEW, "num_steps": 3, "optimizer": keras.optimizers.SGD(0.1)}
    fit(dist, data() + 1.0, **few, trainable_proposal=trainable_proposal)
    moved = [bool(np.any(n.moving_mean != 0.0)) for n in normalizations]
    in_training = [True in m.seen for m in modes]
    assert moved == in_training == [trainable_proposal, trainable_proposal, True]
