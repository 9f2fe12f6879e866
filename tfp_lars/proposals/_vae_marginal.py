"""The marginal of a VAE over its outputs, with a bound as its log density."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _arguments, _compat, _seeds, ownership
from tfp_lars.proposals._unbatched import UnbatchedDistribution

__all__ = ["VAEMarginal", "vae_marginal"]

tfd = tfp.distributions


class VAEMarginal(UnbatchedDistribution):
    """`pi(x) = integral of p(z) p(x|z)`: exact draws, and a lower bound as `log_prob`.

    See `vae_marginal`.

    Args:
      prior: `p(z)`, batch shape `[]`.
      encode: Maps `x`, shape `[N]` + event, to `q(z|x)`, batch shape `[N]`.
      decode: Maps `z`, shape `[N]` + latent shape, to `p(x|z)`, batch shape `[N]`.
      num_samples: Number of draws of `z` for each `x`.
      seed: Seed for these draws in calls that pass none.
      networks: Keras layers and modules that hold the weights of `encode` and `decode`.
      name: Name of the distribution.
    """

    def __init__(
        self,
        prior: tfd.Distribution,
        encode: Callable[[tf.Tensor], tfd.Distribution],
        decode: Callable[[tf.Tensor], tfd.Distribution],
        num_samples: int = 1,
        seed: int | tf.Tensor = 0,
        networks: Sequence[Any] | None = None,
        name: str = "vae_marginal",
    ):
        parameters = dict(locals())
        self._prior = prior
        self._encode = _compat.untracked(encode)
        self._decode = _compat.untracked(decode)
        self._num_samples = num_samples
        self._seed = _compat.untracked(seed)
        # One pass creates the weights of lazy networks and finds those that plain functions read.
        with tf.GradientTape() as tape:
            likelihood, posterior = self._pass()
        _check_posterior(posterior, prior)
        self._track(networks, tape.watched_variables())
        kinds = {prior.reparameterization_type, likelihood.reparameterization_type}
        reparameterized = kinds == {tfd.FULLY_REPARAMETERIZED}
        kind = tfd.FULLY_REPARAMETERIZED if reparameterized else tfd.NOT_REPARAMETERIZED
        super().__init__(likelihood.event_shape, likelihood.dtype, kind, parameters, name)

    def _pass(self) -> tuple[tfd.Distribution, tfd.Distribution]:
        """Returns the outputs of `decode` and `encode` for one draw."""
        likelihood = self._decode(self._prior.sample(1, seed=(0, 0)))
        _check_output("decode", likelihood)
        posterior = self._encode(likelihood.sample(seed=(0, 1)))
        _check_output("encode", posterior)
        return likelihood, posterior

    @property
    def prior(self) -> tfd.Distribution:
        """Prior over the latents."""
        return self._prior

    @property
    def num_samples(self) -> int:
        """Number of draws of the latents for each value of `log_prob`."""
        return self._num_samples

    def encode(self, x: tf.Tensor) -> tfd.Distribution:
        """`q(z|x)`, batch shape `[N]`, for `x` of shape `[N]` + event."""
        return self._encode(x)

    def decode(self, z: tf.Tensor) -> tfd.Distribution:
        """`p(x|z)`, batch shape `[N]`, for `z` of shape `[N]` + latent shape."""
        return self._decode(z)

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {}

    def _log_prob(self, x, seed=None):
        """A lower bound on the log density, from `num_samples` draws of the encoder.

        The draws are a function of `seed`, an `int` or a stateless `int32[2]`. The default is the
        seed of the constructor, so that the same call gives the same value. In training, pass a
        different `seed` at each step.
        """
        seed = _seeds.stateless_seed(self._seed if seed is None else seed)
        lead = tf.shape(x)[: x.shape.rank - self.event_shape.rank]
        flat = tf.reshape(x, tf.concat([[-1], self.event_shape_tensor()], 0))  # [N] + event
        posterior = self._encode(flat)
        z = posterior.sample(self._num_samples, seed=seed)  # [K, N] + latent
        log_prior_ratio = self._prior.log_prob(z) - posterior.log_prob(z)  # [K, N]
        # Networks take one flat batch.
        z = tf.reshape(z, tf.concat([[-1], tf.shape(z)[2:]], 0))
        repeated = tf.tile(flat, [self._num_samples] + [1] * self.event_shape.rank)
        log_likelihood = self._decode(z).log_prob(repeated)  # [K * N]
        log_weight = tf.reshape(log_likelihood, tf.shape(log_prior_ratio)) + log_prior_ratio
        bound = tf.reduce_logsumexp(log_weight, axis=0) - math.log(self._num_samples)
        return _compat.ensure_shape(
            tf.reshape(bound, lead), x.shape[: x.shape.rank - self.event_shape.rank]
        )

    def _sample_n(self, n, seed=None):
        seed = _seeds.new_seed() if seed is None else _seeds.stateless_seed(seed)
        seeds = tf.random.split(seed, 2)
        return self._decode(self._prior.sample(n, seed=seeds[0])).sample(seed=seeds[1])

    def _track(self, networks: Sequence[Any] | None, watched: Sequence[tf.Variable]) -> None:
        """Tracks the weights of the networks as variables of this distribution."""
        listed = []
        if networks is None:
            owners = [ownership.network_of(f) for f in (self._encode, self._decode)]
            networks = [n for n in owners if isinstance(n, (keras.Layer, tf.Module))]
            listed = list(watched) if len(networks) < len(owners) else []
            if listed:
                ownership.remember_keras_variables_read(self._pass)
        # TensorFlow walks modules only, so the variables of Keras 3 networks are listed. The
        # networks are kept for Keras; as a dependency, a checkpoint would contain them twice.
        keras3 = [n for n in networks if isinstance(n, keras.Layer)]
        self._keras3_networks = _compat.untracked(keras3)
        self._modules = [n for n in networks if not isinstance(n, keras.Layer)]
        self._listed_variables = [v for n in keras3 for v in ownership.tf_variables(n)] + listed


def vae_marginal(
    prior: tfd.Distribution,
    encode: Callable[[tf.Tensor], tfd.Distribution],
    decode: Callable[[tf.Tensor], tfd.Distribution],
    *,
    num_samples: int = 1,
    seed: int | tf.Tensor = 0,
    networks: Sequence[Any] | None = None,
    name: str = "vae_marginal",
) -> VAEMarginal:
    """Returns the marginal of a VAE over its outputs, as a proposal for LARS on pixels.

    A draw is `z` from the prior, then `x` from `decode(z)`. `log_prob(x, seed=...)` is the evidence
    lower bound, `log p(x|z) + log p(z) - log q(z|x)` at one reparameterized draw of `z` from
    `encode(x)`. With several draws it is the importance-weighted bound. Its gradient reaches
    encoder, decoder and prior.

    >>> kernel = tf.random.stateless_normal([2, 8], [1, 2])
    >>> def encode(x):
    ...     return tfd.MultivariateNormalDiag(x @ tf.transpose(kernel), tf.ones(2))
    >>> def decode(z):
    ...     return tfd.Independent(tfd.Bernoulli(logits=z @ kernel, dtype=tf.float32), 1)
    >>> outputs = vae_marginal(tfd.MultivariateNormalDiag(tf.zeros(2)), encode, decode)
    >>> x = outputs.sample(5, seed=1)
    >>> outputs.log_prob(x, seed=2).shape
    TensorShape([5])
    >>> resampled = Resampled(outputs, AcceptanceNetwork((300, 300)), T=100)
    >>> resampled.log_prob(x, seed=2).shape
    TensorShape([5])

    For discrete outputs the draws that estimate Z carry no gradient, so decoder and prior train as
    if they were not resampled. `MovingAverage(score_function=True)` adds the missing gradient.

    Args:
      prior: `p(z)`, batch shape `[]`.
      encode: Maps `x`, shape `[N]` + event, to `q(z|x)`, batch shape `[N]`; reparameterized.
      decode: Maps `z`, shape `[N]` + latent shape, to `p(x|z)`, batch shape `[N]`, with
        events of the type that `encode` takes.
      num_samples: Number of draws of `z` for each `x`.
      seed: Seed for these draws in calls of `log_prob` that pass none: Python `int`, or an
        `int32[2]` stateless seed.
      networks: Keras layers and modules that hold the weights of `encode` and `decode`; `()` if the
        weights belong to a model that trains and saves them. By default these are the layers or
        modules whose methods `encode` and `decode` are. For plain functions they are the trainable
        variables that the functions read at construction.
      name: Name of the distribution.

    Returns:
      marginal: A `VAEMarginal` of batch shape `[]`.
    """
    if not isinstance(prior, tfd.Distribution):
        raise TypeError(f"`prior` must be a TFP distribution; got {prior!r}.")
    if prior.batch_shape != []:
        raise ValueError(
            f"`prior` must have batch shape (); got {tuple(prior.batch_shape)}. `tfd.Independent` "
            "makes a batch an event."
        )
    for argument, function in (("encode", encode), ("decode", decode)):
        if not callable(function):
            raise TypeError(f"`{argument}` must be callable; got {function!r}.")
    num_samples = _arguments.checked_count("num_samples", num_samples)
    return VAEMarginal(prior, encode, decode, num_samples, seed, networks, name=name)


def _check_output(name: str, distribution: Any) -> None:
    """Checks the distribution that `encode` or `decode` returned for a batch of one."""
    if not isinstance(distribution, tfd.Distribution):
        raise TypeError(f"`{name}` must return a TFP distribution; it returned {distribution!r}.")
    if not distribution.batch_shape.is_compatible_with([1]):
        raise ValueError(
            f"`{name}` must return batch shape [N] for N inputs; for 1 input it returned "
            f"{tuple(distribution.batch_shape)}. `tfd.Independent` makes a batch an event."
        )


def _check_posterior(posterior: tfd.Distribution, prior: tfd.Distribution) -> None:
    if not posterior.event_shape.is_compatible_with(prior.event_shape):
        raise ValueError(
            f"`encode` must return events of shape {tuple(prior.event_shape)}, those of `prior`; "
            f"it returned {tuple(posterior.event_shape)}."
        )
    if posterior.reparameterization_type != tfd.FULLY_REPARAMETERIZED:
        raise ValueError(
            "`encode` must return a reparameterized distribution, so that gradients reach the "
            f"encoder; {posterior.name!r} is not."
        )
