"""Draws grids of images as one picture."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def png(images: np.ndarray, *, scale: int = 2, gap: int = 2) -> bytes:
    """Returns a PNG of images in [0, 1], shape `[rows, columns, H, W]`, dark on light.

    Args:
      images: Grid of images.
      scale: Side of an image pixel, in pixels of the picture.
      gap: Space between neighboring images, in image pixels.
    """
    from matplotlib.figure import Figure

    pixels = canvas(images, gap)
    figure = Figure(figsize=(pixels.shape[1] * scale / 100, pixels.shape[0] * scale / 100), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    show(axes, pixels)
    axes.set_axis_off()
    content = io.BytesIO()
    figure.savefig(content, format="png")
    return content.getvalue()


def canvas(images: np.ndarray, gap: int = 2) -> np.ndarray:
    """Returns a grid of images `[rows, columns, H, W]` as one `[h, w]`, with gaps of zeros."""
    rows, columns, height, width = images.shape
    cell = (height + gap, width + gap)
    pixels = np.zeros((rows * cell[0] + gap, columns * cell[1] + gap))
    for r in range(rows):
        for c in range(columns):
            top, left = gap + r * cell[0], gap + c * cell[1]
            pixels[top : top + height, left : left + width] = images[r, c]
    return pixels


def show(axes: Axes, pixels: np.ndarray) -> None:
    """Draws pixels in [0, 1], dark on light."""
    axes.imshow(pixels, cmap="gray_r", vmin=0.0, vmax=1.0, interpolation="nearest")
