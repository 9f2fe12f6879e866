"""`fit`: what it trains on, what it returns, and when it stops."""

import collections
import itertools
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

import tfp_lars
from tfp_lars import AcceptanceNetwork, MovingAverage, Resampled, _fit_samples, fit, proposals
from tfp_lars._fit_training import Recipe, Trainer

tfb = tfp.bijectors
tfd = tfp.distributions

FEW = {"num_steps": 40, "progress": False, "seed": 1}


def mixture():
    """Two clusters, which a normal cannot separate."""
    return tfd.MixtureSameFamily(
        tfd.Categorical(probs=[0.5, 0.5]),
        tfd.MultivariateNormalDiag([[-1.0, -1.0], [1.0, 1.0]], [0.3, 0.3]),
    )


def data(n=3000, seed=0):
    return mixture().sample(n, seed=[seed, 5]).numpy()


def resampled(proposal=None, **kwargs):
    proposal = tfd.MultivariateNormalDiag(tf.zeros(2)) if proposal is None else proposal
    kwargs.setdefault("normalizer", MovingAverage(256, seed=3))
    return Resampled(proposal, AcceptanceNetwork((16, 16)), **kwargs)


@pytest.fixture(scope="module")
def fitted():
    keras.utils.set_random_seed(1)
    dist = resampled()
    return dist, fit(dist, data(), num_steps=400, progress=False, seed=1)


# The result.


def test_gain_is_close_to_that_of_the_target_itself(fitted):
    """On average nothing has a larger log-likelihood than the target."""
    _, result = fitted
    z = result.held_out
    best = np.mean(mixture().log_prob(z) - tfd.MultivariateNormalDiag(tf.zeros(2)).log_prob(z))
    assert best - 0.15 < result.gain < best + 4 * result.gain_stderr


def test_result_agrees_with_the_frozen_distribution(fitted):
    dist, result = fitted
    frozen, z = result.distribution, result.held_out
    log_prob = frozen.log_prob(z).numpy().astype(np.float64)
    log_proposal = dist.proposal.log_prob(z).numpy().astype(np.float64)
    np.testing.assert_allclose(result.log_likelihood, np.mean(log_prob), rtol=1e-6)
    np.testing.assert_allclose(result.proposal_log_likelihood, np.mean(log_proposal), rtol=1e-6)
    np.testing.assert_allclose(result.gain, np.mean(log_prob - log_proposal), atol=1e-6)
    of_mean = np.std(log_prob - log_proposal, ddof=1) / np.sqrt(len(z))
    expected = np.hypot(of_mean, frozen.estimate.stderr)
    # The derivative with respect to log Z is not exactly -1, because T is finite.
    np.testing.assert_allclose(result.gain_stderr, expected, rtol=1e-3)
    assert of_mean < 0.99 * expected
    assert frozen.estimate.stderr < 0.31 * of_mean
    assert result.acceptance_rate == frozen.acceptance_rate
    assert result.expected_attempts == frozen.expected_attempts
    assert frozen.accept_fn is dist.accept_fn


def test_held_out_samples_are_a_tenth_and_none_is_trained_on():
    seen = []

    class Recording(tfd.Normal):
        def _log_prob(self, z):
            tf.py_function(lambda z: seen.append(z.numpy()), [z], [])
            return super()._log_prob(z)

    dist = Recording(tf.Variable(0.0), 1.0)
    z = np.arange(200.0)
    result = fit(dist, z, num_steps=30, batch_size=16, progress=False, seed=1)
    assert len(result.held_out) == 20
    trained = np.concatenate([batch for batch in seen if len(batch) == 16])
    assert len(trained) == 30 * 16
    # 480 samples are 2.67 epochs of 180, each in another order.
    assert set(np.unique(trained)) == set(z) - set(result.held_out)
    counts = np.unique(trained, return_counts=True)[1]
    assert set(counts) == {2, 3}


def test_history_has_a_row_for_each_evaluation(fitted):
    _, result = fitted
    history = result.history
    np.testing.assert_array_equal(history["step"], np.arange(0, 401, 10))
    assert {len(v) for v in history.values()} == {41}
    best = np.argmax(history["log_likelihood"])
    assert history["step"][best] == result.best_step
    # Evaluations estimate Z from 32,768 proposals.
    assert abs(history["log_likelihood"][best] - result.log_likelihood) < 0.05
    assert history["learning_rate"][0] == 0.0 == history["learning_rate"][-1]
    assert history["learning_rate"].argmax() == 2  # after 5 % of the steps
    assert abs(history["acceptance_rate"][best] - result.acceptance_rate) < 0.05


