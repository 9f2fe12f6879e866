"""Tests of the command that makes the tables: which runs it starts, reuses and reports."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from examples.common import locks
from examples.common.command_line import UserError
from examples.paper import runner
from examples.paper.kinds import Figure
from examples.paper.study import Study
from examples.vae import datasets
from tests.examples.paper.made_up import (
    IMAGES,
    JOINT,
    POST_HOC,
    STANDARD,
    TABLE,
    TINY,
    finish,
    study,
)

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def fake_training(tmp_path, monkeypatch):
    """A fast stand-in for `examples.vae.train`, controlled by files.

    `todo/NAME` contains `fail`, `hang`, or nothing. `made/runs/NAME` is a finished run to copy.
    """
    code = """
        import os, pathlib, shutil, sys, time
        here = pathlib.Path(__file__).parent
        assert sys.argv[1] == "--config" and len(sys.argv) == 3
        out = pathlib.Path(sys.argv[2]).parent
        with (here / "calls.txt").open("a") as calls:
            calls.write(out.name + "\\n")
        todo = here / "todo" / out.name
        what = todo.read_text() if todo.exists() else ""
        if what == "hang":
            (here / "hanging").write_text(str(os.getpid()))
            time.sleep(600)
        if what == "fail":
            print("error: the disk is full", file=sys.stderr)
            sys.exit(2)
        shutil.copytree(here / "made" / "runs" / out.name, out, dirs_exist_ok=True)
    """
    here = tmp_path / "fake"
    (here / "todo").mkdir(parents=True)
    (here / "fake_training.py").write_text(textwrap.dedent(code))
    made = study(here / "made")
    for run in (STANDARD, POST_HOC, JOINT):
        finish(made, run)
    monkeypatch.setattr(datasets, "digest", lambda name, data_dir=None: IMAGES)
    monkeypatch.setenv("PYTHONPATH", str(here))
    monkeypatch.setattr(runner, "TRAIN", "fake_training")
    return here


def calls(here):
    return (here / "calls.txt").read_text().split()


@pytest.mark.parametrize("jobs", [1, 3])
def test_bases_come_first_and_finished_runs_are_not_run_again(
    fake_training, tmp_path, capsys, jobs
):
    made = study(tmp_path / "out")
    assert runner.reproduce(made, jobs)
    order = calls(fake_training)
    assert sorted(order) == sorted(run.name for run in made.runs)
    assert order.index(STANDARD.name) < order.index(POST_HOC.name)
    assert runner.reproduce(made, jobs)
    assert calls(fake_training) == order
    assert capsys.readouterr().out.count("finished before, NLL 90.00") == 3


def test_failed_run_is_reported_and_the_rest_goes_on(fake_training, tmp_path, capsys):
    (fake_training / "todo" / STANDARD.name).write_text("fail")
    made = study(tmp_path / "out")
    assert not runner.reproduce(made)
    out = capsys.readouterr().out
    assert f"{STANDARD.name}: failed after" in out
    assert ": the disk is full (log: " in out
    assert f"{POST_HOC.name}: not started: it needs {STANDARD.name}" in out
    assert "| standard | failed: the disk is full |" in out
    assert "| joint | 91.00 ± 0.08 |" in out
    log = made.runs_dir / STANDARD.name / runner.LOG_FILE
    assert "the disk is full" in log.read_text()
    # The same command retries the failed run.
    (fake_training / "todo" / STANDARD.name).unlink()
    assert runner.reproduce(made)
    assert "started again, failed: the disk is full" in capsys.readouterr().out


def test_directory_of_another_configuration_is_refused_and_left_alone(
    fake_training, tmp_path, capsys
):
    other = study(tmp_path / "out", preset=dataclasses.replace(TINY, steps=7))
    finish(other, JOINT)
    before = {p: p.read_bytes() for p in (other.runs_dir / JOINT.name).iterdir()}
    assert not runner.reproduce(study(tmp_path / "out"))
    out = capsys.readouterr().out
    assert f"{JOINT.name}: refused: {JOINT.name} holds a run of another configuration" in out
    assert "steps=7 there, 100 here" in out
    assert {p: p.read_bytes() for p in (other.runs_dir / JOINT.name).iterdir()} == before
    assert JOINT.name not in calls(fake_training)


def test_less_full_evaluation_is_done_again(fake_training, tmp_path, capsys):
    less = dataclasses.replace(TINY.evaluation, iwae_samples=2)
    finish(study(tmp_path / "out", preset=dataclasses.replace(TINY, evaluation=less)), JOINT)
    assert runner.reproduce(study(tmp_path / "out"))
    out = capsys.readouterr().out
    assert "started again, evaluated with 50 test images, 2 importance samples" in out
    assert JOINT.name in calls(fake_training)


def test_process_that_leaves_nothing_behind_has_failed(fake_training, tmp_path, capsys):
    (fake_training / "made" / "runs" / JOINT.name / "metrics.json").unlink()
    assert not runner.reproduce(study(tmp_path / "out"))
    assert "it ended without a result" in capsys.readouterr().out


def test_interrupt_stops_the_children(fake_training, tmp_path, monkeypatch):
    (fake_training / "todo" / JOINT.name).write_text("hang")
    made = runner.Runner(study(tmp_path / "out", TABLE.rows[2:3]), jobs=1)
    children = []

    def interrupted(interval=0.0):
        children.extend(child for _, child, _ in made.running.values())
        while not (fake_training / "hanging").exists():
            assert children[0].poll() is None
            time.sleep(0.02)
        raise KeyboardInterrupt

    monkeypatch.setattr(made, "collect", interrupted)
    monkeypatch.setattr(runner, "_PATIENCE", 2.0)  # where SIGINT is ignored, as behind nohup
    with pytest.raises(KeyboardInterrupt):
        made.run()
    (child,) = children
    assert child.returncode not in (None, 0)


def test_children_share_gpus_or_cores():
    inherited = {"PATH": "/bin", "PYTHONPATH": "/more"}
    one = runner.environment(0, 1, [], 8, inherited)
    assert "OMP_NUM_THREADS" not in one
    assert one["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "/more"]
    two = runner.environment(1, 2, [], 8, inherited)
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        assert two[name] == "4"
    assert runner.environment(1, 4, [], 2, inherited)["OMP_NUM_THREADS"] == "1"
    chosen = runner.environment(1, 2, [], 8, {**inherited, "OMP_NUM_THREADS": "3"})
    assert chosen["OMP_NUM_THREADS"] == "3"
    for slot, gpu in enumerate(["2", "5", "2"]):
        found = runner.environment(slot, 3, ["2", "5"], 8, inherited)
        assert found["CUDA_VISIBLE_DEVICES"] == gpu
        assert "OMP_NUM_THREADS" not in found


def test_figure_is_drawn_once_from_finished_runs(fake_training, tmp_path, capsys):
    code = """
        import json, pathlib, shlex, sys
        out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
        command = shlex.join(["python", "-m", "fake_figure", *sys.argv[1:]])
        out.with_suffix(".json").write_text(json.dumps({"command": command}))
        print("drawn")
    """
    (fake_training / "fake_figure.py").write_text(textwrap.dedent(code))
    figure = Figure("figure_made", "Made up", ("fake_figure",), (JOINT,))
    made = Study([], [figure], TINY, tmp_path / "out")
    assert runner.reproduce(made)
    assert "figure_made: finished in" in capsys.readouterr().out
    assert (tmp_path / "out" / "figure_made.log").read_text() == "drawn\n"
    assert runner.reproduce(made)
    assert "figure_made: drawn before" in capsys.readouterr().out
    # The figure is drawn again after its run has changed.
    later = time.time() + 100
    os.utime(made.runs_dir / JOINT.name / "metrics.json", (later, later))
    assert runner.reproduce(made)
    assert "figure_made: finished in" in capsys.readouterr().out


def test_only_the_named_runs_and_those_that_they_need_are_made(fake_training, tmp_path):
    figures = [Figure("figure_made", "Made up", ("fake_figure",), (JOINT,)), Figure("f", "F", ())]
    table = study(tmp_path / "out").tables[0]

    def made(*only):
        return Study([table], figures, TINY, tmp_path / "out", only=only)

    named = made(POST_HOC.name)
    assert [task.name for task in runner.tasks(named)] == [STANDARD.name, POST_HOC.name]
    assert runner.reproduce(named)
    assert "not run" in (tmp_path / "out" / "tiny.md").read_text()
    assert [task.name for task in runner.tasks(made(JOINT.name))] == [JOINT.name, "figure_made"]
    assert len(runner.tasks(made())) == 5
    with pytest.raises(UserError, match=rf"unknown run 'x' in --only: .*{STANDARD.name}"):
        assert made("x").runs


def test_run_of_another_process_is_waited_for(fake_training, tmp_path, capsys, monkeypatch):
    """A child of a killed runner may still be there, or another command may train the same run."""
    made = study(tmp_path / "out", TABLE.rows[:1])
    directory = made.runs_dir / STANDARD.name
    directory.mkdir(parents=True)
    held = [locks.take(directory)]
    assert locks.take(directory) is None
    naps = []

    def sleep(seconds, original=time.sleep):
        naps.append(seconds)
        assert held or len(naps) > 2
        if len(naps) == 2:
            assert not (fake_training / "calls.txt").exists()
            os.close(held.pop())
        original(seconds)

    monkeypatch.setattr(runner.time, "sleep", sleep)
    assert runner.reproduce(made)
    out = capsys.readouterr().out
    said = f"waits for process {os.getpid()}, which trains in {directory}"
    assert out.count(said) == 1
    assert calls(fake_training) == [STANDARD.name]


def test_lock_is_held_by_the_child_and_ends_with_it(fake_training, tmp_path, monkeypatch):
    (fake_training / "todo" / JOINT.name).write_text("hang")
    made = runner.Runner(study(tmp_path / "out", TABLE.rows[2:3]), jobs=1)
    monkeypatch.setattr(runner, "_PATIENCE", 2.0)
    directory = made.study.runs_dir / JOINT.name
    assert made.begin(made.pending[0], slot=0)
    assert locks.take(directory) is None
    made.stop()
    os.close(locks.take(directory))


@pytest.fixture(scope="module")
def two_real_runs(tmp_path_factory):
    """A standard VAE and then a post-hoc a(z), trained in real processes without interruption."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TFP_LARS_DATA_DIR", raising=False)  # mnist5k needs no files
        made = study(tmp_path_factory.mktemp("two_real_runs"), TABLE.rows[:2])
        assert runner.reproduce(made, jobs=2)
    return made


