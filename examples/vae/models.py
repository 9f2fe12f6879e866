"""The paper's VAEs in Keras 3. Each model takes its prior as an argument.

The notation follows the paper's appendix: `784-300-300-50` are layer sizes. Hidden layers of an MLP
use tanh, convolutions use ReLU, and weights have Glorot initialization. A Normal has two linear
heads, for its mean and its log standard deviation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lars
from examples.common.variables import tf_variable
from examples.vae.schedule import Schedule

tfd = tfp.distributions
layers = keras.layers

Terms = Mapping[str, tf.Tensor]

PIXELS = 28 * 28


class NormalHead(layers.Layer):
    """A diagonal Normal whose mean and log standard deviation are linear in the input.

    Args:
      d: Number of dimensions.
      bounded: Whether the standard deviation is below 1: the sigmoid of a linear function.
      **kwargs: Passed to `keras.layers.Layer`.
    """

    def __init__(self, d: int, *, bounded: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(2 * d)
        self.bounded = bounded

    def call(self, h):
        return self.dense(h)

    def distribution(self, h: tf.Tensor) -> tfd.Distribution:
        loc, scale = tf.split(apply(self, h), 2, axis=-1)
        scale = tf.sigmoid(scale) if self.bounded else tf.exp(scale)
        return tfd.Independent(tfd.Normal(loc, scale), 1)


def mlp(*units: int) -> keras.Sequential:
    return keras.Sequential([layers.Dense(n, activation="tanh") for n in units])


def apply(network: Callable, h: tf.Tensor) -> tf.Tensor:
    """Applies a network to the last axis of `h`. Keras fixes the input rank at the first call."""
    out = network(tf.reshape(h, [-1, h.shape[-1]]))
    return tf.reshape(out, tf.concat([tf.shape(h)[:-1], [out.shape[-1]]], 0))


def noise(
    q: tfd.Distribution, num_samples: int, seed: tf.Tensor, antithetic: bool = False
) -> tf.Tensor:
    """Returns standard normal noise for draws of `q`, `[num_samples] + batch + event`.

    Antithetic noise is symmetric: the second half of the draws has the negative noise of the first.
    The replicas of a `tf.distribute` strategy have consecutive parts of a batch. The noise of an
    image does not depend on their number: each draws the noise of the whole batch.
    """
    num = num_samples // 2 if antithetic else num_samples
    context = tf.distribute.get_replica_context()
    replicas = 1 if context is None else context.num_replicas_in_sync
    size = q.batch_shape_tensor()[0]
    shape = tf.concat([[num, replicas * size], q.event_shape_tensor()], 0)
    drawn = tf.random.stateless_normal(shape, seed)
    if replicas > 1:
        first = context.replica_id_in_sync_group * size
        drawn = drawn[:, first : first + size]
    return tf.concat([drawn, -drawn], 0) if antithetic else drawn


def draw(q: tfd.Distribution, noise: tf.Tensor) -> tf.Tensor:
    """Returns draws of a diagonal Normal from standard normal noise."""
    return q.distribution.loc + q.distribution.scale * noise


def log_density(q: tfd.Distribution, z: tf.Tensor, path_gradient: bool) -> tf.Tensor:
    """Returns `q.log_prob(z)`. `path_gradient` holds the parameters of `q` constant in it."""
    if path_gradient:
        loc, scale = (tf.stop_gradient(x) for x in (q.distribution.loc, q.distribution.scale))
        q = tfd.Independent(tfd.Normal(loc, scale), 1)
    return q.log_prob(z)


class LatentVariableModel(keras.Model):
    """Base class of the VAEs, with the evidence lower bound for training and evaluation.

    Subclasses define how to draw latents from the encoder (`infer`) and how to decode them.

    Args:
      make_prior: Function that maps this model's `encode_top` to the prior over the topmost latent.
      num_latents: Number of dimensions of each latent.
      schedule: Weight of the KL term, T and how latents are drawn in each training step.
      seed: Seed for the noise. The noise of step `i` depends only on `seed` and `i`, so a resumed
        training repeats the uninterrupted one.
    """

    # Whether the proposal of a resampled prior has an exact log density, not only a bound.
    proposal_has_density = True

    def __init__(
        self,
        make_prior: Callable[[Callable], tfd.Distribution],
        *,
        num_latents: int = 50,
        schedule: Schedule | None = None,
        seed: int = 0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_latents = num_latents
        self.schedule = schedule or Schedule()
        self.seed = seed
        self.build_networks()
        # One pass creates all weights, so a prior can use the encoder.
        self.encode_and_decode(tf.zeros([1, 28, 28]))
        self.prior_layer = tfp_lars.DistributionLayer(make_prior(self.encode_top))
        self.trackers = [keras.metrics.Mean(name=n) for n in ("elbo", "kl", "recons")]
        self.built = True

    @property
    def prior(self) -> tfd.Distribution:
        """Prior over the topmost latent, or the distribution of images if images are resampled."""
        return self.prior_layer.distribution

    @property
    def num_steps(self) -> int:
        """Number of training steps so far."""
        # Unlike `int`, this works for variables of a `tf.distribute` strategy.
        return int(tf_variable(self.optimizer.iterations).numpy())

    def build_networks(self) -> None:
        raise NotImplementedError

    def encode_top(self, x: tf.Tensor) -> tfd.Distribution:
        """Returns q(z_top | x), batch shape `[N]`, event shape `[d]`, for images `[N, 28, 28]`."""
        raise NotImplementedError

    def infer(
        self,
        x: tf.Tensor,
        num_samples: int,
        seed: tf.Tensor,
        *,
        antithetic: bool = False,
        path_gradient: bool = False,
    ):
        """Draws latents from the encoder.

        Args:
          x: Images `[N, 28, 28]`.
          num_samples: Number of draws for each image.
          seed: Stateless seed.
          antithetic: Whether draws are pairs with opposite noise. Needs an even `num_samples`.
          path_gradient: Whether to hold the parameters of the encoder constant in the log
            densities. Their gradient then goes through the draws alone.

        Returns:
          latents: List of tensors `[num_samples, N, d]`, topmost first.
          log_qs: List of their log densities under the encoder, `[num_samples, N]` each.
        """
        raise NotImplementedError

    def log_lower(self, latents) -> tf.Tensor:
        """Returns the log density of the lower latents given those above, `[S, N]`."""
        raise NotImplementedError

    def decode(self, latents) -> tf.Tensor:
        """Returns the logits of the pixels, `[..., 784]`, for latents `[..., d]`."""
        raise NotImplementedError

    def sample_lower(self, top: tf.Tensor, seed: tf.Tensor):
        """Completes draws of the topmost latent `[N, d]` to a list of all latents."""
        raise NotImplementedError

    def encode_and_decode(self, x: tf.Tensor, seed=(0, 0)):
        """Returns logits `[N, 784]` for images `[N, 28, 28]`, from one draw of the latents."""
        latents, _ = self.infer(x, 1, tf.constant(seed))
        self.log_lower(latents)
        return self.decode(latents)[0]

    def terms(
        self,
        x: tf.Tensor,
        num_samples: int,
        seed: tf.Tensor,
        prior: tfd.Distribution | None = None,
        training: bool | None = None,
        prior_kwargs: Mapping[str, Any] | None = None,
        **draws: bool,
    ) -> Terms:
        """Returns the parts of the bound, and the topmost latent, for images `[N, 28, 28]`.

        `recons` and `kl` have shape `[num_samples, N]`, `top` has `[num_samples, N, d]`.

        Args:
          x: Binary images, 0 or 1.
          num_samples: Number of draws of the latents for each image.
          seed: Stateless seed.
          prior: Prior with a fixed log Z, for evaluation; `None` for the model's own prior.
          training: Whether the model's own prior updates its average of Z. `None` for the value set
            by Keras, and for `True` outside of Keras.
          prior_kwargs: Arguments for the `log_prob` of the model's own prior, such as `T`.
          **draws: Passed to `infer`: `antithetic`, `path_gradient`.
        """
        latents, log_qs = self.infer(x, num_samples, seed, **draws)
        if prior is None:
            log_p = self.log_own_prior(latents[0], x, log_qs[0], training, **(prior_kwargs or {}))
        else:
            log_p = self.log_prior(prior, latents[0], x)
        logits = self.decode(latents)
        pixels = tf.reshape(x, [-1, PIXELS])
        recons = tf.reduce_sum(pixels * logits - tf.math.softplus(logits), axis=-1)
        kl = tf.add_n(log_qs) - log_p - self.log_lower(latents)
        return {"recons": recons, "kl": kl, "top": latents[0]}

    def log_prior(
        self, prior: tfd.Distribution, top: tf.Tensor, x: tf.Tensor, **kwargs
    ) -> tf.Tensor:
        """Returns the log density of the topmost latent under a prior, mostly with a fixed log Z.

        Args:
          prior: Prior of the same type as the model's own.
          top: Topmost latent, `[S, N, d]`.
          x: Images `[N, 28, 28]`.
          **kwargs: Arguments for the prior, such as `T`.

        Returns:
          log_p: Log density, `[S, N]`.
        """
        return prior.log_prob(top, **kwargs)

    def log_own_prior(
        self, top: tf.Tensor, x: tf.Tensor, log_q: tf.Tensor, training: bool | None, **kwargs
    ) -> tf.Tensor:
        """Returns the log density of the topmost latent under the model's own prior, `[S, N]`.

        Args:
          top: Topmost latent, `[S, N, d]`.
          x: Images `[N, 28, 28]`.
          log_q: Log density of `top` under the encoder, `[S, N]`. It adds the encoder's samples to
            the estimate of Z, which lowers its variance.
          training: Whether the prior updates its average of Z, as for `terms`.
          **kwargs: Arguments for the prior, such as `T`.
        """
        if isinstance(self.prior, tfp_lars.Resampled):
            kwargs["target_log_prob"] = log_q
        return self.prior_layer(top, training=training, **kwargs)

    def call(self, x, training=None):
        """Returns the parts of the bound, as means over the draws of the latents, `[N]` each."""
        step = tf.cast(self.optimizer.iterations, tf.int32)
        seed = tf.random.fold_in(tf.constant([self.seed, 1]), step)
        schedule = self.schedule
        terms = self.terms(
            x,
            schedule.num_draws,
            seed,
            training=training,
            # Outside of training, the prior has its own T.
            prior_kwargs={"T": schedule.growth(step)} if training and schedule.growth else None,
            antithetic=schedule.num_draws > 1,
            path_gradient=schedule.path_gradient,
        )
        return {name: tf.reduce_mean(terms[name], axis=0) for name in ("recons", "kl")}

    def losses(self, terms: Terms) -> Terms:
        """Returns means over a batch: `elbo`, `kl`, `recons`, and `loss` with a weighted KL term.

        Args:
          terms: Result of `call`.
        """
        recons, kl = (tf.reduce_mean(terms[name]) for name in ("recons", "kl"))
        loss = -recons + self.schedule.kl_weight(self.optimizer.iterations) * kl
        return {"loss": loss, "elbo": recons - kl, "kl": kl, "recons": recons}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Returns the negative bound, with the KL term weighted by the warm-up."""
        losses = self.losses(y_pred)
        for tracker in self.trackers:
            tracker.update_state(losses[tracker.name])
        return losses["loss"]

    def decode_prior(self, top: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns pixel probabilities, `[N, 28, 28]`, for draws `[N, d]` from the prior."""
        logits = self.decode(self.sample_lower(top, seed))
        return tf.sigmoid(tf.reshape(logits, [-1, 28, 28]))

    def sample_means(self, n: int) -> tf.Tensor:
        """Returns the means of the images decoded from `n` draws from the prior, `[n, 28, 28]`."""
        return self.decode_prior(self.prior.sample(n, seed=(1, 2)), tf.constant([3, 4]))


class VAE(LatentVariableModel):
    """One latent: q(z|x) = 784-300-300-d, p(x|z) = d-300-300-784."""

    def build_networks(self):
        self.encoder = mlp(300, 300)
        self.head = NormalHead(self.num_latents)
        self.decoder = keras.Sequential([*mlp(300, 300).layers, layers.Dense(PIXELS)])

    def encode_top(self, x):
        return self.head.distribution(self.encoder(tf.reshape(x, [-1, PIXELS])))

    def infer(self, x, num_samples, seed, *, antithetic=False, path_gradient=False):
        q = self.encode_top(x)
        z = draw(q, noise(q, num_samples, seed, antithetic))
        return [z], [log_density(q, z, path_gradient)]

    def log_lower(self, latents):
        return tf.zeros(tf.shape(latents[0])[:-1])

    def decode(self, latents):
        return apply(self.decoder, latents[0])

    def sample_lower(self, top, seed):
        return [top]


class OutputVAE(VAE):
    """The VAE with a standard normal prior and resampled binary images.

    `prior` is the resampled distribution of flat images, event shape `[784]`. Its proposal is the
    marginal of the VAE, and Z is estimated from decoded draws. The bound is the bound of the VAE
    plus the log ratio of the resampled density to the proposal density. `terms` includes this log
    ratio in `kl`. As in the paper, the gradient of Z does not reach the encoder and decoder, which
    train as if the images were not resampled.

    Args:
      make_prior: Function that maps the marginal to the resampled distribution of images.
      **kwargs: Arguments of `LatentVariableModel`.
    """

    proposal_has_density = False

    def __init__(self, make_prior: Callable[[tfd.Distribution], tfp_lars.Resampled], **kwargs):
        super().__init__(lambda encode: make_prior(self.marginal()), **kwargs)

    def build_networks(self):
        super().build_networks()
        self.latent_prior = tfp_lars.proposals.standard_normal(self.num_latents)

    def likelihood(self, z: tf.Tensor) -> tfd.Distribution:
        """Returns p(x|z), batch shape `[N]`, event shape `[784]`, for latents `[N, d]`."""
        return tfd.Independent(tfd.Bernoulli(logits=self.decode([z]), dtype=tf.float32), 1)

    def marginal(self) -> tfd.Distribution:
        """Returns the marginal distribution of images under the VAE, without resampling."""
        # This model already tracks the weights.
        return tfp_lars.proposals.vae_marginal(
            self.latent_prior, self.encode_top, self.likelihood, networks=()
        )

    def log_prior(self, prior, top, x, **kwargs):
        log_ratio = prior.log_ratio(tf.reshape(x, [-1, PIXELS]), **kwargs)
        return self.latent_prior.log_prob(top) + log_ratio

    def log_own_prior(self, top, x, log_q, training, **kwargs):
        # `prior_layer` calls `log_prob`, not `log_ratio`, so the average of Z is held here.
        held = self.prior.held() if training is False else contextlib.nullcontext()
        with held:
            return self.log_prior(self.prior, top, x, **kwargs)

    def sample_means(self, n):
        # Resample latents and images jointly, with an acceptance function of the images alone.
        joint = tfd.Blockwise(
            tfd.JointDistributionSequential([self.latent_prior, lambda z: self.likelihood(z)])
        )
        accept = self.prior.accept_fn
        resampled = tfp_lars.Resampled(
            joint,
            lambda joined: accept.logits(joined[..., self.num_latents :]),
            T=self.prior.T,
            from_logits=True,
            normalizer=0.0,  # not needed for draws
        )
        top = resampled.sample(n, seed=(1, 2))[:, : self.num_latents]
        return self.decode_prior(top, tf.constant([3, 4]))


class HVAE(LatentVariableModel):
    """Two latents with z2 on top. All networks are MLPs.

    q(z2|x) = 784-300-300-d, q(z1|x,z2) = [784-300, d-300]-300-d, p(z1|z2) = d-300-300-d,
    p(x|z1,z2) = [d-300, d-300]-300-784.
    """

    def build_networks(self):
        d = self.num_latents
        self.build_image_networks()
        self.head_2 = NormalHead(d)
        self.encoder_1 = mlp(300)
        # The prior of z1 is learned, so nothing else determines the unit of z1. Without a bound,
        # its dimensions grow by many orders of magnitude during the KL warm-up. With a bounded
        # prior as well, a training of 200 steps was unstable.
        self.head_1 = NormalHead(d, bounded=True)
        self.prior_1 = mlp(300, 300)
        self.prior_head_1 = NormalHead(d)

    def build_image_networks(self):
        """Builds the networks that differ between MLPs and CNNs."""
        self.encoder_2 = mlp(300, 300)
        self.encoder_1_of_x = mlp(300)
        self.encoder_1_of_z2 = mlp(300)
        self.decoder_of_z1, self.decoder_of_z2 = mlp(300), mlp(300)
        self.decoder = keras.Sequential([*mlp(300).layers, layers.Dense(PIXELS)])

    def image_features(self, x):
        """Returns features of images `[N, 28, 28]` for the encoders of z2 and z1, `[N, F]` each."""
        flat = tf.reshape(x, [-1, PIXELS])
        return self.encoder_2(flat), self.encoder_1_of_x(flat)

    def encode_top(self, x):
        return self.head_2.distribution(self.image_features(x)[0])

    def infer(self, x, num_samples, seed, *, antithetic=False, path_gradient=False):
        seeds = tf.random.split(seed, 2)
        features_2, features_1 = self.image_features(x)
        q2 = self.head_2.distribution(features_2)
        z2 = draw(q2, noise(q2, num_samples, seeds[0], antithetic))
        of_z2 = apply(self.encoder_1_of_z2, z2)
        of_x = tf.broadcast_to(features_1, tf.concat([[num_samples], tf.shape(features_1)], 0))
        h = apply(self.encoder_1, tf.concat([of_x, of_z2], axis=-1))
        q1 = self.head_1.distribution(h)
        z1 = draw(q1, noise(q2, num_samples, seeds[1], antithetic))
        # Given z2, the held-out part of q1's gradient is 0 in expectation, also with respect to z2.
        return [z2, z1], [log_density(q, z, path_gradient) for q, z in ((q2, z2), (q1, z1))]

    def lower_prior(self, z2):
        return self.prior_head_1.distribution(apply(self.prior_1, z2))

    def log_lower(self, latents):
        z2, z1 = latents
        return self.lower_prior(z2).log_prob(z1)

    def decode(self, latents):
        z2, z1 = latents
        h = [apply(self.decoder_of_z1, z1), apply(self.decoder_of_z2, z2)]
        return apply(self.decode_joined, tf.concat(h, axis=-1))

    def decode_joined(self, h):
        """Returns logits `[N, 784]` for the joined features of both latents, `[N, 600]`."""
        return self.decoder(h)

    def sample_lower(self, top, seed):
        return [top, self.lower_prior(top).sample(seed=seed)]


def downsampling() -> keras.Sequential:
    """Returns the CNN 28x28x1 - 14x14x32 - 7x7x32 - 4x4x32, kernel size 4, stride 2."""
    convolutions = [
        layers.Conv2D(32, 4, strides=2, padding="same", activation="relu") for _ in range(3)
    ]
    return keras.Sequential([layers.Reshape((28, 28, 1)), *convolutions, layers.Flatten()])


def upsampling() -> keras.Sequential:
    """Returns the CNN 4x4x32 - 7x7x32 - 14x14x32 - 28x28x1, kernel size 4.

    A stride of 2 would map 4x4 to 8x8. A transposed convolution of stride 1 without padding maps
    4 to 4 + (4 - 1) = 7, with the same kernel size and number of weights. The paper gives the last
    shape as 32x32x1, which is not the shape of its images.
    """

    def transposed(channels, **kwargs):
        return layers.Conv2DTranspose(channels, 4, **kwargs)

    return keras.Sequential(
        [
            layers.Reshape((4, 4, 32)),
            transposed(32, strides=1, padding="valid", activation="relu"),
            transposed(32, strides=2, padding="same", activation="relu"),
            transposed(1, strides=2, padding="same"),
            layers.Reshape((PIXELS,)),
        ]
    )


class ConvHVAE(HVAE):
    """Two latents with z2 on top. The networks next to the image are CNNs.

    q(z2|x) = CNN-d, q(z1|x,z2) = [CNN, d-512]-300-d, p(z1|z2) = d-300-300-d,
    p(x|z1,z2) = CNN{[d-300, d-300]-512}. See `downsampling` and `upsampling` for the CNNs.
    """

    def build_image_networks(self):
        self.encoder_2 = downsampling()
        self.encoder_1_of_x = downsampling()
        self.encoder_1_of_z2 = mlp(4 * 4 * 32)
        self.decoder_of_z1, self.decoder_of_z2 = mlp(300), mlp(300)
        self.decoder_dense = mlp(4 * 4 * 32)
        self.decoder = upsampling()

    def image_features(self, x):
        return self.encoder_2(x), self.encoder_1_of_x(x)

    def decode_joined(self, h):
        return self.decoder(self.decoder_dense(h))


def num_parameters(model: LatentVariableModel) -> int:
    """Returns the number of trainable parameters, including the prior's."""
    return int(sum(np.prod(v.shape) for v in model.trainable_variables))
