"""Z, the mean acceptance probability: a moving average for training, Monte Carlo for evaluation.

Everything is held and averaged as log Z, so that rates of 1e-20 are as good as rates of 0.1.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import numbers
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _proposal_draws
from tfp_lars._seeds import stateless_seed
from tfp_lars.density import log_add_exp

__all__ = [
    "CompiledSums",
    "LogNormalizer",
    "MovingAverage",
    "estimate_log_normalizer",
    "hold_while",
    "moving_averages",
]

tfd = tfp.distributions

# Stands for log 0 where none of the draws can be accepted: -inf would turn gradients to NaN.
_LOG_ZERO = -1e9

# Batches of 4k to 16k proposals are the fastest on a CPU.
_BATCH_SIZE = 8192
_NUMBERS_PER_BATCH = 2**23
_BATCHES_PER_CHUNK = 64

LogAcceptFn = Callable[[tf.Tensor], tf.Tensor]


class MovingAverage(tf.Module):
    """The training-time estimator of Z: Algorithm 1 of Bauer and Mnih.

    Each call of `Resampled.log_prob` draws `num_samples` proposals, takes the mean of a(z) over
    them as the current estimate, and moves the average towards it. The value of `log_prob` uses
    the average, its gradient that of the current estimate. With the log density of `z` under
    what it was drawn from, `z` itself joins the estimate, reweighted: a sample where proposals
    are rare.

    One average is kept for each member of the proposal's batch. An update that is not finite, say
    after a batch with a NaN, is skipped for the members that it concerns; the value of that call
    still shows the NaN. `reset()` starts the average again.

    Where the proposal is reparameterized, its parameters get their share of the gradient of Z
    through the draws; for a discrete proposal no gradient flows through them, and Z is trained
    through a(z) alone, as in the paper. `score_function=True` is for such proposals. It adds the
    gradient of Z with respect to the proposal `pi`, from draws `z_1, ..., z_S`, by

        mean over s of (a(z_s) - b_s) * grad log pi(z_s),    b_s = mean over t != s of a(z_t)

    The baseline `b_s` does not depend on `z_s`, so the estimate is unbiased. It needs the
    `log_prob` of the draws under the proposal. Where that is only a bound, as with
    `proposals.vae_marginal`, the gradient of the bound takes the place of that of `log pi`.

    `average.hold()` stops the updates, also in graphs that are traced already, and
    `average.release()` resumes them. While held, `log_prob` uses the value as it is and draws
    nothing. Before the first update there is no value to hold: `log_prob` then estimates Z with
    the same draws at each call, and keeps nothing. Checkpoints do not save whether an average is
    held.

    >>> dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, normalizer=MovingAverage(64))
    >>> before = dist.log_prob(0.3)
    >>> with dist.normalizer.held():
    ...     values = [float(dist.log_prob(0.3)) for _ in range(2)]
    >>> values[0] == values[1]
    True

    The state of the random numbers is part of a checkpoint: a training that is interrupted and
    resumed repeats the uninterrupted one. It advances with each call, unless the average is held.
    Under `tf.distribute` replicas draw different numbers and share one average; a replica whose
    estimate is not finite is left out of it.

    Args:
      num_samples: Proposals drawn for each estimate, `S` in the paper.
      decay: Weight of the past in the average, `1 - epsilon` in the paper, from 0 (no
        smoothing) to below 1.
      score_function: Whether to add the gradient of Z with respect to a proposal that is not
        reparameterized. An error where the proposal is: there the draws carry it, with less
        noise, and it would be counted twice. Needs at least 2 samples.
      seed: Python `int`, or an `int32[2]` stateless seed. By default each average takes another
        one, which `tf.random.set_seed` makes reproducible.
      name: Name of the module.
    """

    # The flag is no part of what models list, train and save; see `_trackable_children`.
    _TF_MODULE_IGNORED_PROPERTIES = tf.Module._TF_MODULE_IGNORED_PROPERTIES | {"_held"}

    def __init__(
        self,
        num_samples: int = 1024,
        decay: float = 0.9,
        *,
        score_function: bool = False,
        seed: int | tf.Tensor | None = None,
        name: str = "moving_average",
    ):
        super().__init__(name=name)
        if not isinstance(num_samples, (int, np.integer)) or num_samples < 1:
            raise ValueError(
                f"`num_samples` must be an integer of at least 1; got {num_samples!r}."
            )
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"`decay` must be at least 0 and below 1; got {decay!r}.")
        if score_function and num_samples < 2:
            raise ValueError(
                "`num_samples` must be at least 2 with `score_function=True`, which compares each "
                f"draw with the others; got {num_samples!r}."
            )
        self.num_samples = int(num_samples)
        self.decay = float(decay)
        self.score_function = bool(score_function)
        self.seed = self._no_dependency(seed)
        self._log_z = None

    def build(self, batch_shape: tf.TensorShape, dtype: tf.DType) -> None:
        """Creates the variables, unless they exist; `Resampled` calls it.

        Args:
          batch_shape: Static batch shape of the proposal.
          dtype: Of log a(z).
        """
        if self._log_z is not None:
            if self._log_z.shape != batch_shape or self._log_z.dtype != dtype:
                raise ValueError(
                    f"`normalizer` is a MovingAverage of shape {self._log_z.shape} and type "
                    f"{self._log_z.dtype.name}, but the proposal has batch shape {batch_shape} and "
                    f"type {dtype.name}: give each distribution an average of its own."
                )
            return
        if not batch_shape.is_fully_defined():
            raise ValueError(
                "`normalizer`: a MovingAverage keeps one value for each batch member and needs a "
                f"static batch shape; the proposal's is {batch_shape}. Pass a fixed log Z instead."
            )
        # Built under a `tf.function`, variables must outlive the trace.
        with tf.init_scope():
            self._log_z = tf.Variable(
                np.full(batch_shape, dtype.max, dtype.as_numpy_dtype),
                trainable=False,
                # As Keras does with the averages of batch normalization: with no aggregation,
                # replicas would drift apart.
                aggregation=tf.VariableAggregation.MEAN,
                name="log_z",
            )
            self._num_updates = _counter(tf.zeros([], tf.int64), "num_updates")
            seed = (
                tfp.random.sanitize_seed(None) if self.seed is None else stateless_seed(self.seed)
            )
            # As a pair of int32, a stateless seed: a hash of the seed, and the number of calls.
            self._random_state = _counter(
                tf.bitcast(tf.random.fold_in(seed, 0), tf.int64), "random_state"
            )
            self._held = self._no_dependency(_counter(False, "held"))

    @property
    def log_z(self) -> tf.Tensor:
        """The current value, of the proposal's batch shape; NaN before the first update."""
        value = self._read()
        return tf.where(_has_value(value), value, tf.constant(np.nan, value.dtype))

    @property
    def has_value(self) -> tf.Tensor:
        """Whether there was an update, `bool`, of the proposal's batch shape."""
        return _has_value(self._read())

    @property
    def num_updates(self) -> tf.Tensor:
        """How many updates the average has seen, skipped ones left out; `int64`, shape `[]`."""
        self._check_built()
        return self._num_updates.read_value()

    def fresh(self) -> MovingAverage:
        """An average with the same settings that has seen nothing."""
        return MovingAverage(
            self.num_samples,
            self.decay,
            score_function=self.score_function,
            seed=self.seed,
            name=self.name,
        )

    def reset(self) -> None:
        """Forgets all updates. The random numbers go on from where they are."""
        self._check_built()
        self._log_z.assign(tf.fill(self._log_z.shape, self._log_z.dtype.max))
        self._num_updates.assign(0)

    def hold(self) -> None:
        """Stops the updates, until `release`."""
        self._check_built()
        self._held.assign(True)

    def release(self) -> None:
        """Resumes the updates."""
        self._check_built()
        self._held.assign(False)

    @contextlib.contextmanager
    def held(self) -> Iterator[MovingAverage]:
        """Holds the average within a `with` block, and leaves it as it was found."""
        self._check_built()
        before = self._held.read_value()
        self.hold()
        try:
            yield self
        finally:
            self._held.assign(before)

    def evaluate(
        self,
        log_accept_fn: LogAcceptFn,
        proposal: tfd.Distribution,
        z: tf.Tensor,
        log_weight: tf.Tensor | None = None,
        proposal_kwargs: Mapping[str, Any] | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`log a(z)` and log Z, after one update of the average.

        Args:
          log_accept_fn: `z -> log a(z)`, shape sample + batch.
          proposal: Distribution with batch shape `B`.
          z: Shape `[R] + B + event`.
          log_weight: `log pi(z) - log q(z)`, shape `[R] + B`, to have `z` in the estimate.
          proposal_kwargs: For the proposal's `log_prob`, where the score function needs it.

        Returns:
          log_accept: Shape `[R] + B`.
          log_z: The average as value, the gradient of the current estimate; shape `B`, or
            `[R] + B` with `log_weight`.
        """
        self._check_proposal(proposal)
        _check_that_updates_run()
        old = self._read()
        seed = self._seed_of_replica()
        has_value = _has_value(old)
        held = tf.constant(True) if _HOLDING.get() else self._held.read_value()
        by_value = tf.logical_and(held, has_value)

        def current():
            draws = _proposal_draws.sample(proposal, self.num_samples, seed, differentiable=True)
            # Part of a gradient may come through draws that are not reparameterized, say those of
            # a mixture; the score function has that part, too.
            draws = tf.stop_gradient(draws) if self.score_function else draws
            log_draws = tf.maximum(log_accept_fn(tf.cast(draws, z.dtype)), _LOG_ZERO)
            log_z = _log_mean_exp(log_draws)
            if self.score_function:
                log_proposal = proposal.log_prob(draws, **(proposal_kwargs or {}))
                log_z += _score_term(log_draws, log_z, tf.cast(log_proposal, log_z.dtype))
            return log_z

        # Not on `z` and the draws together: the draws need not wait for what `z` comes from, an
        # encoder say, and where the proposal is not trained no gradient has to reach them.
        log_accept = log_accept_fn(z)
        log_current = tf.cond(tf.reduce_all(by_value), lambda: old, current)
        log_current.set_shape(self._log_z.shape)
        if log_weight is not None:
            # Where the value is used, the weight has no part in it, be it infinite.
            log_weight = tf.where(by_value, tf.zeros_like(log_weight), log_weight)
            log_current = self._with_target(log_current, log_accept, log_weight)
        log_current = tf.where(by_value, old, log_current)
        log_old = tf.where(has_value, old, tf.zeros_like(old))
        log_smooth = tf.stop_gradient(
            tf.where(has_value, _log_mix(log_old, log_current, self.decay), log_current)
        )
        if not _HOLDING.get():
            self._update(old, log_smooth if log_weight is None else _log_mean_exp(log_smooth), held)
        share = tf.where(by_value, tf.zeros_like(log_smooth), tf.exp(log_current - log_smooth))
        log_z = _value_and_gradient(
            tf.where(by_value, old, log_smooth), tf.stop_gradient(share), log_current
        )
        return log_accept, log_z

    def _update(self, old: tf.Tensor, new: tf.Tensor, held: tf.Tensor) -> None:
        """Moves to `new`, in the members where that is finite, unless `held`."""
        new = _mean_over_replicas(new)
        usable = tf.logical_and(tf.math.is_finite(new), tf.logical_not(held))
        new = tf.where(usable, new, old)
        self._log_z.assign(new)
        # After the values are known to be good: a graph would count a failed call, too.
        with tf.control_dependencies([new]):
            self._num_updates.assign_add(tf.cast(tf.reduce_any(usable), tf.int64))
            self._random_state.assign_add(tf.where(held, tf.zeros([], tf.int64), 2**32))

    def _with_target(self, log_current, log_accept, log_weight):
        """Z_r: the estimate of each data point, its own sample included."""
        S = self.num_samples
        log_target = tf.stop_gradient(log_weight) + log_accept
        return log_add_exp(log_current + np.log(S), log_target) - np.log(S + 1)

    def _seed_of_replica(self) -> tf.Tensor:
        seed = tf.bitcast(self._random_state.read_value(), tf.int32)
        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return seed
        return tf.random.fold_in(seed, context.replica_id_in_sync_group)

    def _trackable_children(self, save_type="checkpoint", **kwargs):
        # A checkpoint that was written while held must not stop the training that it resumes. The
        # graphs of a SavedModel, though, read the flag.
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "savedmodel" and self._log_z is not None:
            children["_held"] = self._held
        return children

    def _check_proposal(self, proposal: tfd.Distribution) -> None:
        reparameterized = proposal.reparameterization_type == tfd.FULLY_REPARAMETERIZED
        if self.score_function and reparameterized:
            raise ValueError(
                "`score_function=True` is for proposals that are not reparameterized, but "
                f"{proposal.name!r} is: its draws carry the gradient of Z already. Leave it out."
            )

    def _read(self) -> tf.Tensor:
        self._check_built()
        return self._log_z.read_value()

    def _check_built(self) -> None:
        if self._log_z is None:
            raise ValueError(
                "This MovingAverage belongs to no distribution yet: pass it as `normalizer` first."
            )


# Whether Keras said that this is no training. A Python value, not a variable: graphs for training
# and for evaluation are traced apart, and replicas may run in threads of their own.
_HOLDING = contextvars.ContextVar("tfp_lars_holding", default=False)


@contextlib.contextmanager
def hold_while(held: bool) -> Iterator[None]:
    """Whether moving averages are held in what is executed, or traced, within a `with` block."""
    token = _HOLDING.set(held)
    try:
        yield
    finally:
        _HOLDING.reset(token)


def moving_averages(module: tf.Module) -> list[MovingAverage]:
    """The averages in a module and in all that it holds."""
    return [m for m in (module, *module.submodules) if isinstance(m, MovingAverage)]


def _counter(value: Any, name: str) -> tf.Variable:
    aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return tf.Variable(value, trainable=False, aggregation=aggregation, name=name)


def _has_value(log_z: tf.Tensor) -> tf.Tensor:
    # The largest number stands for no value: NaN would set off TF's `enable_check_numerics`.
    return log_z < log_z.dtype.max


def _check_that_updates_run() -> None:
    if not tf.executing_eagerly() and not tf.inside_function():
        raise RuntimeError(
            "`normalizer` is a MovingAverage, whose updates would never run in a "
            "`tf.compat.v1.Graph`. Use `tf.function`, or pass a fixed log Z as `normalizer`."
        )


def _log_mix(log_old: tf.Tensor, log_new: tf.Tensor, decay: float) -> tf.Tensor:
    if decay == 0.0:
        return log_new
    return log_add_exp(log_old + np.log(decay), log_new + np.log1p(-decay))


def _log_mean_exp(log_values: tf.Tensor) -> tf.Tensor:
    """Mean over the first axis, in log space."""
    count = tf.cast(tf.shape(log_values)[0], log_values.dtype)
    return tf.reduce_logsumexp(log_values, axis=0) - tf.math.log(count)


def _score_term(log_accept: tf.Tensor, log_z: tf.Tensor, log_proposal: tf.Tensor) -> tf.Tensor:
    """Zero, with the score-function gradient of the log of the mean of `a`.

    With the mean of the others as the baseline of each, and `Z` the mean of all `S`,
    `a_s - b_s = (a_s - Z) * S / (S - 1)`; the log divides by `Z`.

    Args:
      log_accept: `log a` of the draws, shape `[S] + B`.
      log_z: Log of its mean, shape `B`.
      log_proposal: `log pi` of the draws, shape `[S] + B`.

    Returns:
      zero: Shape `B`.
    """
    num_others = tf.cast(tf.shape(log_accept)[0] - 1, log_accept.dtype)
    weight = tf.stop_gradient(tf.math.expm1(log_accept - log_z) / num_others)
    return tf.reduce_sum(weight * (log_proposal - tf.stop_gradient(log_proposal)), axis=0)


def _value_and_gradient(value: tf.Tensor, share: tf.Tensor, source: tf.Tensor) -> tf.Tensor:
    """`value`, with `share` of the gradient of `source`.

    log(Z_curr + stop_gradient(Z_smooth - Z_curr)) of the paper, without leaving log space.
    """
    return value + share * (source - tf.stop_gradient(source))


def _mean_over_replicas(log_z: tf.Tensor) -> tf.Tensor:
    """Mean of Z over the replicas where it is finite; NaN where it is so in none."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return log_z
    every = context.all_gather(log_z[tf.newaxis], axis=0)  # [replicas] + B
    finite = tf.math.is_finite(every)
    count = tf.reduce_sum(tf.cast(finite, log_z.dtype), axis=0)
    every = tf.where(finite, every, tf.constant(-np.inf, every.dtype))
    return tf.reduce_logsumexp(every, axis=0) - tf.math.log(count)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LogNormalizer:
    """An estimate of log Z, with what it takes to trust it.

    Attributes:
      log_z: Estimate of log Z, `float64`, of the proposal's batch shape.
      stderr: Standard error of `log_z`, of the same shape.
      num_samples: Proposals drawn.
      method: How it was made.

    >>> LogNormalizer(np.log(0.25), 0.001, num_samples=10**6, method="monte_carlo")
    LogNormalizer(log_z=-1.3863 ± 0.0010, Z=0.25, num_samples=1000000, method='monte_carlo')
    """

    log_z: np.ndarray
    stderr: np.ndarray
    num_samples: int
    method: str

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end of a confidence interval of log Z.

        It rests on the normal law of the mean, and so covers less than `level` where only a
        few draws had an acceptance probability that matters. Since a(z) is at most 1, a region
        that none of `n` draws has hit may add up to `-log(1 - level) / n` to Z, 3 / n at 95 %. The
        upper end includes this. Where no draw had an a(z) above 0, that is all there is: the
        interval of log Z is then `(-inf, log(3 / n))`.

        Args:
          level: Confidence level, between 0 and 1.

        Returns:
          lower, upper: Of the shape of `log_z`; never above 0.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"`level` must be between 0 and 1; got {level!r}.")
        unseen = np.log(-np.log1p(-level) / self.num_samples)
        # Infinite where nothing was hit, and of no use then.
        half = np.where(np.isneginf(self.log_z), 0.0, _normal_quantile(level) * self.stderr)
        upper = np.logaddexp(self.log_z + half, unseen)
        return self.log_z - half, np.minimum(upper, 0.0)  # a(z) is a probability

    def __repr__(self) -> str:
        log_z, stderr = np.asarray(self.log_z), np.asarray(self.stderr)
        if log_z.ndim == 0:
            value = f"log_z={_with_error(log_z, stderr)}, Z={np.exp(log_z):.4g}"
        else:
            members = [_with_error(*pair) for pair in zip(log_z.flat, stderr.flat, strict=True)]
            shown = members if len(members) <= 6 else [*members[:3], "...", *members[-3:]]
            value = f"log_z=[{', '.join(shown)}] of shape {log_z.shape}"
        if np.any(np.isneginf(log_z)):
            bound = np.max(np.asarray(self.interval()[1])[np.isneginf(log_z)])
            value += f", no draw with a(z) > 0: log_z < {bound:.2f} at 95 %"
        return f"LogNormalizer({value}, num_samples={self.num_samples}, method={self.method!r})"


