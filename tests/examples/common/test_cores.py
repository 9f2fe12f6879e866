"""Tests of how the examples share the cores."""

import os
import pathlib
import subprocess
import sys

import pytest

from examples.common import cores
from examples.vae.config import Config
from examples.vae.run_directory import RunDirectory


@pytest.mark.parametrize(("available", "threads"), [(1, "1"), (2, "1"), (3, "1"), (8, "4")])
def test_each_of_two_operations_gets_half_of_the_cores(monkeypatch, available, threads):
    # `setenv` comes first so that monkeypatch restores the original value.
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
    ("module", "arguments"),
    [
        ("examples.vae.train", ["--dataset", "mnist5k", "--out", "nowhere"]),
        ("examples.vae.evaluate", ["run"]),
        ("examples.paper.command", ["table2", "--preset", "smoke", "--out", "x", "--dry-run"]),
    ],
)
def test_a_command_shares_them_out_before_tensorflow_is_imported(module, arguments, tmp_path):
    RunDirectory(tmp_path / "run").claim(Config("mnist5k"), "1234")
    code = f"""
import sys
from examples.common import cores
import {module} as command

def share():
    sys.exit(6 if "tensorflow" in sys.modules else 5)

cores.share = share
command.main({arguments})
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 5, process.stderr