def test_repr_reads_well(fitted):
    _, result = fitted
    lines = repr(result).splitlines()
    assert lines[0] == (
        f"FitResult (400 steps, best at {result.best_step}, finished; 300 held-out samples)"
    )
    assert lines[1].split() == [
        "log-likelihood",
        f"{result.log_likelihood:.3f}",
        "±",
        f"{result.log_likelihood_stderr:.3f}",
    ]
    names = ["proposal", "gain", "Z", "attempts", "untested"]
    assert [line.split()[0] for line in lines[2:]] == names
    share = (1.0 - result.acceptance_rate) ** (result.distribution.T - 1)
    np.testing.assert_allclose(result.truncation_weight, share, rtol=1e-4)
    assert lines[-1].split()[1:] == [f"{100 * share:.2g}", "%", "of", "the", "draws"]


def test_same_seed_gives_the_same_weights():
    results = []
    for _ in range(2):
        keras.utils.set_random_seed(1)
        results.append(fit(resampled(), data(), **FEW))
    assert results[0].gain == results[1].gain


# What is trained.


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


def test_integer_samples_fit_a_discrete_distribution():
    dist = Resampled(tfd.Categorical(logits=tf.zeros(4), dtype=tf.int32), Table(4), T=50)
    p = np.array([0.1, 0.2, 0.3, 0.4])
    samples = np.random.default_rng(0).choice(4, size=20_000, p=p)
    result = fit(dist, samples, num_steps=300, progress=False, seed=1)
    fitted = np.exp(result.distribution.log_prob(np.arange(4)))
    np.testing.assert_allclose(fitted, p, atol=0.03)


class Table(tf.Module):
    """A logit for each value."""

    def __init__(self, n):
        super().__init__()
        self.values = tf.Variable(tf.zeros([n]))

    def logits(self, z):
        return tf.gather(self.values, z)


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


# Where samples come from.


@pytest.mark.parametrize(
    "make",
    [
        lambda z: z.astype(np.float64),
        tf.constant,
        lambda z: z.tolist(),
        lambda z: tf.data.Dataset.from_tensor_slices(z),
        lambda z: tf.data.Dataset.from_tensor_slices(z).batch(77),
    ],
    ids=["float64", "tensor", "list", "data set", "batched data set"],
)
def test_finite_sources_give_the_same_batches(make):
    z = data(500)
    first, second = (read(samples) for samples in (z, make(z)))
    np.testing.assert_array_equal(first.held_out, second.held_out)
    np.testing.assert_array_equal(first.take(7)[0], second.take(7)[0])
    assert second.held_out.dtype == np.float32 and second.num_train == 450


def read(samples, batch_size=64):
    shape, batch_shape = tf.TensorShape([2]), tf.TensorShape([])
    rng = np.random.default_rng(0)
    return _fit_samples.read(samples, shape, batch_shape, tf.float32, batch_size, 0.1, rng)


def fresh():
    """A data set of new samples."""
    return tf.data.Dataset.random(seed=1).map(
        lambda number: tf.random.stateless_normal([2], tf.stack([number, 0]))
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda z: fresh(),
        lambda z: fresh().batch(64),
        lambda z: lambda seed: mixture().sample(700, seed=seed),
        lambda z: lambda seed: z[np.random.default_rng(seed.numpy()).integers(500, size=300)],
    ],
    ids=["data set", "batched data set", "TFP", "NumPy"],
)
def test_streams_are_read_without_end(make):
    sampled = read(make(data(500)))
    assert sampled.num_train is None
    assert sampled.held_out.shape == (10_000, 2)
    batches = [sampled.take(5)[0] for _ in range(20)]
    assert batches[0].shape == (5, 64, 2)
    # The next samples of a stream are others, in another order.
    assert np.any(batches[0] != batches[-1])


