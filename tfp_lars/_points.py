"""Shapes of the points z that a distribution with a batch is evaluated at."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _compat

__all__ = ["Points"]

tfd = tfp.distributions


class Points:
    """Broadcasts, flattens and restores points of shape sample + batch + event.

    As in TFP, a batch dimension of 1 may be wider in the points. The points along it belong to the
    same member. `flatten` treats it as one more sample dimension.

    Args:
      distribution: Distribution with batch shape `B`.
    """

    def __init__(self, distribution: tfd.Distribution):
        self._distribution = distribution

    def broadcast(self, z: tf.Tensor) -> tf.Tensor:
        """Returns `z` with all batch and event dimensions, so that each member has its own z."""
        expected = self._distribution.batch_shape.concatenate(self._distribution.event_shape)
        if (
            z.shape.rank is not None
            and expected.is_fully_defined()
            and z.shape[max(z.shape.rank - expected.rank, 0) :] == expected
        ):
            return z
        try:
            static_shape = tf.broadcast_static_shape(z.shape, expected)
        except ValueError:
            raise ValueError(
                f"`z` has shape {tuple(z.shape)}; expected sample shape + {tuple(expected)}, the "
                "batch and event shape, or a shape that broadcasts to it."
            ) from None
        shape = tf.broadcast_dynamic_shape(tf.shape(z), self._batch_and_event())
        return _compat.ensure_shape(tf.broadcast_to(z, shape), static_shape)

    def flatten(self, z: tf.Tensor) -> tf.Tensor:
        """Returns broadcast `z` with a single sample axis, shape `[R] + B + event`."""
        inner = self._batch_and_event()
        order, num_wide = self._order(z)
        if num_wide:
            event_ndims = self._distribution.event_shape.rank
            z = tf.transpose(z, [*order, *range(z.shape.rank - event_ndims, z.shape.rank)])
        # Not -1: an empty batch or event does not show the number of points.
        num_points = tf.reduce_prod(tf.shape(z)[: tf.rank(z) - tf.size(inner) + num_wide])
        flat = tf.reshape(z, tf.concat([[num_points], inner], 0))
        return _compat.ensure_shape(
            flat, [None, *self._distribution.batch_shape, *self._distribution.event_shape]
        )

    def flatten_values(self, values: tf.Tensor, z: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
        """Returns `values` of the sample and batch shape of broadcast `z` in `shape`, `[R] + B`."""
        order, num_wide = self._order(z)
        return tf.reshape(tf.transpose(values, order) if num_wide else values, shape)

    def unflatten(self, values: tf.Tensor, z: tf.Tensor) -> tf.Tensor:
        """Returns `values` of shape `[R] + B` in the sample and batch shape of broadcast `z`."""
        event_ndims = self._distribution.event_shape.rank
        shape = tf.shape(z)[: tf.rank(z) - event_ndims]
        order, num_wide = self._order(z)
        if num_wide:
            values = tf.transpose(tf.reshape(values, tf.gather(shape, order)), np.argsort(order))
        else:
            values = tf.reshape(values, shape)
        if z.shape.rank is None:
            return values
        return _compat.ensure_shape(values, z.shape[: z.shape.rank - event_ndims])

    def replace(self, z: tf.Tensor, where: tf.Tensor, point: tf.Tensor | np.ndarray) -> tf.Tensor:
        """Returns broadcast `z` with `point` wherever `where`, of shape sample + batch, is true."""
        for _ in range(self._distribution.event_shape.rank):
            where = tf.expand_dims(where, -1)
        return _compat.ensure_shape(tf.where(where, point, z), z.shape)

    def _order(self, z: tf.Tensor) -> tuple[list[int], int]:
        """Returns the order of the sample and batch axes of broadcast `z` for `flatten`.

        Returns:
          order: Sample axes, batch axes that are wider than in the distribution, other batch axes.
          num_wide: Number of those that are wider. If it is 0, the axes stay where they are.
        """
        batch = self._distribution.batch_shape
        if 1 not in batch.as_list() or z.shape.rank is None:
            return [], 0
        end = z.shape.rank - self._distribution.event_shape.rank
        start = end - batch.rank
        # A size of `None` may be 1. Moving such an axis changes nothing.
        wide = [start + i for i, n in enumerate(batch) if n == 1 and z.shape[start + i] != 1]
        others = [axis for axis in range(start, end) if axis not in wide]
        return [*range(start), *wide, *others], len(wide)

    def _batch_and_event(self) -> tf.Tensor:
        return tf.concat(
            [self._distribution.batch_shape_tensor(), self._distribution.event_shape_tensor()], 0
        )
