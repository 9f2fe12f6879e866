"""Plain Monte Carlo: the mean of a(z) over batches of proposals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _proposal_draws
from tfp_lars._arguments import PROBABILITY_SLACK
from tfp_lars.normalizer import antithetic, interval
from tfp_lars.normalizer.batch_sums import BatchSums, Sums
from tfp_lars.normalizer.log_normalizer import LogNormalizer
from tfp_lars.normalizer.run import BatchFn, State

__all__ = ["MonteCarlo", "ProposalSums", "check_probabilities", "choose", "default_batch_size"]

tfd = tfp.distributions

# On two cores, batches of 32k take up to an eighth less time than 8k. Compared with 16k they were
# 4 % slower at one time and 8 % faster at another. Larger ones gain little for their memory.
_BATCH_SIZE = 32768
_NUMBERS_PER_BATCH = 2**22

# Draws that identify a distribution by its values of a(z).
_NUM_FINGERPRINT_DRAWS = 64

# The pilot for antithetic pairs is one batch with a number that no run reaches. It runs if it is at
# most 1 / 32 of all draws. Pairs must gain more than the noise of the pilot.
_PILOT = 2**30
_PILOT_SIZE = 8192
_PILOT_SHARE = 32
_LARGEST_RATIO = 0.95

# With fewer acceptances the error itself is unknown.
_FEWEST_ACCEPTED = 10

# A run that happens to see few of some rare large values has a low estimate and a small error.
# Stopping there would favor low estimates. Before a run stops, its error must therefore be small
# even with this many further draws at each end of [0, 1].
_UNSEEN_BEFORE_STOPPING = 4.0


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
        self._reflect_fn = antithetic.known_reflection(proposal)
        self._paired = None if self._reflect_fn is None else self._pairs(self._reflect_fn)

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

    def paired(
        self, reflect_fn: Callable[[tf.Tensor], tf.Tensor] | None = None
    ) -> BatchSums | None:
        """Returns the sums of a(z) over all points, and over the means of antithetic pairs.

        Args:
          reflect_fn: Maps z to its reflection. By default that of a proposal which is known to be
            symmetric.

        Returns:
          sums: `None` if no reflection is known.
        """
        if reflect_fn is None:
            return self._paired
        return self._pairs(antithetic.checked_reflection(reflect_fn, self._proposal))

    def fingerprint(self) -> np.ndarray:
        """Returns sums over a few draws with a fixed seed, which identify a(z) and the proposal."""
        (sums,) = self._single(0, 1, 1, _NUM_FINGERPRINT_DRAWS, tf.constant([0, 0]))
        return np.stack([sums.largest, sums.total, sums.squares])

    def _log_values(self, n: tf.Tensor, seed: tf.Tensor) -> list[tf.Tensor]:
        return [self._log_accept_fn(_proposal_draws.sample(self._proposal, n, seed))]

    def _pairs(self, reflect_fn: antithetic.Reflection) -> BatchSums:
        def log_values(n, seed):
            z = _proposal_draws.sample(self._proposal, n // 2, seed)
            log_accept = self._log_accept_fn(tf.concat([z, reflect_fn(z)], axis=0))
            return [log_accept, antithetic.log_pair_means(log_accept)]

        return BatchSums(log_values, self._proposal.batch_shape_tensor, num_kinds=2)


class MonteCarlo:
    """The mean of a(z) over draws from the proposal.

    Args:
      sums: `ProposalSums.single` or `ProposalSums.paired`.
      draws_per_value: 2 for antithetic pairs, else 1.
    """

    name = "monte_carlo"
    num_replicates = 1

    def __init__(self, sums: BatchFn, draws_per_value: int = 1):
        self.sums = sums
        self.draws_per_value = draws_per_value

    def result(self, state: State) -> LogNormalizer:
        """Returns the estimate."""
        draws, values = state.sums[0][0], state.sums[0][-1]  # the last are pairs, if there are any
        check_probabilities(draws)
        accepted = float(np.min(np.exp(values.log_mean), initial=1.0)) * state.num_samples
        warning = None
        if accepted < _FEWEST_ACCEPTED:
            warning = (
                f"too few acceptances: about {accepted:.2g} of {state.num_samples} draws would be "
                f"accepted, and at least {_FEWEST_ACCEPTED} are needed. Raise "
                "`num_samples`, or use method='importance'."
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
        """Returns a cautious standard error, or more if the interval is wider than that implies."""
        lower, upper = estimate.interval(0.95)
        count: Any = estimate.num_values
        with np.errstate(invalid="ignore", divide="ignore"):
            width = np.fmax(upper - estimate.log_z, estimate.log_z - lower)
            stderr = interval.log_mean_stderr(
                estimate.log_z,
                count / np.asarray(estimate.effective_samples),
                count,
                unseen=_UNSEEN_BEFORE_STOPPING,
            )
        errors = np.fmax(stderr, width / interval.normal_width(0.95))
        return float(np.max(errors, initial=0.0))  # a batch may be empty


def choose(
    sums: ProposalSums,
    num_samples: int,
    seed: tf.Tensor,
    state: State | None,
    use_pairs: bool | None,
    reflect_fn: antithetic.Reflection | None,
    spread: Callable[[BatchSums], BatchFn],
) -> MonteCarlo:
    """Returns Monte Carlo with independent draws or with antithetic pairs.

    Args:
      sums: Sums of the distribution.
      num_samples: Number of draws.
      seed: Stateless seed, `int32[2]`.
      state: State to continue from, which uses pairs or not.
      use_pairs: Whether to use pairs. `None` lets a pilot decide.
      reflect_fn: Maps z to its reflection.
      spread: Spreads the batches over devices.
    """
    if use_pairs is not None and not isinstance(use_pairs, bool):
        raise TypeError(f"`antithetic` must be True, False or None; got {use_pairs!r}.")
    if use_pairs is False and reflect_fn is not None:
        raise ValueError("`reflect_fn` has no effect with antithetic=False. Drop one of the two.")
    had_pairs = None if state is None else len(state.sums[0]) == 2
    if had_pairs is not None and use_pairs not in (None, had_pairs):
        raise ValueError(
            f"`antithetic` is {use_pairs}, but `continue_from` was estimated with "
            f"antithetic={had_pairs}. Drop `antithetic`."
        )
    wanted = use_pairs if had_pairs is None else had_pairs
    pairs = None if wanted is False else sums.paired(reflect_fn)
    if pairs is None and wanted:
        raise ValueError(
            f"`antithetic` is True, but the proposal {sums.proposal.name!r} is not known to be "
            "symmetric. Pass `reflect_fn`, such as `lambda z: 2 * center - z`, or "
            "antithetic=False."
        )
    if pairs is not None and wanted is not False:
        spread_pairs = spread(pairs)
        large = num_samples >= _PILOT_SHARE * _PILOT_SIZE
        if wanted or (large and _pairs_help(spread_pairs, seed)):
            return MonteCarlo(spread_pairs, 2)
    return MonteCarlo(spread(sums.single))


def _pairs_help(pairs: BatchFn, seed: tf.Tensor) -> bool:
    """Whether a pilot shows a smaller variance of pairs."""
    draws, means = pairs(_PILOT, 1, 1, _PILOT_SIZE, seed)
    return antithetic.variance_ratio(draws, means) < _LARGEST_RATIO


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
