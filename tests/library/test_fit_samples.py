"""`fit`: arrays, data sets and functions as sources of samples."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tests.library.fit_cases import FEW, data, mixture, read, resampled
from tfp_lars import AcceptanceNetwork, Resampled, _fit_samples, fit

tfd = tfp.distributions


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
