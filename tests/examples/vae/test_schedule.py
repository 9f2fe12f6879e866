"""The training recipes: rates, warm-up, growth of T, and how latents are drawn."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from examples.vae import build as building
from examples.vae import fused_adam
from examples.vae.config import Config, PriorConfig
from examples.vae.priors import PRIORS
from examples.vae.schedule import Growth, RiseAndFall, Schedule, peak_rate


def config(prior="standard", dataset="mnist", model="vae", T=100, **kwargs):
    settings = PriorConfig(prior, T=T, num_samples=32, num_components=7)
    return Config(dataset, model, settings, **{"steps": 100, "num_latents": 3, **kwargs})


def images(n=4):
    return np.float32(np.random.default_rng(0).random((n, 28, 28)) < 0.2)


def test_paper_recipe_is_the_papers_at_its_budget():
    schedule = Schedule.of(config(steps=10**7))
    rates = [float(schedule.rate(step)) for step in (0, 10**6, 10**6 + 1, 10**7 - 1)]
    np.testing.assert_allclose(rates, [3e-4, 3e-4, 1e-4, 1e-4])
    assert dataclasses.replace(schedule, rate=0.0) == Schedule(rate=0.0, warm_up=10**5)
    static = Schedule.of(config(dataset="static_mnist", steps=10**7))
    assert static.warm_up == 5 * 10**4
    np.testing.assert_allclose([static.rate(5 * 10**5), static.rate(5 * 10**5 + 1)], [3e-4, 1e-4])


@pytest.mark.parametrize(
    ("schedule", "steps", "follows_paper"),
    [
        ("auto", 10**6 - 1, False),
        ("auto", 10**6, True),
        ("short", 10**7, False),
        ("paper", 1000, True),
    ],
)
def test_recipe_follows_from_the_budget_unless_it_is_named(schedule, steps, follows_paper):
    found = config("lars", steps=steps, schedule=schedule)
    assert found.follows_paper == follows_paper
    assert Schedule.of(found).path_gradient != follows_paper


def test_recipe_does_not_depend_on_the_prior_except_for_the_growth_of_t():
    schedules = {
        dataclasses.replace(Schedule.of(config(prior, steps=30_000)), rate=0.0, growth=None)
        for prior in PRIORS
    }
    assert len(schedules) == 1
    for prior in PRIORS:
        assert (Schedule.of(config(prior)).growth is not None) == PRIORS[prior].is_resampled


@pytest.mark.parametrize(
    ("steps", "warm_up"),
    [
        (100, 40),  # two fifths, if that is below 3,000 steps
        (5_000, 2_000),
        (10_000, 3_000),
        (30_000, 3_000),  # a tenth, if that is at least 3,000 steps
        (200_000, 20_000),
        (10**6, 10_000),  # one hundredth, as in the paper
    ],
)
def test_warm_up_is_long_where_the_budget_is_short(steps, warm_up):
    for dataset, half in (("mnist", 1), ("fashion_mnist", 1), ("static_mnist", 2)):
        assert Schedule.of(config(dataset=dataset, steps=steps)).warm_up == warm_up // half


@pytest.mark.parametrize(
    ("steps", "warm_up"),
    [(5_000, 3_000), (10_000, 6_000), (30_000, 6_000), (200_000, 40_000), (10**6, 10_000)],
)
def test_warm_up_is_doubled_on_omniglot_but_not_in_the_papers_recipe(steps, warm_up):
    assert Schedule.of(config(dataset="omniglot", steps=steps)).warm_up == warm_up


def test_warm_up_weights_the_kl_term():
    schedule = Schedule(warm_up=9)
    weights = [float(schedule.kl_weight(step)) for step in (0, 4, 9, 50)]
    np.testing.assert_allclose(weights, [0.1, 0.5, 1.0, 1.0])
    model = building.build(config())
    model.schedule = schedule
    parts = {"recons": tf.constant([-3.0]), "kl": tf.constant([2.0])}
    for step, weight in ((0, 0.1), (50, 1.0)):
        model.optimizer.iterations.assign(step)
        np.testing.assert_allclose(model.compute_loss(y_pred=parts), 3.0 + 2.0 * weight)


def test_rate_rises_to_its_peak_and_falls_to_zero():
    rate = RiseAndFall(2e-3, rise=10, steps=110)
    found = [float(rate(step)) for step in (0, 4, 9, 10, 60, 110, 200)]
    np.testing.assert_allclose(found, [2e-4, 1e-3, 2e-3, 2e-3, 1e-3, 0.0, 0.0], atol=1e-12)
    assert RiseAndFall(**rate.get_config()).get_config() == rate.get_config()


def test_peak_falls_as_the_budget_grows():
    peaks = [peak_rate(steps) for steps in (1_000, 30_000, 60_000, 200_000)]
    assert peaks[0] == peaks[1] == 3e-3
    assert 3e-3 > peaks[2] > peaks[3] > 1e-3


def test_optimizer_clips_the_global_norm():
    optimizer = Schedule(clip_norm=10.0, beta_2=0.99).optimizer(fused_adam.FusedAdam)
    assert (optimizer.global_clipnorm, optimizer.beta_2, optimizer.clipnorm) == (10.0, 0.99, None)
    assert Schedule().optimizer(fused_adam.FusedAdam).global_clipnorm is None


def test_t_grows_from_small_to_its_final_value():
    growth = Schedule.of(config("lars", steps=1000)).growth
    found = [float(growth(step)) for step in (0, 250, 500, 999)]
    np.testing.assert_allclose(found, [2.0, np.sqrt(200.0), 100.0, 100.0], rtol=1e-5)
    # A final value below the usual start, and none at all.
    small = Schedule.of(config("lars", steps=1000, T=2)).growth
    np.testing.assert_allclose([small(0), small(999)], 2.0)
    assert Schedule.of(config("lars", steps=1000, T=1)).growth is None


def test_untruncated_resampling_is_truncated_until_near_the_end():
    growth = Schedule.of(config("lars", steps=1000, T=None)).growth
    found = [float(growth(step)) for step in (0, 100, 525, 949)]
    np.testing.assert_allclose(found, [10.0, 10.0, np.sqrt(1e7), 1e6], rtol=0.02)
    assert np.isinf([growth(950), growth(999)]).all()


@pytest.mark.parametrize("model", ["vae", "hvae"])
@pytest.mark.parametrize("prior", ["lars", "lars_dimensionwise"])
def test_training_uses_t_of_its_step_and_evaluation_the_final_one(model, prior):
    built = building.build(config(prior, model=model))
    built.schedule = dataclasses.replace(built.schedule, growth=Growth(3.0, 30.0, 0, 100))
    x = images()
    built(x)  # the average of Z has a value from here on
    seed = tf.random.fold_in(tf.constant([0, 1]), 0)
    part = getattr(built.prior, "distribution", built.prior)
    log_z = tf.fill(part.batch_shape, -2.0)

    def kl(T):
        frozen = part.copy(T=T, normalizer=log_z)
        whole = frozen if part is built.prior else built.prior.copy(distribution=frozen)
        terms = built.terms(x, 2, seed, whole, antithetic=True)
        return np.mean(terms["kl"], axis=0)

    part.normalizer.variables[0].assign(log_z)
    with part.normalizer.held():
        np.testing.assert_allclose(built(x, training=True)["kl"], kl(3), rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(built(x, training=False)["kl"], kl(100), rtol=1e-4, atol=1e-3)
    assert np.max(np.abs(kl(3) - kl(100))) > 0.01  # otherwise the test shows nothing


@pytest.mark.parametrize("model", ["vae", "hvae"])
def test_antithetic_draws_have_opposite_noise(model):
    built = building.build(config(model=model))
    (top, *_), _ = built.infer(images(), 4, tf.constant([1, 2]), antithetic=True)
    loc = built.encode_top(images()).mean()
    np.testing.assert_allclose(top[:2] + top[2:], 2.0 * np.stack([loc, loc]), atol=1e-5)
    assert not np.allclose(top[0], top[1])


@pytest.mark.parametrize("model", ["vae", "hvae", "conv_hvae"])
def test_path_gradient_has_the_same_values_and_expectation(model, num_seeds=60):
    """The difference of the two gradients is 0 in expectation, but not for each draw."""
    built = building.build(config("lars", model=model))
    head = built.head if model == "vae" else built.head_2
    biases = [head.dense.bias.value]
    if model != "vae":
        biases.append(built.head_1.dense.bias.value)

    @tf.function
    def difference(seed):
        """The gradients of the log density of the encoder, with and without its parameters."""
        found = []
        for path_gradient in (False, True):
            with tf.GradientTape() as tape:
                _, log_qs = built.infer(x, 20, seed, path_gradient=path_gradient)
                value = tf.reduce_mean(tf.add_n(log_qs))
            found.append((value, tf.concat(tape.gradient(value, biases), 0)))
        return found[0][0] - found[1][0], found[0][1] - found[1][1]

    x = images(2)
    values, gradients = zip(
        *(difference(tf.constant([7, i])) for i in range(num_seeds)), strict=True
    )
    np.testing.assert_allclose(values, 0.0, atol=1e-5)
    gradients = np.array(gradients)
    stderr = gradients.std(0, ddof=1) / np.sqrt(num_seeds)
    assert np.all(stderr > 1e-4)
    # Student t with 59 degrees of freedom, at most 12 numbers in 3 cases: a threshold of 6.5 has a
    # false-alarm rate of 1e-6.
    assert np.all(np.abs(gradients.mean(0)) < 6.5 * stderr)
