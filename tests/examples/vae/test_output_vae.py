"""The VAE with resampled images: bound, evaluation, training and resuming."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_lars
from examples.common.command_line import UserError
from examples.common.command_line import run as run_command
from examples.vae import build as building
from examples.vae import datasets, evaluation, train, training
from examples.vae.config import Config, PriorConfig
from examples.vae.run_directory import RunDirectory
from tests.bounds import normal_bound


def config(steps=1):
    prior = PriorConfig("lars", T=20, num_samples=16)
    return Config(
        "mnist", "output_vae", prior, steps, num_latents=3, batch_size=8, checkpoint_every=1
    )


def random_images(n=12):
    pixels = np.uint8(255 * (np.random.default_rng(0).random((n, 28, 28)) < 0.3))
    return datasets.Images("mnist", pixels, pixels, pixels, dynamic=False, source="made up")


@pytest.fixture(scope="module")
def model():
    """Returns a model whose acceptance network distinguishes images and rejects many."""
    model = building.build(config())
    last = model.prior.accept_fn._dense[-1]
    last.kernel.assign(10.0 * last.kernel)
    last.bias.assign([-1.0])
    return model


@pytest.fixture(scope="module")
def plain(model):
    """Returns the VAE with the same encoder and decoder, without resampling."""
    prior = PriorConfig("standard")
    plain = building.build(Config("mnist", "vae", prior, 1, num_latents=3))
    for name in ("encoder", "head", "decoder"):
        getattr(plain, name).set_weights(getattr(model, name).get_weights())
    return plain


def test_acceptance_has_the_shape_of_the_encoder(model):
    layers = model.prior.accept_fn._dense
    assert [layer.units for layer in layers] == [300, 300, 1]
    assert [layer.activation.__name__ for layer in layers] == ["tanh", "tanh", "linear"]
    assert (model.prior.T, model.prior.normalizer.num_samples) == (20, 16)
    assert (model.prior.batch_shape, model.prior.event_shape) == ([], [784])


def test_bound_is_that_of_the_plain_vae_and_the_log_ratio(model, plain):
    x = np.float32(random_images(5).test > 0)
    frozen = model.prior.freeze(-1.5)
    found = model.terms(x, 2, tf.constant([1, 2]), frozen)
    without = plain.terms(x, 2, tf.constant([1, 2]), plain.prior)
    np.testing.assert_allclose(found["recons"], without["recons"], rtol=1e-5)
    a, rate = np.exp(frozen.accept_log_prob(x.reshape(5, 784))), np.exp(-1.5)
    alpha = (1 - rate) ** 19
    expected = np.log(a * (1 - alpha) / rate + alpha)
    np.testing.assert_allclose(without["kl"] - found["kl"], [expected] * 2, atol=1e-3)


def test_z_is_the_mean_acceptance_of_decoded_draws(model, seed):
    _, estimate = evaluation.frozen_prior(model, 4000, seed=seed)
    z = np.random.default_rng(seed).normal(size=(4000, 3)).astype(np.float32)
    p = tf.sigmoid(model.decode([tf.constant(z)])).numpy()
    x = np.float32(np.random.default_rng(seed + 1).random(p.shape) < p)
    a = model.prior.accept_fn(x).numpy()[:, 0]
    stderr = np.hypot(a.std() / np.sqrt(4000), estimate.stderr * a.mean())
    assert abs(np.exp(estimate.log_z) - a.mean()) < normal_bound() * stderr
    assert a.std() > 0.01


def test_nll_is_importance_weighted_minus_the_log_ratio(model, plain):
    pixels = random_images().test
    frozen = model.prior.freeze(-1.5)
    found = evaluation.importance_weighted(model, frozen, pixels, 60, seed=5)
    without = evaluation.importance_weighted(plain, plain.prior, pixels, 60, seed=5)
    ratio = frozen.log_ratio(np.float32(pixels > 0).reshape(-1, 784))
    expected = without["log_likelihood"] + ratio.numpy()
    np.testing.assert_allclose(found["log_likelihood"], expected, rtol=1e-5)


def test_error_of_log_z_is_carried_into_the_error_of_the_nll(model):
    """Without truncation, an error of log Z is an equal error of the NLL."""
    endless = model.prior.copy(T=None)
    found = evaluation.importance_weighted(
        model, endless.freeze(-0.7), random_images().test, 3, other_priors=[endless.freeze(-0.6)]
    )
    np.testing.assert_allclose(
        found["log_likelihood"] - found["other_log_likelihoods"][0], 0.1, rtol=1e-2
    )
    metrics = evaluation.compute_metrics(model, random_images(), iwae_samples=3, z_samples=500)
    assert 0.0 < metrics["z"] < 1.0 and metrics["log_z_stderr"] > 0.0
    assert 1.0 <= metrics["expected_attempts"] <= 20.0


def test_samples_are_decoded_means_of_accepted_images(model, monkeypatch):
    """All pixels have the same probability. Images with more than 70% white pixels are accepted."""
    decode = lambda self, latents: tf.repeat(2.0 * latents[0][..., :1], 784, axis=-1)  # noqa: E731
    monkeypatch.setattr(type(model), "decode", decode)
    white = tfp_lars.AcceptanceNetwork(())
    white.build((None, 784))
    white._dense[0].kernel.assign(np.full([784, 1], 2.0))
    white._dense[0].bias.assign([-2.0 * 0.7 * 784])
    resampled = tfp_lars.Resampled(model.prior.proposal, white, T=None, normalizer=-1.0)
    monkeypatch.setattr(type(model), "prior", property(lambda self: resampled))
    images = model.prior.sample(100, seed=1).numpy()
    assert np.all((images == 0.0) | (images == 1.0))
    assert images.mean(1).min() > 0.69
    means = model.sample_means(100).numpy()
    assert means.shape == (100, 28, 28)
    # The share of white pixels has a standard deviation of at most 0.018 around its mean.
    assert means.mean((1, 2)).min() > 0.6
    assert np.ptp(means, axis=(1, 2)).max() < 1e-6


def gradients(model, variables):
    """Returns the gradients of the bound in training."""
    x = np.float32(random_images(8).train > 0)
    with tf.GradientTape() as tape:
        terms = model.terms(x, 1, tf.constant([1, 2]))
        bound = tf.reduce_mean(terms["recons"] - terms["kl"])
    return tape.gradient(bound, variables)


def test_resampling_leaves_the_training_of_the_vae_as_it_is(model, plain):
    """Gradients of Z and a do not reach the encoder and decoder. All weights of a have one."""
    found, expected = (
        gradients(m, [v.value for n in (m.encoder, m.head, m.decoder) for v in n.variables])
        for m in (model, plain)
    )
    for resampled, without in zip(found, expected, strict=True):
        np.testing.assert_allclose(resampled, without, atol=1e-5)
        assert np.any(without.numpy() != 0.0)
    of_acceptance = gradients(model, [v.value for v in model.prior.accept_fn.variables])
    assert all(np.any(g.numpy() != 0.0) for g in of_acceptance)
    assert len(model.trainable_variables) == len(found) + len(of_acceptance)


def test_every_variable_is_in_the_model_once(model):
    variables = [id(v.value) for v in model.variables]
    assert len(variables) == len(set(variables))
    assert {id(v) for v in model.prior.variables} <= set(variables)


def state(model):
    variables = (*model.variables, *model.optimizer.variables)
    return [v.numpy() if isinstance(v, keras.Variable) else np.asarray(v) for v in variables]


def test_interrupted_training_ends_with_the_weights_of_one_that_was_not(tmp_path, monkeypatch):
    images, settings = random_images(), config(steps=3)
    save, saves, states = tf.train.CheckpointManager.save, [], []

    def save_and_fail(self, *args, **kwargs):
        saves.append(save(self, *args, **kwargs))
        if len(saves) == 2:
            raise tf.errors.ResourceExhaustedError(None, None, "interrupted")

    for name in ("whole", "interrupted"):
        run = RunDirectory(tmp_path / name)
        run.claim(settings, images.digest)
        if name == "interrupted":
            monkeypatch.setattr(tf.train.CheckpointManager, "save", save_and_fail)
            with pytest.raises(UserError, match="interrupted"):
                training.train(settings, images, run, progress=False)
            assert saves[-1].endswith("ckpt-2")
        model = training.train(settings, images, run, progress=False)
        assert int(model.optimizer.iterations) == 3
        assert int(model.prior.normalizer.num_updates) == 3
        assert training.prior_scalars(model).keys() == {"z", "attempts"}
        states.append(state(model))
    for whole, interrupted in zip(*states, strict=True):
        np.testing.assert_array_equal(whole, interrupted)


def test_other_priors_are_refused_in_one_line(capsys, tmp_path):
    arguments = ["--dataset", "mnist5k", "--model", "output_vae", "--prior", "maf", "--out"]
    with pytest.raises(SystemExit):
        run_command(lambda: train.main([*arguments, str(tmp_path / "run")]))
    message = capsys.readouterr().err.strip()
    assert "--model output_vae resamples images" in message and "got --prior maf" in message
    assert message.count("\n") == 0
    assert not (tmp_path / "run").exists()
