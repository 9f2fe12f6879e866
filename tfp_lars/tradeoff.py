"""`truncation_tradeoff`: what a truncation T costs and what it is worth."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_lars import _arguments, _plotting, density
from tfp_lars._fit_evaluation import (
    combined_error,
    has_fixed_log_z,
    log_prob_in_batches,
    log_z_errors,
)
from tfp_lars._fit_result import mean_and_stderr
from tfp_lars._fit_samples import checked_array
from tfp_lars.normalizer import LogNormalizer, moving_averages
from tfp_lars.resampled import Resampled

__all__ = ["TruncationTradeoff", "truncation_tradeoff"]

_TRUNCATIONS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, None)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TruncationTradeoff:
    """Log-likelihood and expected attempts for several truncations T.

    Attributes:
      T: The truncations; `None` for untruncated resampling.
      log_likelihood: Mean log density of the samples in nats, shape `[len(T)]`.
      stderr: Its standard error, shape `[len(T)]`. It includes the errors of all estimates of
        log Z, also in nested distributions. They are added, which gives an upper bound.
      expected_attempts: Mean number of proposals per draw, shape `[len(T)]`.
      estimate: The estimate of log Z that all rows share; `None` if log Z was given as a number.

    >>> dist = Resampled(tfd.Uniform(), lambda z: z)  # Z = 1/2
    >>> truncation_tradeoff(dist, tf.linspace(0.6, 1.0, 9), T=(1, 2, None), seed=1).T
    (1, 2, None)
    """

    T: tuple[int | None, ...]
    log_likelihood: np.ndarray
    stderr: np.ndarray
    expected_attempts: np.ndarray
    estimate: LogNormalizer | None

    def plot(self) -> Any:
        """Plots log-likelihood against expected attempts.

        Returns:
          figure: A `matplotlib.figure.Figure`. Notebooks display it.
        """
        figure, axis = _plotting.figure(1, 1)
        axis.errorbar(self.expected_attempts, self.log_likelihood, self.stderr, marker="o")
        for first, last in self._groups():
            sign = "=" if first == last else "≥"
            label = f"T {sign} {'∞' if self.T[first] is None else self.T[first]}"
            point = (self.expected_attempts[first], self.log_likelihood[first])
            # Upper left, where the rising curve leaves room.
            axis.annotate(label, point, (-4, 5), textcoords="offset points", ha="right")
        axis.margins(0.18, 0.12)
        _plotting.set_log_scale(axis)
        axis.set_xlabel("expected attempts per draw")
        axis.set_ylabel("log-likelihood (nats)")
        return figure

    def _groups(self) -> list[tuple[int, int]]:
        """Returns first and last index of rows whose attempts differ by less than 5 %."""
        groups: list[tuple[int, int]] = []
        for i, attempts in enumerate(self.expected_attempts):
            if groups and abs(attempts / self.expected_attempts[groups[-1][0]] - 1.0) < 0.05:
                groups[-1] = (groups[-1][0], i)
            else:
                groups.append((i, i))
        return groups

    def __repr__(self) -> str:
        rows = [f"{'T':>8}  {'log-likelihood':>18}  {'attempts per draw':>17}"]
        for T, value, stderr, attempts in zip(
            self.T, self.log_likelihood, self.stderr, self.expected_attempts, strict=True
        ):
            likelihood = f"{value:.3f} ± {stderr:.3f}"
            rows.append(f"{T!s:>8}  {likelihood:>18}  {attempts:>17.4g}")
        return "TruncationTradeoff\n" + "\n".join(rows)


def truncation_tradeoff(
    dist: Resampled,
    samples: Any,
    T: Iterable[int | None] = _TRUNCATIONS,
    *,
    num_samples: int = 10**6,
    seed: int | tf.Tensor | None = None,
) -> TruncationTradeoff:
    """Returns held-out log-likelihood and expected attempts for each truncation.

    With a larger `T`, more draws pass a test and a draw costs more. The log-likelihood rises if
    a(z) fits the samples. The acceptance function stays the same, so a(z) and log Z are evaluated
    once for all `T`.

    >>> dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.exp(-4.0 * z**2))
    >>> held_out = tfd.Normal(0.0, 1 / 3).sample(1000, seed=1)  # the target of T = None
    >>> tradeoff = truncation_tradeoff(dist, held_out, T=(1, 10, None), seed=1)
    >>> bool(tf.reduce_all(tradeoff.log_likelihood[1:] > tradeoff.log_likelihood[:-1]))
    True
    >>> tradeoff.expected_attempts.round(1)
    array([1. , 2.9, 3. ])

    Args:
      dist: A `Resampled` with batch shape `[]`. Its own `T` is not used. A fixed log Z is
        used. Nested distributions without one are frozen.
      samples: Samples that `dist` was not trained on, an array or tensor of shape `[N]` + event.
      T: Truncations to compare: integers of at least 1, or `None` for untruncated resampling.
      num_samples: Number of proposals that estimate each log Z that is not fixed.
      seed: Python `int`, or an `int32[2]` stateless seed, for these estimates.

    Returns:
      tradeoff: A `TruncationTradeoff`.
    """
    if not isinstance(dist, Resampled):
        raise TypeError(f"`dist` must be a `Resampled`; got {dist!r}.")
    if dist.batch_shape.rank != 0:
        raise ValueError(
            f"`dist` must have batch shape []; got {dist.batch_shape}. `freeze()` it and pass one "
            "member, such as `frozen[0]`."
        )
    truncations = tuple(_arguments.checked_truncation(t) for t in _as_iterable(T))
    if not truncations:
        raise ValueError("`T` is empty. Pass the truncations to compare, such as (1, 10, 100).")
    samples = checked_array(
        samples, dist.event_shape, tf.as_dtype(dist.dtype), "an array of numbers or a tensor"
    )
    if len(samples) < 2:
        raise ValueError(f"`samples` has {len(samples)} rows; at least 2 are needed.")
    if moving_averages(dist):  # also where only the averages of nested distributions are left
        fixed: Any = (dist.estimate or dist.normalizer) if has_fixed_log_z(dist) else None
        dist = dist.freeze(fixed, num_samples=num_samples, seed=seed)
    estimate = dist.estimate
    of_log_z = 0.0 if estimate is None else float(estimate.stderr)
    of_proposal = combined_error(log_z_errors(dist.proposal, samples))
    log_z = tf.cast(dist.log_normalizer, tf.float64)
    log_proposal = log_prob_in_batches(dist.proposal)(samples)
    log_accept = tf.constant(log_prob_in_batches(dist, dist.accept_log_prob)(samples))
    outside = np.isneginf(log_proposal)
    rows = []
    for t in truncations:
        # Where the proposal is 0, the density is 0 for any a(z).
        ratio = np.where(outside, 0.0, density.log_ratio(log_accept, log_z, t))
        mean, stderr = mean_and_stderr(log_proposal + ratio)
        slope = _slope(tf.boolean_mask(log_accept, ~outside), log_z, t)
        rows.append(
            (
                mean,
                np.hypot(stderr, abs(slope) * of_log_z + of_proposal),
                np.exp(density.log_expected_attempts(log_z, t)),
            )
        )
    values = np.array(rows, np.float64)
    return TruncationTradeoff(truncations, values[:, 0], values[:, 1], values[:, 2], estimate)


def _as_iterable(T: Any) -> Iterable:
    return T if isinstance(T, Iterable) and not isinstance(T, (str, bytes)) else (T,)


def _slope(log_accept: tf.Tensor, log_z: tf.Tensor, T: int | None) -> float:
    """Returns the derivative of the mean log density with respect to log Z."""
    with tf.GradientTape() as tape:
        tape.watch(log_z)
        mean = tf.reduce_mean(density.log_ratio(log_accept, log_z, T))
    gradient: Any = tape.gradient(mean, log_z)
    return 0.0 if gradient is None else float(gradient)