@pytest.mark.parametrize("num_samples", [60, 10_050])
@pytest.mark.parametrize("order", [lambda d: d, lambda d: d.shuffle(64)])
def test_repeated_data_set_is_refused_instead_of_training_on_held_out_samples(num_samples, order):
    dataset = order(tf.data.Dataset.from_tensor_slices(data(num_samples))).batch(16).repeat()
    sampled = read(dataset)
    with pytest.raises(ValueError, match=r"`samples`.*repeats its samples.*without `.repeat\(\)`"):
        sampled.take(400)


def test_repeated_data_set_of_integers_is_read():
    """Equal values do not show that they are the same samples."""
    z = tf.data.Dataset.from_tensor_slices(np.arange(60, dtype=np.int32) % 5).repeat()
    args = tf.TensorShape([]), tf.TensorShape([]), tf.int32, 64, 0.1, np.random.default_rng(0)
    assert _fit_samples.read(z, *args).take(30)[0].shape == (30, 64)


def test_function_is_fitted():
    result = fit(resampled(), lambda seed: mixture().sample(700, seed=seed), **FEW)
    assert result.num_steps == 40
    assert len(result.held_out) == 10_000
    assert result.gain > 0.1


def test_generator_without_end_is_a_stream(monkeypatch):
    monkeypatch.setattr(_fit_samples, "_LARGEST_IN_MEMORY", 300)
    monkeypatch.setattr(_fit_samples, "_READ_AT_ONCE", 50)
    generator = (np.float32([i, -i]) for i in itertools.count())
    dataset = tf.data.Dataset.from_generator(
        lambda: generator, output_signature=tf.TensorSpec([2], tf.float32)
    )
    sampled = read(dataset)
    np.testing.assert_array_equal(sampled.held_out[:, 0], np.arange(75))
    (batches,) = sampled.take(20)
    assert np.min(batches[..., 0]) == 75 and np.max(batches[..., 0]) > 1000


def test_data_set_larger_than_the_memory_is_read_again(monkeypatch):
    monkeypatch.setattr(_fit_samples, "_LARGEST_IN_MEMORY", 400)
    z = np.repeat(np.arange(400.0, dtype=np.float32)[:, np.newaxis], 2, axis=1)
    sampled = read(tf.data.Dataset.from_tensor_slices(z).batch(50), batch_size=10)
    np.testing.assert_array_equal(sampled.held_out, z[:100])
    (batches,) = sampled.take(60)  # two epochs
    values, counts = np.unique(batches[..., 0], return_counts=True)
    np.testing.assert_array_equal(values, z[100:, 0])
    assert set(counts) == {2}


