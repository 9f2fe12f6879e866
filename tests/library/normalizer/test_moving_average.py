"""Algorithm 1 step by step, its gradient compared with the exact one, and its state."""

import contextlib
import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tests.counting import CountingNormal
from tests.library.normalizer.problem import accept_fn, make
from tfp_lars import (
    AcceptanceNetwork,
    MovingAverage,
    Resampled,
    _proposal_draws,
    _seeds,
)
from tfp_lars.density import log_ratio
from tfp_lars.normalizer.training_estimate import log_mean_accept

tfd = tfp.distributions


def current_estimate(dist, step):
    """Returns Z_S of the paper for the draws of the given update."""
    average = dist.normalizer
    seed = tf.random.fold_in(_seeds.stateless_seed(average.seed), step)
    draws = _proposal_draws.sample(dist.proposal, average.num_samples, seed)
    return np.mean(accept_fn(draws).numpy().astype(np.float64), axis=0)


def test_first_call_starts_the_average_at_the_current_estimate():
    dist = make()
    dist.log_prob([0.1, 0.5])
    np.testing.assert_allclose(dist.acceptance_rate, current_estimate(dist, 0), rtol=1e-6)


def test_average_moves_as_in_the_paper_without_a_target():
    dist, epsilon = make(decay=0.9), 0.1
    expected = None
    for step in range(5):
        dist.log_prob([0.1, 0.5, -2.0])
        z = current_estimate(dist, step)
        expected = z if expected is None else (1 - epsilon) * expected + epsilon * z
        np.testing.assert_allclose(dist.acceptance_rate, expected, rtol=1e-5)
    assert dist.normalizer.num_updates == 5


