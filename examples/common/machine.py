"""Describes the machine that a result was computed on, without its name. Imports no TensorFlow."""

from __future__ import annotations

import os
import platform
import re

from examples.common import cores


def describe() -> dict[str, str | int]:
    """Returns the processor, the number of available cores, the operating system and Python."""
    return {
        "processor": _processor(),
        "cores": cores.available(),
        "threads": os.environ.get("TF_NUM_INTRAOP_THREADS", "all"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            found = re.search(r"^model name\s*:\s*(.+)$", file.read(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()
