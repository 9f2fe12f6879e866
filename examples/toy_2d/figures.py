"""The figures of the study in the plane: densities as in the paper's Figure 2, and real draws."""

from __future__ import annotations

import pathlib

import matplotlib

matplotlib.use("Agg")  # no display needed

import matplotlib.pyplot as plt
import numpy as np
import PIL.Image
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.image import AxesImage

from examples.common.quadrature import Grid
from examples.toy_2d.models import Fit

__all__ = ["ACCEPTANCE", "DENSITY", "draw_densities", "draw_draws", "frame", "show"]

_VIEW = 3.0  # half the width of what is shown
DENSITY, ACCEPTANCE = "Blues", "Reds"


def draw_densities(
    path: pathlib.Path, grid: Grid, log_q: np.ndarray, fits: list[Fit], title: str
) -> None:
    """Target, proposal, a(z) and p(z) of each model, a row each, with KL and Z under them."""
    norm = _density_norm(log_q)
    figure, axes = plt.subplots(
        len(fits), 4, figsize=(9.6, 2.15 * len(fits) + 0.6), layout="constrained", squeeze=False
    )
    figure.suptitle(title, fontsize=11)
    for row, fit in zip(axes, fits, strict=True):
        n = fit.numbers
        row[0].set_ylabel(_label(fit), fontsize=8)
        image = show(row[0], grid, np.exp(log_q), DENSITY, norm, "")
        show(
            row[1], grid, np.exp(fit.log_pi), DENSITY, norm, f"KL(q || π) = {n['kl_proposal']:.2f}"
        )
        if fit.model.resampled:
            # Without truncation the scale of a(z) is free; a common one shows its shape.
            relative = np.exp(fit.log_a) / n["max_a"]
            caption = f"Z = {n['z']:.3f}, max a = {n['max_a']:.2f}"
            accept = show(row[2], grid, relative, ACCEPTANCE, Normalize(0, 1), caption)
        else:
            row[2].axis("off")
            row[2].text(0.5, 0.5, "no resampling", ha="center", transform=row[2].transAxes)
        show(row[3], grid, np.exp(fit.log_p), DENSITY, norm, f"KL(q || p) = {n['kl']:.3f}")
    names = ["target q(z)", "proposal π(z)", "a(z) / max a", "model p(z)"]
    for axis, name in zip(axes[0], names, strict=True):
        axis.set_title(name, fontsize=10)
    _bar(figure, image, axes, "density (square-root scale)", extend="max")
    _bar(figure, accept, axes, "a(z) / max a")
    _save(figure, path)


def draw_draws(
    path: pathlib.Path, grid: Grid, log_q: np.ndarray, fits: list[Fit], title: str
) -> None:
    """Above, draws over the density of the model; below, the histogram of all draws."""
    norm = _density_norm(log_q)
    figure, axes = plt.subplots(
        2, len(fits), figsize=(2.55 * len(fits) + 0.9, 6.0), layout="constrained", squeeze=False
    )
    figure.suptitle(title, fontsize=11)
    edges = np.linspace(-_VIEW, _VIEW, 97)
    for column, fit in zip(axes.T, fits, strict=True):
        column[0].set_title(_label(fit), fontsize=9)
        image = show(column[0], grid, np.exp(fit.log_p), DENSITY, norm, "density, 1,000 draws")
        column[0].plot(*fit.draws[:1000].T, ".", color="black", markersize=1.5, alpha=0.6)
        counts, _, _ = np.histogram2d(*fit.draws.T, bins=[edges, edges])
        density = counts / (len(fit.draws) * (edges[1] - edges[0]) ** 2)
        axis = column[1]
        axis.imshow(density.T, origin="lower", extent=[-_VIEW, _VIEW] * 2, cmap=DENSITY, norm=norm)
        p_value = fit.numbers["chi_square_p_value"]
        frame(axis, f"histogram, {len(fit.draws):,} draws\nchi-square p = {p_value:.2g}")
    _bar(figure, image, axes, "density (square-root scale)", extend="max")
    _save(figure, path)


def _label(fit):
    return fit.model.name.replace("LARS, ", "LARS,\n")


def _density_norm(log_q):
    # The square root keeps a flat proposal visible beside sharp modes.
    return PowerNorm(0.5, vmin=0, vmax=float(np.exp(np.max(log_q))))


def show(
    axis: Axes,
    grid: Grid,
    values: np.ndarray,
    cmap: str,
    norm: Normalize,
    caption: str,
    view: float = _VIEW,
) -> AxesImage:
    """Draws values at the nodes of a grid, `[size, size]`, as far as `view` from the middle."""
    inside = np.abs(grid.axis) <= view
    shown = values[np.ix_(inside, inside)]
    image = axis.imshow(shown.T, origin="lower", extent=[-view, view] * 2, cmap=cmap, norm=norm)
    frame(axis, caption, view)
    return image


def frame(axis: Axes, caption: str, view: float = _VIEW) -> None:
    """A square of the plane without numbers at its sides, and a caption under it."""
    axis.set_xlim(-view, view)
    axis.set_ylim(-view, view)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_xlabel(caption, fontsize=8)


def _bar(figure, image, axes, label, extend="neither"):
    bar = figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, extend=extend)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=7)


def _save(figure, path):
    figure.savefig(path, dpi=100)
    plt.close(figure)
    # A palette halves the size, for a repository or a web page.
    with PIL.Image.open(path) as image:
        image.convert("RGB").quantize(128).save(path, optimize=True)
