"""Progress of long work: a bar on a terminal, a few plain lines in a log file."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import keras

__all__ = ["ProgressBar"]

_LINES = 10


class ProgressBar(keras.utils.Progbar):
    """Keras's progress bar on a terminal. Elsewhere lines of text without control characters.

    Args:
      target: Number of units of work.
      unit_name: Name of a unit.
      names: Names of the values to show.
      every: Number of units between two lines. By default a tenth of the work.
    """

    def __init__(
        self, target: int, unit_name: str, names: Sequence[str] = (), every: int | None = None
    ):
        super().__init__(target, unit_name=unit_name, stateful_metrics=list(names))
        self._plain = not sys.stdout.isatty()
        self._every = max(1, target // _LINES) if every is None else every
        self._next_line = 0

    def update(self, current, values=None, finalize=None):
        """Shows the progress; see `keras.utils.Progbar`."""
        if not self._plain:
            super().update(current, values, finalize)
            return
        self._seen_so_far = current  # `add` counts from here
        if current < self._next_line and current < self.target:
            return
        self._next_line = current - current % self._every + self._every
        shown = "".join(f" - {name}: {value:.6g}" for name, value in values or ())
        print(f"{self.unit_name} {current:,} of {self.target:,}{shown}", flush=True)
