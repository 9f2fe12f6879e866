"""How the estimate of Z settles as more and more proposals are drawn.

The mean of a over the first S draws from the proposal, against S on a log axis, with a band of one
standard error.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import numpy as np
from matplotlib.figure import Figure

from examples.common import palette
from examples.paper.figures.proposal_draws import ProposalDraws
from examples.vae import runs

COLORS = 256
FIRST = 100  # below, a standard error says little about itself
PER_DECADE = 40


def checkpoints(num_samples: int) -> np.ndarray:
    """Where to look at the estimate: integers from `FIRST` on, evenly spaced in their log.

    Args:
      num_samples: The last of them; where it is less than `FIRST`, the only one.

    Returns:
      counts: Ascending, no two the same, int64 `[K]`.
    """
    if num_samples <= FIRST:
        return np.array([num_samples])
    decades = np.log10(num_samples / FIRST)
    spaced = np.geomspace(FIRST, num_samples, 2 + int(PER_DECADE * decades))
    return np.unique(np.rint(spaced).astype(np.int64))


def running_mean(pieces: Iterable[np.ndarray], counts: np.ndarray):
    """Mean and standard error of a stream as far as it has come, in constant memory.

    Args:
      pieces: Arrays of any length, one after the other the stream, float64.
      counts: After how many values to look, ascending, at least 2, at most all; `[K]`.

    Returns:
      mean: Of the first `counts[k]` values, `[K]`.
      stderr: Standard error of that mean, from the same values, `[K]`.
    """
    seen, total, squares = 0, 0.0, 0.0
    means, stderrs = [], []
    for piece in pieces:
        totals = total + np.cumsum(piece)
        all_squares = squares + np.cumsum(np.square(piece))
        for n in counts[(counts > seen) & (counts <= seen + len(piece))]:
            last = n - seen - 1
            mean = totals[last] / n
            # Sums of numbers in [0, 1] in float64: the difference keeps enough digits.
            variance = max(all_squares[last] / n - mean**2, 0.0) * n / (n - 1)
            means.append(mean)
            stderrs.append(np.sqrt(variance / n))
        seen, total, squares = seen + len(piece), totals[-1], all_squares[-1]
    return np.array(means), np.array(stderrs)


def trace(found: runs.Trained, num_samples: int, *, seed: int = 0, progress: bool = False):
    """The running estimate of Z of a trained model.

    Args:
      found: The model.
      num_samples: Draws from the proposal.
      seed: Of the draws.
      progress: Whether to show a bar.

    Returns:
      counts, mean, stderr: `[K]` each: S, the estimate from the first S draws, its standard error.
    """
    counts = checkpoints(num_samples)
    # Images instead of latents would want less memory at a time.
    dist = found.resampled()
    chunk_size = 8192 if dist.event_shape.num_elements() <= 100 else 1024
    pieces = ProposalDraws(dist, seed, chunk_size).log_accept(num_samples, progress=progress)
    return counts, *running_mean((np.exp(piece) for piece in pieces), counts)


def draw(traces: list[list], titles: list[str]) -> Figure:
    """The figure: a row for each run, in it a line with its band for each independent estimate."""
    figure = Figure(figsize=(8.0, 3.4 * len(traces) + 0.1), layout="constrained")
    axes = figure.subplots(len(traces), 1, squeeze=False, sharex=True)[:, 0]
    for axis, title, estimates in zip(axes, titles, traces, strict=True):
        for i, (counts, mean, stderr) in enumerate(estimates):
            color = palette.LINES[i % len(palette.LINES)]
            axis.fill_between(counts, mean - stderr, mean + stderr, color=color, alpha=0.2, lw=0)
            axis.plot(counts, mean, color=color, linewidth=1.5)
        z, stderr = combined(estimates)
        axis.axhline(z, color="black", linewidth=0.8, linestyle="--")
        axis.set_ylim(*_limits(estimates))
        axis.set_xscale("log")
        axis.set_xlim(estimates[0][0][0], max(estimates[0][0][-1], FIRST + 1))
        axis.set_ylabel("estimate of Z", fontsize=10)
        axis.set_title(f"{title}: Z = {z:.4g} ± {stderr:.1g}", fontsize=10)
        axis.tick_params(labelsize=9)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("draws S from the proposal; band: ± 1 standard error", fontsize=10)
    return figure


def _limits(estimates):
    """Room for the bands of all but the first, wild decade of draws."""
    lows, highs = [], []
    for counts, mean, stderr in estimates:
        settled = counts >= min(10 * FIRST, counts[-1])
        lows.append(np.min((mean - stderr)[settled]))
        highs.append(np.max((mean + stderr)[settled]))
    low, high = min(lows), max(highs)
    margin = max(0.1 * (high - low), 1e-3 * high)  # a constant a has a band of no width
    return max(low - margin, 0.0), high + margin


def combined(estimates: list) -> tuple[float, float]:
    """Z and its standard error from all draws of independent estimates of the same size."""
    means = [mean[-1] for _, mean, _ in estimates]
    stderrs = [stderr[-1] for _, _, stderr in estimates]
    return float(np.mean(means)), float(np.linalg.norm(stderrs) / len(stderrs))


def numbers_of(estimates: list) -> dict:
    """What the figure says about a run, for JSON."""
    z, stderr = combined(estimates)
    return {
        "z": z,
        "z_stderr": stderr,
        "estimates": [
            {"samples": counts.tolist(), "z": mean.tolist(), "stderr": stderr.tolist()}
            for counts, mean, stderr in estimates
        ],
    }


def check(run: runs.Trained) -> None:
    """Raises a `UserError` where there is no Z to estimate."""
    run.resampled()


def make(found: list[runs.Trained], args: argparse.Namespace) -> tuple[Figure, list[dict]]:
    """The figure, and its numbers for each run."""
    traces = [
        [
            trace(run, args.samples, seed=seed, progress=not args.quiet)
            for seed in range(args.repeats)
        ]
        for run in found
    ]
    figure = draw(traces, [run.config.title.replace("\n", " ") for run in found])
    return figure, [numbers_of(estimates) for estimates in traces]
