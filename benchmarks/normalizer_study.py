"""Two studies of `estimate_log_normalizer` on problems with a known Z. Each prints a table.

`python -m benchmarks.normalizer_study coverage`: how often the 95 % interval contains log Z.
`python -m benchmarks.normalizer_study known`: importance sampling in 50 dimensions.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lars
from examples.common import command_line

__all__ = ["COVERAGE_CASES", "CoverageCase", "KnownCase", "coverage", "known_cases", "main"]

tfd = tfp.distributions

_GRID = np.linspace(-14.0, 14.0, 400_001)
_D = 50


@dataclasses.dataclass(frozen=True)
class CoverageCase:
    """Standard normal z in one dimension, a(z) = base + (1 - base) * sigmoid(slope * z + bias).

    Attributes:
      about: What is special.
      slope: Slope of the logit.
      bias: Bias of the logit.
      num_samples: Number of draws; with a target the maximum.
      target: `target_stderr`, or `None`.
      base: Smallest a(z).
    """

    about: str
    slope: float
    bias: float
    num_samples: int
    target: float | None = None
    base: float = 0.0

    @property
    def log_z(self) -> float:
        """Log of the mean of a(z), by quadrature."""
        log_z, _ = _log_moments(self.slope, self.bias)
        return float(np.log(self.base + (1.0 - self.base) * np.exp(log_z)))

    def accept_logits(self, z: tf.Tensor) -> tf.Tensor:
        """Returns the logit of a(z)."""
        logits = self.slope * z + self.bias
        if self.base == 0.0:
            return logits
        # If s are the odds of the sigmoid, those of a(z) are (base + s) / (1 - base).
        log_odds = np.float32(np.log(self.base) - np.log1p(-self.base))
        return tfp.math.log_add_exp(
            log_odds + tf.zeros_like(logits), logits - np.float32(np.log1p(-self.base))
        )


COVERAGE_CASES = (
    CoverageCase("smooth a(z)", 1.0, 0.0, 1000),
    CoverageCase("small Z", 4.0, -13.5, 10**5),
    CoverageCase("small Z, few acceptances", 4.0, -13.5, 10**4),
    CoverageCase("a(z) nearly 0 or 1", 200.0, -618.0, 10**4),
    CoverageCase("a(z) nearly 1 everywhere", 200.0, 618.0, 10**4),
    CoverageCase("stopped by the target, smooth a(z)", 2.0, -2.0, 10**6, 0.02),
    CoverageCase("stopped by the target, small Z", 20.0, -62.0, 10**7, 0.1),
    CoverageCase("stopped by the target, Z near 1", 20.0, 46.0, 10**6, 0.005),
    CoverageCase("stopped by the target, 0.05, rarely 1", 2000.0, -4652.7, 10**6, 0.05, 0.05),
    CoverageCase("stopped by the target, 0.1, rarely 1", 2000.0, -4652.7, 10**6, 0.04, 0.1),
    CoverageCase("stopped by the target, 0.01, rarely 1", 2000.0, -6180.5, 10**6, 0.05, 0.01),
)


def coverage(case: CoverageCase, num_runs: int, seed: int = 0) -> tuple[float, float, float]:
    """Returns log Z, the coverage of the 95 % interval, and the mean number of draws."""
    log_z = case.log_z
    if case.target is None:  # each member of a batch is a run
        proposal = tfd.Normal(np.zeros(num_runs, np.float32), 1.0)
        dist = tfp_lars.Resampled(proposal, case.accept_logits, T=None, from_logits=True)
        estimates = [tfp_lars.estimate_log_normalizer(dist, case.num_samples, seed=seed)]
    else:
        dist = tfp_lars.Resampled(
            tfd.Normal(0.0, 1.0), case.accept_logits, T=None, from_logits=True
        )
        estimates = [
            tfp_lars.estimate_log_normalizer(
                dist, case.num_samples, target_stderr=case.target, seed=seed + i
            )
            for i in range(num_runs)
        ]
    intervals = [estimate.interval(0.95) for estimate in estimates]
    covered = [(low <= log_z) & (log_z <= high) for low, high in intervals]
    return log_z, float(np.mean(covered)), float(np.mean([e.num_samples for e in estimates]))


@dataclasses.dataclass(frozen=True)
class KnownCase:
    """A problem in 50 dimensions with a standard normal proposal.

    Attributes:
      name: Description.
      log_accept: `z -> log a(z)`.
      log_z: Log of the mean of a(z).
      log_square: Log of the mean of a(z)**2.
    """

    name: str
    log_accept: Callable[[tf.Tensor], tf.Tensor]
    log_z: float
    log_square: float

    @property
    def distribution(self) -> tfp_lars.Resampled:
        """The resampled distribution."""

        def logits(z):
            log_accept = tf.minimum(self.log_accept(z), -1e-6)
            return log_accept - tfp.math.log1mexp(log_accept)

        proposal = tfp_lars.proposals.standard_normal(_D)
        return tfp_lars.Resampled(proposal, logits, T=None, from_logits=True)


def known_cases() -> Iterator[KnownCase]:
    """Yields the problems."""
    direction = np.random.default_rng(0).normal(size=_D)
    direction = (direction / np.linalg.norm(direction)).astype(np.float32)
    for Z in (0.5, 1e-2, 1e-4, 1e-6, 1e-9):
        bias = _bias_for(10.0, np.log(Z))
        yield KnownCase(
            f"sigmoid of a linear function, Z = {Z:g}",
            lambda z, bias=bias: tf.math.log_sigmoid(
                10.0 * tf.reduce_sum(z * direction, axis=-1) + bias
            ),
            *_log_moments(10.0, bias),
        )
    log_mean, log_square = _log_moments(2.0, 1.5)
    yield KnownCase(
        "product of 50 sigmoids",
        lambda z: tf.reduce_sum(tf.math.log_sigmoid(2.0 * z + 1.5), axis=-1),
        _D * log_mean,
        _D * log_square,
    )
    yield _two_regions(8.0 * direction, variance=1.0, shares=(0.8, 0.2))


def _two_regions(center: np.ndarray, variance: float, shares: Sequence[float]) -> KnownCase:
    """a(z) is a sum of Gaussian bumps at `center` and `-center`, of heights `shares`."""

    def log_accept(z):
        logs = [
            np.float32(np.log(share))
            - tf.reduce_sum((z - sign * center) ** 2, axis=-1) / (2.0 * variance)
            for share, sign in zip(shares, (1.0, -1.0), strict=True)
        ]
        return tf.reduce_logsumexp(tf.stack(logs), axis=0)

    def log_integral(variance):
        distance = np.sum(center.astype(np.float64) ** 2)
        return 0.5 * _D * np.log(variance / (1.0 + variance)) - distance / (2.0 * (1.0 + variance))

    # The bumps are so far apart that their product does not matter.
    log_square = log_integral(variance / 2.0) + np.log(np.sum(np.square(shares)))
    return KnownCase(
        "two regions, weights 0.8 and 0.2",
        log_accept,
        log_integral(variance) + np.log(np.sum(shares)),
        log_square,
    )


def _log_moments(slope: float, bias: float) -> tuple[float, float]:
    """Returns the logs of the means of a(z) and a(z)**2 for one dimension, by quadrature."""
    log_terms = -0.5 * _GRID**2 - 0.5 * np.log(2.0 * np.pi) + np.log(_GRID[1] - _GRID[0])
    log_accept = -np.logaddexp(0.0, -slope * _GRID - bias)
    return tuple(float(np.logaddexp.reduce(log_terms + power * log_accept)) for power in (1.0, 2.0))


def _bias_for(slope: float, log_z: float) -> float:
    low, high = -14.0 * slope, 14.0 * slope
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _log_moments(slope, middle)[0] < log_z else (low, middle)
    return 0.5 * (low + high)


def _print_coverage(num_runs: int) -> None:
    print("| case | Z | draws | target | coverage |\n| --- | --- | --- | --- | --- |")
    for case in COVERAGE_CASES:
        log_z, share, draws = coverage(case, num_runs)
        target = "" if case.target is None else f"{case.target:g}"
        print(
            f"| {case.about} | {np.exp(log_z):.3g} | {draws:,.0f} | {target} | {share:.1%} |",
            flush=True,
        )


def _print_known(target: float) -> None:
    print(
        "| a(z) | log Z | estimate | inside the interval | draws | effective | seconds | "
        "plain draws for the same error |\n" + "| --- " * 8 + "|"
    )
    for case in known_cases():
        dist = case.distribution
        start = time.perf_counter()
        estimate = tfp_lars.estimate_log_normalizer(
            dist, 10**7, method="importance", target_stderr=target, seed=0
        )
        seconds = time.perf_counter() - start
        low, high = estimate.interval(0.95)
        plain = np.expm1(case.log_square - 2.0 * case.log_z) / estimate.stderr**2
        print(
            f"| {case.name} | {case.log_z:.4f} | {estimate.log_z:.4f} ± {estimate.stderr:.4f} | "
            f"{'yes' if low <= case.log_z <= high else 'no'} | {estimate.num_samples:,} | "
            f"{float(estimate.effective_samples):,.0f} | {seconds:.1f} | {plain:.1e} |",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.normalizer_study")
    commands = parser.add_subparsers(dest="study", required=True)
    runs = commands.add_parser("coverage", help="coverage of the 95 %% interval")
    runs.add_argument("--runs", type=int, default=400, metavar="N", help="(default: %(default)s)")
    known = commands.add_parser("known", help="importance sampling in 50 dimensions")
    known.add_argument("--target", type=float, default=0.01, metavar="STDERR")
    args = parser.parse_args(arguments)
    if args.study == "coverage":
        _print_coverage(args.runs)
    else:
        _print_known(args.target)


if __name__ == "__main__":
    command_line.run(main, interrupted="nothing was written")
