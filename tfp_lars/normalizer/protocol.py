"""What every normalizer offers to `Resampled`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

__all__ = ["Estimate", "Normalizer"]


class Estimate(Protocol):
    """Estimates log Z from fresh proposals."""

    def __call__(self, num_samples: int, seed: tf.Tensor, score_function: bool) -> tf.Tensor:
        """Returns the log of the mean of a(z) over `num_samples` proposals, shape `B`.

        Args:
          num_samples: Number of proposals to draw.
          seed: Stateless seed, `int32[2]`.
          score_function: Whether to add the gradient with respect to a proposal that is not
            reparameterized.
        """
        ...


class Normalizer(tf.Module):
    """Knows log Z of a resampled distribution with batch shape `B`.

    A normalizer never sees the distribution. It gets a function that estimates log Z from fresh
    proposals, and it may use or ignore it.
    """

    def build(self, batch_shape: tf.TensorShape, dtype: tf.DType) -> None:
        """Creates the variables. `Resampled` calls this once at construction.

        Args:
          batch_shape: Static batch shape of the proposal.
          dtype: Type of log a(z).
        """
        raise NotImplementedError

    @property
    def argument(self) -> Any:
        """The value for `Resampled(normalizer=...)` that shares this normalizer.

        TFP slices parameters as tensors, so this is a plain tensor or variable for a fixed log Z.
        """
        raise NotImplementedError

    @property
    def value(self) -> tf.Tensor:
        """The current log Z. Draws nothing."""
        raise NotImplementedError

    def __call__(self, estimate: Estimate, log_target: tf.Tensor | None = None) -> tf.Tensor:
        """Returns log Z for a call of `log_prob`.

        Args:
          estimate: Estimates log Z from fresh proposals.
          log_target: `stop_gradient(log pi(z) - log q(z)) + log a(z)`, the reweighted acceptance
            of the evaluated points, shape `[R] + B`.

        Returns:
          log_z: Shape `B`, or `[R] + B` if `log_target` takes part in the estimate.
        """
        raise NotImplementedError

    def __getitem__(self, slices) -> Any:
        """Returns the `normalizer` argument for a slice of the batch."""
        raise NotImplementedError

    def fresh(self, replaced: Sequence[str]) -> Normalizer:
        """Returns a normalizer with the same settings for another density, or raises.

        Args:
          replaced: Names of the arguments of `Resampled` that differ.
        """
        raise NotImplementedError
