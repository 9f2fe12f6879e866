"""A known log Z."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_lars import _compat
from tfp_lars._arguments import PROBABILITY_SLACK
from tfp_lars.normalizer.log_normalizer import LogNormalizer
from tfp_lars.normalizer.protocol import Normalizer

__all__ = ["FixedNormalizer"]


class FixedNormalizer(Normalizer):
    """A log Z that neither training nor evaluation changes.

    It is kept in a non-trainable variable, which is saved with the weights that it belongs to. A
    tensor stays a tensor inside a `tf.function` and under a `GradientTape`, so that gradients reach
    it.

    Args:
      log_z: Number, array, tensor, non-trainable variable, or `LogNormalizer`.
    """

    def __init__(self, log_z: Any):
        super().__init__(name="fixed_normalizer")
        self._given = _compat.untracked(log_z)
        self._log_z: Any = None  # a variable or tensor after `build`

    def build(self, batch_shape: tf.TensorShape, dtype: tf.DType) -> None:
        """Checks the value and creates its variable."""
        log_z = self._given
        if isinstance(log_z, LogNormalizer):
            _check_hits(log_z)
            _check_batch_shape(log_z, batch_shape)
            log_z = _as_tensor(log_z.bounded_log_z, dtype)
        elif not isinstance(log_z, tf.Variable) and not tf.is_tensor(log_z):
            log_z = _as_tensor(log_z, dtype)
        if isinstance(log_z, tf.Variable):
            _check_not_trainable(log_z)
        else:
            _check_value(log_z)
        # A variable of our own would cut off the gradient with respect to a tensor.
        may_have_gradient = tf.is_tensor(self._given) and _compat.tape_is_recording()
        _check_type_and_shape(log_z, batch_shape, dtype)
        if isinstance(log_z, tf.Variable) or may_have_gradient or not tf.executing_eagerly():
            self._log_z = log_z
        else:
            self._log_z = tf.Variable(log_z, trainable=False, name="log_z")
        self._batch_shape = _compat.untracked(batch_shape)

    @property
    def argument(self) -> tf.Tensor | tf.Variable:
        """The variable or tensor."""
        return self._log_z

    @property
    def value(self) -> tf.Tensor:
        """Log Z, of the batch shape if that is static."""
        value = tf.convert_to_tensor(self._log_z)
        if not self._batch_shape.is_fully_defined():
            return value
        return tf.broadcast_to(value, self._batch_shape)

    def __call__(self, estimate, log_target=None) -> tf.Tensor:
        """Returns the known value."""
        return tf.convert_to_tensor(self._log_z)

    def __getitem__(self, slices) -> tf.Tensor:
        """Returns log Z of the sliced members."""
        value = self.value
        # Without a static batch shape, a scalar has not been broadcast. It fits every slice.
        return value if value.shape.rank == 0 else value[slices]

    def fresh(self, replaced: Sequence[str]) -> Normalizer:
        """Raises: the value holds for one density only."""
        names = " and ".join(f"`{name}`" for name in replaced)
        raise ValueError(
            f"`copy` got another {names}, for which the fixed log Z of the original does not hold. "
            "Pass `normalizer=` as well: another log Z, or a `MovingAverage()`."
        )


def _check_not_trainable(log_z: tf.Variable) -> None:
    if log_z.trainable:
        raise ValueError(
            f"`normalizer` (a fixed log Z) is a trainable variable, {log_z.name!r}. Training would "
            "change it, and the density would no longer be normalized. Create the variable with "
            "trainable=False, or pass its value."
        )


def _check_hits(estimate: LogNormalizer) -> None:
    without = np.isneginf(estimate.log_z)
    if np.any(without):
        bound = np.max(np.asarray(estimate.interval()[1])[without])
        raise ValueError(
            f"`normalizer`: none of {estimate.num_samples} draws from the proposal had a(z) above "
            f"0, so log Z is only known to be below {bound:.2f} (95 % confidence). Raise "
            "`num_samples`, check whether `accept_fn` accepts anything, or pass a known log Z."
        )


def _check_batch_shape(estimate: LogNormalizer, batch_shape: tf.TensorShape) -> None:
    if not batch_shape.is_compatible_with(np.shape(estimate.log_z)):
        raise ValueError(
            f"`normalizer` is an estimate for a distribution with batch shape "
            f"{np.shape(estimate.log_z)}; this one has batch shape {batch_shape}. Estimate log Z "
            "of this distribution, or pass `estimate.log_z` to use one value for all members."
        )


def _as_tensor(log_z: Any, dtype: tf.DType) -> tf.Tensor:
    try:
        return tf.constant(np.asarray(log_z, dtype.as_numpy_dtype))
    except (TypeError, ValueError):
        raise TypeError(
            "`normalizer` must be a MovingAverage, a LogNormalizer, or a fixed log Z (a number, "
            f"tensor or variable); got {log_z!r}."
        ) from None


def _check_value(log_z: tf.Tensor) -> None:
    value = tf.get_static_value(log_z)
    if value is not None and not np.all((value <= PROBABILITY_SLACK) & (value > -np.inf)):
        raise ValueError(
            "`normalizer` must be log Z, finite and at most 0 because Z is a probability; got "
            f"{value}. If this is Z itself, pass its log."
        )


def _check_type_and_shape(
    log_z: tf.Tensor | tf.Variable, batch_shape: tf.TensorShape, dtype: tf.DType
) -> None:
    if log_z.dtype != dtype:
        raise TypeError(
            f"`normalizer` (a fixed log Z) has type {log_z.dtype.name}; expected {dtype.name}."
        )
    try:
        fits = tf.broadcast_static_shape(log_z.shape, batch_shape).is_compatible_with(batch_shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"`normalizer` (a fixed log Z) has shape {log_z.shape}; expected () or {batch_shape}, "
            "the batch shape of the proposal."
        )
