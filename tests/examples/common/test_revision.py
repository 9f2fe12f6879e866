"""Tests of the version and revision of the running code."""

import pathlib
import shutil
import subprocess

import pytest

import tfp_lars
from examples.common import revision


def test_version_is_the_library_s():
    assert revision.version() == tfp_lars.__version__


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_revision_is_that_of_the_clone(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "--quiet", "--message", "one")
    commit = git("rev-parse", "--short", "HEAD")
    assert revision.revision.__wrapped__(tmp_path) == commit
    (tmp_path / "file").write_text("2")
    assert revision.revision.__wrapped__(tmp_path) == f"{commit}-dirty"


def test_revision_outside_of_a_clone_is_the_version(tmp_path):
    assert revision.revision.__wrapped__(pathlib.Path(tmp_path)) == tfp_lars.__version__
