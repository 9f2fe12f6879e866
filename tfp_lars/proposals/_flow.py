"""What the flows share: layers in different orders, bounded scales, dense networks.

A flow is a stack of layers. Each layer transforms coordinate `i`, given those that come before it
in the layer's own order, by

    y[i] = x[i] * exp(log_scale) + shift,    (shift, raw) = network(coordinates before i)

Each layer has its own order, so that no coordinate is always first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tfp_lars import _compat, _seeds
from tfp_lars._describable import describable

__all__ = [
    "Activation",
    "Flow",
    "activation_name",
    "bounded",
    "checked_activation",
    "dense_stack",
    "initial_kernels",
    "layer_orders",
    "stack",
]

tfb = tfp.bijectors
tfd = tfp.distributions

Activation = str | Callable[[tf.Tensor], tf.Tensor] | None


@describable("Flow")
class Flow(_compat.TransformedDistribution):
    """A transformed distribution whose `log_prob` always uses the current weights.

    TFP's bijectors cache results by tensor and ignore variables. After an update, `log_prob` of a
    tensor that they have seen (a validation set, an earlier draw) can be that of the old weights,
    or have no gradient. A copy of the tensor is not in the cache, and results are still shared
    within the call.
    """

    def _log_prob(self, y, **kwargs):
        return super()._log_prob(tf.identity(y), **kwargs)


def stack(layers: Sequence[tfb.Bijector], d: int) -> tfb.Bijector:
    """Chains layers, each with its own order of the coordinates. The first one acts first.

    The order is restored after the last layer, so that a stack of identities is the identity.
    """
    identity = np.arange(d)
    steps, current = [], identity
    for layer, order in zip(layers, layer_orders(d, len(layers)), strict=True):
        steps += [_reordering(current, order), layer]
        current = order
    steps.append(_reordering(current, identity))
    return tfb.Chain([step for step in reversed(steps) if step is not None])


def layer_orders(d: int, num_layers: int) -> list[np.ndarray]:
    """Returns an order of the coordinates for each layer: random ones and their reverses."""
    # The orders never change: another order would turn the weights of a checkpoint into another
    # density. NumPy guarantees the stream of this legacy generator only.
    rng = np.random.RandomState(0)
    orders = [np.arange(d)]
    while len(orders) < num_layers:
        last = orders[-1]
        if len(orders) % 2:
            orders.append(last[::-1])
            continue
        drawn = rng.permutation(d)
        # Two consecutive couplings that keep the same coordinates are as good as one.
        while d > 1 and set(drawn[: d // 2]) == set(last[: d // 2]):
            drawn = rng.permutation(d)
        orders.append(drawn)
    return orders


def _reordering(current, wanted):
    """Returns the permutation from one order to another, or `None` if they are equal."""
    if np.array_equal(current, wanted):
        return None
    return tfb.Permute(np.argsort(current)[wanted].astype(np.int32))


def bounded(raw: tf.Tensor, bound: float) -> tf.Tensor:
    """Maps the real line to (-bound, bound), with slope 1 at 0."""
    return bound * tf.tanh(raw / bound)


def dense_stack(
    x: tf.Tensor,
    kernels: Sequence[tf.Tensor],
    biases: Sequence[tf.Tensor],
    activation: Callable[[tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """Applies a multilayer perceptron with a linear last layer to the last axis of `x`."""
    for i, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
        if i > 0:
            x = activation(x)
        x = tf.tensordot(x, kernel, axes=1) + bias
    return x


def initial_kernels(seed: Any) -> Callable[..., tf.Tensor]:
    """Returns a Glorot-uniform initializer with a new seed, derived from `seed`, at each call."""
    seeds: Iterator[int] = _seeds.integers(seed)
    # pyright reads the types of another backend of Keras.
    return lambda shape, dtype: tf.convert_to_tensor(
        keras.initializers.GlorotUniform(seed=next(seeds))(  # pyright: ignore[reportArgumentType]
            shape, tf.as_dtype(dtype).name
        )
    )


def checked_activation(value: Activation) -> Callable[[tf.Tensor], Any]:
    """Returns an activation as a function, or raises an error."""
    activation = value
    if value is None or isinstance(value, str):
        # tf_keras would import the module that a configuration (a dictionary) names.
        try:
            activation = tf_keras.activations.get(value)
        except ValueError:
            activation = None
    if not callable(activation):
        raise ValueError(
            "`activation` must be a Keras name, such as 'relu' or 'tanh', or a function of a "
            f"tensor; got {value!r}."
        )
    return activation


def activation_name(activation: Callable) -> str:
    """Returns the Keras name of an activation, or raises an error."""
    name = getattr(activation, "__name__", "")
    try:
        known = tf_keras.activations.get(name) is activation
    except ValueError:
        known = False
    if not known:
        raise ValueError(
            f"The activation {activation!r} of a flow cannot be saved. Use a Keras name, such as "
            "'relu' or 'tanh'."
        )
    return name
