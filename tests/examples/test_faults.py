"""Faults: kills, damaged checkpoints, full disks, signals, NaN, and two processes at once."""

import contextlib
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from examples.common import command_line, files, locks
from examples.common.command_line import UserError
from examples.paper import runner
from examples.paper.figures import command as figures
from examples.paper.figures import latent_2d
from examples.paper.store import entries
from examples.toy_2d import command as toy_2d
from examples.vae import (
    build,
    checkpoints,
    early_stopping,
    evaluate,
    evaluation,
    search,
    train,
    training,
)
from examples.vae.config import Config, PriorConfig
from examples.vae.run_directory import RunDirectory
from tests.examples.paper.made_up import STANDARD, finish, study

ROOT = pathlib.Path(__file__).parents[2]
SMALL = [
    "--dataset", "mnist5k", "--latents", "2", "--accept-units", "8", "--S", "16",
    "--batch-size", "16", "--steps", "60", "--checkpoint-every", "20",
    "--iwae-samples", "3", "--z-samples", "1000", "--test-images", "10", "--quiet",
]  # fmt: skip


@pytest.fixture
def interruptible():
    """Lets SIGINT interrupt, which processes in the background of a shell ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def no_space_beyond(num_bytes):
    """Makes writes fail beyond a size of a file, as a full disk does, without root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# Kills during a checkpoint


