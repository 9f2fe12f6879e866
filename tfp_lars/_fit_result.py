"""`FitResult`: what `fit` returns."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow_probability as tfp

from tfp_lars import _fit_figures
from tfp_lars.resampled import Resampled

__all__ = ["FitResult", "mean_and_stderr"]

tfd = tfp.distributions


def mean_and_stderr(values: np.ndarray) -> tuple[float, float]:
    """Returns the mean of values and its standard error; NaN if not all of them are finite.

    Args:
      values: Shape `[M]` + batch. The `M` rows are independent, the members of a batch are not.
    """
    rows = np.mean(values.reshape([len(values), -1]), axis=1)
    if not np.all(np.isfinite(rows)):
        return float(np.mean(rows)), float("nan")
    return float(np.mean(rows)), float(np.std(rows, ddof=1) / np.sqrt(len(rows)))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FitResult:
    """The fitted distribution, and how well it fits.

    Log-likelihoods are means over the held-out samples and the batch, in nats. Standard errors take
    the `M` rows of samples as independent, but not the members of a batch. They include the errors
    of all estimates of log Z, also in nested distributions. The errors of several estimates are
    added, which gives an upper bound. The weights are the best ones on the held-out samples, so the
    log-likelihood is slightly optimistic.

    Attributes:
      distribution: The fitted distribution, with a fixed log Z. It shares its networks with the
        distribution that was fitted.
      log_likelihood: Held-out log-likelihood of `distribution`.
      log_likelihood_stderr: Its standard error.
      proposal_log_likelihood: Held-out log-likelihood of the proposal before the fit. For a
        distribution without a proposal, that of the distribution before the fit.
      proposal_log_likelihood_stderr: Its standard error.
      gain: `log_likelihood - proposal_log_likelihood`.
      gain_stderr: Its standard error.
      history: What was measured at each evaluation, by name: `step`, `log_likelihood` (held-out),
        `train_log_likelihood` (mean over the steps since the previous evaluation) and
        `learning_rate`. Resampled distributions also have `acceptance_rate` (Z).
      best_step: Step of the weights that were kept.
      num_steps: Number of steps that were made.
      stopped: `"finished"`, `"early"` (no improvement for `patience` evaluations) or
        `"interrupted"`.
      num_skipped: Number of steps without a finite gradient, which changed nothing.
      held_out: Held-out samples, shape `[M]` + batch + event.
      proposal: The proposal, or `None`.

    >>> dist = Resampled(tfd.Normal(0.0, 1.0), AcceptanceNetwork((8,)), T=10)
    >>> samples = tfd.Normal(0.5, 0.5).sample(2000, seed=1)
    >>> result = fit(dist, samples, num_steps=200, progress=False, seed=1)
    >>> bool(result.gain > 0.2)
    True
    """

    distribution: tfd.Distribution
    log_likelihood: float
    log_likelihood_stderr: float
    proposal_log_likelihood: float
    proposal_log_likelihood_stderr: float
    gain: float
    gain_stderr: float
    history: dict[str, np.ndarray]
    best_step: int
    num_steps: int
    stopped: str
    num_skipped: int
    held_out: np.ndarray
    proposal: tfd.Distribution | None

    @property
    def acceptance_rate(self) -> np.ndarray | None:
        """Z, of the batch shape; `None` for a distribution that is not a `Resampled`."""
        if not isinstance(self.distribution, Resampled):
            return None
        return self.distribution.acceptance_rate.numpy()

    @property
    def expected_attempts(self) -> np.ndarray | None:
        """Mean number of proposals per draw; `None` for other distributions."""
        if not isinstance(self.distribution, Resampled):
            return None
        return self.distribution.expected_attempts.numpy()

    @property
    def truncation_weight(self) -> np.ndarray | None:
        """Share of draws that are kept without a test; `None` for other distributions."""
        if not isinstance(self.distribution, Resampled):
            return None
        return self.distribution.truncation_weight.numpy()

    def plot(self, num_draws: int = 10_000, seed: int = 0) -> Any:
        """Plots held-out samples, the proposal and the fitted distribution.

        One and two dimensions are shown as they are. With more dimensions the figure shows those
        pairs of dimensions whose distribution changed most.

        Args:
          num_draws: Number of draws from each distribution.
          seed: Seed for the draws.

        Returns:
          figure: A `matplotlib.figure.Figure`. Notebooks display it.
        """
        return _fit_figures.draw(self.held_out, self.proposal, self.distribution, num_draws, seed)

    def __repr__(self) -> str:
        steps = f"{self.num_steps:,} steps, best at {self.best_step:,}, {self.stopped}"
        with_error = "{:.3f} ± {:.3f}".format
        rows = [
            ("log-likelihood", with_error(self.log_likelihood, self.log_likelihood_stderr)),
            (
                "before" if self.proposal is None else "proposal",
                with_error(self.proposal_log_likelihood, self.proposal_log_likelihood_stderr),
            ),
            ("gain", f"{with_error(self.gain, self.gain_stderr)} nats"),
        ]
        if self.acceptance_rate is not None and self.truncation_weight is not None:
            rows += [
                ("Z", _summary(self.acceptance_rate)),
                ("attempts", f"{_summary(self.expected_attempts)} per draw"),
                ("untested", f"{_summary(100 * self.truncation_weight, '.2g')} % of the draws"),
            ]
        if self.num_skipped:
            rows.append(("skipped", f"{self.num_skipped:,} steps without a finite gradient"))
        lines = "".join(f"\n  {name:<15} {value}" for name, value in rows)
        return f"FitResult ({steps}; {len(self.held_out):,} held-out samples){lines}"


def _summary(values: np.ndarray | None, form: str = ".4g") -> str:
    low, high = np.min(values), np.max(values)  # pyright: ignore[reportCallIssue, reportArgumentType]
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"
