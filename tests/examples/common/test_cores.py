"""How the examples share out the cores."""

import os
import pathlib
import subprocess
import sys

import pytest

from examples.common import cores


@pytest.mark.parametrize(("available", "threads"), [(1, "1"), (2, "1"), (3, "1"), (8, "4")])
def test_each_of_two_operations_gets_half_of_the_cores(monkeypatch, available, threads):
    # Set first, so that it is put back.
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "")
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS")
    cores.share(available)
    assert os.environ["TF_NUM_INTRAOP_THREADS"] == threads


def test_all_available_cores_are_shared_out_unless_told(monkeypatch):
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "")
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS")
    monkeypatch.setattr(cores, "available", lambda: 6)
    cores.share()
    assert os.environ["TF_NUM_INTRAOP_THREADS"] == "3"


def test_what_the_user_says_of_threads_stays(monkeypatch):
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "7")
    cores.share()
    assert os.environ["TF_NUM_INTRAOP_THREADS"] == "7"


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("train", ["--dataset", "mnist5k", "--post-hoc", "nowhere", "--out", "nowhere"]),
        ("evaluate", ["nowhere"]),
        ("reproduce", ["table2", "--preset", "smoke", "--out", "nowhere", "--dry-run"]),
    ],
)
def test_a_command_shares_them_out_in_time(command, arguments, tmp_path):
    # TensorFlow takes no more settings once something was computed.
    code = f"""
import sys
import tensorflow as tf
from examples import cores, {command}

def share():
    tf.config.threading.set_intra_op_parallelism_threads(3)
    sys.exit(5)

cores.share = share
{command}.main({arguments})
"""
    root = pathlib.Path(__file__).parents[3]
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert process.returncode == 5, process.stderr
