"""Draws panels of the plane and saves figures."""

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

VIEW = 3.0  # half the width of the visible square


def show(
    axis: Axes,
    grid: Grid,
    values: np.ndarray,
    cmap: str,
    norm: Normalize,
    caption: str,
    view: float = VIEW,
) -> AxesImage:
    """Draws values at the nodes of a grid, `[size, size]`, on the square [-view, view]^2."""
    inside = np.abs(grid.axis) <= view
    shown = values[np.ix_(inside, inside)]
    image = axis.imshow(shown.T, origin="lower", extent=[-view, view] * 2, cmap=cmap, norm=norm)
    frame(axis, caption, view)
    return image


def frame(axis: Axes, caption: str, view: float = VIEW) -> None:
    """Sets the limits of a panel, removes its ticks and adds a caption below."""
    axis.set_xlim(-view, view)
    axis.set_ylim(-view, view)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_xlabel(caption, fontsize=8)


def save(figure: Figure, path: pathlib.Path, *, colors: int = 256) -> None:
    """Writes a figure as a PNG, atomically.

    Args:
      figure: Figure to draw.
      path: Path of the file.
      colors: Size of the palette.
    """
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=100)
    # A palette halves the size; k-means keeps the colors of a few dots apart.
    with PIL.Image.open(drawn) as image:
        image.convert("RGB").quantize(colors, kmeans=1).save(small, format="png", optimize=True)
    files.write(path, small.getvalue())
