"""The formulas of p_T at random arguments, against arithmetic with 50 digits."""

import mpmath
import numpy as np
import pytest
import tensorflow as tf

from tfp_lars import density

# Largest error of log p_T - log pi, relative to its value or to 1, whichever is larger. Gradients
# have a weight exp(x - log p_T). The exponents have the size of log p_T and are rounded to it, so
# gradients may have a relative error of a few roundings of log p_T in addition.
TOLERANCE = {tf.float32: 1e-5, tf.float64: 1e-12}


def random_arguments(rng, n, dtype):
    """Returns logits of a(z) and log Z, over the range that the library promises."""
    scale = 10.0 ** rng.uniform(-3, 4, size=n)
    logits = np.where(rng.random(n) < 0.5, rng.uniform(-20, 20, size=n), 1.0)
    logits = np.where(logits == 1.0, scale * rng.choice([-1.0, 1.0], size=n), logits)
    log_z = -(10.0 ** rng.uniform(-9, np.log10(69.0), size=n))
    # If Z is 1, so is a(z) wherever the proposal has mass.
    sure = rng.random(n) < 0.02
    log_z[sure], logits[sure] = 0.0, 1e4
    return logits.astype(dtype.as_numpy_dtype), log_z.astype(dtype.as_numpy_dtype)


def random_truncations(rng, count):
    drawn = np.unique(np.floor(10.0 ** rng.uniform(0, 9, size=count)).astype(np.int64))
    return [None, 1, 2, 3, *(int(T) for T in drawn if T > 3)]


def exact(logit, log_z, T):
    """Returns log p_T - log pi and its derivatives with respect to the logit and log Z."""
    logit, log_z = mpmath.mpf(float(logit)), mpmath.mpf(float(log_z))
    log_a = -mpmath.log1p(mpmath.exp(-logit))
    slope_a = 1 / (1 + mpmath.exp(logit))  # of log a
    if T is None:
        return log_a - log_z, slope_a, mpmath.mpf(-1)
    a, z = mpmath.exp(log_a), mpmath.exp(log_z)
    tests = T - 1
    alpha = (1 - z) ** tests
    per_accept = (1 - alpha) / z
    ratio = a * per_accept + alpha
    slope_alpha = -tests * (1 - z) ** (tests - 1) if tests > 0 else mpmath.mpf(0)
    slope_z = a * (-slope_alpha / z - per_accept / z) + slope_alpha
    return mpmath.log(ratio), a * per_accept / ratio * slope_a, z * slope_z / ratio


def ours(logits, log_z, T):
    logits, log_z = tf.constant(logits), tf.constant(log_z)
    with tf.GradientTape() as tape:
        tape.watch([logits, log_z])
        value = density.log_ratio(tf.math.log_sigmoid(logits), log_z, T)
    gradients = tape.gradient(value, [logits, log_z], unconnected_gradients="zero")
    return [x.numpy() for x in (value, *gradients)]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(
    ("num_truncations", "each"),
    [(40, 25), pytest.param(250, 230, marks=pytest.mark.slow)],
    ids=["1000", "50000"],
)
def test_values_and_gradients_agree_with_50_digits(num_truncations, each, dtype):
    rng = np.random.default_rng(5)
    rounding = float(np.finfo(dtype.as_numpy_dtype).eps) / 2
    worst = {}
    with mpmath.workdps(50):
        for T in random_truncations(rng, num_truncations):
            logits, log_z = random_arguments(rng, each, dtype)
            found = ours(logits, log_z, T)
            for i in range(each):
                expected = exact(logits[i], log_z[i], T)
                for name, x, y in zip(
                    ("value", "by logit", "by log Z"), found, expected, strict=True
                ):
                    error = abs(mpmath.mpf(float(x[i])) - y)
                    if name != "value":
                        error -= 4 * rounding * abs(expected[0] * y)
                    error /= max(1, abs(y), abs(expected[0]))
                    if error > worst.get(name, (0.0,))[0]:
                        worst[name] = (float(error), T, logits[i], log_z[i], x[i], float(y))
    for name, (error, *where) in worst.items():
        assert error < TOLERANCE[dtype], (name, error, where)
