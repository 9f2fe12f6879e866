"""What can serve as the acceptance probability a(z), and its log, stably.

Every kind of function and network is met here, once: whatever comes in, what comes out is
`log a(z)` of shape sample + batch, and a `tf.Module` that lists its variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf
import tf_keras

from tfp_lars import ownership

__all__ = ["AcceptanceNetwork", "LogAcceptance"]

_KERAS = (keras.Layer, tf_keras.layers.Layer)

# How far above 1 rounding may carry a probability.
_SLACK = 1e-5


@keras.saving.register_keras_serializable(package="tfp_lars")
class AcceptanceNetwork(keras.Model):
    """A fully connected network for the acceptance probability a(z).

    Events of any shape are flattened. `call` returns probabilities, `logits` their logits;
    `Resampled` works with the logits, so a(z) of `exp(-10000)` keeps its gradient.

    >>> net = AcceptanceNetwork(hidden_units=(100, 100))
    >>> net(tf.zeros([7, 50])).shape
    TensorShape([7, 1])
    >>> net.count_params()
    15301

    Args:
      hidden_units: Widths of the hidden layers. `(100, 100)` is the paper's.
      activation: Of the hidden layers; anything that Keras takes.
      kernel_initializer: Of all layers; anything that Keras takes. The default is Keras's own,
        Glorot's, as in the paper.
      **kwargs: Passed to `keras.Model`: `name`, `dtype`.
    """

    def __init__(
        self,
        hidden_units: Sequence[int] = (100, 100),
        activation: str | Callable = "tanh",
        kernel_initializer: str | Callable = "glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.hidden_units = tuple(int(units) for units in hidden_units)
        if any(units < 1 for units in self.hidden_units):
            raise ValueError(f"`hidden_units` must be positive integers; got {hidden_units!r}.")
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

    def build(self, input_shape):
        """Creates the weights for events of shape `input_shape[1:]`."""
        shape = (None, int(np.prod(input_shape[1:])))
        for layer in self._dense:
            layer.build(shape)
            shape = (None, layer.units)
        self.built = True

    def logits(self, z: tf.Tensor) -> tf.Tensor:
        """Logits of a(z): shape `[N, 1]` for `z` of shape `[N]` + event."""
        if not self.built:
            self.build(z.shape)
        h = self._flatten(keras.ops.cast(z, self.compute_dtype))
        for layer in self._dense:
            h = layer(h)
        return h

    def call(self, z):
        """Probabilities a(z): shape `[N, 1]` for `z` of shape `[N]` + event."""
        return keras.ops.sigmoid(self.logits(z))

    def get_config(self):
        """What `from_config` needs to make this network again, without its weights."""
        return {
            **super().get_config(),
            "hidden_units": self.hidden_units,
            "activation": keras.activations.serialize(self.activation),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    @classmethod
    def from_config(cls, config):
        """Makes a network from what `get_config` returned."""
        return cls(**config)


def _another(initializer):
    """Keras warns when one unseeded initializer serves several weights."""
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer.clone()
    return initializer


class LogAcceptance(tf.Module):
    """`log a(z)` from whatever the user gave as `accept_fn`.

    Calling it once on zeros, at construction, builds lazy networks, shows wrong shapes and
    types early, and tells which variables a plain function uses.

    Args:
      accept_fn: A callable, Keras 3 or tf_keras model, or `tf.Module`. Called through its
        `logits` method if it has one.
      from_logits: Whether it returns logits.
      batch_shape: Static batch shape of the proposal.
      event_shape: Static event shape of the proposal.
      dtype: Of the proposal's events. If floating, a(z) must have it, too.
      validate_args: Whether to check values in graphs.
    """

    def __init__(
        self,
        accept_fn: Callable,
        *,
        from_logits: bool,
        batch_shape: tf.TensorShape,
        event_shape: tf.TensorShape,
        dtype: tf.DType,
        validate_args: bool = False,
    ):
        super().__init__(name="log_acceptance")
        has_logits = callable(getattr(accept_fn, "logits", None))
        if not (callable(accept_fn) or has_logits):
            raise TypeError(
                "`accept_fn` must be callable (a function of z, a Keras model, a `tf.Module` with "
                f"`__call__` or `logits`); got {accept_fn!r}."
            )
        self.in_logits = from_logits or has_logits
        self._function = self._no_dependency(accept_fn.logits if has_logits else accept_fn)
        self._event_shape = self._no_dependency(event_shape)
        self._dtype = dtype
        self._validate_args = validate_args
        self._values_checked = False
        # A method or a partial of a network is that network, as far as variables go.
        network = ownership.network_of(accept_fn)
        # A checkpoint would follow a Keras 3 network, too, but not into lists of its layers. Its
        # variables are listed instead, and so are held once.
        is_keras3 = isinstance(network, keras.Layer)
        self._network = self._no_dependency(network) if is_keras3 else network
        self._find_variables(batch_shape)

    def __call__(self, z: tf.Tensor) -> tf.Tensor:
        """`log a(z)`, shape sample + batch, for `z` of shape sample + batch + event."""
        return self._log(self._check_values(self._evaluate(z)))

    def unchecked(self, z: tf.Tensor) -> tf.Tensor:
        """The same without checks, for the sampler, which checks all values itself."""
        return self._log(self._evaluate(z))

    def _log(self, value: tf.Tensor) -> tf.Tensor:
        return tf.math.log_sigmoid(value) if self.in_logits else _log_probability(value)

    def _evaluate(self, z: tf.Tensor) -> tf.Tensor:
        """What `accept_fn` returns for `z`, as shape sample + batch."""
        event_ndims = self._event_shape.rank
        lead = z.shape[: z.shape.rank - event_ndims]
        if isinstance(self._network, _KERAS):
            # A network built for [N] + event refuses other ranks.
            event_shape = tf.shape(z)[z.shape.rank - event_ndims :] if event_ndims else [1]
            flat = tf.reshape(z, tf.concat([[-1], event_shape], 0))
            flat.set_shape([lead.num_elements(), *(self._event_shape if event_ndims else [1])])
            value = tf.convert_to_tensor(self._function(flat))
            self._check_output(value, flat.shape[:1], z)
        else:
            value = tf.convert_to_tensor(self._function(z), dtype_hint=self._float_dtype)
            self._check_output(value, lead, z)
        value = tf.reshape(value, tf.shape(z)[: z.shape.rank - event_ndims])
        value.set_shape(lead)
        return value

    def _find_variables(self, batch_shape: tf.TensorShape) -> None:
        shape = [2, *(batch_shape.as_list() if batch_shape.rank else []), *self._event_shape]
        probe = tf.zeros([1 if n is None else n for n in shape], self._dtype)
        # Zeros may lie outside the support, so what is returned there is not checked.
        with tf.GradientTape() as tape:
            self.output_dtype = self._evaluate(probe).dtype
        if isinstance(self._network, keras.Layer):
            self._listed_variables = ownership.tf_variables(self._network)
        elif not isinstance(self._network, tf.Module):
            self._listed_variables = list(tape.watched_variables())

    @property
    def _float_dtype(self) -> tf.DType | None:
        return self._dtype if self._dtype.is_floating else None

    def _check_output(self, value: tf.Tensor, expected: tf.TensorShape, z: tf.Tensor) -> None:
        if not any(value.shape.is_compatible_with(s) for s in (expected, [*expected, 1])):
            raise ValueError(
                f"`accept_fn` returned shape {tuple(value.shape)} for z of shape {tuple(z.shape)}; "
                f"expected {tuple(expected)}, sample and batch shape, or {(*expected, 1)}."
            )
        if not value.dtype.is_floating or value.dtype != (self._float_dtype or value.dtype):
            wanted = self._dtype.name if self._dtype.is_floating else "a floating type"
            raise TypeError(
                f"`accept_fn` returned {value.dtype.name} for a proposal of {self._dtype.name}; "
                f"expected {wanted}. A Keras network is built with it by `dtype={wanted!r}`."
            )

    def _check_values(self, value: tf.Tensor) -> tf.Tensor:
        """Checks what only a run shows: the first time in eager mode, always if asked to."""
        if tf.executing_eagerly():
            if self._validate_args or not self._values_checked:
                self._raise_on_bad_values(value.numpy())
                self._values_checked = True
            return value
        if not self._validate_args:
            return value
        with tf.control_dependencies(
            [tf.debugging.Assert(tf.reduce_all(self.valid(value)), [self.complaint, value])]
        ):
            return tf.identity(value)

    def valid(self, value: tf.Tensor) -> tf.Tensor:
        """Which outputs of `accept_fn` are what they should be, of the shape of `value`."""
        if self.in_logits:
            return tf.logical_not(tf.math.is_nan(value))
        return tf.logical_and(value >= 0.0, value <= 1.0 + _SLACK)

    @property
    def complaint(self) -> str:
        """What to say of outputs that are not valid."""
        if self.in_logits:
            return "`accept_fn` returned NaN as a logit."
        return (
            "`accept_fn` must return probabilities in [0, 1], but returned NaN or a value outside. "
            "If these are logits, pass from_logits=True."
        )

    def _raise_on_bad_values(self, value: np.ndarray) -> None:
        bad = value[~self.valid(value).numpy()]
        if bad.size:
            raise ValueError(f"{self.complaint} {bad.size} of {value.size}, the first: {bad[0]}.")


def _log_probability(a: tf.Tensor) -> tf.Tensor:
    """`log a`, with a gradient of 0 instead of NaN where a hard rule says `a = 0`.

    NaN and negative values stay, or become, NaN. Nothing here negates a comparison: in a graph,
    TF turns `not (a <= 0)` into `a > 0`, which is another thing for NaN.
    """
    impossible = tf.equal(a, 0.0)
    log_a = tf.math.log(tf.where(impossible, tf.ones_like(a), a))
    return tf.where(impossible, tf.constant(-np.inf, a.dtype), log_a)
