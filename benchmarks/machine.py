"""Description of the machine and the installed packages."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import platform

from examples.common import cores

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
        "processor": _first("/proc/cpuinfo", "model name") or platform.machine(),
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
    kilobytes = (_first("/proc/meminfo", "MemTotal") or "").split()
    return f"{int(kilobytes[0]) / 2**20:.0f} GB" if kilobytes else "unknown"


def _first(path: str, field: str) -> str:
    """Returns the first value of `field` in a file of `field: value` lines."""
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(field)), "")
