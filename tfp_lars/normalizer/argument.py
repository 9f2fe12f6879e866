"""What users may pass as `Resampled(normalizer=...)` and `freeze(estimate)`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_lars._arguments import is_real_number
from tfp_lars.normalizer.estimate import LogNormalizer
from tfp_lars.normalizer.fixed import FixedNormalizer
from tfp_lars.normalizer.moving_average import MovingAverage
from tfp_lars.normalizer.protocol import Normalizer

__all__ = [
    "as_normalizer",
    "check_estimate",
    "check_outside_of_functions",
    "if_still_valid",
    "settings_of_inner",
]

# Arguments of `estimate_log_normalizer` that fit only the distribution that they were made for.
_OF_ONE_DISTRIBUTION = ("antithetic", "reflect_fn", "importance_distribution", "continue_from")


def as_normalizer(normalizer: Any) -> Normalizer:
    """Returns the normalizer that an argument stands for; a new moving average for `None`."""
    if normalizer is None:
        check_outside_of_functions()
        return MovingAverage()
    return normalizer if isinstance(normalizer, Normalizer) else FixedNormalizer(normalizer)


def check_outside_of_functions() -> None:
    """Raises inside a `tf.function`, where a moving average cannot be created."""
    if tf.inside_function():
        raise ValueError(
            "`normalizer`: a distribution that is built inside a tf.function cannot create a "
            "MovingAverage. Pass one that was created outside, or a fixed log Z."
        )


def settings_of_inner(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of an estimate that also suit distributions inside the proposal."""
    return {k: v for k, v in settings.items() if k not in _OF_ONE_DISTRIBUTION}


def check_estimate(estimate: Any, unused: Collection[str]) -> None:
    """Raises if `freeze` was called with a number of samples as log Z, or with unused settings."""
    if is_real_number(estimate) and estimate >= 1:
        raise ValueError(
            f"`estimate` must be log Z, at most 0 because Z is a probability; got {estimate!r}. To "
            f"draw that many proposals, write `freeze(num_samples={int(estimate)})`."
        )
    if estimate is not None and unused:
        raise TypeError(
            f"`freeze` got an `estimate` and also {sorted(unused)}, which configure a new "
            "estimate. Pass one or the other."
        )


def if_still_valid(estimate: LogNormalizer | None, log_z: Any) -> LogNormalizer | None:
    """Returns the estimate if `log_z`, a tensor or variable, still has its value, else `None`."""
    if estimate is None:
        return None
    with tf.init_scope():
        value = tf.get_static_value(tf.convert_to_tensor(log_z))
    expected = np.asarray(estimate.bounded_log_z, value.dtype)
    return estimate if np.array_equal(value, expected) else None
