"""The NLL estimator, compared with a marginal likelihood from quadrature."""

import dataclasses
import json
import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_lars
from examples.common import revision
from examples.common.command_line import UserError
from examples.vae import datasets, evaluation, models
from examples.vae import evaluate as evaluate_command
from examples.vae.config import Config, Evaluation, PriorConfig
from examples.vae.run_directory import RunDirectory
from tests.bounds import normal_bound


@pytest.fixture(scope="module")
def model():
    """Returns a VAE with two latent dimensions, an informative decoder and a bimodal prior."""
    tf.random.set_seed(3)

    def make_prior(encode):
        return tfp_lars.Resampled(
            tfp_lars.proposals.standard_normal(2),
            lambda z: 4.0 * tf.abs(z[..., 0]) - 3.0,
            T=20,
            from_logits=True,
        )

    model = models.VAE(make_prior, num_latents=2)
    # An encoder wider than the posterior gives the importance weights a noticeable variance.
    for layer in (model.decoder.layers[-1], model.head.dense):
        layer.kernel.assign(0.2 * layer.kernel)
    model.head.dense.bias.assign([0.0, 0.0, 0.4, 0.4])
    return model


def log_marginals(model, prior, x):
    """Returns the log of the integral of p(z) p(x|z) on a grid, for each image."""
    axis = np.linspace(-7.0, 7.0, 281, dtype=np.float32)
    step = float(axis[1] - axis[0])
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    logits = model.decode([tf.constant(grid)]).numpy().astype(np.float64)
    log_prior = prior.log_prob(grid).numpy().astype(np.float64)
    log_x = logits @ x.reshape(len(x), -1).T - np.logaddexp(0.0, logits).sum(-1, keepdims=True)
    return np.logaddexp.reduce(log_prior[:, None] + log_x, axis=0) + 2 * np.log(step)


def test_importance_weighting_finds_the_marginal_likelihood(model, seed, num_repeats=40):
    """The mean weight is unbiased, so its ratio to the exact likelihood has a mean of 1."""
    pixels = np.uint8(255 * (np.random.default_rng(0).random((20, 28, 28)) < 0.3))
    prior, estimate = evaluation.frozen_prior(model, 10**6, seed=1)
    assert 0.05 < np.exp(estimate.log_z) < 0.95
    exact = log_marginals(model, prior, pixels > 0)
    # Each repetition of an image has its own draws.
    repeated = np.tile(pixels, [num_repeats, 1, 1])
    found = evaluation.importance_weighted(model, prior, repeated, 150, seed=seed)
    ratio = np.exp(found["log_likelihood"].reshape(num_repeats, -1) - exact)
    stderr = ratio.std(ddof=1) / np.sqrt(ratio.size)
    assert stderr < 0.02
    assert abs(ratio.mean() - 1.0) < normal_bound() * stderr + 1e-4
    # One draw instead of 150 gives a much lower bound.
    assert np.mean(found["recons"] - found["kl"]) < np.mean(exact) - 0.1


def test_chunks_add_up_whatever_their_size(model):
    """Chunks of 50, 50 and 20 give the mean weight of 120 draws, not an average of 3 logs."""
    pixels = np.uint8(255 * (np.random.default_rng(0).random((3, 28, 28)) < 0.3))
    prior = model.prior.freeze(-0.7)
    found = evaluation.importance_weighted(model, prior, pixels, 120, seed=5)
    x = np.float32(pixels > 0)
    chunks = ((0, 50), (50, 50), (100, 20))
    terms = [model.terms(x, size, tf.constant([5, start]), prior) for start, size in chunks]
    log_w = np.concatenate([t["recons"] - t["kl"] for t in terms]).astype(np.float64)
    expected = np.logaddexp.reduce(log_w, axis=0) - np.log(120)
    np.testing.assert_allclose(found["log_likelihood"], expected, rtol=1e-6)
    np.testing.assert_allclose(
        found["kl"], np.concatenate([t["kl"] for t in terms]).mean(0), rtol=1e-5, atol=1e-5
    )


def test_error_of_log_z_is_carried_into_the_error_of_the_nll(model):
    """Without truncation, an error of log Z is an equal error of the NLL."""
    pixels = np.uint8(255 * (np.random.default_rng(0).random((5, 28, 28)) < 0.3))
    endless = model.prior.copy(T=None)
    found = evaluation.importance_weighted(
        model, endless.freeze(-0.7), pixels, 20, other_priors=[endless.freeze(-0.6)]
    )
    np.testing.assert_allclose(
        found["other_log_likelihoods"][0], found["log_likelihood"] - 0.1, rtol=1e-5
    )


def test_progress_bar_ends_on_the_result(model, capsys):
    """The two batches have 64 and 6 images and differ in brightness."""
    white = np.where(np.arange(70) < 64, 0.1, 0.5)[:, None, None]
    pixels = np.uint8(255 * (np.random.default_rng(0).random((70, 28, 28)) < white))
    prior = model.prior.freeze(-0.7)
    found = evaluation.importance_weighted(model, prior, pixels, 5, progress=True)
    said = re.findall(r"nll: ([0-9.]+)", capsys.readouterr().out)
    assert math.isclose(float(said[-1]), -found["log_likelihood"].mean(), abs_tol=1e-3)


