"""The VampPrior: a mixture of the encoder's posteriors at learned pseudo-inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _arguments, _compat
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
        components = self._encode(self.pseudo_inputs)
        num_components = self._pseudo_input_logits.shape[0]
        return tfd.MixtureSameFamily(
            tfd.Categorical(logits=tf.zeros([num_components], components.dtype)), components
        )

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {}

    def _log_prob(self, z):
        return self.mixture().log_prob(z)

    def _sample_n(self, n, seed=None):
        return self.mixture().sample(n, seed=seed)


def vamp_prior(
    encode: Callable[[tf.Tensor], tfd.Distribution],
    input_shape: Sequence[int],
    num_components: int = 500,
    *,
    mean: float | np.ndarray = 0.05,
    stddev: float = 1.0,
    dtype: tf.DType = tf.float32,
    seed: int | None = None,
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
      seed: Seed for the initial pseudo-inputs.
      name: Name of the distribution.

    Returns:
      prior: A `VampPrior`. `prior.trainable_variables` has the pseudo-inputs, not the encoder.
    """
    if not callable(encode):
        raise TypeError(f"`encode` must be callable; got {encode!r}.")
    num_components = _arguments.checked_count("num_components", num_components)
    if not (np.all(np.asarray(mean) > 0.0) and np.all(np.asarray(mean) < 1.0)):
        raise ValueError(f"`mean` must be between 0 and 1; got {mean!r}.")
    center = np.log(mean) - np.log1p(-np.asarray(mean))
    shape = (num_components, *input_shape)
    noise = np.random.default_rng(seed).standard_normal(shape)
    logits = tf.Variable(tf.cast(center + stddev * noise, dtype), name="pseudo_input_logits")
    return VampPrior(encode, logits, name=name)
