"""Files from others: they execute no code, lead to no other directory, and give clear errors."""

import io
import pathlib
import pickle
import struct

import numpy as np
import pytest
import tensorflow as tf

from examples.common import files
from examples.common.command_line import UserError
from examples.paper.store import entries
from examples.vae import checkpoints
from examples.vae.run_directory import RunDirectory
from tests.examples.paper.made_up import STANDARD, finish, study


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
        optimizer = tf.Module()
        optimizer.variables = ()

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