def test_average_moves_as_in_the_paper_with_a_target():
    """Lines 2 to 7 of Algorithm 1, in probability space, for each data point."""
    dist, epsilon, S = make(decay=0.99), 0.01, 64
    q = tfd.Normal(1.0, 0.5)
    expected = None
    for step in range(4):
        z = q.sample(7, seed=[step, 0])
        log_prob = dist.log_prob(z, target_log_prob=q.log_prob(z))
        z_s = current_estimate(dist, step)
        ratio = (dist.proposal.prob(z) / q.prob(z)).numpy().astype(np.float64)
        z_curr = (S * z_s + ratio * accept_fn(z)) / (S + 1)
        z_smooth = z_curr if expected is None else (1 - epsilon) * expected + epsilon * z_curr
        expected = np.mean(z_smooth)
        np.testing.assert_allclose(dist.acceptance_rate, expected, rtol=1e-5)
        np.testing.assert_allclose(
            log_prob, np.log(dist.proposal.prob(z) * accept_fn(z) / z_smooth), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("T", [2, 3])
def test_single_precision_resolves_rates_near_one(T):
    """For T = 2 the density where a(z) is small is a(z) + 1 - Z, here with 1 - Z from 8e-7 to 2e-9.

    Z itself would round to 1.
    """
    logits = [14.0, 16.0, 18.0, 20.0, 17.0]

    def trained(dtype):
        low, high = tf.constant(-60.0, dtype), tf.Variable(0.0, dtype=dtype)

        def logit(z):
            return tf.where(z < 8.0, high, high + low)

        proposal = tfd.Normal(tf.zeros([], dtype), 1.0)
        average = MovingAverage(64, seed=1)
        dist = Resampled(proposal, logit, T, from_logits=True, normalizer=average)
        for value in logits:
            high.assign(value)
            with tf.GradientTape() as tape:
                log_ratio = dist.log_ratio(tf.constant(9.0, dtype))
            yield float(log_ratio), float(tape.gradient(log_ratio, high))

    for single, double in zip(trained(tf.float32), trained(tf.float64), strict=True):
        np.testing.assert_allclose(single, double, rtol=1e-4)


@pytest.mark.parametrize("T", [3, None])
def test_gradient_is_that_of_algorithm_1(T):
    """The paper's algorithm in probability space has the same gradient as ours in log space."""
    slope, S, epsilon = tf.Variable(2.0), 64, 0.25
    dist = make(decay=1 - epsilon, T=T, fn=lambda z: tf.sigmoid(slope * z - 1.0))
    q = tfd.Normal(1.0, 0.5)
    z = q.sample(5, seed=[1, 1])
    dist.log_prob(z, target_log_prob=q.log_prob(z))
    old = dist.acceptance_rate
    with tf.GradientTape() as tape:
        tape.watch(z)
        ours = tf.reduce_mean(dist.log_prob(z, target_log_prob=q.log_prob(z)))
    actual = tape.gradient(ours, [slope, z])

    seed = tf.random.fold_in(_seeds.stateless_seed(3), 1)
    with tf.GradientTape() as tape:
        tape.watch(z)
        a = tf.sigmoid(slope * z - 1.0)
        z_s = tf.reduce_mean(
            tf.sigmoid(slope * _proposal_draws.sample(dist.proposal, S, seed) - 1.0)
        )
        ratio = tf.stop_gradient(dist.proposal.prob(z) / q.prob(z))
        z_curr = (S * z_s + ratio * a) / (S + 1)
        z_smooth = (1 - epsilon) * old + epsilon * z_curr
        z_r = z_curr + tf.stop_gradient(z_smooth - z_curr)
        alpha = 0.0 if T is None else (1 - z_r) ** (T - 1)
        theirs = tf.reduce_mean(
            dist.proposal.log_prob(z) + tf.math.log(a * (1 - alpha) / z_r + alpha)
        )
    expected = tape.gradient(theirs, [slope, z])
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


def exact_gradient(loss_fn, variables):
    with tf.GradientTape() as tape:
        loss = loss_fn()
    return [g.numpy() for g in tape.gradient(loss, variables)]


@pytest.mark.parametrize("T", [5, None])
@pytest.mark.parametrize("with_target", [False, True])
def test_expected_gradient_is_the_gradient_of_the_exact_density(T, with_target, num_seeds=400):
    """The mean over seeds agrees with quadrature, for `accept_fn` and a trainable proposal.

    Without the gradient of log Z the comparison would fail by a wide margin.
    """
    slope, loc = tf.Variable(1.5, dtype=tf.float64), tf.Variable(0.3, dtype=tf.float64)
    variables = [slope, loc]

    def fn(z):
        return tf.sigmoid(slope * z - 1.0)

    proposal = tfd.Normal(loc, tf.constant(1.1, tf.float64))
    q = tfd.Normal(tf.constant(0.8, tf.float64), 0.7)
    z = q.sample(50, seed=[5, 5])
    grid = tf.linspace(tf.constant(-10.0, tf.float64), 10.0, 4001)

    def exact_loss(stop_z=False):
        z_exact = tf.reduce_sum(proposal.prob(grid) * fn(grid)) * (grid[1] - grid[0])
        z_exact = tf.stop_gradient(z_exact) if stop_z else z_exact
        a = fn(z)
        alpha = 0.0 if T is None else (1 - z_exact) ** (T - 1)
        log_p = proposal.log_prob(z) + tf.math.log(a * (1 - alpha) / z_exact + alpha)
        return -tf.reduce_mean(log_p)

    dist = make(decay=0.9, num_samples=512, T=T, proposal=proposal, fn=fn)
    target = {"target_log_prob": q.log_prob(z)} if with_target else {}

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(dist.log_prob(z, **target))
        return tape.gradient(loss, variables)

    for _ in range(40):  # until the average has forgotten its first value
        gradient()
    samples = np.array([gradient() for _ in range(num_seeds)])
    # Neighbours share an average that moves with a time constant of 10.
    blocks = samples.reshape(20, -1, 2).mean(1)
    mean, stderr = blocks.mean(0), blocks.std(0, ddof=1) / np.sqrt(20)
    # Student t for 20 blocks: a threshold of 7 has a false-alarm rate of 5e-6.
    # `z` here is one fixed sample, so its reweighted part is biased by 1/S of itself.
    slack = 2e-3 if with_target else 2e-4
    exact = exact_gradient(exact_loss, variables)
    assert np.all(np.abs(mean - exact) < 7 * stderr + slack)
    wrong = exact_gradient(lambda: exact_loss(stop_z=True), variables)
    assert np.all(np.abs(mean - wrong) > 7 * stderr + slack)


@pytest.mark.parametrize("T", [100.0, 1e6, np.inf])
def test_gradient_of_log_z_is_right_in_expectation_at_a_rate_of_1e_minus_5(T, num_calls=400):
    """a(z) is tiny on most draws, so Z comes from the few draws in its tail.

    The average has a long memory and begins at Z. With a short memory, the gradient of an estimate
    this noisy would be biased: each estimate is a large part of the average that divides it.
    """
    shift = tf.Variable(0.0)

    def fn(z):
        return tf.sigmoid(6.0 * (z - 4.47 + shift))

    grid = np.linspace(-10.0, 12.0, 100_001)
    tail = 1.0 / (1.0 + np.exp(-6.0 * (grid - 4.47)))
    density = np.exp(-0.5 * grid**2) / np.sqrt(2 * np.pi) * (grid[1] - grid[0])
    z_exact = np.sum(density * tail)
    assert 0.9e-5 < z_exact < 1.3e-5
    exact_slope = np.sum(density * 6.0 * tail * (1.0 - tail)) / z_exact  # of log Z
    dist = make(decay=0.9999, num_samples=2**16, T=5, proposal=tfd.Normal(0.0, 1.0), fn=fn)
    dist.log_prob(4.5)  # the first call sets the average
    dist.normalizer.variables[0].assign(np.log(z_exact))
    z = tf.constant(4.5)

    @tf.function
    def slope():
        with tf.GradientTape() as tape:
            log_p = dist.log_prob(z, T=tf.constant(T, tf.float32))
        return tape.gradient(log_p, shift)

    samples = np.array([slope() for _ in range(num_calls)])
    # d log p_T by the formula, with the exact Z and its exact slope.
    a = 1.0 / (1.0 + np.exp(-6.0 * 0.03))
    log_z = tf.constant(np.log(z_exact))
    log_a = tf.constant(np.log(a))
    with tf.GradientTape() as tape:
        tape.watch([log_a, log_z])
        value = log_ratio(log_a, log_z, None if np.isinf(T) else int(T))
    by_a, by_z = (float(g) for g in tape.gradient(value, [log_a, log_z]))
    expected = by_a * 6.0 * (1.0 - a) + by_z * exact_slope
    stderr = samples.std(ddof=1) / np.sqrt(num_calls)
    # Five standard errors: a false-alarm rate of 6e-7. The average moves by 4 % in 400 calls.
    assert abs(samples.mean() - expected) < 5 * stderr + 0.02 * abs(by_z * exact_slope)
    if T > 1e5:  # with T = 100 and Z = 1e-5, log p_T hardly depends on Z
        without = by_a * 6.0 * (1.0 - a)
        assert abs(samples.mean() - without) > 20 * stderr


def test_no_gradient_flows_through_discrete_draws():
    logits = tf.Variable([0.1, 0.2, 0.3])
    dist = make(
        proposal=tfd.Categorical(logits=logits),
        fn=lambda i: tf.gather(tf.constant([0.2, 0.5, 0.9]), i),
    )
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(dist.log_prob([0, 1, 2]))
    gradient = tape.gradient(value, logits)
    np.testing.assert_allclose(gradient, 1.0 - 3.0 * tf.nn.softmax(logits), atol=1e-6)


class RiggedCategorical(tfd.Categorical):
    """A proposal whose draws are set by the test."""

    draws = None

    def _sample_n(self, n, seed=None):
        return tf.convert_to_tensor(self.draws)

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return tfd.Categorical._parameter_properties(dtype, num_classes)


def z_gradient(dist, variables):
    """Returns the gradient of the current estimate of Z."""
    with tf.GradientTape() as tape:
        estimate = functools.partial(log_mean_accept, dist.proposal, dist.accept_log_prob)
        log_z = dist.normalizer(estimate)
        z = tf.exp(log_z)
    return [tf.convert_to_tensor(g).numpy() for g in tape.gradient(z, variables)]


@pytest.mark.parametrize("num_samples", [2, 3])
def test_score_function_is_unbiased_with_each_draw_compared_with_the_others(num_samples):
    """The mean of the gradient over all possible sets of draws is exact."""
    logits = tf.Variable([0.3, -0.5, 0.1], dtype=tf.float64)
    levels = tf.Variable([0.2, 0.5, 0.9], dtype=tf.float64)
    proposal = RiggedCategorical(logits=logits)
    average = MovingAverage(num_samples, score_function=True)
    dist = Resampled(proposal, lambda i: tf.gather(levels, i), normalizer=average)
    p = tf.nn.softmax(logits).numpy()
    mean, without_others = np.zeros([2, 3]), np.zeros(3)
    for draws in itertools.product(range(3), repeat=num_samples):
        proposal.draws = np.int32(draws)
        found = np.array(z_gradient(dist, [logits, levels]))
        mean += np.prod(p[list(draws)]) * found
        # For contrast: a baseline that contains the draw itself.
        a, score = levels.numpy()[list(draws)], np.eye(3)[list(draws)] - p
        without_others += np.prod(p[list(draws)]) * np.mean((a - a.mean())[:, None] * score, axis=0)
    expected = p * (levels.numpy() - p @ levels.numpy())
    np.testing.assert_allclose(mean, [expected, p], rtol=1e-10)
    assert np.max(np.abs(without_others - expected)) > 0.01


def test_score_function_serves_each_member_of_a_batch():
    logits = tf.Variable([[0.3, -0.5, 0.1], [1.0, 0.0, -1.0]], dtype=tf.float64)
    a = np.array([0.2, 0.5, 0.9])
    draws = np.int32([[0, 1], [2, 2], [1, 0], [0, 0]])  # [S, 2]
    proposal = RiggedCategorical(logits=logits)
    proposal.draws = draws
    average = MovingAverage(4, score_function=True)
    dist = Resampled(proposal, lambda i: tf.gather(tf.constant(a), i), normalizer=average)
    with tf.GradientTape() as tape:
        log_z = average(functools.partial(log_mean_accept, proposal, dist.accept_log_prob))
        z = tf.reduce_sum(tf.exp(log_z))
    found = tape.gradient(z, logits).numpy()
    for member in range(2):
        drawn, p = draws[:, member], tf.nn.softmax(logits[member]).numpy()
        baseline = (a[drawn].sum() - a[drawn]) / 3
        expected = np.mean((a[drawn] - baseline)[:, None] * (np.eye(3)[drawn] - p), axis=0)
        np.testing.assert_allclose(found[member], expected, rtol=1e-10)


def test_score_function_replaces_the_gradient_that_draws_of_a_mixture_carry():
    """A draw of a component follows its location, but the choice of the component does not."""
    loc, seed, S = tf.Variable([-1.0, 2.0], dtype=tf.float64), tf.constant([1, 2]), 16
    weights = tfd.Categorical(logits=np.array([0.0, 0.5]))
    mixture = tfd.MixtureSameFamily(weights, tfd.Normal(loc, 1.0))
    with tf.GradientTape() as tape:
        log_z = log_mean_accept(mixture, tf.math.log_sigmoid, S, seed, score_function=True)
    actual = tape.gradient(log_z, loc)
    with tf.GradientTape() as tape:
        z = _proposal_draws.sample(mixture, S, seed, differentiable=True)
    assert tape.gradient(z, loc) is not None
    a = tf.sigmoid(z)
    advantage = (a / tf.reduce_mean(a) - 1.0) / (S - 1)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(advantage * mixture.log_prob(tf.constant(z.numpy())))
    np.testing.assert_allclose(actual, tape.gradient(total, loc), rtol=1e-9)


def test_score_function_is_refused_where_draws_carry_the_gradient():
    average = MovingAverage(8, score_function=True)
    dist = Resampled(tfd.Normal(0.0, 1.0), accept_fn, normalizer=average)
    with pytest.raises(ValueError, match="`score_function=True` .* 'Normal' already carry"):
        dist.log_prob(0.3)
    assert average.num_updates == 0


def test_score_function_has_no_part_in_a_held_average():
    logits = tf.Variable([0.1, 0.2, 0.3])
    average = MovingAverage(8, score_function=True)
    dist = Resampled(
        tfd.Categorical(logits=logits),
        lambda i: tf.gather(tf.constant([0.2, 0.5, 0.9]), i),
        normalizer=average,
    )
    dist.log_prob([0, 1, 2])
    with average.held(), tf.GradientTape() as tape:
        value = tf.reduce_sum(dist.log_prob([0, 1, 2]))
    gradient = tape.gradient(value, logits)
    np.testing.assert_allclose(gradient, 1.0 - 3.0 * tf.nn.softmax(logits), atol=1e-6)


def test_rates_of_1e_minus_20_train():
    offset = tf.Variable(-46.0)  # logits: a(z) is about 1e-20
    dist = Resampled(tfd.Normal(0.2, 1.1), lambda z: 2.0 * z + offset, T=None, from_logits=True)
    with tf.GradientTape() as tape:
        tape.watch(offset)
        value = tf.reduce_mean(dist.log_prob([0.5, 1.0]))
    # exp(2 z - 46) has the mean exp(2 * 0.2 + 2 * 1.1**2 - 46); its draws scatter widely.
    assert abs(float(dist.log_normalizer) - (0.4 + 2.42 - 46.0)) < 2.0
    assert np.isfinite(value)
    np.testing.assert_allclose(tape.gradient(value, offset), 0.0, atol=1e-4)  # scale is free


@pytest.mark.parametrize("T", [2, 100, None])
def test_a_target_sample_of_great_weight_leaves_training_finite(T):
    """pi(z) / q(z) of exp(9), 64 proposals: the estimate of Z is far above 1."""
    slope = tf.Variable(2.0)
    dist = make(T=T, fn=lambda z: tf.sigmoid(slope * z))
    z = tf.constant([0.5, 1.0])
    log_q = dist.proposal.log_prob(z) - [0.1, 9.0]
    for _ in range(3):
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(dist.log_prob(z, target_log_prob=log_q))
        assert np.isfinite(value)
        assert np.isfinite(tape.gradient(value, slope))
    assert dist.log_normalizer > 0.0


def test_an_acceptance_of_exactly_zero_leaves_training_finite():
    scale = tf.Variable(1.0)
    dist = make(T=10, proposal=tfd.Normal(0.0, scale), fn=lambda z: tf.where(z > 50.0, 1.0, 0.0))
    for _ in range(3):
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(dist.log_prob([0.5, 1.0]))
        assert np.isfinite(value)
        assert np.isfinite(tape.gradient(value, scale))


def test_each_member_of_a_batch_has_an_average_of_its_own():
    high = tf.constant([1.0, 0.5, 0.1])
    dist = make(decay=0.99, num_samples=4096, proposal=tfd.Uniform(0.0, high), fn=lambda z: z)
    for _ in range(30):
        dist.log_prob(tf.constant([[0.5, 0.2, 0.05], [0.1, 0.1, 0.01]]))
    assert dist.log_normalizer.shape == [3]
    np.testing.assert_allclose(dist.acceptance_rate, high / 2, rtol=0.03)


@pytest.mark.parametrize("target", [None, -0.2])
def test_held_average_is_used_as_it_is_and_draws_nothing(target):
    proposal = CountingNormal(0.2, 1.1)
    dist = make(T=7, num_samples=16, proposal=proposal)

    def log_prob(z):
        return dist.log_prob(z, target_log_prob=None if target is None else [target, target])

    proposal.drawn.assign(0)  # the constructor draws to check `accept_fn`
    step = tf.function(log_prob)
    z = tf.constant([0.1, 0.5])
    step(z)
    step(z)
    average = dist.normalizer
    before, count = average.log_z.numpy(), int(average.num_updates)
    with average.held():
        first, second = step(z), step(z)  # the graph was traced before
        eager = log_prob(z)
    assert proposal.drawn == 2 * 16
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, eager, rtol=1e-6)
    np.testing.assert_allclose(first, dist.freeze(float(before)).log_prob(z), rtol=1e-6)
    assert average.log_z.numpy() == before
    assert int(average.num_updates) == count
    step(z)
    assert average.log_z.numpy() != before


