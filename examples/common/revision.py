"""Version and revision of the running code, found without importing it."""

from __future__ import annotations

import functools
import importlib.util
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).parents[2]


@functools.cache
def version() -> str:
    """Returns `tfp_lars.__version__`."""
    found = importlib.util.find_spec("tfp_lars")
    text = pathlib.Path(found.origin).read_text()
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]


@functools.cache
def revision(root: pathlib.Path = ROOT) -> str:
    """Returns `git describe --always --dirty`, or the version outside of a clone."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    if (root / ".git").exists():
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return done.stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            pass
    return version()
