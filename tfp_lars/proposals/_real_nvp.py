"""A RealNVP flow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _arguments, _compat
from tfp_lars._describable import describable
from tfp_lars.proposals import _flow
from tfp_lars.proposals._standard_normal import standard_normal

__all__ = ["real_nvp"]

tfb = tfp.bijectors
tfd = tfp.distributions


def real_nvp(
    d: int,
    num_couplings: int = 4,
    hidden_units: Sequence[int] = (100, 100),
    *,
    activation: _flow.Activation = "relu",
    log_scale_bound: float = 2.0,
    dtype: Any = tf.float32,
    seed: Any = None,
    name: str = "real_nvp",
) -> tfd.Distribution:
    """Returns a RealNVP flow [1] over the standard normal, with the defaults of [2].

    Each coupling layer keeps `d // 2` coordinates and shifts and scales the others by amounts that
    a network computes from the kept ones. Consecutive couplings keep different coordinates, so two
    or more couplings transform every coordinate (a single one leaves `d // 2` of them standard
    normal). Sampling and evaluation cost the same.

    Args:
      d: Number of dimensions, at least 2; may be odd.
      num_couplings: Number of coupling layers, at least 1.
      hidden_units: Width of each hidden layer of the networks; `()` makes the networks linear.
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
      ValueError: If `d` is 1, or an argument is out of range.

    #### Example

    >>> pi = real_nvp(3, num_couplings=2, hidden_units=[16], seed=1)
    >>> len(pi.trainable_variables)  # two networks of two layers, each with kernel and bias
    8
    >>> z = pi.sample(5, seed=2)
    >>> bool(tf.reduce_all(tf.abs(pi.log_prob(z) - standard_normal(3).log_prob(z)) < 1e-5))
    True

    #### References

    [1]: Laurent Dinh, Jascha Sohl-Dickstein, Samy Bengio. Density estimation using Real NVP.
         ICLR 2017. https://arxiv.org/abs/1605.08803
    [2]: Matthias Bauer, Andriy Mnih. Resampled Priors for Variational Autoencoders.
         AISTATS 2019. https://arxiv.org/abs/1810.11428
    """
    d = _arguments.checked_count("d", d)
    if d == 1:
        raise ValueError(
            "`d` must be at least 2 for `real_nvp`, because a coupling transforms some coordinates "
            "given the others; got 1. In one dimension use `gaussian_mixture(1, ...)`."
        )
    num_couplings = _arguments.checked_count("num_couplings", num_couplings)
    hidden_units = _arguments.checked_hidden_units("hidden_units", hidden_units)
    activation = _flow.checked_activation(activation)
    bound = _arguments.checked_positive("log_scale_bound", log_scale_bound)
    dtype = _arguments.checked_dtype("dtype", dtype)
    initializer = _flow.initial_kernels(seed)

    num_kept = d // 2
    sizes = [num_kept, *hidden_units, 2 * (d - num_kept)]
    couplings = [
        tfb.RealNVP(
            num_masked=num_kept,
            shift_and_log_scale_fn=_CouplingNetwork(
                sizes, activation, bound, initializer, dtype, name=f"{name}_network_{i}"
            ),
            name=f"{name}_coupling_{i}",
        )
        for i in range(num_couplings)
    ]
    return _flow.Flow(standard_normal(d, dtype=dtype), _flow.stack(couplings, d), name=name)


@describable("real_nvp_network")
class _CouplingNetwork(tf.Module):
    """Shift and bounded log-scale of a coupling's second part, given its first.

    This is a module because `tf.Module` finds variables by walking attributes. The variables of a
    closure would silently be neither trained nor saved.
    """

    def __init__(self, sizes, activation, bound, initializer, dtype, name):
        super().__init__(name=name)
        self._sizes = _compat.untracked(list(sizes))
        self._activation = activation
        self._bound = bound
        shapes = list(itertools.pairwise(sizes))
        kernels = [initializer(shape, dtype) for shape in shapes]
        kernels[-1] = tf.zeros_like(kernels[-1])  # zero shift and log-scale: the identity
        self.kernels = [tf.Variable(k, name=f"kernel_{i}") for i, k in enumerate(kernels)]
        self.biases = [
            tf.Variable(tf.zeros([units], dtype), name=f"bias_{i}")
            for i, (_, units) in enumerate(shapes)
        ]

    def __call__(self, x, output_units, **unused_kwargs):
        del output_units  # known since construction
        out = _flow.dense_stack(x, self.kernels, self.biases, self._activation)
        shift, raw = tf.split(out, 2, axis=-1)  # [..., d - d // 2] each
        return shift, _flow.bounded(raw, self._bound)

    def get_config(self):
        """Returns the arguments of the constructor as JSON values, without the weights."""
        return {
            "sizes": list(self._sizes),
            "activation": _flow.activation_name(self._activation),
            "bound": self._bound,
            "dtype": self.biases[0].dtype.name,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config):
        """Creates a network from the result of `get_config`."""
        activation = _flow.checked_activation(config["activation"])
        return cls(**{**config, "activation": activation}, initializer=_flow.initial_kernels(None))
