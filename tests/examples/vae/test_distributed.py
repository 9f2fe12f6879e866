"""Training on two workers and on two devices, compared with a single process."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from examples.common.command_line import UserError
from examples.vae import cluster, distributed, train
from examples.vae.build import build
from examples.vae.run_directory import RunDirectory

ROOT = pathlib.Path(__file__).parents[3]
# The rates of the paper's schedule are small, so that rounding errors stay small, too.
OPTIONS = [
    "--dataset", "mnist5k", "--latents", "4", "--accept-units", "8-8", "--S", "64",
    "--batch-size", "16", "--schedule", "paper", "--steps", "200", "--checkpoint-every", "50",
    "--iwae-samples", "3", "--z-samples", "1000",
]  # fmt: skip
TOLERANCE = 1e-4

# Runs `examples.vae.train`. Before the training, a worker reports what it says about other workers
# that do not agree with it; afterward, it reports its average of Z.
WORKER = """
import dataclasses, json, os, signal, sys
kill_at = int(sys.argv[1])
from examples.common import command_line
from examples.vae import train
command_line.import_tensorflow()
from examples.vae import cluster, datasets, distributed

index = 0 if cluster.is_chief() else 1
make, check_loss, whole_training = distributed.make, distributed.check_loss, distributed.train

def report(**found):
    print("\\n" + json.dumps(found), flush=True)

def make_and_disagree(name):
    strategy = make(name)
    images, config = datasets.load("mnist5k"), train.parse(sys.argv[2:])[1]
    other = dataclasses.replace(config, seed=index)
    for reason, *arguments in (("options", other, images, 0), ("start", config, images, index)):
        try:
            distributed.check_agreement(strategy, *arguments)
        except command_line.UserError as error:
            report(**{reason: str(error)})
    return strategy

def check_loss_or_die(loss, step, manager):
    if index == 1 and step == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    check_loss(loss, step, manager)

def train_and_report(*arguments, **kwargs):
    model = whole_training(*arguments, **kwargs)
    report(log_z=float(model.prior.log_normalizer), steps=model.num_steps)
    return model

distributed.make = make_and_disagree
distributed.check_loss = check_loss_or_die
distributed.train = train_and_report
command_line.run(lambda: train.main(sys.argv[2:]))
"""

MIRRORED = """
import functools, json, sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from examples.vae import distributed, train

whole_training = distributed.train

def train_and_report(config, images, run, strategy, **kwargs):
    model = whole_training(config, images, run, strategy, **kwargs)
    for average in [v for v in model.prior.variables if "log_z" in v.name]:
        values = strategy.experimental_local_results(average)
        print("\\n" + json.dumps({"log_z": [v.numpy().tolist() for v in values]}), flush=True)
    return model

distributed.train = train_and_report
distributed.make = functools.cache(distributed.make)  # TensorFlow allows one for each process
for arguments in json.loads(sys.stdin.readline()):
    train.main(arguments)
