"""Peak memory of a section of code."""

from __future__ import annotations

import pathlib
import resource

__all__ = ["Peak"]

_STATUS = pathlib.Path("/proc/self/status")
_RESET = pathlib.Path("/proc/self/clear_refs")


class Peak:
    """Measures the peak growth of resident memory since construction."""

    def __init__(self):
        self._start = _resident()
        try:
            _RESET.write_text("5")  # resets the peak recorded by Linux
        except OSError:
            # The peak cannot be reset. Measure growth beyond the earlier peak.
            self._start = _highest()

    def growth(self) -> int:
        """Returns the peak growth so far, in bytes."""
        return _highest() - self._start


def _highest() -> int:
    try:
        return _field("VmHWM")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _resident() -> int:
    try:
        return _field("VmRSS")
    except OSError:
        return _highest()


def _field(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no field {name}.")
