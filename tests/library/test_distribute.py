"""Replicas on two logical devices, which must be created before TensorFlow starts."""

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy import special, stats

NUM_STEPS, NUM_SAMPLES, DECAY, SLOPE, T = 3, 8, 0.75, 1.5, 5
DATA = np.array([[0.1, 0.2, -0.4], [1.0, -2.0, 0.5]])  # a row for each replica

PROGRAM = f"""
import json

import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

import tensorflow_probability as tfp

import tfp_lars

seen = {{}}


class Accept(tf.Module):
    def __init__(self):
        self.slope = tf.Variable({SLOPE})

    def logits(self, z):
        context = tf.distribute.get_replica_context()
        if context is not None:  # not while the distribution is being built
            tf.numpy_function(
                lambda i, z: seen.setdefault(str(i), {{}}).update({{len(z): z.tolist()}}),
                [context.replica_id_in_sync_group, z],
                [],
            )
        return self.slope * z


strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    dist = tfp_lars.Resampled(
        tfp.distributions.Normal(tf.Variable(0.0), 1.0),
        Accept(),
        T={T},
        normalizer=tfp_lars.MovingAverage({NUM_SAMPLES}, {DECAY}),
    )


@tf.function(autograph=False)
def step(z):
    def replica_step(z):
        with tf.GradientTape() as tape:
            log_prob = dist.log_prob(z)
        return log_prob, tape.gradient(log_prob, dist.trainable_variables)

    return strategy.run(replica_step, [z])


def log_z():
    return [v for v in dist.variables if "log_z" in v.name][0]


def local(value):
    return [x.numpy().tolist() for x in strategy.experimental_local_results(value)]


def distributed(data):
    return strategy.experimental_distribute_values_from_function(
        lambda context: data[context.replica_id_in_sync_group]
    )


results = []
for _ in range({NUM_STEPS}):
    z = distributed(tf.constant({DATA.tolist()}))
    seen.clear()
    log_prob, gradients = step(z)
    results.append(
        dict(
            seen=dict(seen),
            log_prob=local(log_prob),
            gradients=[local(g) for g in gradients],
            log_z=local(log_z()),
            num_updates=int(dist.normalizer.num_updates),
        )
    )


@tf.function(autograph=False)
def step_with_target(z, target):
    strategy.run(lambda z, target: dist.log_prob(z, target_log_prob=target), [z, target])


good, bad = [-1.0, -1.0, -1.0], [-1.0, float("-inf"), -1.0]
for name, target in dict(one=[bad, good], all=[bad, bad], none=[good, good]).items():
    before = local(log_z())[0]
    seen.clear()
    step_with_target(distributed(tf.constant({DATA.tolist()})), distributed(tf.constant(target)))
    results.append(
        dict(
            bad_replicas=name,
            before=before,
            seen=dict(seen),
            log_z=local(log_z()),
            num_updates=int(dist.normalizer.num_updates),
        )
    )

# Outside of the replicas, and while held. The step draws and ignores the draws.
before = local(log_z())
seen.clear()
with dist.held():
    step(distributed(tf.constant({DATA.tolist()})))
results.append(dict(before=before, log_z=local(log_z())))
print(json.dumps(results))

with strategy.scope():
    same = dist.copy(
        normalizer=tfp_lars.MovingAverage({NUM_SAMPLES}, {DECAY}, same_draws=True).fresh()
    )
seen.clear()
strategy.run(same.log_prob, [distributed(tf.constant({DATA.tolist()}))])
print(json.dumps(dict(seen=seen)))
"""


@pytest.fixture(scope="module")
def output():
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=900
    )
    assert process.returncode == 0, process.stderr
    return [json.loads(line) for line in process.stdout.splitlines()[-2:]]


@pytest.fixture(scope="module")
def results(output):
    return output[0]


@pytest.fixture(scope="module")
def steps(results):
    return results[:NUM_STEPS]


def draws(step):
    """Returns the draws of the replicas from the proposal, [2, S], as the network received them."""
    data, drawn = (
        np.array([step["seen"][replica][str(size)] for replica in "01"])
        for size in (DATA.shape[1], NUM_SAMPLES)
    )
    np.testing.assert_allclose(data, DATA, rtol=1e-6)
    return drawn


def test_replicas_draw_different_numbers_at_every_step(steps):
    every = np.array([draws(step) for step in steps])
    assert every.shape == (NUM_STEPS, 2, NUM_SAMPLES)
    assert np.unique(every).size == every.size


def test_same_draws_are_those_of_all_replicas(output):
    first, second = draws(output[1])
    np.testing.assert_array_equal(first, second)
    assert np.unique(first).size == NUM_SAMPLES


def test_average_is_one_value_the_mean_of_z_over_replicas(steps):
    expected = None
    for count, step in enumerate(steps, start=1):
        current = np.mean(special.expit(SLOPE * draws(step)))
        expected = current if expected is None else DECAY * expected + (1 - DECAY) * current
        np.testing.assert_allclose(step["log_z"], np.log([expected, expected]), rtol=1e-5)
        assert step["log_z"][0] == step["log_z"][1]
        assert step["num_updates"] == count


def test_replicas_evaluate_their_own_data(steps):
    """The value uses the Z of its replica. The shared average is the mean over replicas."""
    old = None
    for step in steps:
        Z = np.mean(special.expit(SLOPE * draws(step)), axis=1, keepdims=True)  # [2, 1]
        Z = Z if old is None else DECAY * old + (1 - DECAY) * Z
        weight = sum((1 - Z) ** t for t in range(T - 1))
        expected = stats.norm.logpdf(DATA) + np.log(
            special.expit(SLOPE * DATA) * weight + (1 - Z) ** (T - 1)
        )
        np.testing.assert_allclose(step["log_prob"], expected, rtol=1e-4)
        old = np.exp(step["log_z"][0])


def test_gradients_reach_the_shared_variables_from_each_replica(steps):
    for step in steps:
        gradients = np.array(step["gradients"])
        assert gradients.shape == (2, 2)  # of the proposal's location and of the slope, [2, 2]
        assert np.all(gradients != 0.0)
        assert np.all(gradients[:, 0] != gradients[:, 1])


def test_a_replica_without_a_finite_estimate_is_left_out(results):
    """One replica has a target of -inf once. Then only the other replica updates the average."""
    one, both, none = results[NUM_STEPS:-1]
    count = NUM_STEPS
    for step, used in ((one, [1]), (both, []), (none, [0, 1])):
        z_s = np.mean(special.expit(SLOPE * draws(step)), axis=1, keepdims=True)
        ratio = stats.norm.pdf(DATA) * np.e  # the target's log density is -1
        current = (NUM_SAMPLES * z_s + ratio * special.expit(SLOPE * DATA)) / (NUM_SAMPLES + 1)
        smooth = DECAY * np.exp(step["before"]) + (1 - DECAY) * current
        expected = np.log(np.mean(smooth[used])) if used else step["before"]
        np.testing.assert_allclose(step["log_z"], [expected, expected], rtol=1e-5)
        count += bool(used)
        assert step["num_updates"] == count


def test_held_average_stays_as_it_is_on_all_replicas(results):
    assert results[-1]["log_z"] == results[-1]["before"]
