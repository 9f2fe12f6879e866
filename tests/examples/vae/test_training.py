"""Training in real processes on real data: killed and resumed runs, and error messages."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from examples.common import command_line, files, revision
from examples.vae import (
    batches,
    datasets,
    early_stopping,
    evaluate,
    evaluation,
    runs,
    stopping_rule,
    train,
    training,
)
from examples.vae import build as building
from examples.vae.config import Config, Evaluation, PriorConfig
from examples.vae.run_directory import RunDirectory
from examples.vae.schedule import Schedule

ROOT = pathlib.Path(__file__).parents[3]
SMALL = [
    "--dataset", "mnist5k", "--latents", "4", "--accept-units", "8-8", "--S", "64",
    "--batch-size", "32",
]  # fmt: skip
LENGTH = ["--steps", "600", "--checkpoint-every", "50"]
QUICK_EVALUATION = ["--iwae-samples", "3", "--z-samples", "1000"]


def python(*arguments):
    """Starts a Python process without settings for the log of TensorFlow or the data directory."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name in ("TF_CPP_MIN_LOG_LEVEL", "TFP_LARS_DATA_DIR"):  # mnist5k needs no data
        environment.pop(name, None)
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def final_state(directory):
    path = tf.train.latest_checkpoint(str(directory / "checkpoints"))
    reader = tf.train.load_checkpoint(path)
    names = [n for n in reader.get_variable_to_shape_map() if n.startswith("state")]
    assert len(names) > 20
    return {n: reader.get_tensor(n) for n in sorted(names)}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """One uninterrupted run with evaluation, in a separate process without a data directory."""
    out = tmp_path_factory.mktemp("whole")
    process = python("-m", "examples.vae.train", *SMALL, *LENGTH, "--out", out, *QUICK_EVALUATION)
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert stderr == ""  # no start-up messages of TensorFlow
    return out, stdout


def test_whole_example_runs_without_data_directory(whole_run):
    out, stdout = whole_run
    assert "mnist5k" in stdout
    assert "step 600 of 600" in stdout
    assert re.search(r"elbo: -\d+.*z: \d", stdout)
    metrics = json.loads((out / "metrics.json").read_text())
    expected = {
        "nll", "nll_stderr", "elbo", "kl", "recons", "z", "log_z_stderr", "expected_attempts",
        "steps", "num_parameters", "command", "versions",
    }  # fmt: skip
    assert expected <= metrics.keys()
    assert metrics["steps"] == 600
    config = json.loads((out / "config.json").read_text())
    assert metrics["revision"] == config["revision"] == revision.revision()
    assert metrics["images"] == config["images"] == datasets.load("mnist5k").digest
    assert metrics["command"].startswith("python -m examples.vae.train --dataset mnist5k")
    # Uniform gray gives 784 log 2 = 543, and the mean image about 206.
    assert metrics["nll"] < 206
    assert np.isclose(metrics["elbo"], metrics["recons"] - metrics["kl"], rtol=1e-6)
    assert -metrics["elbo"] > metrics["nll"]
    assert 1.0 <= metrics["expected_attempts"] <= 100.0
    for name, size in {"samples.png": (604, 604), "reconstructions.png": (604, 364)}.items():
        with PIL.Image.open(out / name) as picture:
            assert picture.size == size
            assert len(picture.convert("L").getcolors()) > 10


def test_tensorboard_has_the_scalars(whole_run):
    out, _ = whole_run
    (events,) = (out / "tensorboard").glob("events*")
    seen = {}
    for record in tf.data.TFRecordDataset(str(events)):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            seen.setdefault(value.tag, []).append(event.step)
    assert {"elbo", "kl", "recons", "z", "attempts", "learning_rate"} <= seen.keys()
    assert seen["elbo"] == list(range(50, 601, 50))


HANGS = """
import pathlib, sys, time
from examples.vae import train, training

class Hanging(training.Keeper):
    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        if int(self.model.optimizer.iterations) == int(sys.argv[1]):
            pathlib.Path(sys.argv[2]).touch()
            time.sleep(600)

training.Keeper = Hanging
train.main(sys.argv[3:])
"""