def test_two_real_runs_make_a_table(two_real_runs):
    states = {run: two_real_runs.state(run) for run in (STANDARD, POST_HOC)}
    standard, post_hoc = (states[run].metrics for run in (STANDARD, POST_HOC))
    assert standard["recons"] == post_hoc["recons"]
    assert standard["networks"] == post_hoc["networks"] == post_hoc["config"]["base_weights"]
    assert post_hoc["nll"] != standard["nll"]
    text = (two_real_runs.out / "results.md").read_text()
    assert "it leaves the rest. **Holds**" in text
    assert "not run" not in text
    for run in states:
        log = two_real_runs.runs_dir / run.name / runner.LOG_FILE
        assert "step 100 of 100" in log.read_text()


PAUSED = """
import os, pathlib, time
from examples.common import command_line, files
from examples.vae import train, training

here = pathlib.Path(__file__).parent

def pause(where):
    if (here / "pause").read_text() == where:
        files.write(here / where, str(os.getpid()).encode())
        time.sleep(600)

class Keeper(training.Keeper):
    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        pause("checkpoint")

def write_all(contents, original=files.write_all):
    if any(path.name == "metrics.json" for path in contents):
        pause("metrics")
    original(contents)

training.Keeper, files.write_all = Keeper, write_all
command_line.run(train.main)
"""

