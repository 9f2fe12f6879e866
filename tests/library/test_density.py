"""The formulas of p_T, compared with the recursion that they solve and with quadrature."""

import itertools

import mpmath
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import density
from tfp_lars.resampled import Resampled

tfd = tfp.distributions

TRUNCATIONS = [1, 2, 5, 100, None]


def test_closed_form_solves_the_sampling_recursion():
    """One more trial: keep this draw, or start again with one trial fewer."""
    proposal, accept = np.array([0.5, 0.3, 0.2]), np.array([0.9, 0.1, 0.4])
    z = np.sum(proposal * accept)
    expected = proposal  # T = 1
    for T in range(1, 30):
        actual = proposal * np.exp(density.log_ratio(np.log(accept), np.log(z), T))
        np.testing.assert_allclose(actual, expected, rtol=1e-12)
        expected = proposal * accept + (1 - z) * expected


def test_log_near_one_is_exact_there_and_changes_nothing_elsewhere():
    log_z = tf.constant([-1e9, -40.0, -0.7, -0.6, 0.0, 0.6, 0.7, 80.0])
    used = np.abs(log_z) < np.log(2.0)
    exact = np.where(used, [0, 0, 0, -0.4, -1e-9, 0.8, 0, 0], np.nan).astype(np.float32)
    expected = np.where(used, np.log1p(exact), log_z)
    np.testing.assert_allclose(density.log_near_one(log_z, exact), expected, rtol=1e-6)
    unchanged = tf.boolean_mask(density.log_near_one(log_z, exact), ~used)
    np.testing.assert_array_equal(unchanged, tf.boolean_mask(log_z, ~used))


@pytest.mark.parametrize("z", [1e-12, 1e-3, 0.3, 0.999, 1.0])
@pytest.mark.parametrize("T", [1, 2, 3, 17])
def test_weights_are_sums_over_the_tests(z, T):
    powers = (1.0 - z) ** np.arange(T)
    log_z = np.log(np.float64(z))
    np.testing.assert_allclose(
        np.exp(density.log_truncation_weight(log_z, T)), powers[-1], rtol=1e-12, atol=1e-200
    )
    np.testing.assert_allclose(
        np.exp(density.log_expected_attempts(log_z, T)), powers.sum(), rtol=1e-12
    )


def test_untruncated_attempts_are_one_over_z():
    log_z = tf.math.log(tf.constant([0.25, 1e-20], tf.float64))
    np.testing.assert_allclose(np.exp(density.log_expected_attempts(log_z, None)), [4.0, 1e20])
    assert np.all(np.exp(density.log_truncation_weight(log_z, None)) == 0.0)


def test_float32_keeps_its_digits_where_z_is_tiny():
    """`(1 - (1 - Z)**99) / Z` in float32 is 0 at Z = 1e-8; it should be 99."""
    log_z = tf.constant(np.log([1e-8, 1e-20, 1e-30, 1e-300]), tf.float32)
    actual = np.exp(density.log_ratio(tf.zeros(4), log_z, T=100))
    np.testing.assert_allclose(actual, 100.0, rtol=1e-5)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize("T", [1, 2, 3, 10, 100, 10**6, None])
def test_values_and_gradients_are_finite_over_the_promised_range(T, dtype):
    logits, z = np.array(
        list(
            itertools.product(
                [-1e4, -100.0, -1.0, 0.0, 1.0, 100.0, 1e4],
                [1e-30, 1e-10, 1e-3, 0.5, 1 - 1e-6, 1 - 1e-7, 1.0],
            )
        )
    ).T
    logits = tf.constant(logits, dtype)
    log_z = tf.constant(np.log(z), dtype)

    def value_and_gradients(logits, log_z):
        with tf.GradientTape() as tape:
            tape.watch([logits, log_z])
            value = density.log_ratio(tf.math.log_sigmoid(logits), log_z, T)
        return value, *tape.gradient(value, [logits, log_z], unconnected_gradients="zero")

    # A graph is optimized: terms are summed in another order.
    for fn in (value_and_gradients, tf.function(value_and_gradients)):
        for x in fn(logits, log_z):
            assert np.all(np.isfinite(x))