"""


def state(directory):
    """Returns all variables of the last checkpoint, and its step."""
    path = tf.train.latest_checkpoint(str(directory / "checkpoints"))
    reader = tf.train.load_checkpoint(path)
    names = [n for n in reader.get_variable_to_shape_map() if n.startswith("state")]
    return {n: reader.get_tensor(n) for n in sorted(names)}, int(path.rpartition("-")[2])


def pairs_of_states(actual, expected):
    """Yields a variable and its two values in checkpoints.

    Leaves out the metrics of Keras, which the loop on replicas does not use.
    """
    model = build(RunDirectory(expected).config())
    metrics = {id(v) for metric in model.metrics for v in metric.variables}
    (actual, step), (expected, expected_step) = state(actual), state(expected)
    assert step == expected_step and actual.keys() == expected.keys()
    for i, variable in enumerate((*model.variables, *model.optimizer.variables)):
        if id(variable) not in metrics:
            name = f"state/{i}/.ATTRIBUTES/VARIABLE_VALUE"
            yield variable, actual[name], expected[name]


def assert_equal_training(actual, expected):
    for variable, one, other in pairs_of_states(actual, expected):
        np.testing.assert_allclose(
            one, other, rtol=TOLERANCE, atol=TOLERANCE, err_msg=variable.path
        )


def assert_equal_norms(actual, expected):
    """Compares all weights, and all first moments of Adam, by the norm of their difference.

    The first step of Adam does not depend on the size of a gradient. Rounding errors of a gradient
    near 0 then change single weights by the learning rate.
    """
    groups = {"weights": [], "momentum": []}
    for variable, one, other in pairs_of_states(actual, expected):
        if "log_z" in variable.path or other.dtype.kind != "f":
            np.testing.assert_allclose(one, other, rtol=TOLERANCE, err_msg=variable.path)
        elif "momentum" in variable.path:
            groups["momentum"].append((one, other))
        elif "velocity" not in variable.path and other.shape:
            groups["weights"].append((one, other))
    for name, pairs in groups.items():
        one, other = (np.concatenate([np.ravel(x) for x in xs]) for xs in zip(*pairs, strict=True))
        error = np.linalg.norm(one - other) / np.linalg.norm(other)
        assert error < TOLERANCE, (name, actual)


def reports(text):
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return {name: value for line in lines for name, value in json.loads(line).items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    out = tmp_path_factory.mktemp("alone")
    train.main([*OPTIONS, "--no-evaluation", "--quiet", "--out", str(out)])
    return out


def two_workers(out, kill_at):
    """Runs two workers. Worker 1 kills itself at step `kill_at`; 0 for never."""
    sockets = [socket.socket() for _ in range(2)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    workers = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        arguments = [*OPTIONS, "--strategy", "multi_worker", "--out", str(out)]
        workers.append(
            subprocess.Popen(
                [sys.executable, "-c", WORKER, str(kill_at), *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env={**os.environ, "TF_CONFIG": config, "TF_CPP_MIN_LOG_LEVEL": "3"},
            )
        )
    try:
        streams = [worker.communicate(timeout=900) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return [(w.returncode, *stream) for w, stream in zip(workers, streams, strict=True)]


@pytest.fixture(scope="module")
def killed_and_restarted(tmp_path_factory):
    """Two trainings with two workers in the same directory: the first loses a worker at half."""
    out = tmp_path_factory.mktemp("workers")
    killed = two_workers(out, kill_at=100)
    return out, killed, state(out)[1], two_workers(out, kill_at=0)


def test_other_workers_fail_after_one_was_killed(killed_and_restarted):
    _, ((code, _, stderr), (killed_code, *_)), last_step, _ = killed_and_restarted
    assert killed_code == -signal.SIGKILL
    assert code == 2, stderr
    assert stderr.startswith("error: lost a worker, or the connection to it")
    assert "Start the same command on all workers again" in stderr
    assert last_step in (50, 100)


def test_restarted_workers_resume_and_equal_a_single_process(killed_and_restarted, alone):
    out, _, last_step, restarted = killed_and_restarted
    assert [code for code, *_ in restarted] == [0, 0], restarted
    for step in (last_step, 200):
        assert f"step {step} of 200" in restarted[0][1]
    assert_equal_training(out, alone)


def test_average_of_z_is_equal_on_all_workers(killed_and_restarted):
    first, second = (reports(stdout) for _, stdout, _ in killed_and_restarted[-1])
    assert first["steps"] == second["steps"] == 200
    assert first["log_z"] == second["log_z"]


def test_only_the_chief_shows_progress_and_evaluates(killed_and_restarted):
    out, *_, ((_, chief, _), (_, other, stderr)) = killed_and_restarted
    assert "NLL" in chief and "step" in chief
    assert [line for line in other.splitlines() if line and not line.startswith("{")] == []
    assert stderr == ""
    assert json.loads((out / "metrics.json").read_text())["steps"] == 200


def test_workers_that_do_not_agree_are_an_error(killed_and_restarted):
    for _, stdout, _ in killed_and_restarted[-1]:
        assert "different options or images" in reports(stdout)["options"]
        assert "steps 0, 1: --out must be a directory that all" in reports(stdout)["start"]


def on_two_devices(*trainings):
    """Runs trainings on two logical CPUs and returns the output."""
    process = subprocess.run(
        [sys.executable, "-c", MIRRORED],
        input=json.dumps(trainings) + "\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_two_devices_equal_a_single_one(tmp_path, alone):
    mirrored = ["--strategy", "mirrored", "--no-evaluation", "--quiet"]
    stdout = on_two_devices([*OPTIONS, *mirrored, "--out", str(tmp_path)])
    first, second = reports(stdout)["log_z"]
    assert first == second
    assert_equal_training(tmp_path, alone)


# The recipe for short trainings clips, grows T and draws antithetic pairs.
SHORT = ["--schedule", "short"]
FORMS = {
    "short": SHORT,
    "untruncated": ["--T", "inf", *SHORT],
    "hvae": ["--model", "hvae"],
    "conv_hvae": ["--model", "conv_hvae"],
    "output_vae": ["--model", "output_vae"],
    "lars_real_nvp": ["--prior", "lars_real_nvp", *SHORT],
    "lars_dimensionwise": ["--prior", "lars_dimensionwise"],
    "maf": ["--prior", "maf"],
    "vamp": ["--prior", "vamp", "--components", "5"],
    "mog": ["--prior", "mog", "--components", "5"],
}


@pytest.mark.slow
def test_two_devices_equal_a_single_one_for_all_models_and_priors(tmp_path):
    """After one step, the first moments of Adam are a tenth of the gradient."""
    trainings = []
    for name, form in FORMS.items():
        common = [*OPTIONS, *form, "--steps", "1", "--no-evaluation", "--quiet"]
        trainings.append([*common, "--out", str(tmp_path / name / "alone")])
        trainings.append([*common, "--strategy", "mirrored", "--out", str(tmp_path / name / "two")])
    on_two_devices(*trainings)
    for name in FORMS:
        assert_equal_norms(tmp_path / name / "two", tmp_path / name / "alone")


def test_early_stopping_is_refused(tmp_path):
    arguments = [*OPTIONS[2:], "--dataset", "static_mnist", "--out", str(tmp_path)]
    with pytest.raises(UserError, match="--strategy cannot train on static_mnist, .* stops early"):
        train.main([*arguments, "--strategy", "mirrored"])


CLUSTER = {"worker": ["a:1", "b:1"]}


@pytest.mark.parametrize(
    "found",
    [
        None,
        "",
        "{",
        "[]",
        {"cluster": CLUSTER},
        {"cluster": CLUSTER, "task": {"type": "worker", "index": 2}},
        {"cluster": CLUSTER, "task": {"type": "ps", "index": 0}},
        {"cluster": {**CLUSTER, "ps": ["c:1"]}, "task": {"type": "worker", "index": 0}},
    ],
    ids=str,
)
def test_unusable_clusters_are_refused(monkeypatch, tmp_path, found):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if found is not None:
        text = found if isinstance(found, str) else json.dumps(found)
        monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match="multi_worker needs the environment variable TF_CONFIG"):
        train.main([*OPTIONS, "--strategy", "multi_worker", "--out", str(tmp_path / "new")])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("cluster_workers", "kind", "index", "expected"),
    [
        (CLUSTER, "worker", 0, True),
        (CLUSTER, "worker", 1, False),
        ({"chief": ["c:1"], **CLUSTER}, "chief", 0, True),
        ({"chief": ["c:1"], **CLUSTER}, "worker", 0, False),
    ],
)
def test_one_worker_is_the_chief(monkeypatch, cluster_workers, kind, index, expected):
    config = {"cluster": cluster_workers, "task": {"type": kind, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert cluster.is_chief() == expected


def test_batch_must_be_divisible(tmp_path):
    class ThreeReplicas:
        num_replicas_in_sync = 3

    config = train.parse([*OPTIONS, "--out", str(tmp_path)])[1]
    with pytest.raises(UserError, match="--batch-size 16 cannot be divided among 3 replicas"):
        distributed.train(config, None, RunDirectory(tmp_path), ThreeReplicas())
