"""Matplotlib figures without global state."""

from __future__ import annotations

import io
from typing import Any

__all__ = ["figure", "set_log_scale"]

_SIZE = 3.2  # inches, of a panel


def figure(rows: int, columns: int) -> tuple[Any, Any]:
    """Returns a new figure and its axes.

    Matplotlib is optional and imported here. Figures are not registered with `pyplot`, so that
    they are freed with their last reference.

    Args:
      rows: Number of rows of panels.
      columns: Number of columns of panels.

    Returns:
      figure: A `matplotlib.figure.Figure`.
      axes: A single `Axes`, or an array of them.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "Plots need matplotlib, which is not installed. Install it with "
            "`pip install matplotlib`."
        ) from None

    class NotebookFigure(Figure):
        """A figure that notebooks display, although `pyplot` does not know it."""

        def _repr_png_(self) -> bytes:
            content = io.BytesIO()
            self.savefig(content, format="png")
            return content.getvalue()

    wide = 1.5 if columns == 1 else 1.0
    new = NotebookFigure(figsize=(wide * _SIZE * columns, _SIZE * rows), layout="constrained")
    return new, new.subplots(rows, columns)


def set_log_scale(axis: Any) -> None:
    """Makes the x-axis logarithmic, with plain numbers such as 1, 2 and 10 at its ticks."""
    from matplotlib.ticker import LogFormatter

    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.4)))
