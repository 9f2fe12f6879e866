"""Batches spread over the replicas of a `tf.distribute` strategy, on one machine or on several.

Batches have numbers, and each derives its seed from its number. A batch therefore has the same
draws on every replica, and the result does not depend on the number of replicas, except for the
rounding of sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tfp_lars import _compat
from tfp_lars._traced_once import TracedOnce
from tfp_lars.normalizer.batch_sums import BatchSums, Sums, add_sums, as_sums

__all__ = ["OverReplicas", "check_strategy", "gather"]

# What a collective operation raises if another worker is gone.
_LOST_WORKER = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
)


class OverReplicas:
    """Sums over batches, of which each replica computes a part. All workers get the same result.

    Args:
      sums: Sums over batches on one device.
      strategy: A `tf.distribute` strategy.
    """

    def __init__(self, sums: BatchSums, strategy: tf.distribute.Strategy):
        self._sums = sums
        self._strategy = strategy
        self._traced = TracedOnce(self._on_all_replicas)

    def __call__(
        self, first: int, stride: int, num_batches: int, batch_size: int, seed: tf.Tensor
    ) -> list[Sums]:
        """See `BatchSums`."""
        numbers = [tf.constant(i) for i in (first, stride, num_batches, batch_size)]
        fields = _or_lost_worker(lambda: [np.asarray(f) for f in self._traced(*numbers, seed)])
        total: list[Sums | None] = [None] * (len(fields) // 4)
        for replica in range(self._strategy.num_replicas_in_sync):
            part = as_sums([field[replica] for field in fields])
            total = [add_sums(a, b) for a, b in zip(total, part, strict=True)]
        return [sums for sums in total if sums is not None]

    def _on_all_replicas(self, first, stride, num_batches, batch_size, seed):
        def replica_fn():
            context = tf.distribute.get_replica_context()
            i, count = context.replica_id_in_sync_group, context.num_replicas_in_sync
            mine = (num_batches - i + count - 1) // count
            # Replicas may run in threads of their own, which do not inherit the mode.
            with _compat.inference_mode():
                fields = self._sums.add_up(
                    first + i * stride, stride * count, mine, batch_size, seed
                )
            return [context.all_gather(field[tf.newaxis], axis=0) for field in fields]

        return [
            self._strategy.experimental_local_results(f)[0] for f in self._strategy.run(replica_fn)
        ]


def gather(value: np.ndarray, strategy: tf.distribute.Strategy) -> np.ndarray:
    """Returns the values of all replicas, shape `[number of replicas]` + shape of `value`."""

    @tf.function(autograph=False)
    def on_all_replicas():
        def replica_fn():
            context = tf.distribute.get_replica_context()
            return context.all_gather(tf.constant(value)[tf.newaxis], axis=0)

        return strategy.experimental_local_results(strategy.run(replica_fn))[0]

    return _or_lost_worker(lambda: np.asarray(on_all_replicas()))


def check_strategy(strategy: Any) -> None:
    """Raises if `strategy` is not a strategy of `tf.distribute`."""
    if not isinstance(strategy, tf.distribute.Strategy):
        raise TypeError(f"`strategy` must be a `tf.distribute.Strategy`; got {strategy!r}.")


def _or_lost_worker(call):
    try:
        return call()
    except _LOST_WORKER as error:
        raise RuntimeError(
            "The estimate of log Z has lost a worker, or the connection to it. Restart all "
            "workers. Results that were saved before can be continued with `continue_from`."
        ) from error
