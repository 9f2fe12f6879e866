"""Estimates over two logical devices and over two processes, against one device."""

import json
import os
import socket
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tests.processes import run_python
from tfp_lars import Resampled, estimate_log_normalizer

tfd = tfp.distributions

PROBLEM = """
import json, os, sys
import tensorflow as tf
import tensorflow_probability as tfp
import tfp_lars

class Accept(tf.Module):
    def __init__(self, slope):
        self.slope = tf.Variable(slope)

    def logits(self, z):
        return self.slope * z - 3.0

def make(slope=2.0):
    return tfp_lars.Resampled(tfp.distributions.Normal([0.0, 0.5], 1.0), Accept(slope), T=None)

def results(dist, strategy=None):
    found = {}
    for name, kwargs in {
        "plain": dict(num_samples=1050, antithetic=False),
        "pairs": dict(num_samples=1050, antithetic=True),
        "target": dict(num_samples=10**6, target_stderr=0.05),
        "importance": dict(num_samples=6400, method="importance"),
    }.items():
        estimate = tfp_lars.estimate_log_normalizer(
            dist, batch_size=100, seed=1, strategy=strategy, **kwargs
        )
        found[name] = [*estimate.log_z, *estimate.stderr, estimate.num_samples]
    return found
"""

MIRRORED = (
    """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
"""
    + PROBLEM
    + """
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    dist = make()
assert strategy.num_replicas_in_sync == 2
print(json.dumps([results(make()), results(dist, strategy)]))
"""
)

WORKER = (
    """
import json, os, signal, sys
index, addresses = int(sys.argv[1]), sys.argv[2].split(",")
os.environ["TF_CONFIG"] = json.dumps(
    {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
)
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
"""
    + PROBLEM
    + """
with strategy.scope():
    dist = make()
other = make(2.0 + index)  # in the scope, all workers would get the weights of the first
found = {"over workers": results(dist, strategy)}
if index == 0:
    found["alone"] = results(dist)
tf.random.set_seed(index)
unseeded = tfp_lars.estimate_log_normalizer(dist, 1000, strategy=strategy)
found["unseeded"] = list(unseeded.log_z)
try:
    tfp_lars.estimate_log_normalizer(other, 1000, strategy=strategy)
except ValueError as error:
    found["different weights"] = str(error)
print(json.dumps(found), flush=True)
if index == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    tfp_lars.estimate_log_normalizer(dist, 10**8, strategy=strategy)
except RuntimeError as error:
    print(json.dumps({"lost worker": str(error)}), flush=True)
os._exit(0)  # TensorFlow would wait for the lost worker
"""
)


def assert_equal_results(actual, expected):
    assert actual.keys() == expected.keys()
    for name in expected:
        # The fit for importance sampling is in float32 and amplifies the rounding.
        rtol = 1e-3 if name == "importance" else 1e-9
        np.testing.assert_allclose(actual[name], expected[name], rtol=rtol, err_msg=name)


def test_two_devices_give_the_result_of_one():
    process = run_python(MIRRORED)
    one, two = json.loads(process.stdout.splitlines()[-1])
    assert_equal_results(two, one)


def free_addresses(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return addresses


@pytest.fixture(scope="module")
def outputs():
    """The JSON lines that two worker processes print."""
    addresses = ",".join(free_addresses(2))
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WORKER), str(i), addresses],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        )
        for i in range(2)
    ]
    try:
        streams = [worker.communicate(timeout=900) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    lines = [[line for line in out.splitlines() if line.startswith("{")] for out, _ in streams]
    assert [len(found) for found in lines] == [2, 1], "".join(err for _, err in streams)
    return [[json.loads(line) for line in found] for found in lines]


def test_two_processes_give_the_result_of_one(outputs):
    first, second = (found["over workers"] for found, *_ in outputs)
    assert_equal_results(first, outputs[0][0]["alone"])
    assert first == second


def test_workers_share_the_seed_of_the_first(outputs):
    first, second = (found["unseeded"] for found, *_ in outputs)
    assert first == second


def test_workers_with_different_weights_are_an_error(outputs):
    for found, *_ in outputs:
        assert "distributions with different weights" in found["different weights"]


def test_a_lost_worker_is_an_error(outputs):
    assert "has lost a worker" in outputs[0][1]["lost worker"]


def test_other_objects_are_no_strategies():
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid)
    with pytest.raises(TypeError, match="`strategy` must be a `tf.distribute.Strategy`; got 'mirr"):
        estimate_log_normalizer(dist, 100, strategy="mirrored")
    default = estimate_log_normalizer(
        dist, 100, strategy=tf.distribute.OneDeviceStrategy("CPU:0"), seed=1
    )
    np.testing.assert_allclose(
        default.log_z, estimate_log_normalizer(dist, 100, seed=1).log_z, rtol=1e-9
    )
