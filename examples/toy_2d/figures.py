"""Figures of the 2-D study: densities, as in the paper's Figure 2, and draws."""

from __future__ import annotations

import pathlib

import numpy as np
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure

from examples.common import figures
from examples.common.figures import VIEW, frame, show
from examples.common.palette import ACCEPTANCE, DENSITY
from examples.common.quadrature import Grid
from examples.toy_2d.models import Fit

__all__ = ["draw_densities", "draw_draws"]


def draw_densities(
    path: pathlib.Path, grid: Grid, log_q: np.ndarray, fits: list[Fit], title: str
) -> None:
    """Draws target, proposal, a(z) and p(z) with KL and Z, one row for each model."""
    norm = _density_norm(log_q)
    figure = Figure(figsize=(9.6, 2.15 * len(fits) + 0.6), layout="constrained")
    axes = figure.subplots(len(fits), 4, squeeze=False)
    figure.suptitle(title, fontsize=11)
    for row, fit in zip(axes, fits, strict=True):
        n = fit.numbers
        row[0].set_ylabel(_label(fit), fontsize=8)
        image = show(row[0], grid, np.exp(log_q), DENSITY, norm, "")
        show(
            row[1], grid, np.exp(fit.log_pi), DENSITY, norm, f"KL(q || π) = {n['kl_proposal']:.2f}"
        )
        if fit.model.resampled:
            # Without truncation the scale of a(z) is arbitrary, so show a(z) / max a.
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
    figures.save(figure, path, colors=128)


def draw_draws(
    path: pathlib.Path, grid: Grid, log_q: np.ndarray, fits: list[Fit], title: str
) -> None:
    """Draws samples over the density of each model, and below them the histogram of all draws."""
    norm = _density_norm(log_q)
    figure = Figure(figsize=(2.55 * len(fits) + 0.9, 6.0), layout="constrained")
    axes = figure.subplots(2, len(fits), squeeze=False)
    figure.suptitle(title, fontsize=11)
    edges = np.linspace(-VIEW, VIEW, 97)
    for column, fit in zip(axes.T, fits, strict=True):
        column[0].set_title(_label(fit), fontsize=9)
        image = show(column[0], grid, np.exp(fit.log_p), DENSITY, norm, "density, 1,000 draws")
        column[0].plot(*fit.draws[:1000].T, ".", color="black", markersize=1.5, alpha=0.6)
        counts, _, _ = np.histogram2d(*fit.draws.T, bins=[edges, edges])
        density = counts / (len(fit.draws) * (edges[1] - edges[0]) ** 2)
        axis = column[1]
        axis.imshow(density.T, origin="lower", extent=[-VIEW, VIEW] * 2, cmap=DENSITY, norm=norm)
        p_value = fit.numbers["chi_square_p_value"]
        frame(axis, f"histogram, {len(fit.draws):,} draws\nchi-square p = {p_value:.2g}")
    _bar(figure, image, axes, "density (square-root scale)", extend="max")
    figures.save(figure, path, colors=128)


def _label(fit):
    return fit.model.name.replace("LARS, ", "LARS,\n")


def _density_norm(log_q):
    # The square-root scale keeps a flat proposal visible beside sharp modes.
    return PowerNorm(0.5, vmin=0, vmax=float(np.exp(np.max(log_q))))


def _bar(figure, image, axes, label, extend="neither"):
    bar = figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, extend=extend)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=7)