def test_run_killed_twice_ends_with_the_weights_of_one_that_was_not(whole_run, tmp_path):
    """Sends SIGKILL between two checkpoints, to a new run and a resumed one, then finishes it."""
    arguments = [*SMALL, "--steps", 600, "--checkpoint-every", 100, "--no-evaluation", "--out"]
    for step in (150, 450):
        reached = tmp_path / str(step)
        process = python("-c", HANGS, step, reached, *arguments, tmp_path / "run")
        while not reached.exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert RunDirectory(tmp_path / "run").last_step() == step - 50
    process = python("-m", "examples.vae.train", *arguments, tmp_path / "run", "--quiet")
    _, stderr = process.communicate()
    assert process.returncode == 0, stderr
    whole, killed = final_state(whole_run[0]), final_state(tmp_path / "run")
    assert whole.keys() == killed.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(value, killed[name], err_msg=name)


def test_finished_run_is_only_evaluated_again(whole_run, tmp_path):
    out = tmp_path / "run"  # a copy, because the evaluation writes into it
    shutil.copytree(whole_run[0], out)
    before = final_state(out)
    train.main([*SMALL, *LENGTH, "--out", str(out), "--quiet", *QUICK_EVALUATION])
    after = final_state(out)
    np.testing.assert_equal(before, after)


def fails(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        command_line.run(lambda: train.main([str(a) for a in arguments]))
    assert stop.value.code == 2
    return capsys.readouterr().err.strip()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "mnits"], "invalid choice: 'mnits'"),
        (["--dataset", "mnist5k", "--model", "gan"], "invalid choice: 'gan'"),
        (["--dataset", "mnist5k", "--prior", "flat"], "invalid choice: 'flat'"),
        (["--dataset", "mnist5k", "--steps", "0"], "must be at least 1, got 0"),
        (["--dataset", "mnist5k", "--T", "0"], "must be at least 1, got 0"),
        (["--dataset", "mnist5k", "--T", "3000000000"], "be at most 2147483647, or inf, got 3000"),
    ],
)
def test_unknown_names_and_numbers_are_explained(capsys, tmp_path, arguments, message):
    out = tmp_path / "run"
    assert message in fails(capsys, *arguments, "--out", out)
    assert not out.exists()


def test_directory_of_another_configuration_is_refused(capsys, whole_run):
    out, _ = whole_run
    message = fails(capsys, *SMALL, "--steps", "600", "--seed", "1", "--out", out)
    assert message.count("\n") == 0
    assert "seed=0 there, 1 here" in message
    assert "name another directory" in message
    assert "--continue-from" not in message


def test_more_steps_than_a_finished_run_has_are_refused_with_a_way_out(capsys, whole_run):
    """Another number of steps changes the learning-rate schedule, so it is another run."""
    message = fails(capsys, *SMALL, "--steps", "900", "--out", whole_run[0])
    assert "steps=600 there, 900 here" in message
    assert "To train it longer, use --continue-from with it" in message