@pytest.mark.parametrize("target", [None, -0.2])
def test_held_average_passes_the_gradients_of_a_fixed_log_z(target):
    slope = tf.Variable(2.0)
    dist = make(T=7, fn=lambda z: tf.sigmoid(slope * z))
    z = tf.constant([0.1, 0.5])
    dist.log_prob(z)
    frozen = dist.freeze(dist.log_normalizer)
    gradients = []
    with dist.normalizer.held():
        for d in (dist, frozen):
            with tf.GradientTape() as tape:
                target_log_prob = None if target is None else [target, target]
                value = tf.reduce_sum(d.log_prob(z, target_log_prob=target_log_prob))
            gradients.append(tape.gradient(value, slope))
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-5)


def test_hold_and_release_nest():
    dist = make()
    dist.log_prob([0.1])
    average = dist.normalizer
    average.hold()
    with average.held():
        pass
    dist.log_prob([0.1])
    assert average.num_updates == 1
    average.release()
    dist.log_prob([0.1])
    assert average.num_updates == 2


def test_held_before_the_first_update_it_falls_back_on_an_estimate():
    dist = make()
    dist.normalizer.hold()
    first, second = dist.log_prob(0.3), dist.log_prob(0.3)
    assert first == second == make().log_prob(0.3)
    assert dist.normalizer.num_updates == 0


