"""The held-out log-likelihood of a resampled distribution, in NumPy.

It serves all contenders alike: a network is given by its weights, and Z is estimated from many
proposals, the same for all networks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.problem import Problem

__all__ = ["HeldOut", "Layers", "Snapshot", "first_at"]

Layers = tuple[tuple[np.ndarray, np.ndarray], ...]
Snapshot = tuple[float, Layers]  # seconds since the start, and the weights at that time

_AT_ONCE = 2**16


class HeldOut:
    """Mean log density of test samples under N(0, I) with resampling.

    Args:
      samples: Test samples, shape `[N, d]`.
      T: Truncation.
      num_proposals: Number of proposals for Z.
    """

    def __init__(self, samples: np.ndarray, T: int, num_proposals: int):
        self._samples, self._T, self._num_proposals = samples, T, num_proposals
        squares = np.sum(np.float64(samples) ** 2, axis=-1)
        self._log_proposal = -0.5 * (squares + samples.shape[-1] * np.log(2 * np.pi))

    def __call__(self, layers: Layers) -> float:
        """Returns the log-likelihood of a network `d-...-1` with tanh, in nats."""
        network = Problem(layers)
        log_z = np.log(self._acceptance_rate(network))
        log_accept = -np.logaddexp(0.0, -np.float64(network.logits(self._samples)))
        log_alpha = (self._T - 1) * np.log1p(-np.exp(log_z))
        log_ratio = np.logaddexp(log_accept + np.log(-np.expm1(log_alpha)) - log_z, log_alpha)
        return float(np.mean(self._log_proposal + log_ratio))

    def _acceptance_rate(self, network: Problem) -> float:
        rng, total = np.random.default_rng(0), 0.0
        for first in range(0, self._num_proposals, _AT_ONCE):
            count = min(_AT_ONCE, self._num_proposals - first)
            z = rng.standard_normal((count, network.d), np.float32)
            total += np.sum(1.0 / (1.0 + np.exp(-np.float64(network.logits(z)))))
        return total / self._num_proposals


def first_at(snapshots: Sequence[Snapshot], log_likelihood: float, held_out: HeldOut) -> float:
    """Returns when a training first reached a log-likelihood, in seconds; NaN if it did not.

    Found by bisection: the log-likelihood rises but for noise.
    """
    low, high = 0, len(snapshots) - 1
    if held_out(snapshots[high][1]) < log_likelihood:
        return float("nan")
    while low < high:
        middle = (low + high) // 2
        if held_out(snapshots[middle][1]) < log_likelihood:
            low = middle + 1
        else:
            high = middle
    return snapshots[low][0]
