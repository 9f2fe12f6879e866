"""The training-time estimator of Z: a moving average, Algorithm 1 of Bauer and Mnih."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_lars import _arguments, _compat, _seeds
from tfp_lars.density import log_add_exp, log_near_one
from tfp_lars.normalizer.protocol import Normalizer

__all__ = ["MovingAverage", "all_held", "hold_while", "moving_averages"]


class MovingAverage(_compat.ModuleWithUnsavedVariables, Normalizer):
    """The training-time estimator of Z: Algorithm 1 of Bauer and Mnih.

    Each call of `Resampled.log_prob` draws `num_samples` proposals, takes the mean of a(z) over
    them as the current estimate, and moves the average toward it. The forward pass uses the
    average, the backward pass the gradient of the current estimate. `target_log_prob` adds the
    evaluated points to the estimate, reweighted, which lowers its variance.

    Create one for each distribution. Distributions that share an average would mix their estimates
    of Z. Copies of a distribution share it because they have the same Z.

    Each member of the proposal's batch has its own average. An update that is not finite, for
    example after a batch with a NaN, is skipped for the members that it concerns. The value of that
    call is NaN. `reset()` starts the average again.

    If the proposal is reparameterized, its parameters get their part of the gradient of Z through
    the draws. Discrete proposals get none, as in the paper: Z is then trained through a(z) alone.
    `score_function=True` is for such proposals. It adds the gradient of Z with respect to the
    proposal `pi`, from draws `z_1, ..., z_S`:

        mean over s of (a(z_s) - b_s) * grad log pi(z_s),    b_s = mean over t != s of a(z_t)

    The baseline `b_s` does not depend on `z_s`, so the estimate is unbiased. It needs the
    `log_prob` of the draws under the proposal. If that is only a bound, as for
    `proposals.vae_marginal`, the gradient of the bound is used instead.

    Mixtures that are not reparameterized (`tfd.MixtureSameFamily` by default, the VampPrior) pass a
    part of the gradient through their draws: that of the components, not that of the weights.

    `average.hold()` stops the updates, also in graphs that are already traced, and
    `average.release()` resumes them. While held, `log_prob` uses the value and draws nothing. (A
    graph that computes gradients draws proposals and ignores them.)
    Before the first update there is no value to hold: `log_prob` then estimates Z with the same
    draws at each call, and keeps nothing. Checkpoints do not save whether an average is held.

    >>> dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, normalizer=MovingAverage(64))
    >>> before = dist.log_prob(0.3)
    >>> with dist.normalizer.held():
    ...     values = [float(dist.log_prob(0.3)) for _ in range(2)]
    >>> values[0] == values[1]
    True

    The state of the random numbers is part of a checkpoint, so that a resumed training repeats the
    uninterrupted one. It advances with each call, unless the average is held. `tf.recompute_grad`
    runs `log_prob` twice, and so updates the average twice.

    Under `tf.distribute`, replicas draw different numbers and share one average. Estimates that are
    not finite are left out. With `same_draws=True` they draw the same numbers. A
    training on several replicas then equals one on a single replica with all of their data.

    Args:
      num_samples: Number of proposals for each estimate, `S` in the paper.
      decay: Weight of the past in the average, `1 - epsilon` in the paper, from 0 (no
        smoothing) to below 1.
      score_function: Whether to add the gradient of Z with respect to a proposal that is not
        reparameterized. Raises for reparameterized proposals, whose draws already carry this
        gradient. Needs at least 2 samples.
      same_draws: Whether all replicas of a `tf.distribute` strategy draw the same proposals.
      seed: Python `int`, or an `int32[2]` stateless seed. By default each average has its own
        seed, which follows `tf.random.set_seed`.
      name: Name of the module.
    """

    # A checkpoint that is written while held must not stop the training that it resumes.
    _unsaved_variables = frozenset({"_held"})

    def __init__(
        self,
        num_samples: int = 1024,
        decay: float = 0.9,
        *,
        score_function: bool = False,
        same_draws: bool = False,
        seed: int | tf.Tensor | None = None,
        name: str = "moving_average",
    ):
        super().__init__(name=name)
        num_samples = _arguments.checked_count("num_samples", num_samples)
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"`decay` must be at least 0 and below 1; got {decay!r}.")
        if score_function and num_samples < 2:
            raise ValueError(
                "`num_samples` must be at least 2 with `score_function=True`, which compares each "
                f"draw with the others; got {num_samples!r}."
            )
        self.num_samples = num_samples
        self.decay = float(decay)
        self.score_function = bool(score_function)
        self.same_draws = bool(same_draws)
        self.seed = _compat.untracked(seed)
        self._log_z: Any = None  # a variable after `build`

    def build(self, batch_shape: tf.TensorShape, dtype: tf.DType) -> None:
        """Creates the variables, unless they exist. `Resampled` calls this.

        Args:
          batch_shape: Static batch shape of the proposal.
          dtype: Type of log a(z).
        """
        if self._log_z is not None:
            if self._log_z.shape != batch_shape or self._log_z.dtype != dtype:
                raise ValueError(
                    f"`normalizer` is a MovingAverage of shape {self._log_z.shape} and type "
                    f"{self._log_z.dtype.name}, but the proposal has batch shape {batch_shape} and "
                    f"type {dtype.name}. Create a MovingAverage for each distribution."
                )
            return
        if not batch_shape.is_fully_defined():
            raise ValueError(
                "`normalizer`: a MovingAverage keeps one value for each batch member and needs a "
                f"static batch shape; the proposal's is {batch_shape}. Pass a fixed log Z instead."
            )
        # Variables that are built inside a `tf.function` must outlive the trace.
        with tf.init_scope():
            self._log_z = tf.Variable(
                tf.fill(batch_shape, tf.constant(dtype.max, dtype)),
                trainable=False,
                # Without aggregation, replicas would drift apart.
                aggregation=tf.VariableAggregation.MEAN,
                name="log_z",
            )
            self._num_updates = _counter(tf.zeros([], tf.int64), "num_updates")
            seed = _seeds.new_seed() if self.seed is None else _seeds.stateless_seed(self.seed)
            # A stateless seed, as a pair of int32: a hash of the seed, and a counter of the calls.
            self._random_state = _counter(
                tf.bitcast(tf.random.fold_in(seed, 0), tf.int64), "random_state"
            )
            self._held = _compat.untracked(_counter(False, "held"))

    @property
    def log_z(self) -> tf.Tensor:
        """The current log Z, of the proposal's batch shape; NaN before the first update."""
        value = self._read()
        return tf.where(_has_value(value), value, tf.constant(np.nan, value.dtype))

    @property
    def has_value(self) -> tf.Tensor:
        """Whether there was an update, `bool`, of the proposal's batch shape."""
        return _has_value(self._read())

    @property
    def num_updates(self) -> tf.Tensor:
        """Number of updates, without skipped ones; `int64`, shape `[]`."""
        self._check_built()
        return self._num_updates.read_value()

    def fresh(self, replaced: Sequence[str] = ()) -> MovingAverage:
        """Returns an average with the same settings and no updates."""
        del replaced  # an average can follow any density
        return MovingAverage(
            self.num_samples,
            self.decay,
            score_function=self.score_function,
            same_draws=self.same_draws,
            seed=self.seed,
            name=self.name,
        )

    def reset(self) -> None:
        """Forgets all updates. The random numbers continue."""
        self._check_built()
        self._log_z.assign(tf.fill(self._log_z.shape, self._log_z.dtype.max))
        self._num_updates.assign(0)

    def hold(self) -> None:
        """Stops the updates until `release`."""
        self._check_built()
        self._held.assign(True)

    def release(self) -> None:
        """Resumes the updates."""
        self._check_built()
        self._held.assign(False)

    @property
    def is_held(self) -> bool:
        """Whether the updates are stopped. For eager mode."""
        self._check_built()
        return bool(self._held.numpy())

    @contextlib.contextmanager
    def held(self) -> Iterator[MovingAverage]:
        """Holds the average within a `with` block and restores its state afterward."""
        self._check_built()
        before = self._held.read_value()
        self.hold()
        try:
            yield self
        finally:
            self._held.assign(before)

    @property
    def argument(self) -> MovingAverage:
        """This average: copies of a distribution share it."""
        return self

    @property
    def value(self) -> tf.Tensor:
        """The current log Z, of the proposal's batch shape. Raises if there is none."""
        if tf.executing_eagerly() and not tf.reduce_all(self.has_value):
            raise ValueError(
                "`normalizer`, a MovingAverage, has no value before the first call of `log_prob`. "
                "Call `log_prob`, or `freeze()` to estimate log Z."
            )
        return self.log_z

    def __call__(self, estimate, log_target=None) -> tf.Tensor:
        """Returns log Z after one update of the average.

        The forward pass uses the average, the backward pass the gradient of the current estimate.

        Args:
          estimate: Estimates log Z from fresh proposals.
          log_target: Reweighted acceptance of the evaluated points, shape `[R] + B`.

        Returns:
          log_z: Shape `B`, or `[R] + B` with `log_target`.
        """
        _check_that_updates_run()
        old = self._read()
        seed = self._seed_of_replica()
        has_value = _has_value(old)
        held = tf.constant(True) if _HOLDING.get() else self._held.read_value()
        use_old = tf.logical_and(held, has_value)

        def current():
            return estimate(self.num_samples, seed, self.score_function)

        if _compat.tape_is_recording() and not tf.executing_eagerly():
            # TensorFlow cannot vectorize the second derivative of a `tf.cond`.
            log_current = current()
        else:
            log_current = tf.cond(tf.reduce_all(use_old), lambda: old, current)
        log_current.set_shape(self._log_z.shape)
        if log_target is not None:
            # An infinite weight must not reach the gradient where the old value is used.
            log_target = tf.where(use_old, tf.zeros_like(log_target), log_target)
            log_current = self._with_target(log_current, log_target)
        log_current = tf.where(use_old, old, log_current)
        log_old = tf.where(has_value, old, tf.zeros_like(old))
        log_smooth = tf.stop_gradient(
            tf.where(has_value, _log_mix(log_old, log_current, self.decay), log_current)
        )
        if not _HOLDING.get():
            new = log_smooth
            if log_target is not None:
                # TFP's `reduce_logmeanexp` divides by zero for an empty batch.
                count = tf.cast(tf.shape(log_smooth)[0], log_smooth.dtype)
                new = tf.reduce_logsumexp(log_smooth, axis=0) - tf.math.log(count)
            self._update(old, new, held)
        share = tf.where(use_old, tf.zeros_like(log_smooth), tf.exp(log_current - log_smooth))
        return _value_and_gradient(
            tf.where(use_old, old, log_smooth), tf.stop_gradient(share), log_current
        )

    def __getitem__(self, slices):
        """Raises: an average belongs to the whole batch."""
        raise ValueError(
            "`normalizer` is a MovingAverage, which cannot be sliced with the batch. `freeze()` "
            "the distribution first, then slice."
        )

    def _update(self, old: tf.Tensor, new: tf.Tensor, held: tf.Tensor) -> None:
        """Sets the members to `new` where that is finite, unless `held`."""
        new = _mean_over_replicas(new)
        usable = tf.logical_and(tf.math.is_finite(new), tf.logical_not(held))
        new = tf.where(usable, new, old)
        self._log_z.assign(new)
        # A call that raises must not count, also in a graph.
        with tf.control_dependencies([new]):
            self._num_updates.assign_add(tf.cast(tf.reduce_any(usable), tf.int64))
            self._random_state.assign_add(tf.where(held, tf.zeros([], tf.int64), 2**32))

    def _with_target(self, log_current: tf.Tensor, log_target: tf.Tensor) -> tf.Tensor:
        """Returns Z_r of the paper: the estimate of each data point, with its own sample."""
        S = self.num_samples
        return log_add_exp(log_current + np.log(S), log_target) - np.log(S + 1)

    def _seed_of_replica(self) -> tf.Tensor:
        seed = tf.bitcast(self._random_state.read_value(), tf.int32)
        context = tf.distribute.get_replica_context()
        if self.same_draws or context is None or context.num_replicas_in_sync == 1:
            return seed
        # TensorFlow annotates `fold_in` as returning an `int`.
        return tf.random.fold_in(seed, context.replica_id_in_sync_group)  # pyright: ignore[reportReturnType]

    def _read(self) -> tf.Tensor:
        self._check_built()
        return self._log_z.read_value()

    def _check_built(self) -> None:
        if self._log_z is None:
            raise ValueError(
                "This MovingAverage does not belong to a distribution yet. Pass it as `normalizer` "
                "first."
            )