def test_checkpoint_is_complete_or_absent_after_a_kill_at_any_moment(tmp_path):
    """SIGKILL after each change of the files; SIGXFSZ within a write, where the kernel ends it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.examples.killed_checkpoints", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    moments = [json.loads(line) for line in done.stdout.splitlines()]
    by_kill = [m for m in moments if m["signal"] == signal.SIGKILL]
    within = [m for m in moments if m["signal"] == signal.SIGXFSZ]
    assert len(by_kill) > 8 and len(within) == 4
    for moment in moments:
        assert moment["restored"]
        assert moment["first"] in ([2.0], [3.0]), moment
        assert moment["second"] == [4.0], moment
        assert not [n for n in moment["left"] if "tmp" in n or "temp" in n], moment
    values = [moment["first"][0] for moment in by_kill]
    assert values == sorted(values) and set(values) == {2.0, 3.0}
    assert {moment["first"][0] for moment in within} == {2.0}


# Damaged checkpoints


class Model:
    """What a checkpoint saves of a model."""

    def __init__(self, value=0.0):
        self.variables = [tf.Variable(tf.fill([40], value)), tf.Variable(tf.fill([3, 5], value))]
        self.optimizer = types.SimpleNamespace(variables=[])

    def values(self):
        return {float(x) for v in self.variables for x in np.ravel(v)}


def save_two(run, name):
    """Saves 1 at step 1 and 2 at step 2."""
    model = Model()
    manager = checkpoints.manager(run, model, name)
    for step in (1, 2):
        for variable in model.variables:
            variable.assign(tf.fill(variable.shape, float(step)))
        manager.save(checkpoint_number=step)


@pytest.fixture
def two_checkpoints(tmp_path):
    run = RunDirectory(tmp_path / "run")
    save_two(run, checkpoints.LAST)
    return run


DATA, INDEX, LIST = "ckpt-2.data-00000-of-00001", "ckpt-2.index", "checkpoint"


def flip(content):
    return content[:30] + bytes([content[30] ^ 1]) + content[31:]


DAMAGE = {
    "data truncated": (DATA, lambda content: content[: len(content) // 2]),
    "data empty": (DATA, lambda content: b""),
    "data missing": (DATA, None),
    "data flipped": (DATA, flip),
    "index truncated": (INDEX, lambda content: content[: len(content) // 2]),
    "index empty": (INDEX, lambda content: b""),
    "index flipped": (INDEX, flip),
}


def spoil(run, name, change, folder=checkpoints.LAST):
    path = run.path / folder / name
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_checkpoint_is_named_and_the_previous_one_is_used(damage, two_checkpoints, capsys):
    run = two_checkpoints
    spoil(run, *DAMAGE[damage])
    with pytest.raises(UserError, match=r"ckpt-2 cannot be restored .*: run its training command"):
        checkpoints.restore(checkpoints.manager(run, Model()))
    model = Model()
    manager = checkpoints.manager(run, model)
    assert checkpoints.resume(manager)
    assert model.values() == {1.0}
    said = capsys.readouterr().err
    assert "ckpt-2 cannot be restored" in said and "resuming from step 1" in said
    assert said.startswith("warning: ") and said.count("\n") == 1
    # The training goes on and replaces the damaged one.
    manager.save(checkpoint_number=2)
    assert checkpoints.restore(checkpoints.manager(run, Model()))
    # Without another one, it is an error.
    for step in (1, 2):
        name, change = DAMAGE[damage]
        spoil(run, name.replace("2", str(step), 1), change)
    with pytest.raises(UserError, match=r"ckpt-2 cannot .*; .*ckpt-1 cannot .*: delete the dir"):
        checkpoints.resume(checkpoints.manager(run, Model()))


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_best_checkpoint_gives_way_to_the_previous_one(damage, tmp_path, capsys):
    """Early stopping restores it after the training, which ends even if it is repeated."""
    run = RunDirectory(tmp_path)
    save_two(run, checkpoints.BEST)
    spoil(run, *DAMAGE[damage], checkpoints.BEST)
    config = Config("static_mnist", prior=PriorConfig("standard"))
    stopper = early_stopping.BestValidation(run, np.zeros([2, 28, 28], np.uint8), config)
    with pytest.raises(UserError, match=r"ckpt-2 cannot be restored .*: run its training command"):
        checkpoints.restore(checkpoints.manager(run, Model(), checkpoints.BEST))
    model = Model()
    stopper.restore_best(model)
    assert model.values() == {1.0}
    said = capsys.readouterr().err
    assert said.startswith("warning: ") and "ckpt-2 cannot be restored" in said
    assert said.endswith(": using the weights of step 1.\n") and said.count("\n") == 1
    # From now on, the other commands find the same weights.
    again = Model()
    assert checkpoints.restore(checkpoints.manager(run, again, checkpoints.BEST))
    assert again.values() == {1.0}
    left = {path.name for path in (tmp_path / checkpoints.BEST).iterdir()}
    assert not [name for name in left if name.startswith("ckpt-2")]
    # Without another one, it is an error.
    name, change = DAMAGE[damage]
    spoil(run, name.replace("2", "1", 1), change, checkpoints.BEST)
    with pytest.raises(UserError, match=r"ckpt-1 cannot .*: delete the directory"):
        stopper.restore_best(Model())


@pytest.mark.parametrize(
    "content", [None, b"", b"nonsense", b"\xff\xfe\x00", b'model_checkpoint_path: "ckpt-1"\n']
)
def test_list_of_checkpoints_is_not_needed(content, two_checkpoints):
    """It may be damaged. It is outdated if the process was killed before it was written."""
    spoil(two_checkpoints, LIST, None if content is None else lambda _: content)
    for function in (checkpoints.resume, checkpoints.restore):
        model = Model()
        manager = checkpoints.manager(two_checkpoints, model)
        assert function(manager)
        assert model.values() == {2.0}
    manager.save(checkpoint_number=3)
    assert two_checkpoints.last_step() == 3


def test_missing_index_leaves_the_previous_checkpoint(two_checkpoints):
    spoil(two_checkpoints, INDEX, None)
    model = Model()
    assert checkpoints.restore(checkpoints.manager(two_checkpoints, model))
    assert model.values() == {1.0} and two_checkpoints.last_step() == 1


def test_no_flipped_bit_changes_a_restored_value(two_checkpoints):
    """Flips a bit in each 5th byte of both files. TensorFlow has checksums for all that matters."""
    model = Model()
    manager = checkpoints.manager(two_checkpoints, model)
    detected = tried = 0
    for name in (DATA, INDEX):
        path = two_checkpoints.path / checkpoints.LAST / name
        content = path.read_bytes()
        for i in range(0, len(content), 5):
            changed = bytearray(content)
            changed[i] ^= 1 << (i % 8)
            path.write_bytes(changed)
            tried += 1
            try:
                checkpoints.restore(manager)
            except UserError:
                detected += 1
            else:
                assert model.values() == {2.0}, (name, i)
        path.write_bytes(content)
    assert tried > 150 and detected > 0.9 * tried


# Full disks


def test_full_disk_keeps_the_last_checkpoint_and_the_same_command_resumes(tmp_path, monkeypatch):
    """A checkpoint has 8 MB, and only 1 MB fits after the first one."""
    limits = contextlib.ExitStack()

    class Keeper(training.Keeper):
        def on_epoch_end(self, epoch, logs=None):
            super().on_epoch_end(epoch, logs)
            limits.enter_context(no_space_beyond(10**6))

    arguments = [*SMALL, "--out", str(tmp_path)]
    with monkeypatch.context() as patch, limits:
        patch.setattr(training, "Keeper", Keeper)
        with pytest.raises(UserError, match="cannot write to .*: free some space") as error:
            train.main(arguments)
    assert "The last checkpoint, if any, is intact" in str(error.value)
    assert RunDirectory(tmp_path).last_step() == 20
    train.main(arguments)
    assert RunDirectory(tmp_path).metrics()["steps"] == 60
    left = {path.name for path in (tmp_path / checkpoints.LAST).iterdir()}
    assert left == {LIST, *(f"ckpt-{s}.{e}" for s in (40, 60) for e in ("index", DATA[7:]))}


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 kB in memory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no right to mount a small disk; other tests limit the size of files")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_really_full_disk(small_disk):
    """Fills a disk while checkpoints, JSON and results are written to it."""
    run, model = RunDirectory(small_disk / "run"), Model(1.0)
    manager = checkpoints.manager(run, model)
    manager.save(checkpoint_number=1)
    files.write_json(run.path / "old.json", {"old": 1})
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(512)):
            pass
    with (
        pytest.raises(UserError, match="cannot write to .*No space left on device"),
        checkpoints.explained(run.path),
    ):
        manager.save(checkpoint_number=2)
    with pytest.raises(UserError, match="No space left on device"), files.explained(run.path):
        files.write_json(run.path / "old.json", {"new": "x" * 10**5})
    assert files.read_json(run.path / "old.json") == {"old": 1}
    (small_disk / "filler").unlink()
    again = Model()
    manager = checkpoints.manager(run, again)
    assert checkpoints.resume(manager) and again.values() == {1.0}
    manager.save(checkpoint_number=2)
    assert sorted(p.name for p in run.path.iterdir()) == [checkpoints.LAST, "old.json"]


def test_failed_write_of_results_keeps_the_old_ones(tmp_path):
    old = {tmp_path / name: name.encode() for name in ("a.npy", "b.png", "metrics.json")}
    files.write_all(old)
    with no_space_beyond(1000), pytest.raises(OSError, match="File too large"):
        files.write_all({path: bytes(100 if "a" in path.name else 2000) for path in old})
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == old


def test_interrupted_replacement_of_results_does_not_mix_them(tmp_path, monkeypatch):
    """The last file marks the results as complete. It is absent while others are replaced."""
    paths = [tmp_path / name for name in ("a.npy", "b.npy", "metrics.json")]
    seen, replace = [], pathlib.Path.replace
    files.write_all(dict.fromkeys(paths, b"old"))

    def look(self, target):
        seen.append([path.read_bytes() for path in paths if path.exists()])
        return replace(self, target)

    monkeypatch.setattr(pathlib.Path, "replace", look)
    files.write_all(dict.fromkeys(paths, b"new"))
    assert seen == [[b"old", b"old"], [b"new", b"old"], [b"new", b"new"]]
    assert paths[2].read_bytes() == b"new"


WRITES = """
import pathlib, sys
from examples.common import files
path = pathlib.Path(sys.argv[1])
for _ in range(300):
    files.write(path, 200_000 * sys.argv[2].encode())
