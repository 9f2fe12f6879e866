"""The VampPrior: a mixture of the encoder's posteriors at learned pseudo-inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _arguments, _compat, _seeds
from tfp_lars.proposals._unbatched import UnbatchedDistribution

__all__ = ["VampPrior", "vamp_prior"]

tfd = tfp.distributions


class VampPrior(UnbatchedDistribution):
    """`p(z) = mean over k of q(z | u_k)`, with trainable pseudo-inputs `u_k` in [0, 1].

    The encoder is shared. Its weights belong to the model that it comes from, and the prior
    contributes to their gradient. See `vamp_prior`.

    Args:
      encode: Maps inputs `[K]` + input shape to a distribution of batch shape `[K]`.
      pseudo_input_logits: Trainable variable, shape `[K]` + input shape.
      name: Name of the distribution.
    """

    def __init__(
        self,
        encode: Callable[[tf.Tensor], tfd.Distribution],
        pseudo_input_logits: tf.Variable,
        name: str = "vamp_prior",
    ):
        parameters = dict(locals())
        self._encode = _compat.untracked(encode)
        self._pseudo_input_logits = pseudo_input_logits
        example = encode(tf.sigmoid(pseudo_input_logits[:1]))
        super().__init__(
            example.event_shape, example.dtype, tfd.NOT_REPARAMETERIZED, parameters, name
        )

    @property
    def pseudo_inputs(self) -> tf.Tensor:
        """Pseudo-inputs in [0, 1], shape `[K]` + input shape."""
        return tf.sigmoid(self._pseudo_input_logits)

    def mixture(self) -> tfd.MixtureSameFamily:
        """Returns the prior at the current weights of the encoder."""
        return self._mixture_of(self._encode(self.pseudo_inputs))

    def _mixture_of(self, components: tfd.Distribution) -> tfd.MixtureSameFamily:
        num_components = self._pseudo_input_logits.shape[0]
        return tfd.MixtureSameFamily(
            tfd.Categorical(logits=tf.zeros([num_components], components.dtype)), components
        )

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {}

    def _log_prob(self, z):
        components = self._encode(self.pseudo_inputs)
        moments = _moments_of_diagonal_normals(components)
        if moments is None:
            return self._mixture_of(components).log_prob(z)
        return _log_mean_of_normal_densities(z, *moments)

    def _sample_n(self, n, seed=None):
        return self.mixture().sample(n, seed=seed)


def _moments_of_diagonal_normals(
    components: tfd.Distribution,
) -> tuple[tf.Tensor, tf.Tensor] | None:
    """Returns means and standard deviations, `[K, d]`; `None` for other distributions."""
    is_normal = type(components) is tfd.MultivariateNormalDiag or (
        type(components) is tfd.Independent and type(components.distribution) is tfd.Normal
    )
    if not is_normal or components.event_shape.rank != 1:
        return None
    return components.mean(), components.stddev()


def _log_mean_of_normal_densities(z: tf.Tensor, loc: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Returns the log of the mean over k of `N(z; loc_k, scale_k)`.

    The square `((z - loc) / scale)**2` is expanded, so that the sum over dimensions becomes a
    matrix product. `tfd.MixtureSameFamily` needs memory for `[..., K, d]` and several times the
    time.

    Args:
      z: Shape `[..., d]`.
      loc: Shape `[K, d]`.
      scale: Shape `[K, d]`.

    Returns:
      log_density: Shape `[...]`.
    """
    dtype = z.dtype
    # The terms of the expanded square nearly cancel where `scale` is small.
    z, loc, scale = (tf.cast(x, tf.float64) for x in (z, loc, scale))
    precision = scale**-2.0
    squares = (
        tf.tensordot(z**2, precision, [[-1], [-1]])
        - 2.0 * tf.tensordot(z, loc * precision, [[-1], [-1]])
        + tf.reduce_sum(loc**2 * precision, axis=-1)
    )  # [..., K]
    log_volumes = tf.reduce_sum(tf.math.log(scale) + 0.5 * np.log(2.0 * np.pi), axis=-1)  # [K]
    log_densities = tf.reduce_logsumexp(-0.5 * squares - log_volumes, axis=-1)
    num_components = tf.cast(tf.shape(loc)[0], tf.float64)
    return tf.cast(log_densities - tf.math.log(num_components), dtype)


def vamp_prior(
    encode: Callable[[tf.Tensor], tfd.Distribution],
    input_shape: Sequence[int],
    num_components: int = 500,
    *,
    mean: float | np.ndarray = 0.05,
    stddev: float = 1.0,
    dtype: tf.DType = tf.float32,
    seed: int | tf.Tensor | None = None,
    name: str = "vamp_prior",
) -> VampPrior:
    """Returns a VampPrior (Tomczak and Welling, 2018) for an encoder.

    >>> kernel = tf.random.stateless_normal([4, 2], [1, 2])
    >>> def encode(x):
    ...     return tfd.MultivariateNormalDiag(tf.reshape(x, [-1, 4]) @ kernel, tf.ones(2))
    >>> prior = vamp_prior(encode, input_shape=(2, 2), num_components=10, seed=1)
    >>> prior.log_prob(prior.sample(5, seed=2)).shape
    TensorShape([5])

    Args:
      encode: Maps inputs `[K]` + input shape to a distribution of batch shape `[K]` over latents.
      input_shape: Shape of one input.
      num_components: Number `K` of pseudo-inputs; 500 in the paper.
      mean: Initial mean of the pseudo-inputs, in (0, 1): a number, or an image such as the mean of
        the training data.
      stddev: Initial standard deviation of their logits.
      dtype: Type of the pseudo-inputs.
      seed: Seed for the initial pseudo-inputs: an `int`, a stateless seed of shape `[2]`, or `None`
        for one that follows `tf.random.set_seed`.
      name: Name of the distribution.

    Returns:
      prior: A `VampPrior`. `prior.trainable_variables` has the pseudo-inputs, not the encoder.
        `prior.pseudo_inputs` are the pseudo-inputs, and `prior.mixture()` is the mixture.
    """
    if not callable(encode):
        raise TypeError(f"`encode` must be callable; got {encode!r}.")
    num_components = _arguments.checked_count("num_components", num_components)
    if not (np.all(np.asarray(mean) > 0.0) and np.all(np.asarray(mean) < 1.0)):
        raise ValueError(f"`mean` must be between 0 and 1; got {mean!r}.")
    center = np.log(mean) - np.log1p(-np.asarray(mean))
    shape = (num_components, *input_shape)
    # An integer goes to NumPy directly, as it did for the stored results of the examples.
    if not isinstance(seed, (int, np.integer)):
        seed = next(_seeds.integers(seed))
    noise = np.random.default_rng(seed).standard_normal(shape)
    logits = tf.Variable(tf.cast(center + stddev * noise, dtype), name="pseudo_input_logits")
    return VampPrior(encode, logits, name=name)
