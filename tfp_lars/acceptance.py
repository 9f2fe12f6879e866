"""The acceptance probability a(z): a network for it, and its log, numerically stable.

`LogAcceptance` turns every kind of function and network into one interface: `log a(z)` of shape
sample + batch, and a `tf.Module` that lists the variables.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras

from tfp_lars import _compat, ownership
from tfp_lars._arguments import PROBABILITY_SLACK, checked_hidden_units

__all__ = ["AcceptanceNetwork", "LogAcceptance"]

_KERAS = (keras.Layer, tf_keras.layers.Layer)

# Number of eager calls that check values. The first `log_prob` makes two: one for z, one for the
# draws that estimate Z.
_CHECKED_CALLS = 2

_DRAWS = "draws from the proposal"


@keras.saving.register_keras_serializable(package="tfp_lars")
class AcceptanceNetwork(keras.Model):
    """A fully connected network for the acceptance probability a(z).

    Events of any shape are flattened. `call` returns probabilities, `logits` returns their logits.
    `Resampled` uses the logits, so that even an a(z) of `exp(-10000)` has a gradient.

    >>> net = AcceptanceNetwork(hidden_units=(100, 100))
    >>> net(tf.zeros([7, 50])).shape
    TensorShape([7, 1])
    >>> net.count_params()
    15301

    Under a mixed precision policy the hidden layers compute in half precision, and logits and
    probabilities are `float32`. A network without an explicit `dtype` that is not built yet is
    built in `float64` for a `float64` proposal. `Resampled` casts the logits of other networks.

    Args:
      hidden_units: Widths of the hidden layers. The default is that of the paper.
      activation: Activation of the hidden layers, in any form that Keras takes.
      kernel_initializer: Initializer of all kernels, in any form that Keras takes. The default is
        that of Keras and of the paper.
      trainable: Whether to train the weights. The property `trainable` changes this later.
      **kwargs: Passed to `keras.Model`: `name`, `dtype`.
    """

    def __init__(
        self,
        hidden_units: Sequence[int] = (100, 100),
        activation: str | Callable = "tanh",
        kernel_initializer: str | Callable = "glorot_uniform",
        *,
        trainable: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.hidden_units = checked_hidden_units("hidden_units", hidden_units)
        self._follows_proposal = kwargs.get("dtype") is None
        self.activation = keras.activations.get(activation)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._flatten = keras.layers.Flatten(dtype=self.dtype_policy)
        self._dense = [
            keras.layers.Dense(
                units,
                activation=act,
                kernel_initializer=_another(self.kernel_initializer),
                dtype=self.dtype_policy,
            )
            for units, act in [*((u, self.activation) for u in self.hidden_units), (1, None)]
        ]
        # The property reaches the layers. An argument of the constructor of Keras would not.
        self.trainable = trainable

    def build(self, input_shape):
        """Creates the weights for events of shape `input_shape[1:]`."""
        shape = (None, int(np.prod(input_shape[1:])))
        for layer in self._dense:
            layer.build(shape)
            shape = (None, layer.units)
        self.built = True

    def _follow(self, dtype: tf.DType) -> None:
        """Switches to `float64` if the network is not built and has no explicit `dtype`.

        Args:
          dtype: Type of the proposal's events. Types other than `float64` have no effect.
        """
        if dtype == tf.float64 and self._follows_proposal and not self.built:
            for layer in (self, self._flatten, *self._dense):
                layer.dtype_policy = dtype.name

    def logits(self, z: tf.Tensor) -> tf.Tensor:
        """Returns the logits of a(z), shape `[N, 1]`, for `z` of shape `[N]` + event.

        They have at least the precision of `float32`, also if the hidden layers compute in half
        precision.
        """
        if not self.built:
            self.build(z.shape)
        h = self._flatten(keras.ops.cast(z, self.compute_dtype))
        for layer in self._dense:
            h = layer(h)
        dtype = _at_least_single(tf.as_dtype(self.compute_dtype))
        # pyright reads the types of another backend of Keras.
        return keras.ops.cast(h, dtype.name)  # pyright: ignore[reportReturnType]

    def call(self, z):
        """Returns the probabilities a(z), shape `[N, 1]`, for `z` of shape `[N]` + event."""
        return keras.ops.sigmoid(self.logits(z))

    def get_config(self):
        """Returns the configuration for `from_config`, without the weights."""
        return {
            **super().get_config(),
            "hidden_units": self.hidden_units,
            "activation": keras.activations.serialize(self.activation),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    @classmethod
    def from_config(cls, config):
        """Creates a network from the result of `get_config`."""
        return cls(**config)


def _another(initializer: Any) -> Any:
    """Returns a copy: Keras warns if several weights share one unseeded initializer."""
    is_object = isinstance(initializer, keras.initializers.Initializer)
    return initializer.clone() if is_object else initializer


class LogAcceptance(tf.Module):
    """`log a(z)` from the `accept_fn` of the user.

    `accept_fn` is called at construction. This builds lazy networks, reports wrong shapes, types
    and values early, and shows which variables a plain function reads.

    Args:
      accept_fn: A callable, Keras 3 or tf_keras model, `tf.Module`, or a `SlicedAcceptance`. If its
        class has a method `logits`, this method is called.
      from_logits: Whether `accept_fn` returns logits.
      batch_shape: Static batch shape of the proposal.
      event_shape: Static event shape of the proposal.
      dtype: Type of the proposal's events. If it is floating, a(z) must have the same type.
      draws: Draws from the proposal to call `accept_fn` on, shape `[S]` + batch + event. `None`
        means zeros. Values at zeros are not checked, because zeros may lie outside the support.
      validate_args: Whether to check values in graphs.

    Attributes:
      in_training: Whether calls run networks in training mode, whatever the mode outside is.
    """

    def __init__(
        self,
        accept_fn: Callable,
        *,
        from_logits: bool,
        batch_shape: tf.TensorShape,
        event_shape: tf.TensorShape,
        dtype: tf.DType,
        draws: tf.Tensor | None = None,
        validate_args: bool = False,
    ):
        super().__init__(name="log_acceptance")
        self.in_training = False
        self._slice = None
        if isinstance(accept_fn, SlicedAcceptance):
            self._slice = _compat.untracked(accept_fn)
            accept_fn = accept_fn.accept_fn
        # Only a method of the class counts: an instance may have a layer of that name.
        has_logits = callable(getattr(type(accept_fn), "logits", None))
        _check_callable(accept_fn, has_logits)
        self.in_logits = from_logits or has_logits
        self._function = _compat.untracked(accept_fn.logits if has_logits else accept_fn)
        self._event_shape = _compat.untracked(event_shape)
        self._dtype = dtype
        self._validate_args = validate_args
        self._calls_to_check = _CHECKED_CALLS
        # The variables of a bound method or a partial are those of its network.
        network = ownership.network_of(accept_fn)
        if isinstance(network, AcceptanceNetwork):
            network._follow(dtype)
        # A checkpoint would follow a Keras 3 network, but not into its lists of layers. The
        # variables are listed instead, so that the checkpoint contains each of them once.
        is_keras3 = isinstance(network, keras.Layer)
        self._network = _compat.untracked(network) if is_keras3 else network
        self._call_once(batch_shape, draws)

    @property
    def sees_members(self) -> bool:
        """Whether `accept_fn` receives the batch dimensions and may treat members differently.

        A Keras network receives one flat batch.
        """
        return not isinstance(self._network, _KERAS)

    def __call__(self, z: tf.Tensor) -> tf.Tensor:
        """Returns `log a(z)`, shape sample + batch, for `z` of shape sample + batch + event."""
        with _compat.training_mode() if self.in_training else contextlib.nullcontext():
            value = self._evaluate(z)
        return self._log(self._check_values(value, z))

    def unchecked(self, z: tf.Tensor) -> tf.Tensor:
        """Returns `log a(z)` without checks. The sampler checks all values itself."""
        return self._log(self._evaluate(z))

    def _log(self, value: tf.Tensor) -> tf.Tensor:
        return tf.math.log_sigmoid(value) if self.in_logits else _log_probability(value)

    def _evaluate(self, z: tf.Tensor) -> tf.Tensor:
        """Returns the output of `accept_fn` for `z`, shape sample + batch."""
        if self._slice is not None:
            return self._slice.evaluate(self._evaluate_all, z)
        return self._evaluate_all(z)

    def _evaluate_all(self, z: tf.Tensor) -> tf.Tensor:
        event_ndims = self._event_shape.rank
        lead = z.shape[: z.shape.rank - event_ndims]
        if isinstance(self._network, _KERAS):
            # A network that is built for [N] + event rejects other ranks.
            event_shape = tf.shape(z)[z.shape.rank - event_ndims :] if event_ndims else [1]
            # Not -1: an empty event does not show the number of points.
            num_points = tf.reduce_prod(tf.shape(z)[: z.shape.rank - event_ndims])
            flat = tf.reshape(z, tf.concat([[num_points], event_shape], 0))
            flat.set_shape([lead.num_elements(), *(self._event_shape if event_ndims else [1])])
            value = self._as_tensor(self._function(flat))
            self._check_output(value, flat.shape[:1], z)
        else:
            value = self._as_tensor(self._function(z))
            self._check_output(value, lead, z)
        value = tf.reshape(value, tf.shape(z)[: z.shape.rank - event_ndims])
        value.set_shape(lead)
        # Half precision is enough for a network, but not for logs, averages and powers of a(z).
        return tf.cast(value, _at_least_single(value.dtype))

    def _call_once(self, batch_shape: tf.TensorShape, draws: tf.Tensor | None) -> None:
        if draws is None:
            shape = [2, *(batch_shape.as_list() if batch_shape.rank else []), *self._event_shape]
            probe = tf.zeros([1 if n is None else n for n in shape], self._dtype)
        else:
            probe = draws
        with tf.GradientTape() as tape:
            value = self._evaluate(probe)
        self.output_dtype = value.dtype
        self._list_variables(tape.watched_variables(), probe)
        if draws is not None:
            self._raise_on_bad_values(value, draws, _DRAWS)

    def _list_variables(self, watched: Sequence[tf.Variable], probe: tf.Tensor) -> None:
        if isinstance(self._network, keras.Layer):
            self._listed_variables = ownership.tf_variables(self._network)
        elif isinstance(self._network, tf.Module):
            inside, missed = ownership.variables_in_keras3_layers(self._network)
            # A module does not list these variables. Those that a checkpoint reaches through the
            # module are listed untracked, so that the checkpoint does not contain them twice.
            if inside:
                self._variables_in_keras3_layers = _compat.untracked(inside)
            if missed:
                self._listed_variables = missed
        else:
            self._listed_variables = list(watched)
            if watched:
                ownership.remember_keras_variables_read(lambda: self._evaluate(probe))

    def _as_tensor(self, value) -> tf.Tensor:
        if isinstance(self._network, AcceptanceNetwork):
            return tf.cast(value, _at_least_single(self._float_dtype or value.dtype))
        try:
            return tf.convert_to_tensor(value, dtype_hint=self._float_dtype)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError):
            raise TypeError(
                "`accept_fn` must return a tensor with one number for each z; it returned an "
                f"object of type {type(value).__name__}."
            ) from None

    @property
    def _float_dtype(self) -> tf.DType | None:
        return self._dtype if self._dtype.is_floating else None

    def _check_output(self, value: tf.Tensor, expected: tf.TensorShape, z: tf.Tensor) -> None:
        wanted = self._float_dtype or value.dtype
        if not value.dtype.is_floating or value.dtype not in (wanted, _at_least_single(wanted)):
            expected_type = self._dtype.name if self._dtype.is_floating else "a floating type"
            message = (
                f"`accept_fn` returned {value.dtype.name} for a proposal of {self._dtype.name}; "
                f"expected {expected_type}."
            )
            if value.dtype.is_floating:
                message += f" Give the last layer of a Keras network dtype='{expected_type}'."
            raise TypeError(message)
        if not any(value.shape.is_compatible_with(s) for s in (expected, [*expected, 1])):
            raise ValueError(
                f"`accept_fn` returned shape {tuple(value.shape)} for z of shape {tuple(z.shape)}; "
                f"expected {tuple(expected)}, sample and batch shape, or {(*expected, 1)}."
            )

    def _check_values(self, value: tf.Tensor, z: tf.Tensor) -> tf.Tensor:
        """Checks values in the first eager calls, or in all calls with `validate_args`."""
        if tf.executing_eagerly():
            if self._validate_args or self._calls_to_check > 0:
                self._raise_on_bad_values(value, z, "values of z")
                self._calls_to_check -= 1
            return value
        if not self._validate_args:
            return value
        with tf.control_dependencies(
            [tf.debugging.Assert(tf.reduce_all(self.valid(value)), [self.complaint, value])]
        ):
            return tf.identity(value)

    def valid(self, value: tf.Tensor) -> tf.Tensor:
        """Whether each output of `accept_fn` is a probability or logit, of the shape of `value`."""
        if self.in_logits:
            return tf.logical_not(tf.math.is_nan(value))
        return tf.logical_and(value >= 0.0, value <= 1.0 + PROBABILITY_SLACK)

    @property
    def complaint(self) -> str:
        """Error message for outputs that are not valid."""
        if self.in_logits:
            return "`accept_fn` returned NaN as a logit."
        return (
            "`accept_fn` must return probabilities in [0, 1], but returned NaN or a value outside. "
            "If these are logits, pass from_logits=True."
        )

    def _raise_on_bad_values(self, value: tf.Tensor, z: tf.Tensor, source: str) -> None:
        """Raises if a value is not valid. The message names the range of all values."""
        bad, values, points = ~self.valid(value).numpy(), value.numpy(), z.numpy()
        if self._dtype.is_floating:
            z_is_nan = np.isnan(points).any(axis=tuple(range(values.ndim, points.ndim)))
            if source == _DRAWS and np.any(bad & z_is_nan):
                raise ValueError(
                    f"`proposal` draws NaN in {np.sum(z_is_nan)} of {values.size} draws. Check its "
                    "parameters."
                )
            # As in TFP, the log density of NaN is NaN.
            bad = bad & ~z_is_nan if not self._validate_args else bad
        if not np.any(bad):
            return
        if np.all(np.isnan(values[bad])):
            raise ValueError(
                f"`accept_fn` returned NaN for {np.sum(bad)} of {values.size} {source}."
            )
        raise ValueError(
            "`accept_fn` must return probabilities in [0, 1], but returned values from "
            f"{np.nanmin(values):.4g} to {np.nanmax(values):.4g} for {values.size} {source}. If "
            "these are logits, pass from_logits=True."
        )


class SlicedAcceptance:
    """a(z) of some members of a batch, for an `accept_fn` that expects all members.

    `accept_fn` may treat members differently, by position. It is therefore called on the whole
    batch: each z is put at the position of its member. The other positions are filled with the z of
    the first remaining member, and their values are dropped.

    Args:
      accept_fn: Acceptance function of the unsliced distribution.
      batch_shape: Batch shape of the unsliced distribution, `int32`, shape `[rank]`.
      index: Positions of the remaining members in the flattened batch, `int32`, of the batch shape
        of the slice.
      event_ndims: Rank of an event.
    """

    def __init__(
        self,
        accept_fn: Callable,
        batch_shape: np.ndarray | tf.Tensor,
        index: tf.Tensor,
        event_ndims: int,
    ):
        self.accept_fn = accept_fn
        static = tf.get_static_value(batch_shape)
        self._batch_shape = batch_shape if static is None else static
        self._index = index
        self._event_ndims = event_ndims

    @classmethod
    def of(
        cls,
        accept_fn: Callable,
        batch_shape: tf.Tensor,
        slices: tuple,
        event_ndims: int,
    ) -> SlicedAcceptance:
        """Returns the acceptance function of `dist[slices]`.

        Args:
          accept_fn: Acceptance function of `dist`; may itself be a `SlicedAcceptance`.
          batch_shape: Batch shape of `dist`, `int32`, shape `[rank]`.
          slices: Argument of `dist.__getitem__`, as a tuple.
          event_ndims: Rank of an event.
        """
        if isinstance(accept_fn, cls):
            index = accept_fn._index[slices]
            return cls(accept_fn.accept_fn, accept_fn._batch_shape, index, event_ndims)
        positions = tf.range(tf.reduce_prod(batch_shape))
        return cls(accept_fn, batch_shape, tf.reshape(positions, batch_shape)[slices], event_ndims)

    def __call__(self, z: tf.Tensor) -> tf.Tensor:
        """Returns the output of `accept_fn` for the remaining members, shape sample + batch."""
        return self.evaluate(self.accept_fn, tf.convert_to_tensor(z))

    def evaluate(self, function: Callable[[tf.Tensor], tf.Tensor], z: tf.Tensor) -> tf.Tensor:
        """Calls `function` on the whole batch and returns its values at the remaining members.

        Args:
          function: Maps shape sample + whole batch + event to shape sample + whole batch.
          z: Shape sample + batch + event, where batch is that of the slice.

        Returns:
          value: Shape sample + batch.
        """
        num_members = tf.reduce_prod(self._batch_shape)
        event_axis = z.shape.rank - self._event_ndims
        axis = event_axis - self._index.shape.rank  # of the members, flattened
        sample, event = tf.shape(z)[:axis], tf.shape(z)[event_axis:]
        whole_shape = tf.concat([sample, self._batch_shape, event], 0)
        if self._index.shape.num_elements() == 0:
            whole = tf.zeros(whole_shape, z.dtype)
        else:
            index = tf.reshape(self._index, [-1])
            source = tf.tensor_scatter_nd_update(
                tf.zeros([num_members], tf.int32), index[:, tf.newaxis], tf.range(tf.size(index))
            )
            members = tf.reshape(z, tf.concat([sample, tf.shape(index), event], 0))
            whole = tf.reshape(tf.gather(members, source, axis=axis), whole_shape)
        if isinstance(self._batch_shape, np.ndarray):
            whole.set_shape([*z.shape[:axis], *self._batch_shape, *z.shape[event_axis:]])
        value = tf.reshape(function(whole), tf.concat([sample, [num_members]], 0))
        return tf.gather(value, self._index, axis=axis)


def _check_callable(accept_fn, has_logits: bool) -> None:
    if isinstance(accept_fn, type):
        raise TypeError(
            f"`accept_fn` must be callable on z; got the class {accept_fn.__name__}. Pass an "
            f"instance of it, such as `{accept_fn.__name__}(...)`."
        )
    if not (callable(accept_fn) or has_logits):
        raise TypeError(
            "`accept_fn` must be callable (a function of z, a Keras model, a `tf.Module` with "
            f"`__call__` or `logits`); got {accept_fn!r}."
        )


def _at_least_single(dtype: tf.DType) -> tf.DType:
    """Returns `float32` for half precision, other types unchanged."""
    return tf.float32 if dtype in (tf.float16, tf.bfloat16) else dtype


def _log_probability(a: tf.Tensor) -> tf.Tensor:
    """Returns `log a`, with gradient 0 instead of NaN where `a` is exactly 0.

    The log of NaN and of negative values is NaN. The code does not negate comparisons, because
    TensorFlow's graph optimizer turns `not (a <= 0)` into `a > 0`, which differs for NaN. It has no
    constant -inf, because `tf.debugging.enable_check_numerics` would report it.
    """
    impossible = tf.equal(a, 0.0)
    log_a = tf.math.log(tf.where(impossible, tf.ones_like(a), a))
    return tf.where(impossible, tf.math.log(tf.stop_gradient(a)), log_a)