def test_held_out_samples_are_left_out_in_any_order_and_as_often_as_they_were_held_out(monkeypatch):
    monkeypatch.setattr(_fit_samples, "_LARGEST_IN_MEMORY", 400)
    z = np.repeat(np.arange(400.0, dtype=np.float32)[:, np.newaxis] // 4, 2, axis=1)
    dataset = tf.data.Dataset.from_tensor_slices(z).shuffle(400, seed=1).batch(50)
    sampled = read(dataset, batch_size=10)
    (batches,) = sampled.take(90)  # three epochs
    held_out, epochs = (
        collections.Counter(x[..., 0].ravel().tolist()) for x in (sampled.held_out, batches)
    )
    assert sum(held_out.values()) == 100
    assert epochs == {v: 3 * (4 - held_out[v]) for v in np.arange(100.0) if held_out[v] < 4}


def test_generator_that_cannot_be_read_again_is_an_error(monkeypatch):
    monkeypatch.setattr(_fit_samples, "_LARGEST_IN_MEMORY", 100)
    generator = (np.float32([i, -i]) for i in range(2000))
    dataset = tf.data.Dataset.from_generator(
        lambda: generator, output_signature=tf.TensorSpec([2], tf.float32)
    )
    sampled = read(dataset)
    with pytest.raises(ValueError, match="0 samples when it was read again"):
        sampled.take(40)


def test_log_densities_of_a_function_are_passed_on():
    calls = []

    class Recording(Resampled):
        def _log_prob(self, z, target_log_prob=None, **kwargs):
            calls.append(target_log_prob)
            return super()._log_prob(z, target_log_prob, **kwargs)

    def draw(seed):
        z = mixture().sample(500, seed=seed)
        return z, mixture().log_prob(z)

    dist = Recording(tfd.MultivariateNormalDiag(tf.zeros(2)), AcceptanceNetwork((16, 16)))
    result = fit(dist, draw, **FEW)
    assert any(c is not None for c in calls)
    assert result.gain > 0.1
    # NumPy computes in float64.
    fit(dist, lambda seed: tuple(x.numpy().astype(float) for x in draw(seed)), **FEW)
    # Other distributions have no use for them.
    fit(tfd.MultivariateNormalDiag(tf.Variable([1.0, 1.0])), draw, **FEW)


def test_flows_train_at_a_smaller_rate():
    rates = [Recipe.of(100, 1000, 100, d, flow).learning_rate for d in (1, 4) for flow in (0, 1)]
    np.testing.assert_allclose(rates, [0.03, 0.003, 0.015, 0.003])


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


def test_each_epoch_has_all_samples_in_another_order():
    scalar = tf.TensorShape([])
    samples = np.arange(100, dtype=np.float32)
    rng = np.random.default_rng(0)
    sampled = _fit_samples.read(samples, scalar, scalar, tf.float32, 10, 0.1, rng)
    first, second = (sampled.take(9)[0].ravel() for _ in range(2))
    np.testing.assert_array_equal(np.sort(first), np.sort(second))
    assert np.any(first != second)


def test_few_samples_are_one_batch(capsys):
    result = fit(resampled(), data(50), **FEW)
    assert len(result.held_out) == 5
    assert capsys.readouterr().out == ""  # progress=False


def test_batch_members_are_fitted_together():
    dist = Resampled(tfd.Normal([0.0, 0.0], 1.0), AcceptanceNetwork((8,)))
    samples = np.random.default_rng(0).normal(0.5, 0.5, size=(1000, 2))
    result = fit(dist, samples, **{**FEW, "num_steps": 200})
    assert result.gain > 0.2
    assert result.acceptance_rate.shape == (2,)


# When it stops.


def test_training_stops_early_and_restores_the_best_weights():
    """A network that is much too large for 40 samples."""
    dist = Resampled(tfd.MultivariateNormalDiag(tf.zeros(2)), AcceptanceNetwork((200, 200)))
    optimizer = keras.optimizers.Adam(1e-2)
    result = fit(
        dist, data(40), num_steps=4000, optimizer=optimizer, patience=2, progress=False, seed=1
    )
    assert result.stopped == "early"
    assert result.num_steps == result.best_step + 200
    history = result.history["log_likelihood"]
    assert history[-1] < np.max(history)
    assert abs(result.log_likelihood - np.max(history)) < 0.05
    again = dist.freeze(num_samples=10**5, seed=1).log_prob(result.held_out)
    assert abs(np.mean(again) - np.max(history)) < 0.05


def test_interrupt_returns_the_best_weights_so_far(capsys):
    calls = itertools.count()

    def draw(seed):
        if next(calls) == 25:
            raise KeyboardInterrupt
        return mixture().sample(1000, seed=seed)

    result = fit(resampled(), draw, num_steps=400, batch_size=100, seed=1)
    assert result.stopped == "interrupted"
    assert 0 < result.num_steps < 400
    assert result.gain > 0
    assert "interrupted" in repr(result)


def test_progress_shows_the_settings(capsys):
    fit(resampled(), data(), num_steps=40, seed=1)
    out = capsys.readouterr().out
    assert "Fitting 337 weights to 2,700 samples, 300 held out: 40 steps of 256" in out
    assert "learning rate" in out and "40/40" in out and "acceptance_rate" in out


def test_batches_without_a_finite_gradient_are_skipped():
    """A network may overflow where no held-out sample is."""

    class Fragile(tf.Module):
        def __init__(self):
            super().__init__()
            self.slope = tf.Variable([1.0, 1.0])

        def logits(self, z):
            value = tf.reduce_sum(self.slope * z, axis=-1)
            return tf.where(z[..., 0] > 50.0, tf.constant(np.nan), value)

    z = data(2000)
    z[7] = 100.0
    dist = Resampled(tfd.MultivariateNormalDiag(tf.zeros(2)), Fragile())
    result = fit(dist, z, num_steps=50, batch_size=32, progress=False, seed=2)
    assert 100.0 not in result.held_out
    assert 0 < result.num_skipped < 5
    assert "steps without a finite gradient" in repr(result)
    assert np.all(np.isfinite(dist.trainable_variables[0]))


# Wrong arguments.


def bad(message, error=ValueError, dist=resampled, samples=data, **kwargs):
    return pytest.param(error, message, dist, samples, kwargs, id=message[:30])


def with_values(*values):
    z = data(100)
    z[3, 1], z[7, 0], z[9, 0] = values
    return z


def held():
    dist = resampled()
    dist.normalizer.hold()
    return dist


def held_inside():
    return Resampled(held(), AcceptanceNetwork((4,)))


@pytest.mark.parametrize(
    ("error", "message", "dist", "samples", "kwargs"),
    [
        bad(r"shape \(3000, 3\); expected \(N, 2\)", samples=lambda: np.zeros((3000, 3))),
        bad(r"shape \(2,\); expected \(N, 2\)", samples=lambda: np.zeros(2)),
        bad(
            "has 2 NaN and 1 infinite values, in 3 of 100 rows.*index \\(3, 1\\)",
            samples=lambda: with_values(np.nan, np.inf, np.nan),
        ),
        bad(
            "1 infinite values after the cast from float64",
            samples=lambda: np.array([[1e300, 0]] + [[0.0, 1]] * 99),
        ),
        bad("empty: it has shape", samples=lambda: np.zeros((0, 2))),
        bad("has 5 rows; at least 20", samples=lambda: data(5)),
        bad("constant: all 300 rows", samples=lambda: np.ones((300, 2))),
        bad("constant: all", samples=lambda: lambda seed: np.ones((300, 2))),
        bad("type complex64; expected float32", TypeError, samples=lambda: data() * 1j),
        bad(
            "must be an array of numbers.*got list", TypeError, samples=lambda: [[1.0], [1.0, 2.0]]
        ),
        bad("must be an array of numbers", TypeError, samples=lambda: None),
        bad(
            "type float64, but the distribution is over int32",
            TypeError,
            dist=lambda: Resampled(tfd.Categorical(logits=tf.zeros(4)), Table(4)),
            samples=lambda: np.linspace(0, 3, 100),
        ),
        bad(
            "data set without elements",
            samples=lambda: tf.data.Dataset.from_tensor_slices(data()).take(0),
        ),
        bad(
            "one tensor. Select it",
            TypeError,
            samples=lambda: tf.data.Dataset.from_tensor_slices((data(), data())),
        ),
        bad(
            r"elements of shape \(3000, 2, 1\)|elements of shape \(\)",
            samples=lambda: tf.data.Dataset.from_tensor_slices(np.zeros(30)),
        ),
        bad("returned 3 values", samples=lambda: lambda seed: (data(), 1, 2)),
        bad("returned no samples", samples=lambda: lambda seed: data()[:0]),
        bad(
            "log densities of type int",
            TypeError,
            samples=lambda: lambda seed: (data(), np.arange(3000)),
        ),
        bad(r"log densities of shape \(3000, 2\)", samples=lambda: lambda seed: (data(), data())),
        bad(
            "fixed log Z.*copy\\(normalizer=tfp_lars.MovingAverage\\(\\)\\)",
            dist=lambda: resampled(normalizer=-1.0),
        ),
        bad("A moving average of `dist`, 'Resampled', is held.*`release\\(\\)`", dist=held),
        bad(
            "A moving average of `dist`, 'Resampled', is held",
            dist=held_inside,
            trainable_proposal=True,
        ),
        bad(
            "`trainable_proposal=True`, but the proposal .* has no trainable",
            trainable_proposal=True,
        ),
        bad("has `T=1`", dist=lambda: resampled(T=1)),
        bad(
            "`accept_fn` of `dist` has no trainable",
            dist=lambda: Resampled(
                tfd.MultivariateNormalDiag(tf.zeros(2)), lambda z: tf.sigmoid(z[..., 0])
            ),
        ),
        bad("`dist` has no trainable", dist=lambda: tfd.MultivariateNormalDiag(tf.zeros(2))),
        bad("must be a TFP distribution", TypeError, dist=AcceptanceNetwork),
        bad(
            "`dist` must have a single tensor as its event; 'Joint.*' is joint.*`tfd.Blockwise`",
            TypeError,
            dist=lambda: tfd.JointDistributionSequential([tfd.Normal(tf.Variable(0.0), 1.0)] * 2),
        ),
        bad(
            "have the log density -inf",
            dist=lambda: Resampled(
                tfd.Sample(tfd.Uniform(-1.0, 1.0), [2]), AcceptanceNetwork((4,))
            ),
        ),
        bad("`validation_split` must be", validation_split=1.0),
        bad("`validation_split=0.99` leaves none", validation_split=0.99, samples=lambda: data(21)),
        bad("`num_steps` must be", num_steps=0),
        bad("`batch_size` must be", TypeError, batch_size="all"),
        bad("`patience` must be", patience=-1),
        bad("`optimizer` must be an optimizer of Keras", TypeError, optimizer=1e-3),
        *(
            bad(
                "`optimizer` is a LossScaleOptimizer.*`inner_optimizer`.*loss_scale_factor",
                optimizer=scaling(library.optimizers.Adam()),
            )
            for library, scaling in (
                (keras, keras.optimizers.LossScaleOptimizer),
                (tf_keras, tf_keras.mixed_precision.LossScaleOptimizer),
            )
        ),
    ],
)
def test_wrong_arguments_are_named(error, message, dist, samples, kwargs):
    with pytest.raises(error, match=message):
        fit(dist(), samples(), **{**FEW, **kwargs})


def test_average_of_a_fixed_proposal_may_be_held():
    """The training does not change its Z."""
    dist = held_inside()
    fit(dist, data(), **FEW)
    assert int(dist.proposal.normalizer.num_updates) == 0 < int(dist.normalizer.num_updates)


def test_graph_is_refused():
    dist, z = resampled(), data()
    with pytest.raises(RuntimeError, match="inside a tf.function"):
        tf.function(lambda: fit(dist, z))()
    with pytest.raises(TypeError, match="symbolic tensor"):
        tf.function(read, autograph=False)(z)


def test_training_without_a_finite_gradient_is_an_error():
    class Broken(tf.Module):
        def __init__(self):
            super().__init__()
            self.slope = tf.Variable(0.0)

        def logits(self, z):
            # The derivative of the root is infinite at 0.
            return tf.sqrt(tf.abs(self.slope)) * z[..., 0]

    dist = Resampled(tfd.MultivariateNormalDiag(tf.zeros(2)), Broken())
    with pytest.raises(ValueError, match="None of 10 steps had a finite gradient"):
        fit(dist, data(), **FEW)


# Figures.


@pytest.mark.parametrize("d", [1, 2, 5])
def test_plot_shows_what_changed(d):
    """Only dimensions 1 and 3 change."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2000, d)).astype(np.float32)
    if d > 3:
        z[:, 3] = np.abs(z[:, 3])
        z[:, 1] = np.abs(z[:, 1])
    else:
        z = np.abs(z)
    dist = Resampled(tfd.MultivariateNormalDiag(tf.zeros(d)), AcceptanceNetwork((16,)))
    result = fit(dist, z, num_steps=200, progress=False, seed=1)
    figure = result.plot(num_draws=2000)
    labels = [(a.get_xlabel(), a.get_ylabel()) for a in figure.axes]
    if d == 1:
        assert labels == [("z", "density")]
        names = [t.get_text() for t in figure.axes[0].get_legend().get_texts()]
        assert names == ["held-out samples", "proposal", "fitted"]
        # The legend covers no bars, and it is inside the figure.
        figure.draw_without_rendering()
        legend, axes, whole = (
            part.get_window_extent()
            for part in (figure.axes[0].get_legend(), figure.axes[0], figure)
        )
        assert not legend.overlaps(axes)
        assert whole.x0 <= legend.x0 and legend.x1 <= whole.x1 and legend.y1 <= whole.y1
    else:
        assert labels[0] == (("z[0]", "z[1]") if d == 2 else ("z[1]", "z[3]"))
        assert len(labels) == (3 if d == 2 else 9)
    assert figure._repr_png_().startswith(b"\x89PNG")  # how notebooks display it


def test_plot_without_matplotlib_names_the_extra(fitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "tfp-lars\[plot\]"'):
        fitted[1].plot()


def test_module_and_function_share_a_name():
    assert tfp_lars.fit is fit and callable(fit)
