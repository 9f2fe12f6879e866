"""The result of an estimate of log Z."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_lars.normalizer import interval

__all__ = ["LogNormalizer"]

_MOST_STDERRS = 6.0  # by which an estimate is above the largest possible value


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LogNormalizer:
    """An estimate of log Z and its precision.

    Attributes:
      log_z: Estimate of log Z, `float64`, of the proposal's batch shape.
      stderr: Standard error of `log_z`, of the same shape.
      num_samples: Number of proposals drawn.
      method: Name of the method.
      num_values: Number of independent values in [0, 1]: draws from the proposal or pairs of them.
        `None` stands for `num_samples`.
      effective_samples: Effective sample size, `(sum of v)**2 / (sum of v**2)`, of the same shape.
        The values v are these values or, for importance sampling, the weights.
      degrees_of_freedom: Degrees of freedom of the standard error, if it comes from replicates;
        else `None`.
      importance_distribution: What importance sampling drew from; else `None`.
      warning: What is wrong with the estimate, for example too few acceptances; else `None`.
      state: What `estimate_log_normalizer(continue_from=...)` needs. `None` if unknown.

    >>> LogNormalizer(np.log(0.25), 0.001, num_samples=10**6, method="monte_carlo")
    LogNormalizer(log_z=-1.3863 ± 0.0010, Z=0.25, num_samples=1000000, method='monte_carlo')
    """

    log_z: np.ndarray
    stderr: np.ndarray
    num_samples: int
    method: str
    num_values: int | None = dataclasses.field(default=None, kw_only=True)
    effective_samples: np.ndarray | None = dataclasses.field(default=None, kw_only=True)
    degrees_of_freedom: int | None = dataclasses.field(default=None, kw_only=True)
    importance_distribution: Any = dataclasses.field(default=None, kw_only=True)
    warning: str | None = dataclasses.field(default=None, kw_only=True)
    state: Any = dataclasses.field(default=None, kw_only=True)

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Returns a confidence interval of log Z.

        The ends are quantiles of beta distributions with the mean and the variance of the estimate.
        For the lower end, half a draw with a(z) = 0 is added, and for the upper end half a draw
        with a(z) = 1, so that the interval also covers after few acceptances or few rejections.
        Since a(z) is at most 1, a region that none of `n` draws has hit may add up to
        `-log(1 - level) / n` to Z, which is 3 / n at 95 %. The upper end is never below this. If no
        draw had a(z) above 0, the interval of log Z is `(-inf, log(3 / n))`.

        For importance sampling it is a t-interval.

        >>> dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid)
        >>> low, high = estimate_log_normalizer(dist, 10**4, seed=1).interval(0.95)
        >>> bool(low < np.log(0.5) < high)
        True

        Args:
          level: Confidence level, between 0 and 1.

        Returns:
          lower, upper: Ends of the interval, of the shape of `log_z`, at most 0.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"`level` must be between 0 and 1; got {level!r}.")
        count = self.num_samples if self.num_values is None else self.num_values
        if self.degrees_of_freedom is not None and not np.any(np.isneginf(self.log_z)):
            half = interval.t_width(level, self.degrees_of_freedom) * np.asarray(self.stderr)
            return self.log_z - half, np.minimum(self.log_z + half, 0.0)
        if self.effective_samples is None:
            relative_square = 1.0 + count * np.square(self.stderr)
        else:
            relative_square = count / np.maximum(self.effective_samples, 1.0)
        return interval.log_mean_interval(self.log_z, relative_square, count, level)

    @property
    def bounded_log_z(self) -> np.ndarray:
        """`log_z`, or 0 where only the error of the estimate lifts it above 0.

        Importance sampling does not know that Z is at most 1.
        """
        log_z = np.asarray(self.log_z)
        is_error = (log_z > 0.0) & (log_z <= _MOST_STDERRS * np.asarray(self.stderr))
        return np.where(is_error, 0.0, log_z)

    def with_warning(self, warning: str | None) -> LogNormalizer:
        """Returns the same estimate with another warning."""
        return dataclasses.replace(self, warning=warning)

    def sliced(self, slices: tuple[Any, ...]) -> LogNormalizer:
        """Returns the estimate for some batch members. It cannot be continued.

        Args:
          slices: As in `tensor[slices]`.
        """

        def members(values):
            return tf.constant(np.broadcast_to(values, np.shape(self.log_z)))[slices].numpy()

        effective = self.effective_samples
        return dataclasses.replace(
            self,
            log_z=members(self.log_z),
            stderr=members(self.stderr),
            effective_samples=None if effective is None else members(effective),
            # These two belong to the whole batch. Only a continued estimate needs them.
            importance_distribution=None,
            state=None,
        )

    def __getstate__(self) -> dict[str, Any]:
        # A distribution cannot be pickled. A continued estimate fits another one.
        return {**self.__dict__, "importance_distribution": None}

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
        end = "" if self.warning is None else f", warning={self.warning!r}"
        return (
            f"LogNormalizer({value}, num_samples={self.num_samples}, method={self.method!r}{end})"
        )


def _with_error(log_z: float, stderr: float) -> str:
    """Formats with at least four decimals and two significant digits of the error."""
    if not (np.isfinite(log_z) and np.isfinite(stderr) and stderr > 0.0):
        return f"{log_z:.6g} ± {stderr:g}"
    digits = max(4, 1 - int(np.floor(np.log10(stderr))))
    if digits > 8:
        return f"{log_z:.6g} ± {stderr:.2g}"
    return f"{log_z:.{digits}f} ± {stderr:.{digits}f}"