def value_and_gradients(log_accept, log_z, T):
    with tf.GradientTape() as tape:
        tape.watch([log_accept, log_z])
        value = density.log_ratio(log_accept, log_z, T)
    return value, *tape.gradient(value, [log_accept, log_z], unconnected_gradients="zero")


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.float32, tf.float64])
@pytest.mark.parametrize("T", [1, 2, 3, 100, 10**6, None])
def test_truncation_as_a_tensor_equals_the_number(T, dtype):
    if T is None and dtype.is_integer:
        pytest.skip("an integer cannot be infinite")
    log_accept = tf.constant([-50.0, -2.0, 0.0, -np.inf], tf.float64)
    log_z = tf.constant(np.log([1e-9, 0.3, 1.0, 0.01]), tf.float64)
    tensor = tf.constant(np.inf if T is None else T, dtype)
    expected = value_and_gradients(log_accept, log_z, T)
    for fn in (value_and_gradients, tf.function(value_and_gradients)):
        for x, y in zip(fn(log_accept, log_z, tensor), expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("T", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("z", [1e-12, 1e-9, 1e-6, 1e-3, 0.5])
@pytest.mark.parametrize("log_accept", [-30.0, -1.0, 0.0])
def test_float32_holds_for_large_truncations(T, z, log_accept):
    """Values and gradients against the formula, evaluated with 60 digits."""
    with mpmath.workdps(60):
        # The inputs as float32 rounds them.
        log_z = mpmath.mpf(float(np.float32(np.log(z))))
        a, tests = mpmath.exp(mpmath.mpf(log_accept)), mpmath.mpf(int(T)) - 1

        def ratio(log_a, log_z):
            Z = mpmath.exp(log_z)
            alpha = (1 - Z) ** tests
            return mpmath.log(mpmath.exp(log_a) * (1 - alpha) / Z + alpha)

        log_a = mpmath.log(a)
        expected = float(ratio(log_a, log_z))
        by_accept = float(mpmath.diff(lambda x: ratio(x, log_z), log_a))
        by_z = float(mpmath.diff(lambda x: ratio(log_a, x), log_z))
    actual = value_and_gradients(
        tf.constant(log_accept), tf.constant(np.float32(np.log(z))), tf.constant(T)
    )
    # log Z up to 28 has an absolute error of 2e-6 in float32, which (T - 1) * Z multiplies.
    np.testing.assert_allclose(actual[0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(actual[1], by_accept, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(actual[2], by_z, rtol=1e-4, atol=1e-6)


def test_truncation_between_two_integers_lies_between_their_densities():
    log_accept, log_z = tf.constant([-1.0]), tf.math.log(tf.constant([0.2]))
    values = [
        float(density.log_ratio(log_accept, log_z, tf.constant(T))[0]) for T in (4.0, 4.5, 5.0)
    ]
    assert values[0] < values[1] < values[2]


@pytest.mark.parametrize("T", [2, 3, 50])
@pytest.mark.parametrize("z", [1e-25, 1e-6, 0.4, 1 - 1e-9, 1.0])
def test_gradient_is_that_of_the_formula(T, z):
    """The derivative of the sum over the tests, taken term by term."""
    accept = 0.7
    t = np.arange(T - 1)
    failures = (1.0 - z) ** t  # of the first t tests
    ratio = accept * failures.sum() + (1.0 - z) ** (T - 1)
    slope = accept * np.sum(-t * (1.0 - z) ** np.maximum(t - 1, 0)) - (T - 1) * (1.0 - z) ** (T - 2)
    log_accept = tf.constant(np.log(accept), tf.float64)
    log_z = tf.constant(np.log(z), tf.float64)
    with tf.GradientTape() as tape:
        tape.watch([log_accept, log_z])
        value = density.log_ratio(log_accept, log_z, T)
    by_accept, by_z = tape.gradient(value, [log_accept, log_z])
    np.testing.assert_allclose(value, np.log(ratio), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(by_accept, accept * failures.sum() / ratio, rtol=1e-9)
    np.testing.assert_allclose(by_z, z * slope / ratio, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("log_z", [-4.0, -0.7, -0.69, -0.05])
def test_second_derivative_is_that_of_the_first(log_z, T=5, h=1e-5):
    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = density.log_ratio(tf.constant(-1.3, tf.float64), x, T)
        return tape.gradient(value, x)

    x = tf.constant(log_z, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = slope(x)
    expected = (slope(x + h) - slope(x - h)) / (2 * h)
    assert abs(expected) > 0.01  # otherwise the test shows nothing
    np.testing.assert_allclose(tape.gradient(y, x), expected, rtol=1e-6)


@pytest.mark.parametrize("T", [2, 3, 100, None])
def test_estimates_of_z_above_one_do_no_harm(T):
    """An estimate with reweighted samples can exceed 1. Then every candidate is accepted."""

    def value_and_gradients(log_accept, log_z):
        with tf.GradientTape() as tape:
            tape.watch([log_accept, log_z])
            value = density.log_ratio(log_accept, log_z, T)
        return value, *tape.gradient(value, [log_accept, log_z])

    log_z = tf.constant([1e-8, 0.3, 1.7, 40.0])
    for fn in (value_and_gradients, tf.function(value_and_gradients)):
        value, *gradients = fn(tf.constant(-0.5), log_z)
        np.testing.assert_allclose(value, -0.5 - log_z, rtol=1e-5)
        for gradient in gradients:
            assert np.all(np.isfinite(gradient))


def test_impossible_candidates_leave_the_gradient_finite():
    log_accept = tf.constant([-np.inf, -1.0])
    with tf.GradientTape() as tape:
        tape.watch(log_accept)
        value = density.log_ratio(log_accept, tf.constant(-2.0), T=5)
    np.testing.assert_allclose(value[0], density.log_truncation_weight(-2.0, 5), rtol=1e-6)
    assert tape.gradient(value, log_accept)[0] == 0.0


def wavy(z):
    return 0.05 + 0.9 * tf.sin(3.0 * z) ** 2


PROPOSALS_1D = {
    "normal": (lambda: tfd.Normal(tf.constant(0.3, tf.float64), 1.2), (-15.0, 15.0)),
    "mixture": (
        lambda: tfd.MixtureSameFamily(
            tfd.Categorical(probs=tf.constant([0.3, 0.7], tf.float64)),
            tfd.Normal(tf.constant([-2.0, 1.0], tf.float64), tf.constant([0.5, 1.0], tf.float64)),
        ),
        (-12.0, 12.0),
    ),
    # The tails beyond 3,000 have a mass of 3e-11.
    "student": (lambda: tfd.StudentT(tf.constant(3.0, tf.float64), 0.0, 1.0), (-3e3, 3e3)),
    "uniform": (lambda: tfd.Uniform(tf.constant(-1.0, tf.float64), 2.0), (-1.0, 2.0)),
}


@pytest.mark.parametrize("name", PROPOSALS_1D)
def test_density_integrates_to_one_in_1d(name):
    make, (low, high) = PROPOSALS_1D[name]
    proposal = make()
    # Midpoints are exact at the edges of the uniform and fine enough for the waves of a(z).
    edges = np.linspace(low, high, 2_000_001)
    grid, step = 0.5 * (edges[1:] + edges[:-1]), edges[1] - edges[0]
    z = np.sum(proposal.prob(grid) * wavy(grid)) * step
    for T in TRUNCATIONS:
        dist = Resampled(proposal, wavy, T=T, normalizer=np.log(z))
        np.testing.assert_allclose(np.sum(dist.prob(grid)) * step, 1.0, atol=1e-6, err_msg=str(T))


def test_density_integrates_to_one_in_2d():
    proposal = tfd.MultivariateNormalTriL(
        tf.zeros(2, tf.float64), tf.constant([[1.0, 0.0], [0.6, 0.8]], tf.float64)
    )

    def accept_fn(x):
        return tf.sigmoid(4.0 * tf.sin(2.0 * x[..., 0]) * x[..., 1] - 1.0)

    axis = np.linspace(-9.0, 9.0, 1201)
    step = axis[1] - axis[0]
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    z = np.sum(proposal.prob(grid) * accept_fn(grid)) * step**2
    for T in TRUNCATIONS:
        dist = Resampled(proposal, accept_fn, T=T, normalizer=np.log(z))
        np.testing.assert_allclose(np.sum(dist.prob(grid)) * step**2, 1.0, atol=1e-6)


def test_mass_sums_to_one_on_a_categorical():
    probs, accept = np.array([0.1, 0.2, 0.3, 0.4]), tf.constant([0.9, 0.2, 0.0, 0.6])
    z = np.sum(probs * accept)
    for T in TRUNCATIONS:
        dist = Resampled(
            tfd.Categorical(probs=probs.astype(np.float32)),
            lambda i: tf.gather(accept, i),
            T=T,
            normalizer=np.log(z),
        )
        np.testing.assert_allclose(np.sum(dist.prob(np.arange(4))), 1.0, atol=1e-6)


def test_mass_sums_to_one_on_all_states_of_eight_bits():
    states = np.array(list(itertools.product([0, 1], repeat=8)), np.int32)
    proposal = tfd.Independent(
        tfd.Bernoulli(probs=tf.linspace(tf.constant(0.1, tf.float64), 0.9, 8)), 1
    )

    def accept_fn(x):
        return tf.sigmoid(tf.cast(tf.reduce_sum(x, -1), tf.float64) - 5.0)

    z = np.sum(proposal.prob(states) * accept_fn(states))
    for T in TRUNCATIONS:
        dist = Resampled(proposal, accept_fn, T=T, normalizer=np.log(z))
        np.testing.assert_allclose(np.sum(dist.prob(states)), 1.0, atol=1e-12)


def test_truncation_at_one_is_the_proposal_to_the_last_bit():
    proposal = tfd.StudentT(3.0, 0.1, 1.7)
    x = np.linspace(-50.0, 50.0, 1001, dtype=np.float32)
    dist = Resampled(proposal, tf.sigmoid, T=1)
    np.testing.assert_array_equal(dist.log_prob(x), proposal.log_prob(x))