"""


def test_two_processes_write_the_same_file(tmp_path):
    """Two commands may render the same tables. The last one wins."""
    path = tmp_path / "results.md"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITES, str(path), letter], cwd=ROOT, stderr=subprocess.PIPE
        )
        for letter in "ab"
    ]
    errors = [writer.communicate()[1] for writer in writers]
    assert errors == [b"", b""]
    content = path.read_bytes()
    assert len(content) == 200_000 and len(set(content)) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_drafts_of_killed_processes_are_deleted_but_not_those_of_living_ones(tmp_path):
    path = tmp_path / "results [1].md"
    old, young, other = (
        tmp_path / name
        for name in ("results [1].md.1a.draft", "results [1].md.2b.draft", "results 1.md.3c.draft")
    )
    for draft in (old, young, other):
        draft.touch()
    for draft in (old, other):
        os.utime(draft, (0, 0))
    files.write(path, b"x")
    assert set(tmp_path.iterdir()) == {path, young, other}


def test_full_disk_in_the_other_commands(tmp_path, monkeypatch, capsys):
    """The 2-D study, the store, the tables, and the failure of a run that the runner records."""
    monkeypatch.setattr(toy_2d, "_fit_all", lambda *args: {})
    monkeypatch.setattr(toy_2d, "_table", lambda *args: "x" * 5000)
    monkeypatch.setattr(toy_2d, "_draw", lambda *args: None)
    stored = entries.read(min((ROOT / "results").glob("*.json")))
    made = study(tmp_path / "out")
    finish(made, STANDARD)
    monkeypatch.setattr(runner, "visible_gpus", list)
    tasks = runner.Runner(made, jobs=1)
    with no_space_beyond(1000):
        with pytest.raises(UserError, match="cannot write to .*File too large"):
            toy_2d.main(["--out", str(tmp_path / "toy"), "--quick"])
        with pytest.raises(UserError, match="cannot write to .*File too large"):
            entries.write(stored, tmp_path / "store")
        with pytest.raises(UserError, match="cannot write to .*File too large"):
            runner.render(made)
    with no_space_beyond(5):
        tasks.record_failure(tasks.pending[0], "the disk is full")
    assert not made.directory(STANDARD).failure_file.exists()
    assert not (tmp_path / "toy").exists()
    assert list((tmp_path / "store").iterdir()) == []
    assert not list(made.out.rglob("*.draft"))


# NaN


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    """The loss of the last step before a checkpoint does not show that its update was NaN."""
    config = Config("mnist5k", prior=PriorConfig("standard"), steps=1, num_latents=2)
    model, run = build.build(config), RunDirectory(tmp_path)
    keeper = training.Keeper(run, checkpoints.manager(run, model))
    keeper.set_model(model)
    kernel = model.trainable_variables[2]
    values = kernel.numpy()
    values[3, 4] = np.nan
    kernel.assign(values)
    with pytest.raises(UserError, match="a weight of .*kernel is not finite at step 0"):
        keeper.on_epoch_end(0, {"loss": 1.0})
    assert run.last_step() is None


def test_nan_in_the_other_commands_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(search, "_validation_nll", lambda *args: float("nan"))
    arguments = ["--dataset", "mnist5k", "--prior", "lars", "--recipe", "T fixed", "no clipping"]
    with pytest.raises(UserError, match="NLL is not finite for T fixed, lars, no clipping, lars"):
        search.main([*arguments, "--out", str(tmp_path / "search")])
    assert "| T fixed | nan |" in capsys.readouterr().out
    with pytest.raises(UserError, match="the loss of LARS became nan at or before step 7"):
        toy_2d._progress("LARS", 10)(7, float("nan"))


# Two processes, and signals


HOLDS = """
import os, pathlib, sys, time
from examples.common import locks
with locks.held(pathlib.Path(sys.argv[1])):
    print(os.getpid(), flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(directory, seconds, **kwargs):
    return subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(directory), str(seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        **kwargs,
    )


def test_second_process_is_refused_and_a_killed_one_blocks_nobody(tmp_path):
    first = holder(tmp_path, 600)
    pid = int(first.stdout.readline())
    toy = tmp_path / "toy" / ".partial"
    toy.mkdir(parents=True)
    other = holder(toy, 600)
    pid_of_toy = int(other.stdout.readline())
    commands = {
        train: [*SMALL, "--out", str(tmp_path)],
        search: ["--dataset", "mnist5k", "--prior", "lars", "--out", str(tmp_path)],
        toy_2d: ["--out", str(toy.parent)],
    }
    config = Config("mnist5k", prior=PriorConfig("standard"), steps=1, num_latents=2)
    RunDirectory(tmp_path).claim(config, "1234")
    commands[evaluate] = [str(tmp_path)]
    for command, arguments in commands.items():
        number = pid_of_toy if command is toy_2d else pid
        with pytest.raises(UserError, match=f"is in use by process {number}: wait until it ends"):
            command.main(arguments)
    for process in (first, other):
        process.kill()
        process.communicate()
    (toy / "table.md").touch()  # left behind
    with toy_2d._Output(toy.parent) as output:
        assert [path.name for path in output.iterdir()] == ["lock"]
    assert not list(toy.parent.iterdir())
    with locks.held(tmp_path):
        assert locks.holder(tmp_path) == str(os.getpid())


def test_child_uses_the_lock_of_its_parent_for_its_directory_alone(tmp_path):
    """As the runner starts a training. The file then names the child."""
    lock, other = locks.take(tmp_path), tmp_path / "other"
    other.mkdir()
    held = locks.take(other)
    environment = {**os.environ, locks.INHERITED: str(lock)}
    child = holder(tmp_path, 0, env=environment, pass_fds=[lock])
    said, _ = child.communicate()
    assert child.returncode == 0 and said == f"{child.pid}\n"
    assert locks.holder(tmp_path) == str(child.pid)
    assert locks.take(tmp_path) is None  # the parent still holds it
    refused = holder(other, 0, env=environment, pass_fds=[lock], stderr=subprocess.PIPE)
    assert f"in use by process {os.getpid()}" in refused.communicate()[1]
    for descriptor in (lock, held):
        os.close(descriptor)


def stopped(capsys, number, main, arguments, promise="nothing was written"):
    """Asserts that a command that gets a signal ends with its message and exit code."""
    with pytest.raises(SystemExit) as stop:
        command_line.run(lambda: main(arguments), promise)
    assert stop.value.code == 128 + number
    what = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[number]
    assert capsys.readouterr().err == f"{what}: {promise}\n"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.usefixtures("interruptible")
def test_signals_stop_a_training_which_resumes(tmp_path, monkeypatch, capsys):
    """SIGTERM in the middle of an epoch, then Ctrl-C while Z is estimated for the evaluation."""
    arguments = [*SMALL, "--out", str(tmp_path)]

    class Keeper(training.Keeper):
        def on_train_batch_end(self, batch, logs=None):
            super().on_train_batch_end(batch, logs)
            if int(self.model.optimizer.iterations) == 30:
                os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(training, "Keeper", Keeper)
        patch.setattr(training, "MOST_STEPS_PER_CALL", 10)
        stopped(capsys, signal.SIGTERM, train.main, arguments, command_line.RESUMES)
    run = RunDirectory(tmp_path)
    assert run.last_step() == 20

    def interrupt(self, *args, **kwargs):
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        # The library answers a `KeyboardInterrupt` here with what it has.
        patch.setattr("tfp_lars.normalizer.estimate._progress_bar", lambda _: interrupt)
        loud = [a for a in arguments if a != "--quiet"]
        stopped(capsys, signal.SIGINT, train.main, loud, command_line.RESUMES)
    assert run.last_step() == 60 and run.metrics() is None
    train.main(arguments)
    assert run.metrics()["steps"] == 60


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_the_other_commands(number, tmp_path, monkeypatch, capsys):
    def hit(*args, **kwargs):
        os.kill(os.getpid(), number)
        raise AssertionError("the signal was ignored")

    monkeypatch.setattr(evaluation, "importance_weighted", hit)
    monkeypatch.setattr(search, "_validation_nll", hit)
    monkeypatch.setattr(toy_2d, "_fit_all", hit)
    monkeypatch.setattr(runner.Runner, "collect", hit)
    monkeypatch.setattr(runner, "visible_gpus", list)
    out = tmp_path / "out"
    stopped(capsys, number, toy_2d.main, ["--out", str(out), "--quick"])
    assert not out.exists()
    stopped(capsys, number, search.main, [*SMALL[:2], "--prior", "lars", "--out", str(out)])
    assert [path.name for path in out.iterdir()] == ["lock"]
    stopped(capsys, number, lambda made: runner.Runner(made, jobs=1).run(), study(tmp_path / "p"))
    config = Config("mnist5k", prior=PriorConfig("standard"), steps=1, num_latents=2)
    run = RunDirectory(tmp_path / "run")
    from examples.vae import datasets

    run.claim(config, datasets.load("mnist5k").digest)
    checkpoints.manager(run, build.build(config)).save(checkpoint_number=1)
    stopped(capsys, number, evaluate.main, [str(run.path), "--quiet"])
    assert run.metrics() is None
    monkeypatch.setattr(latent_2d, "make", hit)
    picture = tmp_path / "figure.png"
    arguments = ["latent_2d", "--run", str(run.path), "--out", str(picture)]
    stopped(capsys, number, figures.main, arguments)
    assert not picture.exists()
