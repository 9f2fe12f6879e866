"""Trainable proposals: plain TFP distributions over vectors of `d` numbers.

Nothing here knows of resampling; each function returns a `tfp.distributions.Distribution` with
`batch_shape` `[]` and `event_shape` `[d]` that can as well be used alone, as a prior for example.
What they have in common:

*   `trainable_variables` lists every weight once, also through `tfd.Independent` and the like,
    and a `tf.train.Checkpoint` of the distribution saves and restores all of them. What is not
    learned (masks, the order of the coordinates in each layer) depends on the shape of the flow
    alone and never on `seed`, so a checkpoint fits any flow that was built to the same shape.
*   They start as the standard normal (`gaussian_mixture`: close to it).
*   The logarithm of each scale is bounded, by `b * tanh(raw / b)`. An unbounded one needs a
    single far outlier to overflow `exp`, and then every weight is NaN.

The flows are stacks of layers that transform coordinate `i`, given those that come before it in
the layer's own order, by

    y[i] = x[i] * exp(log_scale) + shift,    (shift, raw) = network(coordinates before i)

and each layer has its own order, so that no coordinate is always first.
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tfp_lars import _compat
from tfp_lars.vae_marginal import vae_marginal
from tfp_lars.vamp_prior import vamp_prior

tfb = tfp.bijectors
tfd = tfp.distributions

__all__ = [
    "gaussian_mixture",
    "masked_autoregressive_flow",
    "real_nvp",
    "standard_normal",
    "vae_marginal",
    "vamp_prior",
]

Activation = str | Callable[[tf.Tensor], tf.Tensor] | None


def standard_normal(
    d: int, *, dtype: Any = tf.float32, name: str = "standard_normal"
) -> tfd.Distribution:
    """The standard normal in `d` dimensions; it has nothing to train.

    Args:
      d: number of dimensions, at least 1.
      dtype: floating-point type of the draws.
      name: name of the distribution.

    Returns:
      A `tfd.MultivariateNormalDiag` with `event_shape` `[d]`.

    #### Example

    >>> pi = standard_normal(3)
    >>> pi.log_prob(pi.sample(5, seed=1)).shape
    TensorShape([5])
    """
    d = _checked_count("d", d)
    dtype = _checked_dtype(dtype)
    return tfd.MultivariateNormalDiag(
        loc=tf.zeros([d], dtype), scale_diag=tf.ones([d], dtype), name=name
    )


def real_nvp(
    d: int,
    num_couplings: int = 4,
    hidden_units: Sequence[int] = (100, 100),
    *,
    activation: Activation = "relu",
    log_scale_bound: float = 2.0,
    dtype: Any = tf.float32,
    seed: Any = None,
    name: str = "real_nvp",
) -> tfd.Distribution:
    """A RealNVP flow [1] over the standard normal; the defaults are those of [2].

    Each coupling layer keeps `d // 2` coordinates as they are and shifts and scales the others by
    amounts that a network computes from the kept ones. Of two consecutive couplings the second
    keeps none that the first kept, so with two or more every coordinate is transformed (a single
    one leaves `d // 2` of them standard normal). Drawing and evaluating cost the same.

    Args:
      d: number of dimensions, at least 2; odd ones are fine.
      num_couplings: number of coupling layers, at least 1.
      hidden_units: width of each hidden layer of the networks; `()` makes them linear.
      activation: of the hidden layers: a Keras name or a function.
      log_scale_bound: in each layer `|log_scale|` stays below this.
      dtype: floating-point type of the weights and the draws.
      seed: for the initial weights: an `int`, a stateless seed of shape `[2]`, or `None` for one
        that follows `tf.random.set_seed`.
      name: name of the distribution.

    Returns:
      A transformed distribution with `event_shape` `[d]`, which starts as the standard normal;
      its `bijector` starts as the identity.

    Raises:
      ValueError: if `d` is 1, or an argument is out of range.

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
    d = _checked_count("d", d)
    if d == 1:
        raise ValueError(
            "`d` is 1; `real_nvp` needs at least 2 dimensions, because a coupling transforms some "
            "coordinates given the others. In one dimension use `gaussian_mixture(1, ...)`."
        )
    num_couplings = _checked_count("num_couplings", num_couplings)
    hidden_units = _checked_hidden_units(hidden_units)
    activation = _checked_activation(activation)
    bound = _checked_bound("log_scale_bound", log_scale_bound)
    dtype = _checked_dtype(dtype)
    initializer = _Initializer(seed)

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
    return _Flow(standard_normal(d, dtype=dtype), _stack(couplings, d), name=name)