RUNNER = """
import sys
from examples.paper import runner
from examples.vae import datasets
from tests.examples.paper.made_up import TABLE, study

datasets.digest = lambda name, data_dir=None: sys.argv[2]  # takes seconds to compute
runner.TRAIN, runner.visible_gpus = "paused_training", list
sys.exit(0 if runner.reproduce(study(sys.argv[1], TABLE.rows[:1]), jobs=2) else 1)
"""


def wait_for(path, process):
    while not path.exists():
        assert process.poll() is None
        time.sleep(0.02)
    return int(path.read_text())


def test_killed_runner_and_killed_run_continue_to_the_same_numbers(two_real_runs, tmp_path):
    """Kills the runner after the first checkpoint and the run just before its metrics are there."""
    expected = two_real_runs.state(STANDARD).metrics
    (tmp_path / "paused_training.py").write_text(PAUSED)
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    made = study(tmp_path / "out", TABLE.rows[:1])
    directory = made.directory(STANDARD)

    def start(pause):
        (tmp_path / "pause").write_text(pause)
        return subprocess.Popen(
            [sys.executable, "-c", RUNNER, str(made.out), expected["images"]],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )

    command = start("checkpoint")
    orphan = wait_for(tmp_path / "checkpoint", command)
    command.kill()
    command.communicate()
    assert directory.last_step() == 50

    command = start("metrics")  # waits for the lock of the orphan, which ends by itself
    os.kill(wait_for(tmp_path / "metrics", command), signal.SIGKILL)
    said, _ = command.communicate()
    assert command.returncode == 1
    assert "started again, interrupted at step 50" in said
    assert "failed after" in said and "killed by SIGKILL" in said
    assert directory.last_step() == 100 and not directory.metrics_file.exists()
    assert not is_running(orphan)

    command = start("")
    said, _ = command.communicate()
    assert command.returncode == 0, said
    found = directory.metrics()
    timing = {"command", "evaluation_seconds", "training_seconds", "revision"}
    assert {n: v for n, v in found.items() if n not in timing} == {
        n: v for n, v in expected.items() if n not in timing
    }
    for name in ("nll", "elbo"):
        pair = (source.per_image(STANDARD, name) for source in (made, two_real_runs))
        np.testing.assert_array_equal(*pair)


