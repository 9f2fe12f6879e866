"""Describes the machine that a result was computed on, without its name. Imports no TensorFlow."""

from __future__ import annotations

import os
import pathlib
import platform

from examples.common import cores


def describe() -> dict[str, str | int]:
    """Returns the processor, the number of available cores, the operating system and Python."""
    return {
        "processor": processor(),
        "cores": cores.available(),
        "threads": os.environ.get("TF_NUM_INTRAOP_THREADS", "all"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def processor() -> str:
    """Returns the model name of the processor, or its architecture if unknown."""
    return first_value("/proc/cpuinfo", "model name") or platform.machine()


def first_value(path: str, field: str) -> str:
    """Returns the first value of `field` in a file of `field: value` lines; empty if none."""
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(field)), "")
