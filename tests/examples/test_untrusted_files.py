"""Files from others: they execute no code, lead to no other directory, and give clear errors."""

import io
import itertools
import json
import math
import pathlib
import pickle
import shutil
import struct
import types

import numpy as np
import pytest
import tensorflow as tf

from examples.common import files, locks
from examples.common.command_line import UserError
from examples.paper import runner
from examples.paper.store import entries, page
from examples.paper.store.stored import Store
from examples.vae import checkpoints
from examples.vae.config import Config, PriorConfig
from examples.vae.run_directory import RunDirectory
from tests.examples.paper.made_up import JOINT, STANDARD, finish, study

RESULTS = pathlib.Path(__file__).parents[2] / "results"


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (self.path,)


def npy(shape, dtype="'<f8'", data=b""):
    """Returns a file in NumPy's format with any header."""
    header = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def zipped():
    content = io.BytesIO()
    np.savez(content, nll=np.zeros(50))
    return content.getvalue()


def objects(mark):
    content = io.BytesIO()
    np.save(content, np.array([Hostile(mark)], dtype=object), allow_pickle=True)
    return content.getvalue()


ARRAYS = {
    "pickled objects": objects,
    "a bare pickle": lambda mark: pickle.dumps(Hostile(mark)),
    "a call in the header": lambda mark: npy(f"__import__('pathlib').Path('{mark}').touch()"),
    "more numbers than memory": lambda mark: npy((10**15,)),
    "a negative size": lambda mark: npy((-1,)),
    "an archive": lambda mark: zipped(),
    "text": lambda mark: npy((2,), "'<U1'", b"a\0\0\0b\0\0\0"),
    "two dimensions": lambda mark: npy((1, 2), data=bytes(16)),
    "a truncated file": lambda mark: npy((50,), data=bytes(100)),
    "nothing": lambda mark: b"",
}


@pytest.mark.parametrize("name", ARRAYS)
def test_array_that_is_none_is_refused_and_executes_nothing(name, tmp_path):
    mark, made = tmp_path / "executed", study(tmp_path)
    finish(made, STANDARD)
    path = made.directory(STANDARD).path
    (path / "test_nll.npy").write_bytes(ARRAYS[name](mark))
    assert made.per_image(STANDARD, "nll") is None
    with pytest.raises(UserError, match=r"test_nll.npy cannot be read"):
        entries.from_run(path)
    assert not mark.exists()


DEPTH = 10**5
JSON = {
    "deep lists": "[" * DEPTH + "]" * DEPTH,
    "deep objects": '{"a":' * DEPTH + "1" + "}" * DEPTH,
    "a deep entry": '{"config": ' + "[" * DEPTH + "]" * DEPTH + "}",
    "a long number": '{"steps": ' + "9" * 10**5 + "}",
    "a list": "[1]",
    "a number": "1",
    "no text": "\udcff",
    "nothing": "",
}


@pytest.mark.parametrize("name", JSON)
def test_json_that_describes_nothing_is_refused(name, tmp_path):
    content = JSON[name].encode(errors="surrogateescape")
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"config.json cannot be read"):
        files.read_json(path)
    with pytest.raises(UserError, match="config.json is refused"):
        entries.read(path)
    made = study(tmp_path / "out")
    finish(made, STANDARD)
    for file in (made.directory(STANDARD).metrics_file, made.directory(STANDARD).config_file):
        file.write_bytes(content)
        made.state(STANDARD)  # a table shows the run as not finished
    assert made.directory(STANDARD).metrics() is None


@pytest.mark.parametrize("kind", ["absolute", "relative", "older"])
def test_checkpoints_outside_of_the_run_are_neither_read_nor_deleted(kind, tmp_path):
    """TensorFlow reads the paths of checkpoints from a file, and deletes old ones there."""

    class Model:
        variables = (tf.Variable(1.0),)
        optimizer = types.SimpleNamespace(variables=())

    outside = tmp_path / "other" / "ckpt-1"
    tf.train.Checkpoint(state=[tf.Variable(7.0)]).write(str(outside))
    kept = sorted(outside.parent.iterdir())
    run = RunDirectory(tmp_path / "run")
    manager = checkpoints.manager(run, Model)
    manager.save(1)
    index = run.path / checkpoints.LAST / "checkpoint"
    path = {"absolute": str(outside), "relative": "../../other/ckpt-1", "older": str(outside)}[kind]
    last = "ckpt-1" if kind == "older" else path
    index.write_text(
        f'model_checkpoint_path: "{last}"\n'
        f'all_model_checkpoint_paths: "{path}"\nall_model_checkpoint_paths: "{last}"\n'
    )
    with pytest.raises(UserError, match=r"checkpoints/checkpoint names .*other.*: delete"):
        checkpoints.manager(run, Model)
    assert sorted(outside.parent.iterdir()) == kept


CONFIG = Config("mnist5k", prior=PriorConfig("lars", (5,)))


