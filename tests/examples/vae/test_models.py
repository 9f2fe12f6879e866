"""The paper's architectures: hand-computed sizes, shapes, and training steps."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import special

import tfp_lars
from examples.vae import build as building
from examples.vae import models, train
from examples.vae.config import MODELS, Config, PriorConfig
from examples.vae.priors import PRIORS

D = 50


def dense(*sizes):
    """Returns the number of parameters of a fully connected network with these layer sizes."""
    return sum(a * b + b for a, b in itertools.pairwise(sizes))


NORMAL_HEAD = dense(300, 2 * D)
VAE_SIZE = dense(784, 300, 300) + NORMAL_HEAD + dense(D, 300, 300, 784)
HVAE_SIZE = (
    (dense(784, 300, 300) + NORMAL_HEAD)  # q(z2|x)
    + (dense(784, 300) + dense(D, 300) + dense(600, 300) + NORMAL_HEAD)  # q(z1|x,z2)
    + (dense(D, 300, 300) + NORMAL_HEAD)  # p(z1|z2)
    + (2 * dense(D, 300) + dense(600, 300, 784))  # p(x|z1,z2)
)
KERNEL = 4 * 4
CNN = (KERNEL * 1 * 32 + 32) + 2 * (KERNEL * 32 * 32 + 32)
CONV_HVAE_SIZE = (
    (CNN + dense(512, 2 * D))
    + (CNN + dense(D, 512) + dense(1024, 300) + NORMAL_HEAD)
    + (dense(D, 300, 300) + NORMAL_HEAD)
    + (2 * dense(D, 300) + dense(600, 512))
    + 2 * (KERNEL * 32 * 32 + 32)
    + (KERNEL * 32 * 1 + 1)
)
SIZES = {
    "vae": VAE_SIZE,
    "hvae": HVAE_SIZE,
    "conv_hvae": CONV_HVAE_SIZE,
    "output_vae": VAE_SIZE + dense(784, 300, 300, 1),
}


def build(model="vae", prior=None, **kwargs):
    prior = prior or ("lars" if model == "output_vae" else "standard")
    config = PriorConfig(prior, num_components=7, num_samples=32)
    return building.build(Config("mnist", model, config, steps=100, **kwargs))


@pytest.mark.parametrize("name", MODELS)
def test_sizes_are_those_counted_by_hand(name):
    assert models.num_parameters(build(name)) == SIZES[name]


def test_resampled_prior_adds_the_acceptance_network():
    assert models.num_parameters(build("vae", "lars")) == VAE_SIZE + 15_301
    size = models.num_parameters(build("vae", "lars_dimensionwise"))
    assert size == VAE_SIZE + D * dense(1, 20, 20, 1)


@pytest.mark.parametrize(
    ("model", "prior", "expected"),
    [
        ("vae", "lars", dense(D, 7, 5, 1)),
        ("vae", "lars_dimensionwise", D * dense(1, 7, 5, 1)),
        ("output_vae", "lars", dense(784, 7, 5, 1)),
    ],
)
def test_every_acceptance_network_has_the_units_that_were_asked_for(model, prior, expected):
    arguments = ["--dataset", "mnist", "--model", model, "--prior", prior, "--out", "out"]
    _, asked = train.parse([*arguments, "--accept-units", "7-5", "--steps", "50"])
    assert models.num_parameters(building.build(asked)) == VAE_SIZE + expected


@pytest.mark.parametrize("prior", PRIORS)
def test_every_prior_trains_with_every_variable(prior):
    model = build("vae", prior, num_latents=4)
    x = np.float32(np.random.default_rng(0).random((64, 28, 28)) < 0.2)
    before = [v.numpy() for v in model.trainable_variables]
    model.fit(x, batch_size=16, epochs=2, verbose=0)  # 8 steps
    for old, new in zip(before, model.trainable_variables, strict=True):
        assert np.any(old != new.numpy()), new.path
    assert model.prior.sample(3, seed=1).shape == [3, 4]


@pytest.mark.parametrize("name", ["vae", "hvae", "conv_hvae"])
def test_terms_make_the_bound(name):
    model = build(name, "standard", num_latents=3)
    x = np.float32(np.random.default_rng(0).random((5, 28, 28)) < 0.2)
    terms = model.terms(x, 2, tf.constant([1, 2]))
    latents, log_qs = model.infer(x, 2, tf.constant([1, 2]))
    p_x = tf.sigmoid(model.decode(latents)).numpy().astype(np.float64)
    pixels = x.reshape(5, 784)
    recons = np.sum(pixels * np.log(p_x) + (1 - pixels) * np.log1p(-p_x), axis=-1)
    log_p = model.prior.log_prob(latents[0]) + model.log_lower(latents)
    np.testing.assert_allclose(terms["recons"], recons, rtol=1e-4)
    np.testing.assert_allclose(terms["kl"], sum(log_qs) - log_p, rtol=1e-4, atol=1e-3)
    assert model.decode_prior(terms["top"][0], tf.constant([0, 1])).shape == [5, 28, 28]


def test_hidden_layers_are_tanh_and_convolutions_relu():
    model = build("conv_hvae")
    kinds = {}
    for layer in model._flatten_layers():
        if isinstance(layer, (keras.layers.Conv2D, keras.layers.Conv2DTranspose)):
            kinds.setdefault("convolution", set()).add(layer.activation.__name__)
        elif isinstance(layer, keras.layers.Dense):
            kinds.setdefault("dense", set()).add(layer.activation.__name__)
    assert kinds == {"convolution": {"relu", "linear"}, "dense": {"tanh", "linear"}}


@pytest.mark.parametrize(("bounded", "scale_fn"), [(False, np.exp), (True, special.expit)])
def test_the_standard_deviation_of_a_normal_can_be_bounded(bounded, scale_fn):
    head = models.NormalHead(3, bounded=bounded)
    head.dense.build([None, 1])
    raw = [-50.0, 0.5, 9.0]
    head.dense.set_weights([np.float32([[1.0, 2.0, 3.0, *raw]]), np.zeros(6, np.float32)])
    q = head.distribution(tf.ones([2, 1])).distribution
    np.testing.assert_allclose(q.scale, [scale_fn(raw)] * 2, rtol=1e-6)
    np.testing.assert_array_equal(q.loc, [[1.0, 2.0, 3.0]] * 2)


def test_the_encoder_of_the_lower_latent_has_standard_deviations_below_one():
    """Nothing else determines its unit, because its prior is learned."""
    model = building.build(Config("mnist", "hvae", PriorConfig("standard")))
    assert model.head_1.bounded
    assert not model.prior_head_1.bounded and not model.head_2.bounded


def test_vamp_prior_is_the_mixture_of_posteriors_at_its_pseudo_inputs():
    model = build("vae", "vamp", num_latents=3)
    prior = model.prior
    assert prior.pseudo_inputs.shape == [7, 28, 28]
    z = np.float32(np.random.default_rng(0).normal(size=(5, 3)))
    components = model.encode_top(prior.pseudo_inputs)
    expected = np.log(np.mean(components.prob(z[:, None]), axis=1))
    np.testing.assert_allclose(prior.log_prob(z), expected, rtol=1e-4)
    assert len(prior.trainable_variables) == 1


def test_resampled_prior_is_told_the_density_of_the_encoder():
    """The topmost latent contributes to the estimate of Z, as in the paper."""
    calls = []

    class Spy(tfp_lars.Resampled):
        def log_prob(self, z, target_log_prob=None):
            calls.append(target_log_prob is not None)
            return super().log_prob(z, target_log_prob=target_log_prob)

        @classmethod
        def _parameter_properties(cls, dtype, num_classes=None):
            return tfp_lars.Resampled._parameter_properties(dtype, num_classes)

    proposal = tfp_lars.proposals.standard_normal(3)
    prior = Spy(proposal, tfp_lars.AcceptanceNetwork((4,)))
    model = models.VAE(lambda encode: prior, num_latents=3)
    model.terms(np.zeros((2, 28, 28), np.float32), 1, tf.constant([0, 0]))
    frozen = prior.freeze(-1.0)
    model.terms(np.zeros((2, 28, 28), np.float32), 1, tf.constant([0, 0]), frozen)
    assert calls == [True, False]


@pytest.mark.parametrize("name", ["vae", "output_vae"])
def test_evaluation_by_keras_leaves_the_average_of_z_alone(name):
    prior = PriorConfig("lars", num_samples=16)
    model = building.build(Config("mnist", name, prior, steps=3, num_latents=3))
    x = np.float32(np.random.default_rng(0).random((6, 28, 28)) < 0.2)
    model.fit(x, batch_size=2, verbose=0)
    updates, log_z = int(model.prior.normalizer.num_updates), float(model.prior.log_normalizer)
    assert updates == 3
    found = model.evaluate(x, batch_size=2, verbose=0, return_dict=True)
    assert np.isfinite(found["elbo"])
    model.predict(x, batch_size=2, verbose=0)
    assert int(model.prior.normalizer.num_updates) == updates
    assert float(model.prior.log_normalizer) == log_z