def test_resumed_average_repeats_the_uninterrupted_one(tmp_path):
    z = tf.constant([0.1, 0.5])
    whole = make()
    values = [whole.log_prob(z) for _ in range(6)]
    part = make()
    for _ in range(3):
        part.log_prob(z)
    path = tf.train.Checkpoint(dist=part).save(tmp_path / "ckpt")
    resumed = make()
    tf.train.Checkpoint(dist=resumed).restore(path).assert_consumed()
    np.testing.assert_array_equal(values[3:], [resumed.log_prob(z) for _ in range(3)])


def test_other_seeds_give_other_estimates():
    values = {float(make(seed=s).log_prob(0.3)) for s in (0, 1, 2)}
    assert len(values) == 3


def test_averages_draw_different_numbers_unless_told_otherwise():
    a, b = make(seed=None), make(seed=None)
    assert a.log_prob(0.3) != b.log_prob(0.3)


def test_global_seed_makes_averages_reproducible():
    values = []
    for seed in (1, 1, 2):
        tf.random.set_seed(seed)
        values.append([float(make(seed=None).log_prob(0.3)) for _ in range(2)])
    assert values[0] == values[1]
    assert np.unique(values).size == 4


def test_resumed_average_repeats_the_uninterrupted_one_with_a_seed_of_its_own(tmp_path):
    z = tf.constant([0.1, 0.5])
    whole = make(seed=None)
    whole.log_prob(z)
    path = tf.train.Checkpoint(dist=whole).save(tmp_path / "ckpt")
    resumed = make(seed=None)
    tf.train.Checkpoint(dist=resumed).restore(path).assert_consumed()
    for _ in range(3):
        np.testing.assert_array_equal(whole.log_prob(z), resumed.log_prob(z))


