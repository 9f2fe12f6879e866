"""A masked autoregressive flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _arguments, _compat
from tfp_lars._describable import describable
from tfp_lars.proposals import _flow
from tfp_lars.proposals._standard_normal import standard_normal

__all__ = ["masked_autoregressive_flow"]

tfb = tfp.bijectors
tfd = tfp.distributions


def masked_autoregressive_flow(
    d: int,
    num_blocks: int = 5,
    hidden_units: Sequence[int] = (100, 100),
    *,
    activation: _flow.Activation = "relu",
    log_scale_bound: float = 2.0,
    dtype: Any = tf.float32,
    seed: Any = None,
    name: str = "masked_autoregressive_flow",
) -> tfd.Distribution:
    """Returns a masked autoregressive flow [1] over the standard normal, with the defaults of [2].

    Each block shifts and scales every coordinate by amounts that a masked network [3]
    (`tfb.AutoregressiveNetwork`) computes from the coordinates before it in the block's order. The
    orders are random but fixed: the same for every flow of the same `d` and `num_blocks`.

    `log_prob` of a given point takes one pass through each network. A draw takes `d` passes.

    Args:
      d: Number of dimensions, at least 1. In one dimension the flow can only learn a normal.
      num_blocks: Number of autoregressive layers, at least 1.
      hidden_units: Width of each hidden layer of the networks. With fewer than `d - 1` units some
        coordinates do not depend on those just before them.
      activation: Activation of the hidden layers: a Keras name or a function.
      log_scale_bound: Upper bound on `|log_scale|` in each layer.
      dtype: Floating-point type of the weights and the draws.
      seed: Seed for the initial weights: an `int`, a stateless seed of shape `[2]`, or `None` for
        one that follows `tf.random.set_seed`.
      name: Name of the distribution.

    Returns:
      A transformed distribution with `event_shape` `[d]`, which starts as the standard normal.
      Its `bijector` starts as the identity.

    Raises:
      ValueError: If an argument is out of range.

    #### Example

    >>> pi = masked_autoregressive_flow(3, num_blocks=2, hidden_units=[16], seed=1)
    >>> len(pi.trainable_variables)  # two networks of two layers, each with kernel and bias
    8
    >>> pi.log_prob(tf.zeros([5, 3])).shape
    TensorShape([5])

    #### References

    [1]: George Papamakarios, Theo Pavlakou, Iain Murray. Masked Autoregressive Flow for Density
         Estimation. NeurIPS 2017. https://arxiv.org/abs/1705.07057
    [2]: Matthias Bauer, Andriy Mnih. Resampled Priors for Variational Autoencoders.
         AISTATS 2019. https://arxiv.org/abs/1810.11428
    [3]: Mathieu Germain, Karol Gregor, Iain Murray, Hugo Larochelle. MADE: Masked Autoencoder for
         Distribution Estimation. ICML 2015. https://arxiv.org/abs/1502.03509
    """
    d = _arguments.checked_count("d", d)
    num_blocks = _arguments.checked_count("num_blocks", num_blocks)
    hidden_units = _arguments.checked_hidden_units("hidden_units", hidden_units)
    activation = _flow.checked_activation(activation)
    bound = _arguments.checked_positive("log_scale_bound", log_scale_bound)
    dtype = _arguments.checked_dtype("dtype", dtype)
    initializer = _flow.initial_kernels(seed)

    blocks = [
        tfb.MaskedAutoregressiveFlow(
            _AutoregressiveConditioner(
                d, hidden_units, activation, bound, initializer, dtype, name=f"{name}_network_{i}"
            ),
            name=f"{name}_block_{i}",
        )
        for i in range(num_blocks)
    ]
    return _flow.Flow(standard_normal(d, dtype=dtype), _flow.stack(blocks, d), name=name)


@describable("masked_autoregressive_network")
class _AutoregressiveConditioner(tf.Module):
    """Shift and bounded log-scale of each coordinate, given those to its left.

    `tfb.AutoregressiveNetwork` owns the weights and makes the masks, but it applies the masks only
    as constraints, which are up to the optimizer. A hand-written update would silently turn the
    flow into something that is not a density. This class applies the masks in the forward pass.
    """

    def __init__(self, d, hidden_units, activation, bound, initializer, dtype, name):
        super().__init__(name=name)
        self._d = d
        self._hidden_units = _compat.untracked(list(hidden_units))
        self._activation = activation
        self._bound = bound
        self.network = tfb.AutoregressiveNetwork(
            params=2,
            event_shape=[d],
            hidden_units=list(hidden_units),
            activation=activation,
            kernel_initializer=initializer,
            dtype=dtype,
            name=name,
        )
        self.network.build([None, d])
        kernels = self.network.trainable_weights[::2]
        kernels[-1].assign(tf.zeros_like(kernels[-1]))  # zero shift and log-scale: the identity
        self._masks = [kernel.constraint(tf.ones_like(kernel)) for kernel in kernels]

    def __call__(self, x, **unused_kwargs):
        weights = self.network.trainable_weights
        kernels = [k * mask for k, mask in zip(weights[::2], self._masks, strict=True)]
        out = _flow.dense_stack(x, kernels, weights[1::2], self._activation)  # [..., 2 * d]
        out = tf.reshape(out, tf.concat([tf.shape(out)[:-1], [self._d, 2]], axis=0))
        shift, raw = tf.unstack(out, axis=-1)  # [..., d] each
        return shift, _flow.bounded(raw, self._bound)

    def get_config(self):
        """Returns the arguments of the constructor as JSON values, without the weights."""
        return {
            "d": self._d,
            "hidden_units": list(self._hidden_units),
            "activation": _flow.activation_name(self._activation),
            "bound": self._bound,
            "dtype": self.network.trainable_weights[0].dtype.name,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config):
        """Creates a network from the result of `get_config`."""
        activation = _flow.checked_activation(config["activation"])
        return cls(**{**config, "activation": activation}, initializer=_flow.initial_kernels(None))