def test_a_run_continues_from_the_weights_of_another(capsys, whole_run, tmp_path):
    arguments = [*SMALL, "--continue-from", str(whole_run[0]), "--steps", "50", "--quiet"]
    train.main([*arguments, "--out", str(tmp_path / "more"), "--no-evaluation"])
    before, after = runs.load(whole_run[0]), runs.load(tmp_path / "more")
    assert after.config.base_weights == building.weights_digest(before.model)
    assert Schedule.of(after.config).warm_up == 0
    assert int(after.model.optimizer.iterations) == 50
    # It starts from the final state of the other run, including the average of Z.
    start = building.build(after.config)
    building.take_weights(before.model, start, after.config)
    for a, b in zip(start.get_weights(), before.model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    x = np.float32(datasets.load("mnist5k").validation > 0)
    bounds = []
    for model in (building.build(after.config), before.model, after.model):
        terms = model.terms(x, 1, tf.constant([1, 2]), model.prior.freeze(-2.0))
        bounds.append(float(tf.reduce_mean(terms["recons"] - terms["kl"])))
    assert bounds[0] < bounds[1] - 50  # new weights
    assert bounds[2] > bounds[1] - 5  # continued
    # Other base weights make it another run, and another model is refused.
    message = fails(capsys, *SMALL, "--steps", "50", "--out", tmp_path / "more")
    assert "base_weights=" in message
    message = fails(capsys, *arguments, "--T", "7", "--out", tmp_path / "none")
    assert "cannot be the base: prior is" in message and "T=100" in message
    assert not (tmp_path / "none").exists()


def test_a_run_starts_from_its_configuration_file(whole_run, tmp_path, capsys):
    """The tables start runs in this way, without other arguments."""
    content = json.loads((whole_run[0] / "config.json").read_text())
    content |= {"steps": 50}
    (tmp_path / "config.json").write_text(json.dumps(content))
    train.main(["--config", str(tmp_path / "config.json"), "--quiet"])
    found = json.loads((tmp_path / "metrics.json").read_text())
    assert found["steps"] == 50
    assert (found["iwae_samples"], found["z_samples"]) == (3, 1000)
    message = fails(capsys, "--config", tmp_path / "config.json", "--steps", "7")
    assert "argument --config: not allowed with steps" in message


def test_configuration_file_has_the_last_evaluation_that_was_wanted(tmp_path):
    """A process that starts from the file uses the evaluation settings of the last command."""
    run, config = RunDirectory(tmp_path), Config("mnist5k")
    run.claim(config, "1234")
    before = run.read_config()
    fuller = dataclasses.replace(config, evaluation=Evaluation(5000), checkpoint_every=7)
    run.claim(fuller, "1234")
    assert run.config() == fuller
    changed = {"evaluation", "checkpoint_every"}
    assert {k: v for k, v in run.read_config().items() if k not in changed} == {
        k: v for k, v in before.items() if k not in changed
    }


def test_directory_of_other_images_is_refused(capsys, whole_run, monkeypatch):
    out, _ = whole_run
    load = datasets.load

    def other(name, data_dir):
        images = load(name, data_dir)
        return dataclasses.replace(images, train=images.train[::-1])

    monkeypatch.setattr(datasets, "load", other)
    assert "images=" in fails(capsys, *SMALL, *LENGTH, "--out", out)


def test_directory_of_another_version_is_refused(capsys, tmp_path):
    config = Config("mnist5k", "vae", PriorConfig(), steps=10).to_json()
    files.write_json(tmp_path / "config.json", {**config, "version": "0.0.1"})
    with pytest.raises(SystemExit):
        command_line.run(lambda: evaluate.main([str(tmp_path)]))
    assert "made by version 0.0.1" in capsys.readouterr().err


def test_unwritable_directory_is_explained(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    message = fails(capsys, *SMALL, "--steps", "10", "--out", tmp_path / "file" / "run")
    assert message.count("\n") == 0
    assert "cannot write to" in message
    assert "name another --out" in message


def test_full_disk_is_explained_and_leaves_the_last_checkpoint(capsys, tmp_path, monkeypatch):
    arguments = [*SMALL, "--steps", "100", "--checkpoint-every", "50", "--out", tmp_path, "--quiet"]
    save = tf.train.CheckpointManager.save
    calls = []

    def full(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")
        return save(self, *args, **kwargs)

    monkeypatch.setattr(tf.train.CheckpointManager, "save", full)
    message = fails(capsys, *arguments, "--no-evaluation")
    assert "No space left on device" in message
    assert message.count("\n") == 0
    assert tf.train.latest_checkpoint(str(tmp_path / "checkpoints")).endswith("ckpt-50")


def test_nan_stops_the_training_and_keeps_the_last_good_checkpoint(capsys, tmp_path, monkeypatch):
    original = batches.training_batches

    def poisoned(*args, **kwargs):
        spoil = tf.constant(120, tf.int64)
        return (
            original(*args, **kwargs)
            .enumerate()
            .map(lambda step, x: tf.where(step < spoil, x, x * np.nan))
        )

    monkeypatch.setattr(batches, "training_batches", poisoned)
    message = fails(
        capsys, *SMALL, "--steps", "300", "--checkpoint-every", "50", "--out", tmp_path, "--quiet"
    )
    assert "loss became nan at or shortly before step 150" in message
    assert "Try another --seed, or a larger --batch-size." in message
    assert "ckpt-100" in message
    assert message.count("\n") == 0


def test_early_stopping_restores_the_best_and_resumes_where_it_was(tmp_path, monkeypatch):
    """Validation NLLs come from a list. The third is the best, then patience runs out."""
    values = iter([5.0, 4.0, 3.0] + [3.5] * 20)
    looks = []

    def look(model, pixels, iwae_samples, z_samples):
        looks.append(int(model.optimizer.iterations))
        return next(values)

    monkeypatch.setattr(evaluation, "validation_nll", look)
    prior = PriorConfig(name="standard")
    config = Config(
        "static_mnist", "vae", prior, 2500, num_latents=2, batch_size=8, checkpoint_every=50
    )
    rng = np.random.default_rng(0)
    pixels = np.uint8(255 * (rng.random((20, 28, 28)) < 0.3))
    images = datasets.Images(
        "static_mnist", pixels, pixels, pixels, dynamic=False, source="made up"
    )
    run = RunDirectory(tmp_path)
    run.claim(config, images.digest)
    model = training.train(config, images, run, progress=False)
    assert looks == list(range(50, 50 * 13 + 1, 50))
    assert int(model.optimizer.iterations) == 150
    history = stopping_rule.read(run.validation_file)
    assert history[150] == min(history.values())
    # It can be the base of another run now, but not with an evaluation fewer.
    assert run.is_trained(config)
    files.write_json(run.validation_file, dict(list(history.items())[:-1]))
    assert not run.is_trained(config)
    files.write_json(run.validation_file, history)
    # The same command does nothing more.
    again = training.train(config, images, run, progress=False)
    assert int(again.optimizer.iterations) == 150
    assert len(looks) == 13


@pytest.mark.parametrize(
    ("start", "stop", "wanted", "expected"),
    [
        (0, 100, 10, (10, 10)),  # checkpoints more frequent than the largest calls
        (0, 100, 7, (1, 7)),
        (0, 100, 60, (50, 50)),  # rounded down to a multiple of the call
        (0, 600, 100, (50, 100)),
        (0, 30, 1000, (10, 30)),
        (7, 100, 50, (1, 50)),  # resumed with 93 steps left, which 50 shares no divisor with
        (60, 100, 1000, (10, 100)),
    ],
)
def test_steps_of_a_call_divide_what_is_left(start, stop, wanted, expected):
    assert training.steps_per_call(start, stop, wanted) == expected
    per_call, every = expected
    assert (stop - start) % per_call == 0 and every % per_call == 0


def test_checkpoints_may_be_closer_than_the_calls_from_python(tmp_path):
    states = []
    for every in (5, 50):
        out = tmp_path / str(every)
        arguments = ["--steps", "10", "--checkpoint-every", str(every), "--out", str(out)]
        train.main([*SMALL, *arguments, "--batch-size", "8", "--quiet", "--no-evaluation"])
        states.append(final_state(out))
    names = {p.name for p in (tmp_path / "5" / "checkpoints").glob("*.index")}
    assert names == {"ckpt-5.index", "ckpt-10.index"}
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name], err_msg=name)


POST_HOC = [*SMALL, "--steps", "100", "--checkpoint-every", "50", "--quiet", "--no-evaluation"]


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """Two runs with a standard prior and different seeds."""
    paths = []
    for seed in (0, 1):
        paths.append(tmp_path_factory.mktemp("base"))
        arguments = ["--steps", "50", "--prior", "standard", "--seed", seed, "--no-evaluation"]
        train.main(
            [
                str(a)
                for a in (*SMALL, *arguments, "--batch-size", 16, "--quiet", "--out", paths[-1])
            ]
        )
    return paths


@pytest.fixture(scope="module")
def post_hoc_run(bases, tmp_path_factory):
    """a(z) fitted to the first base run, without interruption."""
    out = tmp_path_factory.mktemp("post_hoc")
    train.main([*POST_HOC, "--post-hoc", str(bases[0]), "--out", str(out)])
    return out


def test_post_hoc_fit_moves_the_prior_and_nothing_else(bases, post_hoc_run):
    base, run = runs.load(bases[0]).model, runs.load(post_hoc_run)
    model, config = run.model, run.config
    for before, after in zip(building.networks(base), building.networks(model), strict=True):
        for a, b in zip(before.get_weights(), after.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)
    x = np.float32(np.random.default_rng(0).random((5, 28, 28)) < 0.3)
    np.testing.assert_array_equal(base.encode_and_decode(x), model.encode_and_decode(x))
    # Only a(z), an MLP 4-8-8-1, is trained, and all of its weights changed.
    assert sum(np.prod(v.shape) for v in model.trainable_variables) == 40 + 72 + 9
    untrained = building.build(config)
    for before, after in zip(untrained.trainable_variables, model.trainable_variables, strict=True):
        assert np.any(np.asarray(before) != np.asarray(after)), after.path
    assert int(model.optimizer.iterations) == 100


def test_post_hoc_fit_starts_without_warm_up(post_hoc_run):
    config = RunDirectory(post_hoc_run).config()
    assert config.post_hoc
    assert Schedule.of(config).warm_up == 0


def test_interrupted_post_hoc_fit_goes_on_exactly(
    capsys, bases, post_hoc_run, tmp_path, monkeypatch
):
    arguments = [*POST_HOC, "--post-hoc", bases[0], "--out", tmp_path]
    save = tf.train.CheckpointManager.save

    def full(self, *args, checkpoint_number, **kwargs):
        if checkpoint_number == 100:
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")
        return save(self, *args, checkpoint_number=checkpoint_number, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(tf.train.CheckpointManager, "save", full)
        assert "No space left" in fails(capsys, *arguments)
    assert tf.train.latest_checkpoint(str(tmp_path / "checkpoints")).endswith("ckpt-50")
    # Another base makes it another run.
    message = fails(capsys, *POST_HOC, "--post-hoc", bases[1], "--out", tmp_path)
    assert message.count("\n") == 0
    assert "holds a run of another configuration (base_weights=" in message
    train.main([str(a) for a in arguments])
    whole, resumed = final_state(post_hoc_run), final_state(tmp_path)
    assert whole.keys() == resumed.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(value, resumed[name], err_msg=name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prior", "vamp"], "fits a resampled prior, not --prior vamp"),
        (["--latents", "5"], "num_latents is 4, expected 5"),
        (["--model", "hvae"], "model is vae, expected hvae"),
    ],
)
def test_base_that_cannot_serve_is_explained(capsys, bases, tmp_path, arguments, message):
    out = tmp_path / "run"
    said = fails(capsys, *POST_HOC, *arguments, "--post-hoc", bases[0], "--out", out)
    assert message in said
    assert said.count("\n") == 0
    assert not out.exists()


def test_base_with_a_learned_prior_or_no_checkpoint_is_explained(capsys, post_hoc_run, tmp_path):
    said = fails(capsys, *POST_HOC, "--post-hoc", post_hoc_run, "--out", tmp_path / "run")
    assert "prior is lars, expected standard" in said
    said = fails(capsys, *POST_HOC, "--post-hoc", tmp_path, "--out", tmp_path / "run")
    assert "holds no run" in said


def test_unfinished_base_is_explained(capsys, bases, tmp_path):
    """The base has a checkpoint, but its configuration asks for more steps."""
    longer = tmp_path / "base"
    shutil.copytree(bases[0], longer)
    config = json.loads((longer / "config.json").read_text())
    (longer / "config.json").write_text(json.dumps({**config, "steps": 500}))
    said = fails(capsys, *POST_HOC, "--post-hoc", longer, "--out", tmp_path / "run")
    assert "is at step 50 of 500: train it to its end" in said


@pytest.mark.parametrize(("steps", "count"), [(100, 64), (5_000, 500), (100_000, 10_000)])
def test_short_budgets_look_at_some_validation_images(tmp_path, steps, count):
    prior = PriorConfig(name="standard")
    config = Config("static_mnist", "vae", prior, steps=steps)
    images = np.arange(10_000)
    stopper = early_stopping.BestValidation(RunDirectory(tmp_path), images, config)
    assert len(stopper.validation) == count
    assert stopper.validation[-1] >= 10_000 - 10_000 / count - 1


@pytest.mark.skipif(
    "TFP_LARS_DATA_DIR" not in os.environ, reason="TFP_LARS_DATA_DIR is not set: no real MNIST"
)
@pytest.mark.parametrize("name", ["hvae", "conv_hvae"])
def test_two_layer_models_learn_real_digits(name, tmp_path):
    """The bound rises by more than its noise from each quarter of the training to the next."""
    config = Config("mnist", name, PriorConfig(), steps=200, batch_size=32, checkpoint_every=50)
    images = datasets.load("mnist")
    run = RunDirectory(tmp_path)
    run.claim(config, images.digest)
    training.train(config, images, run, progress=False)
    (events,) = (tmp_path / "tensorboard").glob("events*")
    elbos = [
        float(tf.make_ndarray(value.tensor))
        for record in tf.data.TFRecordDataset(str(events))
        for value in tf.compat.v1.Event.FromString(record.numpy()).summary.value
        if value.tag == "elbo"
    ]
    assert len(elbos) == 4
    assert np.all(np.diff(elbos) > 1.0)