GOOD = np.float32([0.1, 0.5])


def bad_calls():
    """Calls that leave no finite estimate of Z."""
    target = np.float32([-1.0, -1.0])
    nan, inf = np.float32("nan"), np.float32("inf")
    return {
        "empty batch": (GOOD[:0], target[:0]),
        "NaN in z": (np.float32([0.1, nan]), target),
        "target of -inf": (GOOD, np.float32([-1.0, -inf])),
        "NaN in the target": (GOOD, np.float32([-1.0, nan])),
    }


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("when", ["first", "later"])
@pytest.mark.parametrize("name", bad_calls())
def test_an_update_that_is_not_finite_is_skipped(name, when, mode):
    dist = make(T=7)
    log_prob = tf.function(dist.log_prob) if mode == "graph" else dist.log_prob
    dist.accept_log_prob(GOOD)  # the first values in eager mode are checked
    if when == "later":
        log_prob(GOOD, target_log_prob=np.float32([-1.0, -1.0]))
    average, z_and_target = dist.normalizer, bad_calls()[name]
    before, state = average.log_z.numpy(), average._random_state.numpy()
    log_prob(z_and_target[0], target_log_prob=z_and_target[1])
    np.testing.assert_array_equal(average.log_z, before)
    assert average.num_updates == (1 if when == "later" else 0)
    # The next call uses other draws, because these may have caused the failure.
    assert average._random_state.numpy() != state
    assert np.all(np.isfinite(log_prob(GOOD, target_log_prob=np.float32([-1.0, -1.0]))))
    assert np.isfinite(dist.log_normalizer)
    assert average.num_updates == (2 if when == "later" else 1)