@pytest.mark.parametrize("name", [checkpoints.LAST, checkpoints.BEST, "tensorboard"])
def test_links_out_of_a_run_are_not_followed(name, tmp_path):
    """TensorFlow would write there, and delete checkpoints as outdated."""
    outside = tmp_path / "outside"
    outside.mkdir()
    run = RunDirectory(tmp_path / "run")
    run.claim(CONFIG, "1234")
    (run.path / name).symlink_to(outside)

    class Model:
        variables = ()
        optimizer = types.SimpleNamespace(variables=())

    with pytest.raises(UserError, match=f"{name} is a symbolic link, .*: replace it by a copy"):
        run.claim(CONFIG, "1234")
    with pytest.raises(UserError, match=f"{name} is a symbolic link"):
        checkpoints.manager(run, Model)
    assert list(outside.iterdir()) == []


def test_a_run_may_be_a_link_as_a_whole(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    RunDirectory(tmp_path / "run").claim(CONFIG, "1234")
    assert (tmp_path / "disk" / "config.json").exists()


def test_writing_replaces_a_link_and_not_what_it_leads_to(tmp_path, monkeypatch):
    """Also for a draft, even if its random name is guessed, and for the lock."""
    outside = tmp_path / "outside"
    outside.write_text("mine")
    for name in ("metrics.json", "metrics.json.guessed.draft", "lock"):
        (tmp_path / name).symlink_to(outside)
    with monkeypatch.context() as patch:
        patch.setattr("secrets.token_hex", lambda size: "guessed")
        with pytest.raises(FileExistsError):
            files.write_json(tmp_path / "metrics.json", {})
    files.write_json(tmp_path / "metrics.json", {})
    assert not (tmp_path / "metrics.json").is_symlink()
    with pytest.raises(OSError, match="symbolic links"):
        locks.take(tmp_path)
    with pytest.raises(UserError, match="symbolic links"), locks.held(tmp_path):
        pass
    assert outside.read_text() == "mine"


def test_one_hostile_run_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    made = study(tmp_path, compare_data=False)
    monkeypatch.setattr(runner, "visible_gpus", list)
    monkeypatch.setattr("examples.vae.datasets.digest", lambda *args: "1234")
    directory = made.directory(STANDARD).path
    directory.mkdir(parents=True)
    (directory / "log.txt").symlink_to(tmp_path / "outside")
    tasks = runner.Runner(made, jobs=1)
    assert tasks.begin(tasks.pending[0], slot=0)
    assert "not started: " in capsys.readouterr().out and not tasks.running
    assert not (tmp_path / "outside").exists()


WRONG = [None, True, -1, 1.5, math.nan, 10**30, "x", [], [[]], {}, {"a": 1}, "|\n<script>"]


def changed(content):
    """Yields copies of JSON with each entry, at any depth, replaced by each wrong value."""

    def paths(part, above=()):
        for name, value in part.items():
            yield (*above, name)
            if isinstance(value, dict):
                yield from paths(value, (*above, name))

    for *above, last in paths(content):
        for value in WRONG:
            copy = json.loads(json.dumps(content))
            part = copy
            for name in above:
                part = part[name]
            part[last] = value
            yield copy


def count_refused(contents, read):
    """Returns how many are refused by a `UserError`, and how many there are."""
    refused = total = 0
    for content in contents:
        total += 1
        try:
            read(content)
        except UserError:
            refused += 1
    return refused, total


def test_wrong_types_in_a_configuration_are_refused():
    def read(content):
        found = Config.from_json(content)
        assert isinstance(found.name + found.title, str)

    refused, total = count_refused(changed(CONFIG.to_json()), read)
    # Not refused: other values of the right type, such as `base` "x".
    assert total > 250 and refused > 0.9 * total


def test_wrong_types_in_a_run_give_no_traceback(tmp_path):
    """Tables show such a run as not finished, and the store refuses it."""
    made = study(tmp_path, compare_data=False)
    for run in (STANDARD, JOINT):
        finish(made, run, z=0.1 if run is JOINT else None)
    run = made.directory(JOINT)

    def read(content):
        run.metrics_file.write_text(json.dumps(content))
        runner.render(made)
        entries.from_run(run.path)

    # Each fifth, because rendering takes time. All entries and all values are among them.
    contents = itertools.islice(changed(files.read_json(run.metrics_file)), 0, None, 5)
    refused, total = count_refused(contents, read)
    assert total > 120 and refused > 0.7 * total
    for name, content in {"timing.json": '{"training_seconds": "x"}', "failure.json": "[]"}.items():
        (run.path / name).write_text(content)
        assert run.training_seconds == 0.0 and made.state(JOINT)


def test_wrong_types_in_the_store_are_refused(tmp_path):
    store = tmp_path / "results"
    store.mkdir()
    name = "mnist-vae-lars-30000-s0"
    for end in (".json", ".npz"):
        shutil.copy(RESULTS / f"{name}{end}", store)
    path, template = store / f"{name}.json", (RESULTS / "template.md").read_text()

    def read(content):
        path.write_text(json.dumps(content))
        assert "<script" not in page.render(Store(store), template)

    contents = itertools.islice(changed(files.read_json(path)), 0, None, 5)
    refused, total = count_refused(contents, read)
    assert total > 120 and refused > 0.7 * total
