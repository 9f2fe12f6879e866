"""Draws the 2-D latent space of trained models: the encoded data and the prior.

The figure has one row for each run of `--latents 2`. The columns are the aggregate posterior q(z),
which is the mean of q(z|x) over the training images; the proposal; a(z); the prior; and the encoded
means, colored by class. KLs and Z are integrals on a grid.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools

import numpy as np
import tensorflow as tf
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap, Normalize, PowerNorm
from matplotlib.figure import Figure

import tfp_lars
from examples.common import figures, palette, quadrature
from examples.common.command_line import UserError
from examples.vae import batches, datasets, models, runs

COLORS = 256
_CLASSES = ListedColormap(palette.CLASSES)
_COLUMNS = (
    "aggregate posterior q(z)",
    "proposal π(z)",
    "a(z) / max a",
    "prior p(z)",
    "encoded means",
)
_IMAGES_PER_BATCH = 1000
_MOST_NODES = 2048  # along each axis
_DOTS = 5_000  # more encoded means than this would overlap


@dataclasses.dataclass(frozen=True)
class Plane:
    """Densities of one model on a grid.

    Attributes:
      grid: Grid at whose nodes the densities were evaluated.
      log_q: Log density of the aggregate posterior, `[size, size]`.
      log_pi: Log density of the proposal, `[size, size]`. Equal to `log_p` for a prior that is not
        resampled.
      log_a: Log acceptance probability, `[size, size]`. `None` for a prior that is not resampled.
      log_p: Log density of the prior, `[size, size]`.
      means: Encoded means of the training images, `[N, 2]`.
      numbers: KLs, Z and their errors, for JSON.
    """

    grid: quadrature.Grid
    log_q: np.ndarray
    log_pi: np.ndarray
    log_a: np.ndarray | None
    log_p: np.ndarray
    means: np.ndarray
    numbers: dict


def encode(model: models.LatentVariableModel, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns means and standard deviations of q(z|x), float64 `[N, 2]`, for `[N, 28, 28]`."""

    @functools.partial(tf.function, autograph=False, reduce_retracing=True)
    def moments(x):
        q = model.encode_top(x)
        return q.mean(), q.stddev()

    moments_of = [moments(x) for x in batches.evaluation_batches(pixels, _IMAGES_PER_BATCH)]
    loc, scale = (
        np.concatenate(parts).astype(np.float64) for parts in zip(*moments_of, strict=True)
    )
    return loc, scale


def grid_around(loc: np.ndarray, scale: np.ndarray) -> quadrature.Grid:
    """Returns a grid that covers the posteriors and a standard normal and resolves both."""
    limit = int(np.ceil(max(6.0, np.max(np.abs(loc) + 6.0 * scale))))
    step = 1 / 64
    # The sum over nodes is exact to 1e-8 for a Normal whose scale equals the step. If the encoder
    # is too sharp for the finest grid, the grid error of each KL shows it.
    while step > np.quantile(scale, 0.01) and 4 * limit / step <= _MOST_NODES:
        step /= 2
    while 2 * limit / step > _MOST_NODES:
        step *= 2
    return quadrature.Grid(limit, step)


def study(model: models.LatentVariableModel, pixels: np.ndarray) -> Plane:
    """Returns the densities of a model with two latents and the KLs between them.

    Args:
      model: Model whose topmost latent has two dimensions.
      pixels: Binary images to encode, `uint8` `[N, 28, 28]`, 0 or 255.
    """
    loc, scale = encode(model, pixels)
    grid = grid_around(loc, scale)
    log_q = quadrature.log_mixture(grid, loc, scale)
    prior = model.prior
    if isinstance(prior, tfp_lars.Resampled):
        log_pi = grid.evaluate(prior.proposal.log_prob)
        log_a = grid.evaluate(prior.accept_log_prob)
        found = quadrature.fit_of(grid, log_q, log_pi, log_a, prior.T)
        log_p, kl = found["log_p"], found["kl"]
        numbers = {
            "kl_proposal": found["kl_proposal"].value,
            "z": found["z"].value,
            "z_grid_error": found["z"].error,
            "max_a": found["max_a"],
        }
    else:
        log_pi = log_p = grid.evaluate(prior.log_prob)
        log_a, kl, numbers = None, grid.kl(log_q, log_p), {}
    numbers = {
        "kl": kl.value,
        "kl_grid_error": kl.error,
        **numbers,
        "posterior_mass": grid.integral(np.exp(log_q)).value,
        "prior_mass": grid.integral(np.exp(log_p)).value,
        "grid_limit": grid.limit,
        "grid_step": grid.step,
        "num_images": len(pixels),
    }
    return Plane(grid, log_q, log_pi, log_a, log_p, loc, numbers)