def test_nan_of_the_acceptance_function_on_a_draw_is_skipped():
    broken = tf.Variable(False, trainable=False)
    dist = make(fn=lambda z: tf.where(broken, np.float32("nan"), accept_fn(z)))
    log_prob = tf.function(dist.log_prob)
    log_prob(GOOD)
    before = dist.log_normalizer
    broken.assign(True)
    assert np.all(np.isnan(log_prob(GOOD)))
    np.testing.assert_array_equal(dist.log_normalizer, before)
    broken.assign(False)
    assert np.all(np.isfinite(log_prob(GOOD)))
    assert dist.normalizer.num_updates == 2


def test_a_target_of_plus_infinity_only_adds_nothing():
    """A z whose target density is infinite has no weight."""
    dist = make()
    assert np.all(np.isfinite(dist.log_prob(GOOD, target_log_prob=np.float32([-1.0, np.inf]))))
    assert dist.normalizer.num_updates == 1


def test_only_the_members_concerned_skip_an_update():
    dist = make(proposal=tfd.Normal([0.2, 0.3, 0.4], 1.1))
    z = np.float32([[0.1, 0.1, 0.1]])
    dist.log_prob(z, target_log_prob=np.float32([[-1.0, -np.inf, -1.0]]))
    np.testing.assert_array_equal(dist.normalizer.has_value, [True, False, True])
    np.testing.assert_array_equal(np.isnan(dist.normalizer.log_z), [False, True, False])
    with pytest.raises(ValueError, match="before the first call"):
        _ = dist.log_normalizer
    before = dist.normalizer.log_z.numpy()
    dist.log_prob(z)
    after = dist.log_normalizer.numpy()
    assert np.all(np.isfinite(after))
    assert np.all(after[[0, 2]] != before[[0, 2]])
    # Member 1 starts with this call, so its average is the estimate of this call.
    twin = make(proposal=tfd.Normal([0.2, 0.3, 0.4], 1.1))
    twin.normalizer._random_state.assign(dist.normalizer._random_state - 2**32)
    twin.log_prob(z)
    np.testing.assert_allclose(after[1], twin.log_normalizer[1], rtol=1e-6)