KILLED = """
import pathlib, sys
from examples.paper import runner
from examples.vae import datasets
from tests.examples.paper.made_up import IMAGES, TABLE, study

datasets.digest = lambda name, data_dir=None: IMAGES
runner.TRAIN = "fake_training"
runner.visible_gpus = lambda: []
runner.reproduce(study(sys.argv[1], TABLE.rows[2:3]))
"""


def is_running(pid):
    """Returns whether a process is running. Zombies do not count."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="no /proc to look at processes")
def test_children_end_when_the_runner_is_killed(fake_training, tmp_path):
    (fake_training / "todo" / JOINT.name).write_text("hang")
    path = os.pathsep.join([str(ROOT), str(fake_training)])
    parent = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "out")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
    )
    hanging = fake_training / "hanging"
    while not (hanging.exists() and hanging.read_text()):
        assert parent.poll() is None
        time.sleep(0.02)
    pid = int(hanging.read_text())
    assert is_running(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while is_running(pid):  # hangs if the child does not end
        time.sleep(0.02)
    log = (tmp_path / "out" / "runs" / JOINT.name / runner.LOG_FILE).read_text()
    assert "the process that started this one is gone" in log


def test_data_that_is_missing_is_told_before_a_process_starts(
    fake_training, tmp_path, monkeypatch, capsys
):
    def missing(name, data_dir=None):
        raise datasets.DataError(f"no images of {name}")

    monkeypatch.setattr(datasets, "digest", missing)
    assert not runner.reproduce(study(tmp_path / "out"))
    out = capsys.readouterr().out
    assert f"{JOINT.name}: not started: no images of mnist5k" in out
    assert "| joint | failed: no images of mnist5k |" in out
    assert not (fake_training / "calls.txt").exists()


@pytest.mark.parametrize("module", ["examples.paper.command", "examples.paper.runner"])
def test_wrong_arguments_do_not_wait_for_tensorflow(module):
    code = f"import sys, {module}; print('tensorflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
