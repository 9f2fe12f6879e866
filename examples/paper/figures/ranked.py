"""Draws from the proposal of trained models, ranked by a: the best, random ones, the worst.

A column for each run: 10^4 draws, sorted by their acceptance probability, on a log axis, and the
images that some of them decode to.
"""

from __future__ import annotations

import argparse

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from examples.common import image_grid, palette
from examples.paper.figures.command import GRID_ROWS, grid_columns
from examples.paper.figures.proposal_draws import ProposalDraws
from examples.vae import models, runs

COLORS = 64
KINDS = ("best", "random", "worst")
_MOST_POINTS = 1000  # of a curve: more than it has pixels


def select(log_accept: np.ndarray, count: int) -> dict[str, np.ndarray]:
    """Which draws to show.

    Args:
      log_accept: log a of independent draws, `[n]`, n at least `count`.
      count: How many of each kind.

    Returns:
      For each of `KINDS` the indices of `count` draws, `[count]`. The best and the worst are in
      descending order of a; the random ones are the first, as they came.
    """
    order = np.argsort(-log_accept, kind="stable")
    return {"best": order[:count], "random": np.arange(count), "worst": order[-count:]}


def draw_with_latents(model: models.LatentVariableModel):
    """For models that resample images, how to draw one and keep the latents that it came from.

    Returns:
      draw: For `ProposalDraws`; `None` where the draws are latents, or keep theirs to themselves.
    """
    latent_prior = getattr(model, "latent_prior", None)
    likelihood = getattr(model, "likelihood", None)
    if latent_prior is None or likelihood is None:
        return None

    def draw(n, seed):
        seeds = tf.random.split(seed, 2)
        z = latent_prior.sample(n, seed=seeds[0])
        return z, likelihood(z).sample(seed=seeds[1])

    return draw


def mean_images(model: models.LatentVariableModel, draws: np.ndarray) -> np.ndarray:
    """What draws look like: means of images, `[N, 28, 28]`.

    Args:
      model: Whose proposal they came from.
      draws: Latents `[N, d]`; or images, `[N, 28, 28]` or `[N, 784]`, to be shown as they are.
    """
    if draws[0].size == models.PIXELS:
        return draws.reshape(-1, 28, 28)
    return model.decode_prior(tf.constant(draws), tf.constant([3, 4])).numpy()


def rank(found: runs.Trained, num_draws: int, count: int, *, seed: int = 0, progress=False):
    """Draws from the proposal of a model, and what the figure shows of them.

    Args:
      found: The model.
      num_draws: How many to rank.
      count: How many to show of each kind.
      seed: Of the draws.
      progress: Whether to show a bar.

    Returns:
      log_accept: In descending order, float64 `[num_draws]`.
      shown: For each of `KINDS` the log a, `[count]`, and the images, `[count, 28, 28]`.
    """
    # Images are wide: a thousand of them at a time are 3 MB.
    draws = ProposalDraws(
        found.resampled(), seed, chunk_size=1000, draw=draw_with_latents(found.model)
    )
    log_accept = np.concatenate(list(draws.log_accept(num_draws, progress=progress)))
    shown = {
        kind: (log_accept[indices], mean_images(found.model, draws.at(indices)))
        for kind, indices in select(log_accept, count).items()
    }
    return np.sort(log_accept)[::-1], shown


def draw(ranked: list, titles: list[str], columns: int) -> Figure:
    """The figure: for each run the curve of a, and three grids of images `columns` wide."""
    width = 0.51 * columns + 0.35
    figure = Figure(figsize=(width * len(ranked) + 0.6, 11.6), layout="constrained")
    axes = figure.subplots(4, len(ranked), squeeze=False, height_ratios=[0.85, 1.0, 1.0, 1.0])
    lowest = min(log_accept[-1] for log_accept, _ in ranked) / np.log(10)
    for column, title, (log_accept, shown) in zip(axes.T, titles, ranked, strict=True):
        _curve(column[0], log_accept, lowest)
        column[0].set_title(title, fontsize=10)
        for axis, kind in zip(column[1:], KINDS, strict=True):
            log_a, images = shown[kind]
            image_grid.show(axis, image_grid.canvas(images.reshape(-1, columns, 28, 28)))
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_xlabel(f"a from {power(log_a.max())} to {power(log_a.min())}", fontsize=9)
    names = ["highest a", "random draws of the proposal", "lowest a"]
    for axis, name in zip(axes[1:, 0], names, strict=True):
        axis.set_ylabel(name, fontsize=10)
    axes[0, 0].set_ylabel("a", fontsize=10)
    return figure


def _curve(axis, log_accept, lowest):
    num_draws = len(log_accept)
    shown = np.unique(np.linspace(0, num_draws - 1, _MOST_POINTS).astype(int))
    # Powers of ten as numbers: a itself may be too small for a float.
    axis.plot(shown + 1, log_accept[shown] / np.log(10), color=palette.LINES[0], linewidth=2)
    log_mean = np.logaddexp.reduce(log_accept) - np.log(num_draws)
    axis.axhline(log_mean / np.log(10), color=palette.MEAN, linewidth=1, linestyle="--")
    axis.text(
        0.97, log_mean / np.log(10), f"Z ≈ {power(log_mean)}", fontsize=9, color=palette.MEAN,
        ha="right", va="bottom", transform=axis.get_yaxis_transform(),
    )  # fmt: skip
    axis.set_xlim(1, num_draws)
    axis.set_ylim(min(1.05 * lowest, -1.0), max(0.5, -0.08 * lowest))
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"$10^{{{y:.0f}}}$"))
    axis.set_xticks([num_draws * share for share in (0.25, 0.5, 0.75)])
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axis.set_xlabel("draws, sorted by a", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)


def power(log_a: float) -> str:
    """A probability from its log, short: `0.93`, or `3·10⁻²⁴` in matplotlib's math."""
    if log_a > np.log(1e-3):
        return f"{np.exp(log_a):.2g}"
    exponent = int(np.floor(log_a / np.log(10)))
    digit = round(np.exp(log_a - exponent * np.log(10)))
    if digit == 10:
        digit, exponent = 1, exponent + 1
    return rf"${digit} \times 10^{{{exponent}}}$"


def numbers_of(log_accept: np.ndarray, shown: dict) -> dict:
    """What the figure says about a run, for JSON."""
    return {
        "draws": len(log_accept),
        "mean_a": float(np.mean(np.exp(log_accept))),
        "log_a_quantiles": {
            f"{q:g}": float(np.quantile(log_accept, q)) for q in (0, 0.01, 0.1, 0.5, 0.9, 0.99, 1)
        },
        "log_a_shown": {kind: log_a.tolist() for kind, (log_a, _) in shown.items()},
    }


def check(run: runs.Trained) -> None:
    """Raises a `UserError` where there is nothing to rank."""
    run.resampled()


def make(found: list[runs.Trained], args: argparse.Namespace) -> tuple[Figure, list[dict]]:
    """The figure, and its numbers for each run."""
    columns = grid_columns(len(found))
    count = GRID_ROWS * columns
    ranked = [rank(run, args.draws, count, progress=not args.quiet) for run in found]
    figure = draw(ranked, [run.config.title for run in found], columns)
    return figure, [numbers_of(*result) for result in ranked]
