"""Ranks draws from the proposal of trained models by a and shows the best, random and worst.

The figure has one column for each run: the acceptance probabilities of 10^4 draws, sorted, on a log
axis, and the decoded images of some of the draws.
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
_MOST_POINTS = 1000  # points of a curve, more than it has pixels


def select(log_accept: np.ndarray, count: int) -> dict[str, np.ndarray]:
    """Selects the draws to show.

    Args:
      log_accept: Log a of independent draws, `[n]`, with n at least `count`.
      count: Number of draws of each kind.

    Returns:
      For each of `KINDS` the indices of `count` draws, `[count]`. The best and the worst are in
      descending order of a. The random ones are the first draws, in their original order.
    """
    order = np.argsort(-log_accept, kind="stable")
    return {"best": order[:count], "random": np.arange(count), "worst": order[-count:]}


def draw_with_latents(model: models.LatentVariableModel):
    """Returns a function that draws images together with their latents.

    Returns:
      draw: Argument of `ProposalDraws` for models that resample images. `None` for models that
        resample latents, or whose proposal does not expose its latents.
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
    """Returns the mean images that draws decode to, `[N, 28, 28]`.

    Args:
      model: Model whose proposal the draws came from.
      draws: Latents `[N, d]`, or images `[N, 28, 28]` or `[N, 784]`, which are only reshaped.
    """
    if draws[0].size == models.PIXELS:
        return draws.reshape(-1, 28, 28)
    return model.decode_prior(tf.constant(draws), tf.constant([3, 4])).numpy()


def rank(found: runs.Trained, num_draws: int, count: int, *, seed: int = 0, progress=False):
    """Draws from the proposal of a model, ranks the draws and decodes those to show.

    Args:
      found: Trained model.
      num_draws: Number of draws to rank.
      count: Number of draws to show of each kind.
      seed: Seed for the draws.
      progress: Whether to show a progress bar.

    Returns:
      log_accept: Log a of all draws in descending order, float64 `[num_draws]`.
      shown: For each of `KINDS` the log a, `[count]`, and the images, `[count, 28, 28]`.
    """
    # A chunk of 1000 limits memory: a thousand images take 3 MB.
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
    """Returns the figure: for each run the curve of a and three image grids `columns` wide."""
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
    # Plot log10(a), because a itself may underflow.
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
    """Formats a probability from its log: `0.93`, or `3·10⁻²⁴` in matplotlib's math text."""
    if log_a > np.log(1e-3):
        return f"{np.exp(log_a):.2g}"
    exponent = int(np.floor(log_a / np.log(10)))
    digit = round(np.exp(log_a - exponent * np.log(10)))
    if digit == 10:
        digit, exponent = 1, exponent + 1
    return rf"${digit} \times 10^{{{exponent}}}$"


def numbers_of(log_accept: np.ndarray, shown: dict) -> dict:
    """Returns the numbers that the figure shows for a run, for JSON."""
    return {
        "draws": len(log_accept),
        "mean_a": float(np.mean(np.exp(log_accept))),
        "log_a_quantiles": {
            f"{q:g}": float(np.quantile(log_accept, q)) for q in (0, 0.01, 0.1, 0.5, 0.9, 0.99, 1)
        },
        "log_a_shown": {kind: log_a.tolist() for kind, (log_a, _) in shown.items()},
    }


def check(run: runs.Trained) -> None:
    """Raises a `UserError` if the run has no resampled distribution."""
    run.resampled()


def make(found: list[runs.Trained], args: argparse.Namespace) -> tuple[Figure, list[dict]]:
    """Returns the figure and its numbers for each run."""
    columns = grid_columns(len(found))
    count = GRID_ROWS * columns
    ranked = [rank(run, args.draws, count, progress=not args.quiet) for run in found]
    figure = draw(ranked, [run.config.title for run in found], columns)
    return figure, [numbers_of(*result) for result in ranked]