def draw(planes: list[Plane], titles: list[str], labels: list[np.ndarray | None]) -> Figure:
    """Returns the figure: one row for each model, all panels on the same scale."""
    view = _view(planes)
    norm = PowerNorm(0.5, vmin=0.0, vmax=_brightest(planes))
    figure = Figure(figsize=(9.6, 2.05 * len(planes) + 0.75), layout="constrained")
    cells = figure.add_gridspec(len(planes) + 1, 5, height_ratios=[1.0] * len(planes) + [0.06])
    axes = np.array(
        [[figure.add_subplot(cells[r, c]) for c in range(5)] for r in range(len(planes))]
    )
    panel = functools.partial(figures.show, view=view)
    for row, plane, title, classes in zip(axes, planes, titles, labels, strict=True):
        n, grid = plane.numbers, plane.grid
        row[0].set_ylabel(title, fontsize=9)
        panel(row[0], grid, np.exp(plane.log_q), palette.DENSITY, norm, "")
        if plane.log_a is None:
            for axis in row[1:3]:
                axis.set_box_aspect(1)
                axis.axis("off")
            row[2].text(0.5, 0.5, "no resampling", ha="center", transform=row[2].transAxes)
        else:
            caption = f"KL(q || π) = {n['kl_proposal']:.2f}"
            panel(row[1], grid, np.exp(plane.log_pi), palette.DENSITY, norm, caption)
            caption = f"Z = {n['z']:.3f}, max a = {n['max_a']:.2f}"
            relative = np.exp(plane.log_a) / n["max_a"]
            panel(row[2], grid, relative, palette.ACCEPTANCE, Normalize(0, 1), caption)
        caption = f"KL(q || p) = {n['kl']:.2f}"
        panel(row[3], grid, np.exp(plane.log_p), palette.DENSITY, norm, caption)
        _dots(row[4], plane.means, classes, view)
    for axis, name in zip(axes[0], _COLUMNS, strict=True):
        axis.set_title(name, fontsize=9)
    _bars(figure, cells, norm, any(classes is not None for classes in labels))
    return figure


def _view(planes):
    """Returns half the width of the view: a multiple of 1/2 that covers 99.9 % of each q(z)."""
    views = []
    for plane in planes:
        mass = np.exp(plane.log_q) * plane.grid.step**2
        distance = np.abs(plane.grid.axis)
        beyond = [
            1.0 - mass[np.ix_(distance < v, distance < v)].sum()
            for v in np.arange(3.0, plane.grid.limit, 0.5)
        ]
        views.append(3.0 + 0.5 * np.sum(np.array(beyond) > 1e-3))
    return float(max(views))


def _brightest(planes):
    """Returns a density that few nodes exceed, so a sharp peak does not set the color scale."""
    tops = []
    for plane in planes:
        density = np.exp(plane.log_q[plane.grid.bulk(plane.log_q)])
        tops.append(np.quantile(density, 0.99))
    return float(max(tops))


def _dots(axis, means, classes, view):
    colors = "black" if classes is None else _CLASSES(classes[:_DOTS])
    axis.scatter(*means[:_DOTS].T, s=1.0, c=colors, linewidths=0)
    axis.set_box_aspect(1)
    figures.frame(axis, "no labels in this source" if classes is None else "", view)


def _bars(figure, cells, norm, colored):
    """Draws the color bars in the last row."""

    def bar(columns, norm, cmap, label, **kwargs):
        place = figure.add_subplot(cells[-1, columns])
        key = figure.colorbar(
            ScalarMappable(norm, cmap), cax=place, orientation="horizontal", **kwargs
        )
        key.set_label(label, fontsize=9)
        key.ax.tick_params(labelsize=8)

    ticks = norm.vmax * np.array([0.0, 1 / 16, 1 / 4, 9 / 16, 1.0])  # evenly spaced when drawn
    bar(
        slice(0, 2),
        norm,
        palette.DENSITY,
        "density (square-root scale)",
        extend="max",
        ticks=ticks,
        format="%.2g",
    )
    bar(2, Normalize(0, 1), palette.ACCEPTANCE, "a(z) / max a")
    if colored:
        borders = BoundaryNorm(np.arange(11) - 0.5, 10)
        bar(4, borders, _CLASSES, "class", ticks=range(10))


def check(run: runs.Trained) -> None:
    """Raises a `UserError` if the prior is not two-dimensional."""
    dimensions = run.model.prior.event_shape.num_elements()
    if dimensions != 2:
        raise UserError(
            f"--run {run.directory.path} has a prior over {dimensions} dimensions, and this figure "
            "shows a plane: name a run of --latents 2."
        )
    if run.config.is_resampled:
        run.resampled()


def make(found: list[runs.Trained], args: argparse.Namespace) -> tuple[Figure, list[dict]]:
    """Returns the figure and its numbers for each run."""
    planes, labels = [], []
    for run in found:
        pixels = datasets.binarized_training_images(run.images(args.data_dir))
        planes.append(study(run.model, pixels))
        labels.append(datasets.training_labels(run.config.dataset, args.data_dir))
        if labels[-1] is None:
            print(f"{run.config.dataset}: its source has no labels, the means have no colors")
        numbers = planes[-1].numbers
        error = numbers["kl_grid_error"]
        print(f"{run.directory.path}: KL(q || p) = {numbers['kl']:.3f} ± {error:.0e}")
    figure = draw(planes, [run.config.title for run in found], labels)
    return figure, [plane.numbers for plane in planes]