@pytest.mark.parametrize(("wanted", "indices"), [(3, [0, 3, 6]), (10, range(10)), (99, range(10))])
def test_some_images_are_spread_over_all(wanted, indices):
    np.testing.assert_array_equal(datasets.spread(np.arange(10), wanted), list(indices))
    np.testing.assert_array_equal(datasets.spread(np.arange(10), None), np.arange(10))


def random_images(n=90):
    pixels = np.uint8(255 * (np.random.default_rng(0).random((n, 28, 28)) < 0.3))
    return datasets.Images("mnist5k", pixels, pixels, pixels, dynamic=True, source="made up")


def evaluate(model, path, images, seed=0, **settings):
    config = Config("mnist5k", "vae", PriorConfig(), steps=1, num_latents=2, seed=seed)
    how = Evaluation(**{"iwae_samples": 20, "z_samples": 1000, **settings})
    return evaluation.evaluate(
        model, images, config, path, evaluation=how, command="none", progress=False
    )


def test_every_image_s_nll_is_kept_and_its_mean_is_the_nll(model, tmp_path):
    model.compile(keras.optimizers.Adam())
    images = random_images()
    evaluate(model, tmp_path, images, test_images=45)
    found = json.loads((tmp_path / "metrics.json").read_text())
    nll, elbo = (np.load(tmp_path / f"test_{n}.npy") for n in ("nll", "elbo"))
    assert nll.shape == elbo.shape == (45,)
    assert math.isclose(nll.mean(), found["nll"], rel_tol=1e-9)
    assert math.isclose(elbo.mean(), found["elbo"], rel_tol=1e-9)
    assert (found["test_images"], found["num_test_images"]) == (45, 45)
    assert (found["iwae_samples"], found["z_samples"]) == (20, 1000)
    assert found["images"] == images.digest
    assert found["revision"] == revision.revision()
    # Half of the images means every other image.
    half = dataclasses.replace(images, test=images.test[::2])
    expected = evaluation.compute_metrics(model, half, iwae_samples=20, z_samples=1000)
    np.testing.assert_allclose(nll, expected["test_nll"], rtol=1e-6)


def test_error_of_log_z_is_stored_and_is_a_part_of_each_error(model):
    """With Z near 0.5, T = 20 is effectively untruncated, so both errors are equal."""
    found = evaluation.compute_metrics(model, random_images(), iwae_samples=20, z_samples=1000)
    assert math.isclose(found["stderr_from_z"], found["log_z_stderr"], rel_tol=0.01)
    for name in ("nll", "elbo", "kl", "recons"):
        values = found[f"test_{name}"]
        spread = values.std(ddof=1) / math.sqrt(len(values))
        from_z = 0.0 if name == "recons" else found["stderr_from_z"]
        assert math.isclose(found[f"{name}_stderr"], math.hypot(spread, from_z), rel_tol=1e-9)


def test_fuller_metrics_are_not_replaced(model, tmp_path):
    model.compile(keras.optimizers.Adam())
    images = random_images()
    evaluate(model, tmp_path, images, test_images=45)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for less in ({"test_images": 40}, {"iwae_samples": 19}, {"z_samples": 999}):
        with pytest.raises(
            UserError, match="of a more thorough evaluation .*name another directory"
        ):
            evaluate(model, tmp_path, images, **{"test_images": 45, **less})
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    evaluate(model, tmp_path / "other", images, test_images=40)
    # Metrics of other weights of the same configuration are replaced.
    model.optimizer.iterations.assign(7)
    found = evaluate(model, tmp_path, images, test_images=40)
    assert found["steps"] == 7


def test_metrics_of_another_run_are_not_replaced(model, tmp_path):
    model.compile(keras.optimizers.Adam())
    images = random_images()
    evaluate(model, tmp_path, images, test_images=40)
    before = (tmp_path / "metrics.json").read_bytes()
    with pytest.raises(UserError, match="has the metrics of another run: name another directory"):
        evaluate(model, tmp_path, images, seed=3, test_images=45)
    assert (tmp_path / "metrics.json").read_bytes() == before


def test_directory_of_another_run_is_no_output(tmp_path):
    for name in ("run", "other"):
        RunDirectory(tmp_path / name).claim(Config("mnist5k"), "images")
    with pytest.raises(UserError, match="--out .*other is the directory of another run"):
        evaluate_command.main([str(tmp_path / "run"), "--out", str(tmp_path / "other")])


@pytest.mark.parametrize(("num_images", "shape"), [(4, (2, 4)), (25, (4, 10)), (90, (6, 10))])
def test_reconstructions_fit_the_images_that_there_are(model, num_images, shape):
    pictures = evaluation.reconstructions(model, random_images(num_images).test)
    assert pictures.shape == (*shape, 28, 28)
