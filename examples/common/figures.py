"""Figures: panels of the plane, and how the file is written."""

from __future__ import annotations

import io
import pathlib

import numpy as np
import PIL.Image
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from examples.common import files
from examples.common.quadrature import Grid

VIEW = 3.0  # half the width of what is shown of the plane


def show(
    axis: Axes,
    grid: Grid,
    values: np.ndarray,
    cmap: str,
    norm: Normalize,
    caption: str,
    view: float = VIEW,
) -> AxesImage:
    """Draws values at the nodes of a grid, `[size, size]`, as far as `view` from the middle."""
    inside = np.abs(grid.axis) <= view
    shown = values[np.ix_(inside, inside)]
    image = axis.imshow(shown.T, origin="lower", extent=[-view, view] * 2, cmap=cmap, norm=norm)
    frame(axis, caption, view)
    return image


def frame(axis: Axes, caption: str, view: float = VIEW) -> None:
    """A square of the plane without numbers at its sides, and a caption under it."""
    axis.set_xlim(-view, view)
    axis.set_ylim(-view, view)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_xlabel(caption, fontsize=8)


def save(figure: Figure, path: pathlib.Path, *, colors: int = 256) -> None:
    """Writes a figure as a PNG, whole or not at all.

    Args:
      figure: What to draw.
      path: Where to write it.
      colors: Size of the palette.
    """
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=100)
    # A palette halves the size; k-means keeps the colors of a few dots apart.
    with PIL.Image.open(drawn) as image:
        image.convert("RGB").quantize(colors, kmeans=1).save(small, format="png", optimize=True)
    files.write(path, small.getvalue())
