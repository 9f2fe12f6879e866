"""The held-out log-likelihood of a distribution while it is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _compat, _nested
from tfp_lars.normalizer import estimate_log_normalizer
from tfp_lars.resampled import Resampled

__all__ = [
    "Evaluation",
    "combined_error",
    "frozen",
    "has_fixed_log_z",
    "log_prob_in_batches",
    "log_z_errors",
]

tfd = tfp.distributions

_NUM_PROPOSALS = 2**15  # for Z, at each evaluation
_NUMBERS_AT_ONCE = 2**20


def has_fixed_log_z(dist: Resampled) -> bool:
    """Whether log Z is a number, as opposed to an estimator for training."""
    return tf.is_tensor(dist.normalizer) or isinstance(dist.normalizer, tf.Variable)


def frozen(dist: tfd.Distribution, **kwargs: Any) -> tfd.Distribution:
    """Freezes all resampled distributions in a distribution.

    Args:
      dist: Any TFP distribution.
      **kwargs: Passed to `estimate_log_normalizer`.

    Returns:
      frozen: `dist` itself if there is nothing to freeze.
    """

    def replace(part):
        is_open = isinstance(part, Resampled) and not has_fixed_log_z(part)
        return part.freeze(**kwargs) if is_open else None

    return _nested.rebuild(dist, replace)


class Evaluation:
    """Evaluates held-out samples with the current weights of a distribution.

    Z is estimated anew from the same random numbers each time, because the moving average lags
    behind the weights. The common random numbers make evaluations comparable.

    Args:
      dist: Any TFP distribution.
      samples: Held-out samples, shape `[M]` + batch + event.
      seed: Seed for the proposals that estimate Z.
    """

    def __init__(self, dist: tfd.Distribution, samples: np.ndarray, seed: int):
        self._seed = seed
        self._samples = samples
        self._pairs: list[tuple[Resampled, Resampled]] = []
        self._log_prob = log_prob_in_batches(_nested.rebuild(dist, self._with_own_log_z))

    def __call__(self) -> np.ndarray:
        """Returns the log density of each held-out sample, `float64`, shape `[M]` + batch."""
        for part, copy in self._pairs:
            log_z = copy.normalizer
            log_z.assign(tf.cast(self._estimate(part).log_z, log_z.dtype))  # pyright: ignore[reportAttributeAccessIssue]
        return self._log_prob(self._samples)

    @property
    def acceptance_rate(self) -> float:
        """Z at the last evaluation, the mean over the batch."""
        return float(np.mean(self._pairs[-1][1].acceptance_rate))

    def _estimate(self, part: Resampled):
        return estimate_log_normalizer(part, _NUM_PROPOSALS, seed=self._seed)

    def _with_own_log_z(self, part: tfd.Distribution) -> tfd.Distribution | None:
        if not isinstance(part, Resampled) or has_fixed_log_z(part):
            return None
        proposal = _nested.rebuild(part.proposal, self._with_own_log_z)  # before its parent
        copy = part.copy(proposal=proposal, normalizer=self._estimate(part))
        self._pairs.append((part, copy))
        return copy


def log_prob_in_batches(
    dist: tfd.Distribution, method: Callable[[tf.Tensor], tf.Tensor] | None = None
) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that computes log densities as a `float64` array, in constant memory.

    Args:
      dist: Any TFP distribution.
      method: Method of `dist` to call. The default is `log_prob`.
    """
    evaluate = _in_batches(dist, method or dist.log_prob)
    return lambda samples: np.concatenate(list(evaluate(samples))).astype(np.float64)


def log_z_errors(dist: tfd.Distribution, samples: np.ndarray) -> dict[Any, np.ndarray]:
    """Returns the effect of the error of each estimated log Z on the mean log density.

    The effect is the derivative with respect to log Z times its standard error. It depends on how
    the density uses Z: `tfd.Independent` adds up members, and for a small T the derivative of the
    log density is not -1.

    Args:
      dist: Any TFP distribution. Moving averages in it are taken as exact.
      samples: Samples, shape `[M]` + batch + event.

    Returns:
      errors: By reference of the variable that holds log Z: an array of its shape.
    """
    estimates = {}
    for part in (dist, *dist.submodules):
        if isinstance(part, Resampled) and part.estimate is not None:
            log_z: Any = part.normalizer  # a variable
            estimates[log_z.ref()] = part.estimate
    if not estimates:
        return {}
    variables = [reference.deref() for reference in estimates]

    def derivatives(z):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            total = tf.reduce_sum(tf.cast(dist.log_prob(z), tf.float64))
        return tape.gradient(total, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    parts = list(_in_batches(dist, derivatives)(samples))
    size = len(samples) * dist.batch_shape.num_elements()
    return {
        reference: sum(part[k].astype(np.float64) for part in parts) / size * estimate.stderr
        for k, (reference, estimate) in enumerate(estimates.items())
    }


def combined_error(errors: Mapping[Any, np.ndarray]) -> float:
    """Returns the standard error from all log Z of `log_z_errors` together.

    The draws of batch members are independent. Estimates may share a seed, so that their errors
    may be correlated. The sum is an upper bound for any correlation.
    """
    return float(sum(np.sqrt(np.sum(np.square(error))) for error in errors.values()))


def _in_batches(
    dist: tfd.Distribution, function: Callable[[tf.Tensor], Any]
) -> Callable[[np.ndarray], Iterator[Any]]:
    """Returns a function that yields the values of `function`, as arrays, for parts of samples."""
    # One concrete graph: `tf.function` would count those of other distributions as retracing, and
    # warn. Autograph would rewrite the functions of users.
    spec = tf.TensorSpec([None, *dist.batch_shape, *dist.event_shape], tf.as_dtype(dist.dtype))
    with _compat.inference_mode():
        graph = tf.function(function, autograph=False).get_concrete_function(spec)

    def evaluate(samples: np.ndarray) -> Iterator[Any]:
        size = max(1, _NUMBERS_AT_ONCE // max(1, int(np.prod(samples.shape[1:]))))
        for first in range(0, len(samples), size):
            values = graph(tf.convert_to_tensor(samples[first : first + size]))
            yield tf.nest.map_structure(lambda value: value.numpy(), values)

    return evaluate
