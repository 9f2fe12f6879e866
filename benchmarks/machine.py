"""Description of the machine and the installed packages."""

from __future__ import annotations

import importlib.metadata
import os
import platform

from examples.common import cores
from examples.common.machine import first_value, processor

__all__ = ["describe"]

PACKAGES = (
    "tfp-lars",
    "tensorflow",
    "tensorflow-probability",
    "keras",
    "numpy",
    "torch",
    "glasflow",
)


def describe(threads: int) -> dict[str, str]:
    """Returns cores, processor, memory and versions. Missing packages are `"absent"`."""
    return {
        "cores": str(cores.available()),
        "threads for each contender": str(threads),
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "not set"),
        "processor": processor(),
        "memory": _memory(),
        "system": platform.system(),
        "Python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _memory() -> str:
    kilobytes = (first_value("/proc/meminfo", "MemTotal") or "").split()
    return f"{int(kilobytes[0]) / 2**20:.0f} GB" if kilobytes else "unknown"
