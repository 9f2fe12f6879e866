"""Long trainings: rounding, random numbers, memory and graphs of a moving average."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow.python.framework import op_callbacks

from tests import memory
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


def test_varying_shapes_and_dropped_distributions_leave_no_graphs():
    """`python -m tests.memory` does the same at full size, and looks at the memory, too."""
    for name, step in memory.cases():
        graphs, _ = memory.watch(6 if step is memory.use_new else 60, step, num_looks=2)
        assert graphs == 0, name


def test_no_eager_op_has_a_shape_as_an_attribute():
    """TensorFlow keeps a kernel for each value of an attribute, and never drops it."""
    attributes = {}

    def note(op_type, inputs, attrs, outputs, op_name=None, graph=None):
        if graph is None:
            attributes.setdefault(str(op_type), set()).add(str(attrs))

    for dist in memory.distributions().values():
        for i in range(12):  # what the first calls trace and check
            memory.use(dist, i)
        attributes.clear()
        op_callbacks.add_op_callback(note)
        try:
            for i in range(12, 42):
                memory.use(dist, i)
        finally:
            op_callbacks.remove_op_callback(note)
        assert attributes
        # Ranks and numbers of inputs are bounded. There are 30 shapes.
        assert {name: n for name, found in attributes.items() if (n := len(found)) > 8} == {}
