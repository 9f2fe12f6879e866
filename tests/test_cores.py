"""How the examples share out the cores."""

import os
import subprocess
import sys

import pytest

from examples import cores


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


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_a_command_is_in_time_to_say_so(command):
    # TensorFlow takes no more settings once something was computed.
    code = f"""
import tensorflow as tf
from examples import {command}
tf.config.threading.set_intra_op_parallelism_threads(3)
try:
    {command}.main(["--help"])
except SystemExit:
    tf.config.threading.set_intra_op_parallelism_threads(4)
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert process.returncode == 0, process.stderr
