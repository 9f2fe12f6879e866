"""Figures of a `FitResult`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import tensorflow_probability as tfp

from tfp_lars import _plotting

__all__ = ["draw", "most_changed_pairs"]

tfd = tfp.distributions

_NUM_PAIRS = 3
_MOST_DIMENSIONS = 24  # among which pairs are compared
_BINS = 20


def draw(
    held_out: np.ndarray,
    proposal: tfd.Distribution | None,
    fitted: tfd.Distribution,
    num_draws: int,
    seed: int,
) -> Any:
    """Returns the figure of `FitResult.plot`.

    Args:
      held_out: Samples, shape `[M]` + batch + event.
      proposal: The proposal, or `None`.
      fitted: The fitted distribution.
      num_draws: Number of draws from each distribution.
      seed: Seed for the draws.
    """
    panels = {"held-out samples": _flat(held_out)}
    if proposal is not None:
        panels["proposal"] = _flat(proposal.sample(num_draws, seed=[seed, 1]).numpy())
    panels["fitted"] = _flat(fitted.sample(num_draws, seed=[seed, 2]).numpy())
    dimensions = panels["fitted"].shape[1]
    if dimensions == 1:
        return _histograms({name: z[:, 0] for name, z in panels.items()})
    if dimensions == 2:
        return _squares(panels, [(0, 1)])
    before = panels.get("proposal", panels["held-out samples"])
    return _squares(panels, most_changed_pairs(before, panels["fitted"]))


def most_changed_pairs(before: np.ndarray, after: np.ndarray) -> list[tuple[int, int]]:
    """Returns the pairs of dimensions whose histograms differ most, the most changed first.

    Among many dimensions, only those with the largest changes of their own are paired.

    Args:
      before: Draws, shape `[N, d]`.
      after: Draws, shape `[M, d]`.
    """
    single = [_distance(before[:, [i]], after[:, [i]]) for i in range(before.shape[1])]
    largest = np.sort(np.argsort(single)[::-1][:_MOST_DIMENSIONS])
    pairs = [(int(i), int(j)) for i, j in itertools.combinations(largest, 2)]
    changes = [_distance(before[:, pair], after[:, pair]) for pair in pairs]
    return [pairs[k] for k in np.argsort(changes)[::-1][:_NUM_PAIRS]]


def _distance(before: np.ndarray, after: np.ndarray) -> float:
    """Returns the total variation between two histograms on common bins."""
    both = np.concatenate([before, after])
    limits = zip(both.min(axis=0), both.max(axis=0), strict=True)
    edges = [np.linspace(low, high + 1e-6, _BINS + 1) for low, high in limits]
    shares = [np.histogramdd(z, edges)[0] / len(z) for z in (before, after)]
    return float(0.5 * np.sum(np.abs(shares[0] - shares[1])))


def _flat(samples: np.ndarray) -> np.ndarray:
    return samples.reshape([len(samples), -1]).astype(np.float64)


def _num_bins(num_samples: int, most: int) -> int:
    """Returns a number of bins along an axis in which few samples do not look like noise."""
    return int(np.clip(1.5 * np.sqrt(num_samples), 30, most))


def _histograms(panels: dict[str, np.ndarray]) -> Any:
    """Histograms in one dimension."""
    figure, axis = _plotting.figure(1, 1)
    both = np.concatenate(list(panels.values()))
    low, high = both.min(), both.max()
    if np.all(both == np.round(both)):  # discrete, of any type
        edges = np.arange(low - 0.5, high + 1.5)
    else:
        edges = np.linspace(low, high, _num_bins(len(panels["held-out samples"]), 80) + 1)
    for name, values in panels.items():
        filled = name == "held-out samples"
        axis.hist(
            values,
            edges,
            density=True,
            histtype="stepfilled" if filled else "step",
            color="lightgray" if filled else None,
            label=name,
        )
    axis.set_xlabel("z")
    axis.set_ylabel("density")
    # Above the axes, where it covers no bars.
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(panels), frameon=False)
    return figure


def _squares(panels: dict[str, np.ndarray], pairs: list[tuple[int, int]]) -> Any:
    """2-D histograms, a row for each pair of dimensions."""
    figure, axes = _plotting.figure(len(pairs), len(panels))
    axes = np.reshape(axes, [len(pairs), len(panels)])
    bins = _num_bins(len(panels["held-out samples"]), 60)
    for row, (i, j) in zip(axes, pairs, strict=True):
        # All panels of a row have the view of the held-out samples.
        shown = panels["held-out samples"]
        low, high = np.quantile(shown[:, [i, j]], [0.001, 0.999], axis=0)
        margin = 0.15 * (high - low) + 1e-6
        view = np.stack([low - margin, high + margin], axis=-1)
        for axis, (name, z) in zip(row, panels.items(), strict=True):
            axis.hist2d(z[:, i], z[:, j], bins=bins, range=view, density=True, cmap="Blues")
            axis.set_title(name)
            axis.set_xlabel(f"z[{i}]")
            axis.set_ylabel(f"z[{j}]")
    return figure