def _with_error(log_z: float, stderr: float) -> str:
    """With at least four decimals, and two significant digits of the error."""
    if not (np.isfinite(log_z) and np.isfinite(stderr) and stderr > 0.0):
        return f"{log_z:.6g} ± {stderr:g}"
    digits = max(4, 1 - int(np.floor(np.log10(stderr))))
    if digits > 8:
        return f"{log_z:.6g} ± {stderr:.2g}"
    return f"{log_z:.{digits}f} ± {stderr:.{digits}f}"


def estimate_log_normalizer(
    dist: Any,
    num_samples: int = 10**7,
    *,
    target_stderr: float | None = None,
    method: str = "monte_carlo",
    batch_size: int | None = None,
    seed: int | tf.Tensor | None = None,
    progress: bool = False,
) -> LogNormalizer:
    """Estimates log Z of a resampled distribution, for evaluation.

    Draws from the proposal in batches, in constant memory, and sums in float64. To be called
    outside of `tf.function`.

    >>> dist = Resampled(tfd.Uniform(), lambda z: z, T=100)  # Z = 1/2
    >>> estimate = estimate_log_normalizer(dist, num_samples=10**5, seed=0)
    >>> bool(abs(estimate.log_z - np.log(0.5)) < 4 * estimate.stderr)
    True

    Args:
      dist: A `Resampled`.
      num_samples: Proposals to draw; with `target_stderr` the most to draw.
      target_stderr: Stop as soon as log Z of every batch member is known this well: the upper end
        of `LogNormalizer.interval` is no further away than for a normal law with this standard
        error. This counts what the draws may have missed, so that a(z) which is high in a
        small region does not stop the estimate before a draw has hit it. The error is checked
        after each chunk of batches, so the one at the stop is slightly optimistic.
      method: `"monte_carlo"`, the mean of a(z) over draws from the proposal.
      batch_size: Proposals drawn at a time. By default chosen for speed and memory.
      seed: Python `int`, or an `int32[2]` stateless seed; the same seed gives the same estimate.
      progress: Whether to show a progress bar.

    Returns:
      estimate: A `LogNormalizer`.
    """
    if method != "monte_carlo":
        raise ValueError(f"`method` must be 'monte_carlo'; got {method!r}.")
    if not isinstance(getattr(dist, "_compiled_sums", None), CompiledSums):
        raise TypeError(
            f"`dist` must be a `Resampled`; got {dist!r}. Of a distribution that holds one, pass "
            "the one that it holds."
        )
    num_samples = _positive_integer("num_samples", num_samples)
    if batch_size is None:
        numbers_per_draw = max(1, int(np.prod([*dist.batch_shape, *dist.event_shape])))
        batch_size = max(16, min(_BATCH_SIZE, _NUMBERS_PER_BATCH // numbers_per_draw))
    batch_size = min(_positive_integer("batch_size", batch_size), num_samples)
    if target_stderr is not None and not target_stderr > 0:
        raise ValueError(f"`target_stderr` must be positive; got {target_stderr!r}.")
    if not tf.executing_eagerly():
        raise RuntimeError(
            "`estimate_log_normalizer` was called inside a tf.function; call it outside, and pass "
            "its result in."
        )
    seed = tfp.random.sanitize_seed(None) if seed is None else stateless_seed(seed)
    bar = keras.utils.Progbar(num_samples, unit_name="sample") if progress else None
    total, drawn, batches, chunk = None, 0, 0, 1
    while drawn < num_samples:
        size = min(batch_size, num_samples - drawn)
        chunk = min(2 * chunk, _BATCHES_PER_CHUNK, (num_samples - drawn) // size)
        total = _add_sums(total, dist._compiled_sums(batches, chunk, size, seed))
        drawn, batches = drawn + chunk * size, batches + chunk
        estimate = LogNormalizer(*_log_mean_and_stderr(total, drawn), drawn, method)
        if bar is not None:
            log_z = np.mean(estimate.log_z)
            bar.update(drawn, values=[("log_z", log_z)], finalize=drawn >= num_samples)
        if target_stderr is not None and np.all(_total_error(estimate) <= target_stderr):
            break
    return estimate


def _positive_integer(name: str, value: Any) -> int:
    # 1e6 is welcome, too.
    if not (isinstance(value, numbers.Real) and value >= 1 and value % 1 == 0):
        raise ValueError(f"`{name}` must be an integer of at least 1; got {value!r}.")
    return int(value)


def _total_error(estimate: LogNormalizer) -> np.ndarray:
    """The standard error, with what the draws may have missed."""
    _, upper = estimate.interval(0.95)
    return np.maximum(estimate.stderr, (upper - estimate.log_z) / _normal_quantile(0.95))


def _normal_quantile(level: float) -> float:
    """Half the width of the interval that holds `level` of a standard normal law."""
    return float(tf.math.ndtri(tf.constant(0.5 + 0.5 * level, tf.float64)))


class CompiledSums:
    """Sums of a(z) and of its square over batches of proposals, as a graph that is traced once.

    Not a `tf.Module`, so that a graph is no part of what checkpoints and SavedModels hold.

    Args:
      dist: A `Resampled`.
    """

    def __init__(self, dist: Any):
        self._dist = dist
        self._graph = None

    def __call__(
        self, first: int, num_batches: int, batch_size: int, seed: tf.Tensor
    ) -> list[np.ndarray]:
        """The largest log a(z), and the sums, scaled by it; each of the batch shape."""
        arguments = [*(tf.constant(i) for i in (first, num_batches, batch_size)), seed]
        if self._graph is None:
            # Not autograph: it would rewrite the user's functions. One concrete graph serves all
            # calls; through `tf.function`, TF would take other distributions for retracing.
            add_up = tf.function(self._add_up, autograph=False)
            self._graph = add_up.get_concrete_function(*arguments)
        return [np.asarray(s) for s in self._graph(*arguments)]

    def _add_up(self, first, num_batches, batch_size, seed):
        dist = self._dist

        def add_batch(i, largest, total, total_of_squares):
            z = _proposal_draws.sample(
                dist.proposal, batch_size, tf.random.fold_in(seed, first + i)
            )
            log_accept = tf.cast(dist.accept_log_prob(z), tf.float64)
            new = tf.maximum(largest, tf.reduce_max(log_accept, axis=0))
            scaled = tf.exp(log_accept - new)
            shrink = tf.exp(largest - new)
            total = total * shrink + tf.reduce_sum(scaled, axis=0)
            total_of_squares = total_of_squares * shrink**2 + tf.reduce_sum(scaled**2, axis=0)
            return i + 1, new, total, total_of_squares

        zeros = tf.zeros(dist.batch_shape_tensor(), tf.float64)
        _, *sums = tf.while_loop(
            lambda i, *_: i < num_batches, add_batch, [0, zeros + _LOG_ZERO, zeros, zeros]
        )
        return sums


def _add_sums(a: list[np.ndarray] | None, b: list[np.ndarray]) -> list[np.ndarray]:
    if a is None:
        return b
    largest = np.maximum(a[0], b[0])
    return [
        largest,
        *(
            x * np.exp(power * (a[0] - largest)) + y * np.exp(power * (b[0] - largest))
            for power, x, y in zip((1, 2), a[1:], b[1:], strict=True)
        ),
    ]


def _log_mean_and_stderr(sums: list[np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Log of the mean, and the standard error of that log to first order."""
    largest, total, total_of_squares = sums
    if np.any(np.isnan(total)):
        raise ValueError("`accept_fn` returned NaN for a draw from the proposal.")
    if np.any(largest > 1e-5):
        raise ValueError(
            f"`accept_fn` must return probabilities in [0, 1], but returned {np.exp(largest)}. If "
            "these are logits, pass from_logits=True."
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        log_mean = np.log(total) + largest - np.log(count)
        # Var[a] / E[a]^2; rounding must not make it negative.
        relative_variance = np.maximum(total_of_squares / total**2 * count - 1.0, 0.0)
        stderr = np.sqrt(relative_variance / max(count - 1, 1)) if count > 1 else np.inf
    return log_mean, np.where(np.isfinite(log_mean), stderr, np.inf)
