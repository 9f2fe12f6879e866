"""Draws the running estimate of Z against the number of draws from the proposal.

The estimate is the mean of a over the first S draws. S is on a log axis, and a band shows one
standard error. A dashed line shows Z. It is the mean over all draws, or an estimate by importance
sampling if resampling is untruncated and Z too small for these draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import numpy as np
from matplotlib.figure import Figure

import tfp_lars
from examples.common import palette
from examples.paper.figures.proposal_draws import ProposalDraws
from examples.vae import precise_z, runs

COLORS = 256
FIRST = 100  # with fewer draws the standard error is itself unreliable
PER_DECADE = 40


def checkpoints(num_samples: int) -> np.ndarray:
    """Returns the sample sizes to plot: integers from `FIRST` on, evenly spaced in their log.

    Args:
      num_samples: Last sample size. The only one if it is at most `FIRST`.

    Returns:
      counts: Strictly increasing sample sizes, int64 `[K]`.
    """
    if num_samples <= FIRST:
        return np.array([num_samples])
    decades = np.log10(num_samples / FIRST)
    spaced = np.geomspace(FIRST, num_samples, 2 + int(PER_DECADE * decades))
    return np.unique(np.rint(spaced).astype(np.int64))


def running_mean(pieces: Iterable[np.ndarray], counts: np.ndarray):
    """Computes the running mean of a stream and its standard error, in constant memory.

    Args:
      pieces: Consecutive parts of the stream, float64 arrays of any length.
      counts: Ascending numbers of values to report the mean of, `[K]`. Each is at least 2 and at
        most the length of the stream.

    Returns:
      mean: Mean of the first `counts[k]` values, `[K]`.
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
            # The values are in [0, 1], so this difference keeps enough digits in float64.
            variance = max(all_squares[last] / n - mean**2, 0.0) * n / (n - 1)
            means.append(mean)
            stderrs.append(np.sqrt(variance / n))
        seen, total, squares = seen + len(piece), totals[-1], all_squares[-1]
    return np.array(means), np.array(stderrs)


def trace(found: runs.Trained, num_samples: int, *, seed: int = 0, progress: bool = False):
    """Computes the running estimate of Z of a trained model.

    Args:
      found: Trained model.
      num_samples: Number of draws from the proposal.
      seed: Seed for the draws.
      progress: Whether to show a progress bar.

    Returns:
      counts: Numbers of draws S, `[K]`.
      mean: Estimates of Z from the first S draws, `[K]`.
      stderr: Standard errors of the estimates, `[K]`.
    """
    counts = checkpoints(num_samples)
    # Images take more memory than latents, so their chunks are smaller.
    dist = found.resampled()
    chunk_size = 8192 if dist.event_shape.num_elements() <= 100 else 1024
    pieces = ProposalDraws(dist, seed, chunk_size).log_accept(num_samples, progress=progress)
    return counts, *running_mean((np.exp(piece) for piece in pieces), counts)


def draw(traces: list[list], titles: list[str], all_best: list[tfp_lars.LogNormalizer]) -> Figure:
    """Returns the figure: a row for each run with a line and band for each independent estimate.

    Args:
      traces: Results of `trace`, for each run and each independent estimate.
      titles: Title of each run.
      all_best: Result of `best` for each run.
    """
    figure = Figure(figsize=(8.0, 3.4 * len(traces) + 0.1), layout="constrained")
    axes = figure.subplots(len(traces), 1, squeeze=False, sharex=True)[:, 0]
    for axis, title, estimates, found in zip(axes, titles, traces, all_best, strict=True):
        for i, (counts, mean, stderr) in enumerate(estimates):
            color = palette.LINES[i % len(palette.LINES)]
            axis.fill_between(counts, mean - stderr, mean + stderr, color=color, alpha=0.2, lw=0)
            axis.plot(counts, mean, color=color, linewidth=1.5)
        z, stderr = _z(found)
        axis.axhline(z, color="black", linewidth=0.8, linestyle="--")
        axis.set_ylim(*_limits(estimates, z))
        axis.set_xscale("log")
        axis.set_xlim(estimates[0][0][0], max(estimates[0][0][-1], FIRST + 1))
        axis.set_ylabel("estimate of Z", fontsize=10)
        axis.set_title(f"{title}: Z = {z:.4g} ± {stderr:.1g}", fontsize=10)
        axis.tick_params(labelsize=9)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("draws S from the proposal; band: ± 1 standard error", fontsize=10)
    return figure


def _limits(estimates, z):
    """Returns y limits that fit Z and the bands, except in the first decade, which is too noisy."""
    lows, highs = [z], [z]
    for counts, mean, stderr in estimates:
        settled = counts >= min(10 * FIRST, counts[-1])
        lows.append(np.min((mean - stderr)[settled]))
        highs.append(np.max((mean + stderr)[settled]))
    low, high = min(lows), max(highs)
    margin = max(0.1 * (high - low), 1e-3 * high)  # a band has no width if a is constant
    return max(low - margin, 0.0), high + margin


def best(
    dist: tfp_lars.Resampled, estimates: list, *, has_density: bool, progress: bool = False
) -> tfp_lars.LogNormalizer:
    """Returns the best estimate of log Z for a run.

    Args:
      dist: Distribution without a batch shape.
      estimates: Independent results of `trace` of the same size.
      has_density: Whether the proposal has an exact log density.
      progress: Whether to show a progress bar.
    """
    z = np.mean([mean[-1] for _, mean, _ in estimates])
    stderr = np.linalg.norm([stderr[-1] for _, _, stderr in estimates]) / len(estimates)
    num_samples = sum(int(counts[-1]) for counts, _, _ in estimates)
    with np.errstate(divide="ignore"):
        relative = stderr / z if z > 0.0 else np.inf
        plain = tfp_lars.LogNormalizer(np.log(z), relative, num_samples, "monte_carlo")
    if not has_density:
        return plain
    return precise_z.improved(plain, dist, seed=len(estimates), progress=progress)


def _z(estimate: tfp_lars.LogNormalizer) -> tuple[float, float]:
    """Returns Z and its standard error."""
    z = float(np.exp(estimate.log_z))
    return z, z * float(estimate.stderr) if z > 0.0 else 0.0


def numbers_of(estimates: list, found: tfp_lars.LogNormalizer) -> dict:
    """Returns the numbers that the figure shows for a run, for JSON."""
    z, stderr = _z(found)
    return {
        "z": z,
        "z_stderr": stderr,
        "z_method": found.method,
        "z_warning": found.warning,
        "estimates": [
            {"samples": counts.tolist(), "z": mean.tolist(), "stderr": stderr.tolist()}
            for counts, mean, stderr in estimates
        ],
    }


def check(run: runs.Trained) -> None:
    """Raises a `UserError` if the run has no resampled distribution."""
    run.resampled()


def make(found: list[runs.Trained], args: argparse.Namespace) -> tuple[Figure, list[dict]]:
    """Returns the figure and its numbers for each run."""
    traces = [
        [
            trace(run, args.samples, seed=seed, progress=not args.quiet)
            for seed in range(args.repeats)
        ]
        for run in found
    ]
    all_best = [
        best(
            run.resampled(),
            estimates,
            has_density=run.model.proposal_has_density,
            progress=not args.quiet,
        )
        for run, estimates in zip(found, traces, strict=True)
    ]
    figure = draw(traces, [run.config.title.replace("\n", " ") for run in found], all_best)
    return figure, [numbers_of(*pair) for pair in zip(traces, all_best, strict=True)]