def test_a_held_average_of_which_one_member_has_no_value_estimates_that_one():
    dist = make(proposal=tfd.Normal([0.2, 0.3], 1.1))
    z = np.float32([[0.1, 0.1]])
    dist.log_prob(z, target_log_prob=np.float32([[-1.0, -np.inf]]))
    with dist.held():
        value = dist.log_prob(z)
    frozen = dist.freeze(np.float32([dist.normalizer.log_z[0], -0.1]))
    assert np.all(np.isfinite(value))
    np.testing.assert_allclose(value[0, 0], frozen.log_prob(z)[0, 0], rtol=1e-6)


def test_a_held_average_does_not_look_at_the_target():
    slope = tf.Variable(2.0)
    dist = make(T=7, fn=lambda z: tf.sigmoid(slope * z))
    dist.log_prob(GOOD)
    with dist.held(), tf.GradientTape() as tape:
        value = dist.log_prob(GOOD, target_log_prob=np.float32([-1.0, -np.inf]))
    np.testing.assert_allclose(value, dist.freeze(dist.log_normalizer).log_prob(GOOD), rtol=1e-6)
    assert np.isfinite(tape.gradient(value, slope))


def test_reset_starts_again():
    dist = make()
    first = dist.log_prob(0.3)
    dist.log_prob(0.3)
    dist.normalizer.reset()
    assert dist.normalizer.num_updates == 0
    with pytest.raises(ValueError, match="before the first call"):
        _ = dist.log_normalizer
    # The draws differ from those at the beginning.
    assert dist.log_prob(0.3) != first
    np.testing.assert_allclose(dist.acceptance_rate, current_estimate(dist, 2), rtol=1e-6)


def test_checkpoint_written_while_held_restores_as_it_was_before(tmp_path):
    dist, other = make(), make()
    dist.log_prob(0.3)
    with dist.held():
        path = tf.train.Checkpoint(dist=dist).save(tmp_path / "ckpt")
    tf.train.Checkpoint(dist=other).restore(path).assert_consumed()
    other.log_prob(0.3)
    assert other.normalizer.num_updates == 2
    other.normalizer.hold()
    tf.train.Checkpoint(dist=other).restore(path).assert_consumed()
    other.log_prob(0.3)
    assert other.normalizer.num_updates == 1


def test_flag_is_not_among_the_variables():
    assert [v.name.split("/")[-1] for v in make().variables] == [
        "log_z:0",
        "num_updates:0",
        "random_state:0",
    ]