# Whether Keras is evaluating. This is a Python value because graphs for training and evaluation are
# separate, and replicas may run in their own threads.
_HOLDING = contextvars.ContextVar("tfp_lars_holding", default=False)


@contextlib.contextmanager
def hold_while(held: bool) -> Iterator[None]:
    """Holds moving averages, or not, in code that a `with` block executes or traces."""
    token = _HOLDING.set(held)
    try:
        yield
    finally:
        _HOLDING.reset(token)


def moving_averages(module: tf.Module) -> list[MovingAverage]:
    """Returns all moving averages in a module and its submodules."""
    return [m for m in (module, *module.submodules) if isinstance(m, MovingAverage)]


@contextlib.contextmanager
def all_held(module: tf.Module) -> Iterator[None]:
    """Holds all moving averages in a module and its submodules within a `with` block."""
    with contextlib.ExitStack() as stack:
        for average in moving_averages(module):
            stack.enter_context(average.held())
        yield


def _counter(value: Any, name: str) -> tf.Variable:
    aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return tf.Variable(value, trainable=False, aggregation=aggregation, name=name)


def _has_value(log_z: tf.Tensor) -> tf.Tensor:
    # The largest number means no value: NaN would fail under `enable_check_numerics`.
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
    log_mix = log_add_exp(log_old + np.log(decay), log_new + np.log1p(-decay))
    # The huge weight of a target would overflow.
    old, new = (tf.math.expm1(tf.minimum(x, 80.0)) for x in (log_old, log_new))
    return log_near_one(log_mix, decay * old + (1.0 - decay) * new)


def _value_and_gradient(value: tf.Tensor, share: tf.Tensor, source: tf.Tensor) -> tf.Tensor:
    """Returns `value` with `share` of the gradient of `source`.

    This is log(Z_curr + stop_gradient(Z_smooth - Z_curr)) of the paper, in log space.
    """
    return value + share * (source - tf.stop_gradient(source))


def _mean_over_replicas(log_z: tf.Tensor) -> tf.Tensor:
    """Returns the mean of Z over the replicas where it is finite, NaN if there are none."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return log_z
    every = context.all_gather(log_z[tf.newaxis], axis=0)  # [replicas] + B
    finite = tf.math.is_finite(every)
    count = tf.reduce_sum(tf.cast(finite, log_z.dtype), axis=0)
    every = tf.where(finite, every, tf.constant(-np.inf, every.dtype))
    return tf.reduce_logsumexp(every, axis=0) - tf.math.log(count)
