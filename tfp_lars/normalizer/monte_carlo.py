"""Plain Monte Carlo: the mean of a(z) over batches of proposals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _proposal_draws
from tfp_lars._arguments import PROBABILITY_SLACK
from tfp_lars.normalizer import interval
from tfp_lars.normalizer.batch_sums import BatchSums, Sums
from tfp_lars.normalizer.log_normalizer import LogNormalizer
from tfp_lars.normalizer.run import State

__all__ = ["MonteCarlo", "ProposalSums", "check_probabilities", "default_batch_size"]

tfd = tfp.distributions

# Batches of 4k to 16k proposals are the fastest on a CPU.
_BATCH_SIZE = 8192
_NUMBERS_PER_BATCH = 2**23

# Draws that identify a distribution by its values of a(z).
_NUM_FINGERPRINT_DRAWS = 64

# With fewer acceptances the error itself is unknown.
_FEWEST_ACCEPTED = 10


class ProposalSums:
    """Sums of a(z) over batches of proposals.

    Args:
      proposal: Distribution with batch shape `B`.
      log_accept_fn: `z -> log a(z)`, shape sample + batch.
    """

    def __init__(self, proposal: tfd.Distribution, log_accept_fn: Callable[[tf.Tensor], tf.Tensor]):
        self._proposal = proposal
        self._log_accept_fn = log_accept_fn
        self._single = BatchSums(self._log_values, proposal.batch_shape_tensor)

    @property
    def proposal(self) -> tfd.Distribution:
        """The distribution that is drawn from."""
        return self._proposal

    @property
    def log_accept_fn(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """Log a(z)."""
        return self._log_accept_fn

    @property
    def single(self) -> BatchSums:
        """Sums of a(z) over independent draws."""
        return self._single

    def fingerprint(self) -> np.ndarray:
        """Returns sums over a few draws with a fixed seed, which identify a(z) and the proposal."""
        (sums,) = self._single(0, 1, 1, _NUM_FINGERPRINT_DRAWS, tf.constant([0, 0]))
        return np.stack([sums.largest, sums.total, sums.squares])

    def _log_values(self, n: tf.Tensor, seed: tf.Tensor) -> list[tf.Tensor]:
        return [self._log_accept_fn(_proposal_draws.sample(self._proposal, n, seed))]


class MonteCarlo:
    """The mean of a(z) over draws from the proposal.

    Args:
      sums: Sums of a(z).
    """

    name = "monte_carlo"
    num_replicates = 1
    draws_per_value = 1

    def __init__(self, sums: BatchSums):
        self.sums = sums

    def result(self, state: State) -> LogNormalizer:
        """Returns the estimate."""
        values = state.sums[0][-1]
        check_probabilities(values)
        accepted = float(np.min(np.exp(values.log_mean))) * state.num_samples
        warning = None
        if accepted < _FEWEST_ACCEPTED:
            warning = (
                f"too few acceptances: about {accepted:.2g} of {state.num_samples} draws would be "
                f"accepted, and at least {_FEWEST_ACCEPTED} are needed. Raise `num_samples`."
            )
        count = int(values.count)
        return LogNormalizer(
            values.log_mean,
            interval.log_mean_stderr(values.log_mean, values.relative_square, count),
            state.num_samples,
            self.name,
            num_values=count,
            effective_samples=values.effective_count,
            warning=warning,
            state=state,
        )

    def error(self, estimate: LogNormalizer) -> float:
        """Returns the standard error, or more if the interval is wider than that implies."""
        lower, upper = estimate.interval(0.95)
        with np.errstate(invalid="ignore"):
            width = np.fmax(upper - estimate.log_z, estimate.log_z - lower)
        return float(np.max(np.fmax(estimate.stderr, width / interval.normal_width(0.95))))


def default_batch_size(numbers_per_draw: int) -> int:
    """Returns a batch size that is fast and limits the memory."""
    return max(16, min(_BATCH_SIZE, _NUMBERS_PER_BATCH // max(1, numbers_per_draw)))


def check_probabilities(sums: Sums) -> None:
    """Raises if a sum of a(z) contains NaN or values above 1."""
    if np.any(np.isnan(sums.total)):
        raise ValueError("`accept_fn` returned NaN for a draw from the proposal.")
    if np.any(sums.largest > PROBABILITY_SLACK):
        raise ValueError(
            f"`accept_fn` must return probabilities in [0, 1], but returned {np.exp(sums.largest)}."
            " If these are logits, pass from_logits=True."
        )