@pytest.mark.parametrize("hold", [False, True])
def test_saved_model_has_the_flag(hold, tmp_path):
    module = tf.Module()
    module.dist = make(T=7)
    module.log_prob = tf.function(
        module.dist.log_prob, input_signature=[tf.TensorSpec([None], tf.float32)]
    )
    module.log_prob(GOOD)
    with module.dist.held() if hold else contextlib.nullcontext():
        tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    first, second = loaded.log_prob(GOOD), loaded.log_prob(GOOD)
    assert np.all(np.isfinite(first))
    assert np.all(first == second) == hold


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_check_numerics_finds_nothing(mode):
    dist = Resampled(
        tfd.MultivariateNormalDiag(tf.zeros(2)),
        AcceptanceNetwork((4,)),
        T=7,
        normalizer=MovingAverage(16),
    )
    z = tf.constant([[0.1, 0.2], [0.3, 0.4]])
    log_prob = tf.function(dist.log_prob) if mode == "graph" else dist.log_prob
    tf.debugging.enable_check_numerics()
    try:
        with pytest.raises(ValueError, match="before the first call"):
            _ = dist.log_normalizer
        with dist.held():
            log_prob(z)
        log_prob(z, target_log_prob=dist.proposal.log_prob(z))
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(log_prob(z))
        tape.gradient(value, dist.trainable_variables)
        with dist.held():
            log_prob(z)
    finally:
        tf.debugging.disable_check_numerics()
    assert dist.normalizer.num_updates == 2


def test_graph_of_tensorflow_1_is_an_error_for_the_average_alone():
    with tf.compat.v1.Graph().as_default():
        dist = Resampled(tfd.Normal(0.0, 1.0), accept_fn)
        dist.sample(3, seed=1)
        with pytest.raises(RuntimeError, match=r"`tf.compat.v1.Graph`.*`tf.function`"):
            dist.log_prob(0.3)
        Resampled(tfd.Normal(0.0, 1.0), accept_fn, normalizer=-1.0).log_prob(0.3)


def hessian(dist, slope, z, use_pfor):
    with tf.GradientTape(persistent=not use_pfor) as outer:
        with tf.GradientTape() as inner:
            value = tf.reduce_sum(dist.log_prob(z))
        gradient = inner.gradient(value, slope)
    return outer.jacobian(gradient, slope, experimental_use_pfor=use_pfor)


def test_hessians_agree_with_differences_of_gradients():
    slope = tf.Variable(2.0, dtype=tf.float64)
    z = tf.constant([0.1, 0.5], tf.float64)

    def dist():
        one = tf.ones([], tf.float64)
        return make(
            T=7, proposal=tfd.Normal(0.2 * one, 1.1 * one), fn=lambda z: tf.sigmoid(slope * z)
        )

    def gradient(at):
        slope.assign(at)
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(dist().log_prob(z))
        return tape.gradient(value, slope)

    expected = (gradient(2.0 + 1e-5) - gradient(2.0 - 1e-5)) / 2e-5
    slope.assign(2.0)
    graph = tf.function(hessian)
    found = [
        hessian(dist(), slope, z, True),
        graph(dist(), slope, z, False),
        graph(dist(), slope, z, True),
    ]
    np.testing.assert_allclose(found, [expected] * 3, rtol=1e-6)


def test_shared_average_of_another_shape_is_an_error():
    average = MovingAverage()
    Resampled(tfd.Normal(0.0, 1.0), accept_fn, normalizer=average)
    with pytest.raises(ValueError, match="`normalizer` is a MovingAverage of shape"):
        Resampled(tfd.Normal([0.0, 1.0], 1.0), accept_fn, normalizer=average)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_samples": 0}, "`num_samples`.*got 0"),
        ({"num_samples": 2.5}, "`num_samples`.*got 2.5"),
        ({"num_samples": 1, "score_function": True}, "`num_samples` .*at least 2.*got 1"),
        ({"decay": 1.0}, "`decay`.*got 1.0"),
        ({"decay": -0.1}, "`decay`.*got -0.1"),
        ({"decay": float("nan")}, "`decay`.*got nan"),
    ],
)
def test_bad_arguments_of_the_average_are_named(kwargs, message):
    with pytest.raises(ValueError, match=message):
        MovingAverage(**kwargs)


def test_an_average_without_a_distribution_says_so():
    with pytest.raises(ValueError, match="Pass it as `normalizer`"):
        MovingAverage().hold()
