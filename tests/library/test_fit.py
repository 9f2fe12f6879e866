"""`fit`: what it returns, when it stops, and its figures."""

import itertools
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lars
from tests.library.fit_cases import FEW, data, mixture, resampled
from tfp_lars import AcceptanceNetwork, Resampled, fit
from tfp_lars.normalizer import monte_carlo
from tfp_lars.normalizer.run import Run

tfd = tfp.distributions


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
    assert history["learning_rate"][0] > 0.0 == history["learning_rate"][-1]
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


@pytest.mark.parametrize("training", [True, False])
def test_interrupt_in_an_evaluation_ends_the_fit(training, monkeypatch):
    """Also if Ctrl-C comes after the first of the batches that estimate Z."""
    dist = resampled()
    advance, pressed = Run.advance, []

    def press_once(run, goal):
        has_trained = int(dist.normalizer.num_updates) > 0
        if run.state.num_samples and has_trained == training and not pressed:
            pressed.append(True)
            raise KeyboardInterrupt
        advance(run, goal)

    monkeypatch.setattr(Run, "advance", press_once)
    monkeypatch.setattr(monte_carlo, "_BATCH_SIZE", 4096)
    if training:
        result = fit(dist, data(), **FEW)
        assert (result.stopped, result.num_steps, result.best_step) == ("interrupted", 1, 0)
    else:
        with pytest.raises(KeyboardInterrupt):
            fit(dist, data(), **FEW)
    assert pressed


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


def test_plot_without_matplotlib_names_the_remedy(fitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        fitted[1].plot()


def test_module_and_function_share_a_name():
    assert tfp_lars.fit is fit and callable(fit)
