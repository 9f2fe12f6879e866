"""log Z for evaluation: an estimate with its standard error."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_lars import _arguments, _seeds
from tfp_lars.normalizer import monte_carlo

__all__ = ["LogNormalizer", "estimate_log_normalizer"]

_BATCHES_PER_CHUNK = 64


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LogNormalizer:
    """An estimate of log Z and its precision.

    Attributes:
      log_z: Estimate of log Z, `float64`, of the proposal's batch shape.
      stderr: Standard error of `log_z`, of the same shape.
      num_samples: Number of proposals drawn.
      method: Name of the method.

    >>> LogNormalizer(np.log(0.25), 0.001, num_samples=10**6, method="monte_carlo")
    LogNormalizer(log_z=-1.3863 ± 0.0010, Z=0.25, num_samples=1000000, method='monte_carlo')
    """

    log_z: np.ndarray
    stderr: np.ndarray
    num_samples: int
    method: str

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Returns a confidence interval of log Z.

        The interval assumes that the mean is normally distributed. It covers less than `level` if
        only a few draws have an acceptance probability that matters. Since a(z) is at most 1, a
        region that none of `n` draws has hit may add up to `-log(1 - level) / n` to Z, which is
        3 / n at 95 %. The upper end includes this. If no draw had a(z) above 0, the interval of
        log Z is `(-inf, log(3 / n))`.

        Args:
          level: Confidence level, between 0 and 1.

        Returns:
          lower, upper: Ends of the interval, of the shape of `log_z`, at most 0.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"`level` must be between 0 and 1; got {level!r}.")
        unseen = np.log(-np.log1p(-level) / self.num_samples)
        # The standard error is infinite where nothing was hit.
        half = np.where(np.isneginf(self.log_z), 0.0, _normal_quantile(level) * self.stderr)
        upper = np.logaddexp(self.log_z + half, unseen)
        return self.log_z - half, np.minimum(upper, 0.0)  # a(z) is a probability

    def __repr__(self) -> str:
        log_z, stderr = np.asarray(self.log_z), np.asarray(self.stderr)
        if log_z.ndim == 0:
            value = f"log_z={_with_error(float(log_z), float(stderr))}, Z={np.exp(log_z):.4g}"
        else:
            members = [_with_error(*pair) for pair in zip(log_z.flat, stderr.flat, strict=True)]
            shown = members if len(members) <= 6 else [*members[:3], "...", *members[-3:]]
            value = f"log_z=[{', '.join(shown)}] of shape {log_z.shape}"
        if np.any(np.isneginf(log_z)):
            bound = np.max(np.asarray(self.interval()[1])[np.isneginf(log_z)])
            value += f", no draw with a(z) > 0: log_z < {bound:.2f} at 95 %"
        return f"LogNormalizer({value}, num_samples={self.num_samples}, method={self.method!r})"


def _with_error(log_z: float, stderr: float) -> str:
    """Formats with at least four decimals and two significant digits of the error."""
    if not (np.isfinite(log_z) and np.isfinite(stderr) and stderr > 0.0):
        return f"{log_z:.6g} ± {stderr:g}"
    digits = max(4, 1 - int(np.floor(np.log10(stderr))))
    if digits > 8:
        return f"{log_z:.6g} ± {stderr:.2g}"
    return f"{log_z:.{digits}f} ± {stderr:.{digits}f}"


def estimate_log_normalizer(
    dist: Any,
    num_samples: int = 10**7,
    *,
    target_stderr: float | None = None,
    method: str = "monte_carlo",
    batch_size: int | None = None,
    seed: int | tf.Tensor | None = None,
    progress: bool = False,
) -> LogNormalizer:
    """Estimates log Z of a resampled distribution, for evaluation.

    Draws from the proposal in batches, in constant memory, and sums in float64. Networks run in
    inference mode. Call it outside of `tf.function`.

    >>> dist = Resampled(tfd.Uniform(), lambda z: z, T=100)  # Z = 1/2
    >>> estimate = estimate_log_normalizer(dist, num_samples=10**5, seed=0)
    >>> bool(abs(estimate.log_z - np.log(0.5)) < 4 * estimate.stderr)
    True

    Args:
      dist: A `Resampled`.
      num_samples: Number of proposals to draw; with `target_stderr` the maximum.
      target_stderr: Stop when the standard error of log Z is at most this for every batch member.
        The error includes what the draws may have missed, so that an a(z) which is high only in a
        small region does not stop the estimate before a draw has hit it. It is checked after each
        chunk of batches, which makes the error at the stop slightly optimistic.
      method: `"monte_carlo"`, the mean of a(z) over draws from the proposal.
      batch_size: Number of proposals drawn at a time. By default chosen for speed and memory.
      seed: Python `int`, or an `int32[2]` stateless seed; the same seed gives the same estimate.
      progress: Whether to show a progress bar.

    Returns:
      estimate: A `LogNormalizer`.
    """
    if method != "monte_carlo":
        raise ValueError(f"`method` must be 'monte_carlo'; got {method!r}.")
    if not isinstance(getattr(dist, "proposal_sums", None), monte_carlo.ProposalSums):
        raise TypeError(
            f"`dist` must be a `Resampled`; got {dist!r}. If it contains a `Resampled`, pass that "
            "one."
        )
    num_samples = _arguments.checked_count("num_samples", num_samples)
    if batch_size is None:
        numbers_per_draw = int(np.prod([*dist.batch_shape, *dist.event_shape]))
        batch_size = monte_carlo.default_batch_size(numbers_per_draw)
    batch_size = min(_arguments.checked_count("batch_size", batch_size), num_samples)
    if target_stderr is not None:
        target_stderr = _arguments.checked_positive("target_stderr", target_stderr)
    if not tf.executing_eagerly():
        raise RuntimeError(
            "`estimate_log_normalizer` was called inside a tf.function. Call it outside, and pass "
            "its result in."
        )
    seed = _seeds.new_seed() if seed is None else _seeds.stateless_seed(seed)
    bar = keras.utils.Progbar(num_samples, unit_name="sample") if progress else None
    total, drawn, batches, chunk = None, 0, 0, 1
    while drawn < num_samples:
        size = min(batch_size, num_samples - drawn)
        chunk = min(2 * chunk, _BATCHES_PER_CHUNK, (num_samples - drawn) // size)
        sums = dist.proposal_sums(batches, chunk, size, seed)
        total = monte_carlo.add_sums(total, sums)
        drawn, batches = drawn + chunk * size, batches + chunk
        log_z, stderr = monte_carlo.log_mean_and_stderr(total, drawn)
        estimate = LogNormalizer(log_z, stderr, drawn, method)
        if bar is not None:
            bar.update(drawn, values=[("log_z", np.mean(log_z))], finalize=drawn >= num_samples)
        if target_stderr is not None and np.all(_total_error(estimate) <= target_stderr):
            break
    return estimate


def _total_error(estimate: LogNormalizer) -> np.ndarray:
    """Returns the standard error, including what the draws may have missed."""
    _, upper = estimate.interval(0.95)
    return np.maximum(estimate.stderr, (upper - estimate.log_z) / _normal_quantile(0.95))


def _normal_quantile(level: float) -> float:
    """Returns half the width of the interval with probability `level` of a standard normal."""
    return float(tf.math.ndtri(tf.constant(0.5 + 0.5 * level, tf.float64)))
