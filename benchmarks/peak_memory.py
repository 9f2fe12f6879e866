"""How much memory a piece of code takes at its peak."""

from __future__ import annotations

import pathlib
import resource

__all__ = ["Peak"]

_STATUS = pathlib.Path("/proc/self/status")
_RESET = pathlib.Path("/proc/self/clear_refs")


class Peak:
    """Growth of resident memory from here on, at its highest."""

    def __init__(self):
        self._start = _resident()
        try:
            _RESET.write_text("5")  # lets Linux forget the peak so far
        except OSError:
            # The peak so far stays: growth counts from there on.
            self._start = _highest()

    def growth(self) -> int:
        """Bytes, so far."""
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
    raise OSError(f"no {name} in {_STATUS}")