def masked_autoregressive_flow(
    d: int,
    num_blocks: int = 5,
    hidden_units: Sequence[int] = (100, 100),
    *,
    activation: Activation = "relu",
    log_scale_bound: float = 2.0,
    dtype: Any = tf.float32,
    seed: Any = None,
    name: str = "masked_autoregressive_flow",
) -> tfd.Distribution:
    """A masked autoregressive flow [1] over the standard normal; the defaults are those of [2].

    In each block every coordinate is shifted and scaled by amounts computed from all those before
    it in the block's order, with the masked network of [3] (`tfb.AutoregressiveNetwork`). The
    orders are random but fixed: the same for every flow of the same `d` and `num_blocks`.

    `log_prob` of a given point takes one pass through each network, a draw takes `d` passes.

    Args:
      d: number of dimensions, at least 1 (for 1 all this can learn is a normal).
      num_blocks: number of autoregressive layers, at least 1.
      hidden_units: width of each hidden layer of the networks; with fewer than `d - 1` units
        some coordinates do not see those just before them.
      activation: of the hidden layers: a Keras name or a function.
      log_scale_bound: in each layer `|log_scale|` stays below this.
      dtype: floating-point type of the weights and the draws.
      seed: for the initial weights: an `int`, a stateless seed of shape `[2]`, or `None` for one
        that follows `tf.random.set_seed`.
      name: name of the distribution.

    Returns:
      A transformed distribution with `event_shape` `[d]`, which starts as the standard normal;
      its `bijector` starts as the identity.

    Raises:
      ValueError: if an argument is out of range.

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
    d = _checked_count("d", d)
    num_blocks = _checked_count("num_blocks", num_blocks)
    hidden_units = _checked_hidden_units(hidden_units)
    activation = _checked_activation(activation)
    bound = _checked_bound("log_scale_bound", log_scale_bound)
    dtype = _checked_dtype(dtype)
    initializer = _Initializer(seed)

    blocks = [
        tfb.MaskedAutoregressiveFlow(
            _AutoregressiveConditioner(
                d, hidden_units, activation, bound, initializer, dtype, name=f"{name}_network_{i}"
            ),
            name=f"{name}_block_{i}",
        )
        for i in range(num_blocks)
    ]
    return _Flow(standard_normal(d, dtype=dtype), _stack(blocks, d), name=name)


def gaussian_mixture(
    d: int,
    num_components: int,
    *,
    init_spread: float = 0.1,
    log_scale_bound: float = 6.0,
    dtype: Any = tf.float32,
    seed: Any = None,
    name: str = "gaussian_mixture",
) -> tfd.MixtureSameFamily:
    """A mixture of Gaussians with diagonal covariances; weights, means and scales are learned.

    Draws carry gradients to all three (implicit reparameterization).

    Args:
      d: number of dimensions, at least 1.
      num_components: number of components, at least 1.
      init_spread: standard deviation of the initial means, in [0, 1); at 0 all components start
        alike and stay so. The initial scales are `sqrt(1 - init_spread**2)`, which gives the
        mixture the covariance of the standard normal.
      log_scale_bound: `|log scale|` stays below this, so that no component can collapse onto a
        single training point.
      dtype: floating-point type of the variables and the draws.
      seed: for the initial means: an `int`, a stateless seed of shape `[2]`, or `None` for one
        that follows `tf.random.set_seed`.
      name: name of the distribution.

    Returns:
      A `tfd.MixtureSameFamily` with `event_shape` `[d]`.

    Raises:
      ValueError: if an argument is out of range.

    #### Example

    >>> pi = gaussian_mixture(2, num_components=8, seed=1)
    >>> [tuple(v.shape) for v in pi.trainable_variables]
    [(8, 2), (8, 2), (8,)]
    >>> pi.log_prob(pi.sample(5, seed=2)).shape
    TensorShape([5])
    """
    d = _checked_count("d", d)
    num_components = _checked_count("num_components", num_components)
    if not 0 <= init_spread < 1:
        raise ValueError(f"`init_spread` is {init_spread}; it must be at least 0 and below 1.")
    bound = _checked_bound("log_scale_bound", log_scale_bound)
    dtype = _checked_dtype(dtype)
    shape = [num_components, d]

    loc = init_spread * _Initializer(seed).normal(shape)
    log_scale = 0.5 * np.log1p(-(init_spread**2))
    if abs(log_scale) >= bound:
        raise ValueError(
            f"`log_scale_bound` is {bound}; with `init_spread` {init_spread} it must be above "
            f"{abs(log_scale):.3g}, where the log-scales start."
        )
    stretch = tfb.Scale(tf.cast(bound, dtype))
    scale = tfp.util.TransformedVariable(
        tf.fill(shape, tf.cast(np.exp(log_scale), dtype)),
        bijector=tfb.Chain([tfb.Exp(), stretch, tfb.Tanh(), tfb.Invert(stretch)]),
        name=f"{name}_scale",
    )
    return tfd.MixtureSameFamily(
        tfd.Categorical(logits=tf.Variable(tf.zeros([num_components], dtype), name="logits")),
        tfd.Independent(
            tfd.Normal(tf.Variable(tf.cast(loc, dtype), name="loc"), scale),
            reinterpreted_batch_ndims=1,
        ),
        reparameterize=True,
        name=name,
    )


# The parts of a flow.


class _Flow(_compat.TransformedDistribution):
    """A transformed distribution whose `log_prob` always follows the weights as they are now.

    TFP's bijectors remember what they computed for a tensor, and know nothing of variables: after
    an update, `log_prob` of a tensor that they have seen (a validation set, an earlier draw) can
    be that of the old weights, or have no gradient. A copy of the tensor is new to them, and what
    they remember of it is still shared within the call.

    The base is what `tfd.TransformedDistribution` makes of parts that are not composite tensors;
    a subclass of the name itself would be made one, and parents would lose its variables.
    """

    def _log_prob(self, y, **kwargs):
        return super()._log_prob(tf.identity(y), **kwargs)


class _CouplingNetwork(tf.Module):
    """Shift and bounded log-scale of a coupling's second part, from its first.

    A module, not a closure: `tf.Module` finds variables by walking attributes, so those of a
    closure are neither trained nor saved.
    """

    def __init__(self, sizes, activation, bound, initializer, dtype, name):
        super().__init__(name=name)
        self._activation = activation
        self._bound = bound
        shapes = list(itertools.pairwise(sizes))
        kernels = [initializer(shape) for shape in shapes]
        kernels[-1] = np.zeros_like(kernels[-1])  # zero shift and log-scale: the identity
        self.kernels = [
            tf.Variable(k, dtype=dtype, name=f"kernel_{i}") for i, k in enumerate(kernels)
        ]
        self.biases = [
            tf.Variable(tf.zeros([units], dtype), name=f"bias_{i}")
            for i, (_, units) in enumerate(shapes)
        ]

    def __call__(self, x, output_units, **unused_kwargs):
        del output_units  # known since construction
        out = _dense_stack(x, self.kernels, self.biases, self._activation)
        shift, raw = tf.split(out, 2, axis=-1)  # [..., d - d // 2] each
        return shift, _bounded(raw, self._bound)


class _AutoregressiveConditioner(tf.Module):
    """Shift and bounded log-scale of each coordinate, from those to its left.

    `tfb.AutoregressiveNetwork` owns the weights and makes the masks, but it applies them only as
    constraints, which is left to the optimizer: a hand-written update, a gradient transformation
    or a variable that was wrapped on its way to the optimizer ends in a flow whose `log_prob` is
    no density, without an error. So the masks are applied here, in the pass itself.
    """

    def __init__(self, d, hidden_units, activation, bound, initializer, dtype, name):
        super().__init__(name=name)
        self._d = d
        self._activation = activation
        self._bound = bound
        self.network = tfb.AutoregressiveNetwork(
            params=2,
            event_shape=[d],
            hidden_units=list(hidden_units),
            activation=activation,
            kernel_initializer=lambda shape, dtype: tf.cast(initializer(shape), dtype),
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
        out = _dense_stack(x, kernels, weights[1::2], self._activation)  # [..., 2 * d]
        out = tf.reshape(out, tf.concat([tf.shape(out)[:-1], [self._d, 2]], axis=0))
        shift, raw = tf.unstack(out, axis=-1)  # [..., d] each
        return shift, _bounded(raw, self._bound)


def _dense_stack(x, kernels, biases, activation):
    """A multilayer perceptron on the last axis of `x`, of any rank; its last layer is linear."""
    for i, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
        if i > 0:
            x = activation(x)
        x = tf.tensordot(x, kernel, axes=1) + bias
    return x


def _bounded(raw, bound):
    """Maps the line onto (-bound, bound), with slope 1 at 0."""
    return bound * tf.tanh(raw / bound)


def _stack(layers, d):
    """Chains layers, each with its own order of the coordinates; the first one acts first.

    The orders are undone after the last layer, so layers that are identities make an identity.
    """
    orders = _layer_orders(d, len(layers))
    identity = np.arange(d)
    steps = []
    current = identity
    for layer, order in zip(layers, orders, strict=True):
        steps += [_reordering(current, order), layer]
        current = order
    steps.append(_reordering(current, identity))
    return tfb.Chain([step for step in reversed(steps) if step is not None])


def _reordering(current, wanted):
    """The permutation from one order of the coordinates to another; `None` if they agree."""
    if np.array_equal(current, wanted):
        return None
    return tfb.Permute(np.argsort(current)[wanted].astype(np.int32))


def _layer_orders(d, num_layers):
    """An order of the coordinates for each layer: random ones, each followed by its reverse."""
    # Fixed for ever, whatever the seed of the weights: another order would turn the weights of a
    # checkpoint into another density. NumPy promises the stream of this old generator only.
    rng = np.random.RandomState(0)
    orders = [np.arange(d)]
    while len(orders) < num_layers:
        last = orders[-1]
        if len(orders) % 2:
            orders.append(last[::-1])
            continue
        drawn = rng.permutation(d)
        # Two couplings in a row that keep the same coordinates are worth only one.
        while d > 1 and set(drawn[: d // 2]) == set(last[: d // 2]):
            drawn = rng.permutation(d)
        orders.append(drawn)
    return orders


class _Initializer:
    """A stream of initial values: repeatable, and different at each call."""

    def __init__(self, seed):
        if seed is None:
            seed = tfp.random.sanitize_seed(None)
        seed = np.asarray(seed)
        if seed.dtype.kind not in "iu" or seed.shape not in [(), (2,)]:
            raise ValueError(
                f"`seed` is {seed!r}; it must be an int, a stateless seed of two ints, or None."
            )
        # Seed tensors may be negative, which NumPy refuses.
        self._rng = np.random.default_rng(np.atleast_1d(seed).astype(np.int64).astype(np.uint64))

    def __call__(self, shape):
        """Glorot-uniform values for a kernel of shape `[inputs, outputs]`."""
        limit = np.sqrt(6 / sum(shape))
        return self._rng.uniform(-limit, limit, size=tuple(shape))

    def normal(self, shape):
        """Standard normal values."""
        return self._rng.normal(size=tuple(shape))


# Checks of arguments.


def _checked_count(argument, value):
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"`{argument}` is {value!r}; it must be an int of at least 1.")
    if value < 1:
        raise ValueError(f"`{argument}` is {value}; it must be at least 1.")
    return int(value)


def _checked_hidden_units(value):
    if isinstance(value, (str, bytes)) or not isinstance(value, (Sequence, np.ndarray)):
        raise TypeError(
            f"`hidden_units` is {value!r}; it must be a sequence with the width of each hidden "
            "layer, such as (100, 100)."
        )
    return tuple(_checked_count(f"hidden_units[{i}]", units) for i, units in enumerate(value))


def _checked_activation(value):
    try:
        return tf_keras.activations.get(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"`activation` is {value!r}; it must be a name that Keras knows, such as 'relu' or "
            "'tanh', or a function of a tensor."
        ) from None


def _checked_bound(argument, value):
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"`{argument}` is {value!r}; it must be a positive number.")
    if not 0 < value < np.inf:
        raise ValueError(f"`{argument}` is {value}; it must be positive and finite.")
    return float(value)


def _checked_dtype(value):
    dtype = tf.as_dtype(value)
    if not dtype.is_floating:
        raise ValueError(f"`dtype` is {dtype.name}; it must be a floating-point type.")
    return dtype
