"""Charts: margins over the goals, and time against size on logarithmic axes."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")  # no display needed

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch

from benchmarks.results import CaseResult, Curve, Outcome

__all__ = ["draw_goals", "draw_growth"]

_COLOURS = {"met": "#3a7d5c", "missed": "#c2542f"}
_LEAST, _MOST = 0.25, 32.0  # range of the bars; longer bars are clipped, labels show the value


def draw_goals(path: pathlib.Path, results: Sequence[CaseResult]) -> None:
    """Draws one bar per goal: the factor by which the result is better than the goal."""
    labels, outcomes, breaks = [], [], []
    for result in results:
        breaks.append(len(labels))
        for outcome in result.outcomes:
            labels.append(f"{result.name}: {outcome.goal.what}")
            outcomes.append(outcome)
    figure, axis = plt.subplots(figsize=(10, 0.27 * len(labels) + 1.2), layout="constrained")
    for i, outcome in enumerate(outcomes):
        _bar(axis, i, outcome)
    for position in breaks[1:]:
        axis.axhline(position - 0.5, color="#dddddd", linewidth=0.8)
    axis.axvline(1.0, color="black", linewidth=1)
    axis.set_xscale("log", base=2)
    axis.set_xlim(_LEAST, 2.8 * _MOST)
    ticks = [0.25, 0.5, 1, 2, 4, 8, 16, 32]
    axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axis.set_xlabel("times better than the goal", fontsize=9)
    axis.tick_params(axis="x", labelsize=8)
    handles = [Patch(color=_COLOURS[status], label=status) for status in ("met", "missed")]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, frameon=False, fontsize=8)
    axis.set_yticks(range(len(labels)), labels, fontsize=8)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_growth(path: pathlib.Path, results: Sequence[CaseResult]) -> None:
    """Draws time against size, one panel per curve."""
    curves = [curve for result in results for curve in result.curves]
    columns = min(2, len(curves))
    rows = -(-len(curves) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.6 * columns, 3.4 * rows), layout="constrained", squeeze=False
    )
    for axis in axes.flat[len(curves) :]:
        axis.axis("off")
    for axis, curve in zip(axes.flat, curves, strict=False):
        _panel(axis, curve)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _bar(axis: plt.Axes, i: int, outcome: Outcome) -> None:
    if outcome.value is None:
        axis.text(1.08, i, "absent", va="center", fontsize=8, color="#777777")
        return
    margin = float(np.clip(outcome.margin, _LEAST, _MOST))
    axis.barh(i, margin - 1.0, left=1.0, height=0.68, color=_COLOURS[outcome.status])
    goal = outcome.goal
    text = f"{outcome.value.median:.3g}{goal.suffix}  (goal {goal})"
    axis.text(max(margin, 1.0) * 1.06, i, text, va="center", fontsize=8)


def _panel(axis: plt.Axes, curve: Curve) -> None:
    sizes = np.array(curve.sizes)
    low, middle, high = (
        np.array([getattr(s, name) for s in curve.seconds]) for name in ("low", "median", "high")
    )
    fitted = sizes >= curve.start
    # The fitted line passes through the mean of its points.
    x = sizes[fitted]
    centre = np.exp(np.mean(np.log(middle[fitted])) - curve.slope.median * np.mean(np.log(x)))
    axis.plot(x, centre * x**curve.slope.median, color="#c2542f", linewidth=1.2, zorder=1)
    for chosen, face in ((fitted, "#2f5d8a"), (~fitted, "white")):
        axis.errorbar(
            sizes[chosen],
            middle[chosen],
            yerr=np.stack([middle - low, high - middle])[:, chosen],
            fmt="o",
            markersize=5,
            markerfacecolor=face,
            color="#2f5d8a",
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    # Limits at whole decades, so that each panel has at least two labels.
    axis.set_ylim(10.0 ** np.floor(np.log10(low.min())), 10.0 ** np.ceil(np.log10(high.max())))
    axis.tick_params(labelsize=8)
    axis.set_title(f"{curve.what}\nslope {curve.slope.median:.2f}", fontsize=9)
    axis.set_xlabel(curve.axis, fontsize=9)
    axis.set_ylabel("seconds", fontsize=9)
    axis.grid(True, which="major", color="#e5e5e5", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
