"""Long trainings: rounding, random numbers, memory and graphs of a moving average."""

import gc

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import MovingAverage, Resampled

tfd = tfp.distributions


def averages(estimates, decay, dtype):
    """Returns log Z after each 1/10 of the updates with the given estimates of log Z."""
    average = MovingAverage(1, decay, seed=1)
    average.build(tf.TensorShape([]), dtype)
    estimates = tf.cast(estimates, dtype)

    @tf.function(jit_compile=True, autograph=False)
    def run(first, last):
        def update(i):
            average(lambda *_: estimates[i])
            return (i + 1,)

        tf.while_loop(lambda i: i < last, update, [first])

    num = len(estimates)
    values = []
    for part in range(10):
        run(tf.constant(part * num // 10), tf.constant((part + 1) * num // 10))
        values.append(float(average.log_z))
    assert average.num_updates == num
    return np.array(values)


@pytest.mark.parametrize("decay", [0.0, 0.9, 0.999])
def test_a_million_updates_in_single_precision_do_not_drift(decay):
    """Each update rounds to 6e-8 of |log Z| < 2. They add up over 1 / (1 - decay) updates."""
    rng = np.random.default_rng(3)
    estimates = np.log(rng.uniform(0.2, 0.6, size=10**6)).astype(np.float32)
    single = averages(estimates, decay, tf.float32)
    double = averages(estimates, decay, tf.float64)
    bound = 4 * 6e-8 * 2 / (1.0 - decay)
    assert np.max(np.abs(single - double)) < bound


def test_random_numbers_do_not_repeat_after_2_to_the_31_updates():
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, normalizer=MovingAverage(4, 0.0, seed=1))
    state = dist.variables[-1]
    assert "random_state" in state.name
    start = int(state)
    values = []
    with np.errstate(over="ignore"):  # the state wraps around
        for update in (0, 1, 2, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1):
            state.assign(np.int64(start) + np.int64(2**32) * np.int64(update))
            dist.log_prob(0.3)
            values.append(float(dist.log_normalizer))
    assert len(set(values)) == len(values)
    # Each call adds one, also where the counter wraps around.
    state.assign(np.int64(2**63 - 2**32))
    dist.log_prob(0.3)
    assert int(state) == -(2**63)


def num_graphs():
    gc.collect()
    return sum(issubclass(type(x), tf.Graph) for x in gc.get_objects())


def test_varying_shapes_and_dropped_distributions_leave_no_graphs():
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, T=5, normalizer=-0.7)
    dist.sample(3, seed=1)
    before = num_graphs()
    for n in range(1, 200):
        dist.log_prob(dist.sample(n, seed=n))
    assert num_graphs() == before
    for i in range(5):
        Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, T=5, normalizer=-0.7).sample(3, seed=i)
    assert num_graphs() == before
