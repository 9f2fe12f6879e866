"""The training steps of `fit`: recipe, gradients, and weights to return to."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tfp_lars import _compat, ownership
from tfp_lars._fit_samples import Part
from tfp_lars.acceptance import LogAcceptance
from tfp_lars.resampled import Resampled

__all__ = ["Recipe", "Snapshot", "Trainer", "checked_optimizer"]

tfd = tfp.distributions

_EPOCHS, _STEPS = 30, (1000, 6000)
_RATE, _RATE_OF_FLOWS = 0.03, 0.003


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Number of steps and learning rate.

    The rate rises linearly over the first steps and then falls to 0 on a cosine. Gradients are
    clipped by their global norm.

    Attributes:
      num_steps: Number of training steps.
      learning_rate: Peak of the learning rate.
    """

    num_steps: int
    learning_rate: float

    @classmethod
    def of(
        cls,
        num_steps: int | None,
        num_train: int | None,
        batch_size: int,
        event_size: int,
        trains_proposal: bool,
    ) -> Recipe:
        """Returns a recipe that suits the data.

        Args:
          num_steps: Number of steps; `None` for one that follows from the data.
          num_train: Number of training samples; `None` for a stream of them.
          batch_size: Number of samples per step.
          event_size: Number of dimensions of a sample.
          trains_proposal: Whether more than an acceptance network is trained.
        """
        if num_steps is None:
            of_epochs = np.inf if num_train is None else _EPOCHS * num_train / batch_size
            num_steps = int(np.clip(of_epochs, *_STEPS))
        # In few dimensions the weights of a network have far to go: they start small, and a(z) must
        # become steep. In many, the same rate fits the noise of single samples.
        rate = _RATE / np.sqrt(max(1, event_size))
        # Flows diverge at the rates of acceptance networks.
        return cls(num_steps, min(rate, _RATE_OF_FLOWS) if trains_proposal else rate)

    @property
    def warm_up(self) -> int:
        """Number of steps over which the rate rises."""
        return max(1, self.num_steps // 20)

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Returns a new optimizer."""
        # The rate is 1 / `warm_up` of its peak in the first step. From 0, that step would be lost.
        rate = keras.optimizers.schedules.CosineDecay(
            initial_learning_rate=self.learning_rate / self.warm_up,
            decay_steps=self.num_steps - self.warm_up + 1,
            warmup_target=self.learning_rate,
            warmup_steps=self.warm_up - 1,
        )
        # The gradient changes faster than the default of `beta_2` averages. The annotation of Keras
        # lacks schedules.
        return keras.optimizers.Adam(rate, beta_2=0.99, global_clipnorm=1.0)  # pyright: ignore[reportArgumentType]


def checked_optimizer(optimizer: Any) -> Any:
    """Returns an optimizer of Keras 3 or tf_keras, or raises an error."""
    if not isinstance(optimizer, tf_keras.optimizers.Optimizer):
        try:
            optimizer = keras.optimizers.get(optimizer)
        except (TypeError, ValueError):
            raise TypeError(
                "`optimizer` must be an optimizer of Keras, such as `keras.optimizers.Adam(1e-3)`, "
                f"or its name; got {optimizer!r}."
            ) from None
    scaling = keras.optimizers.LossScaleOptimizer, tf_keras.mixed_precision.LossScaleOptimizer
    if isinstance(optimizer, scaling):
        # It lowers its scale only in steps without a finite gradient, which are skipped here.
        raise ValueError(
            "`optimizer` is a LossScaleOptimizer, whose dynamic loss scale `fit` does not support. "
            "Pass its `inner_optimizer`. For networks in half precision, give that a fixed scale, "
            "such as `keras.optimizers.Adam(1e-3, loss_scale_factor=1024.0)`."
        )
    return optimizer


class Trainer:
    """Maximizes the mean log density of batches.

    Args:
      dist: Any TFP distribution.
      variables: Variables to train.
      optimizer: Optimizer of Keras 3 or tf_keras.
      trains_proposal: Whether networks of the proposal run in training mode, too.
    """

    def __init__(
        self,
        dist: tfd.Distribution,
        variables: Sequence[tf.Variable],
        optimizer: Any,
        trains_proposal: bool = True,
    ):
        self._dist = dist
        self._trains_proposal = trains_proposal
        self._variables = list(variables)
        # Optimizers of Keras 3 find the constraints and paths of weights in `keras.Variable`s.
        # Those of tf_keras do not take them.
        shared = ownership.shared_keras_variables(dist, self._variables)
        of_keras3 = isinstance(optimizer, keras.optimizers.Optimizer)
        self._updated = shared if of_keras3 else self._variables
        self._constrained = [] if of_keras3 else [v for v in shared if v.value.constraint is None]
        self._optimizer = optimizer
        # Optimizers of Keras 3 divide gradients by their `loss_scale_factor`.
        self._scale_loss = optimizer.scale_loss if of_keras3 else tf.identity
        # A `tf.function` cannot create the variables of the optimizer inside its loop.
        optimizer.build(self._updated)
        self._graph = None
        self.num_skipped = 0

    def __call__(self, batches: Part) -> float:
        """Trains on `K` batches and returns the mean log-likelihood of those with a finite one.

        Args:
          batches: Samples, shape `[K, N]` + batch + event, and log densities, if known.
        """
        tensors = [tf.convert_to_tensor(array) for array in batches]
        if self._graph is None:
            # One concrete graph for any number of batches. Autograph would rewrite the functions
            # of users.
            specs = [tf.TensorSpec([None, *t.shape[1:]], t.dtype) for t in tensors]
            self._graph = tf.function(self._steps, autograph=False).get_concrete_function(*specs)
        total, skipped = self._graph(*tensors)
        self.num_skipped += int(skipped)
        num_used = len(batches[0]) - int(skipped)
        return float(total) / num_used if num_used else float("nan")

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Replaces the weights by their averages within a `with` block.

        Optimizers with `use_ema=True` keep averages. Others leave the weights as they are.
        """
        # The averages of Keras 3 are 0 before the first step.
        if not self._optimizer.use_ema or not int(self._optimizer.iterations):
            yield
            return
        current = Snapshot(self._variables)
        self._optimizer.finalize_variable_values(self._updated)
        try:
            yield
        finally:
            current.restore()

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        rate = self._optimizer.learning_rate
        return float(np.asarray(rate(self._optimizer.iterations) if callable(rate) else rate))

    def _steps(self, *batches: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def body(k, total, skipped):
            log_likelihood, finite = self._step(*(array[k] for array in batches))
            total += tf.where(finite, log_likelihood, 0.0)
            return k + 1, total, skipped + tf.cast(tf.logical_not(finite), tf.int32)

        _, total, skipped = tf.while_loop(
            lambda k, *_: k < tf.shape(batches[0])[0],
            body,
            (tf.constant(0), tf.constant(0.0), tf.constant(0)),
            parallel_iterations=1,
        )
        return total, skipped

    def _step(self, z: tf.Tensor, log_prob: tf.Tensor | None = None):
        kwargs = {}
        if log_prob is not None and isinstance(self._dist, Resampled):
            kwargs["target_log_prob"] = log_prob
        tape = tf.GradientTape(watch_accessed_variables=False)
        with tape, self._mode():
            tape.watch(self._variables)
            loss = -tf.reduce_mean(self._dist.log_prob(z, **kwargs))
            scaled = self._scale_loss(loss)
        gradients = tape.gradient(
            scaled, self._variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        finite = tf.math.is_finite(loss) & tf.reduce_all(
            [tf.reduce_all(tf.math.is_finite(g)) for g in gradients]
        )
        # A single bad batch must not destroy the weights. Gradients of 0 would still change them,
        # because optimizers remember earlier ones.
        tf.cond(finite, lambda: self._applied(gradients), lambda: tf.constant(0))
        return tf.cast(-loss, tf.float32), finite

    def _applied(self, gradients: list[tf.Tensor]) -> tf.Tensor:
        """Applies gradients. Returns a number, because both branches of `tf.cond` must."""
        self._optimizer.apply_gradients(zip(gradients, self._updated, strict=True))
        for variable in self._constrained:
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable))
        return tf.constant(0)

    def _mode(self) -> contextlib.AbstractContextManager[None]:
        if self._trains_proposal or not isinstance(self._dist, Resampled):
            return _compat.training_mode()
        return _accept_fn_in_training_mode(self._dist)


@contextlib.contextmanager
def _accept_fn_in_training_mode(dist: Resampled) -> Iterator[None]:
    """Runs `accept_fn` in training mode and the proposal in inference mode.

    Moving statistics and dropout would change a proposal that is not trained.
    """
    of_proposal = {id(part) for part in dist.proposal.submodules}
    own = [p for p in dist.submodules if isinstance(p, LogAcceptance) and id(p) not in of_proposal]
    for part in own:
        part.in_training = True
    try:
        with _compat.inference_mode():
            yield
    finally:
        for part in own:
            part.in_training = False


class Snapshot:
    """The values of variables at one step, to return to.

    Args:
      variables: Variables to remember.
    """

    def __init__(self, variables: Sequence[tf.Variable]):
        self._variables = list(variables)
        self.take()

    def take(self) -> None:
        """Remembers the current values."""
        self._values = [v.numpy() for v in self._variables]

    def restore(self) -> None:
        """Assigns the remembered values."""
        for variable, value in zip(self._variables, self._values, strict=True):
            variable.assign(value)
