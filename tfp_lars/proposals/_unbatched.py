"""A base class for proposals with an empty batch shape."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _compat

__all__ = ["UnbatchedDistribution"]

tfd = tfp.distributions


class UnbatchedDistribution(tfd.Distribution):
    """A distribution over real numbers with batch shape `[]` and a static event shape.

    Args:
      event_shape: Static event shape.
      dtype: Type of the events.
      reparameterization_type: As in all TFP distributions.
      parameters: Constructor arguments of the subclass.
      name: Name of the distribution.
    """

    def __init__(
        self,
        event_shape: tf.TensorShape,
        dtype: tf.DType,
        reparameterization_type: Any,
        parameters: dict[str, Any],
        name: str,
    ):
        self._static_event_shape = _compat.untracked(event_shape)
        super().__init__(
            dtype=dtype,
            reparameterization_type=reparameterization_type,
            validate_args=False,
            allow_nan_stats=True,
            parameters=parameters,
            name=name,
        )

    def _batch_shape(self):
        return tf.TensorShape([])

    def _batch_shape_tensor(self, **_):
        return tf.constant([], tf.int32)

    def _event_shape(self):
        return self._static_event_shape

    def _event_shape_tensor(self):
        return tf.constant(self._static_event_shape.as_list(), tf.int32)

    def _default_event_space_bijector(self):
        return tfp.bijectors.Identity()
