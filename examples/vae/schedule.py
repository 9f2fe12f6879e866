"""The training recipe: learning rate, KL warm-up, growth of T, and how latents are drawn.

There are two recipes. Both are the same for every prior, so priors compare fairly. The KL warm-up
depends on the data set: as in the paper, it is halved on statically binarized MNIST.

*paper* is that of Bauer and Mnih: Adam with a rate of 3e-4, and 1e-4 after a tenth of the steps; a
fixed T; one draw of the latents for each image. It needs millions of steps.

*short* is for fewer than 10^6 steps. `docs/results.md` compares it with alternatives.

- The rate rises to its peak and then falls linearly to 0. The peak falls as the budget grows.
- The global norm of the gradient is clipped. It is above the limit at nearly every step, so the
  rate alone determines the size of the steps.
- Each image has two draws of the latents, `loc + scale * noise` and `loc - scale * noise`. Terms
  of the gradient that are odd in the noise cancel.
- The gradient goes through the draws alone ("sticking the landing"): the parameters of the encoder
  are held constant in log q(z|x). This part of the gradient is 0 in expectation.
- T grows. A small T lets a(z) find the right region first. Untruncated resampling from the start
  accepts so few proposals that the estimates of Z are poor.
"""

from __future__ import annotations

import dataclasses
import math

import keras
import tensorflow as tf

from examples.vae.config import Config
from examples.vae.datasets import DATASETS


@keras.saving.register_keras_serializable("tfp_lars_examples")
class RiseAndFall(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises linearly to its peak and then falls linearly to 0.

    Args:
      peak: Largest rate.
      rise: Number of steps until the peak.
      steps: Number of steps in total.
    """

    def __init__(self, peak: float, rise: int, steps: int):
        self.peak, self.rise, self.steps = peak, rise, steps

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        rising = (step + 1.0) / max(self.rise, 1)
        falling = (self.steps - step) / max(self.steps - self.rise, 1)
        return self.peak * tf.clip_by_value(tf.minimum(rising, falling), 0.0, 1.0)

    def get_config(self):
        return {"peak": self.peak, "rise": self.rise, "steps": self.steps}


@dataclasses.dataclass(frozen=True)
class Growth:
    """Growth of the truncation T during training: log T is linear between two steps.

    Attributes:
      start: Value of T up to step `begin`.
      stop: Value of T at step `end`, and from then on unless `untruncated`.
      begin: Step at which T begins to grow.
      end: Step at which it stops growing.
      untruncated: Whether resampling is untruncated from step `end` on.
    """

    start: float
    stop: float
    begin: int
    end: int
    untruncated: bool = False

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns T at a step, counted from 0: a real number, infinite if untruncated."""
        share = (tf.cast(step, tf.float32) - self.begin) / max(self.end - self.begin, 1)
        share = tf.clip_by_value(share, 0.0, 1.0)
        T = tf.exp(math.log(self.start) * (1.0 - share) + math.log(self.stop) * share)
        last = tf.constant(math.inf if self.untruncated else self.stop, tf.float32)
        return tf.where(share < 1.0, T, last)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Recipe of a training. The defaults are those of an optimizer and a bound without any extras.

    Attributes:
      rate: Learning rate, a number or a schedule of Keras.
      warm_up: Number of steps over which the weight of the KL term rises from 0 to 1.
      beta_2: Decay of the second moments of Adam.
      clip_norm: Largest global norm of the gradient; `None` for no limit.
      num_draws: Number of draws of the latents for each image. Several draws are antithetic pairs.
      path_gradient: Whether the gradient goes through the draws alone.
      growth: Growth of T; `None` for a fixed T.
    """

    rate: keras.optimizers.schedules.LearningRateSchedule | float = 1e-3
    warm_up: int = 0
    beta_2: float = 0.999
    clip_norm: float | None = None
    num_draws: int = 1
    path_gradient: bool = False
    growth: Growth | None = None

    @classmethod
    def of(cls, config: Config) -> Schedule:
        """Returns the recipe of a run. Trained networks need no KL warm-up."""
        found = _paper(config) if config.follows_paper else _short(config)
        trained_before = config.post_hoc or config.continues
        return dataclasses.replace(found, warm_up=0) if trained_before else found

    def optimizer(self, kind: type[keras.optimizers.Adam]) -> keras.optimizers.Adam:
        """Returns an optimizer, Adam or a subclass."""
        return kind(self.rate, beta_2=self.beta_2, global_clipnorm=self.clip_norm)

    def kl_weight(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the weight of the KL term at a step, counted from 0."""
        return tf.minimum(1.0, (tf.cast(step, tf.float32) + 1.0) / (self.warm_up + 1.0))


def _paper(config: Config) -> Schedule:
    """Returns the paper's recipe. All times are halved on statically binarized MNIST."""
    scale = 0.5 if config.stops_early else 1.0
    boundary = int(scale * 0.1 * config.steps)
    rate = keras.optimizers.schedules.PiecewiseConstantDecay([boundary], [3e-4, 1e-4])
    return Schedule(rate, warm_up=int(scale * 0.01 * config.steps))


def _short(config: Config) -> Schedule:
    """Returns the recipe for fewer than 10^6 steps."""
    steps = config.steps
    # With a shorter warm-up, a flow receives the full KL term before the decoder has learned
    # anything, and does not recover in a short run.
    warm_up = max(0.1 * steps, min(0.4 * steps, 3000)) * DATASETS[config.dataset].warm_up_factor
    return Schedule(
        RiseAndFall(peak_rate(steps), min(500, steps // 20), steps),
        int(min(warm_up, 0.6 * steps)),
        beta_2=0.99,
        clip_norm=10.0,
        num_draws=2,
        path_gradient=True,
        growth=_growth(config),
    )


def peak_rate(steps: int) -> float:
    """Returns the largest learning rate of the short recipe. Longer runs need a lower one."""
    return 3e-3 * min(1.0, (30_000 / steps) ** 0.37)


def _growth(config: Config) -> Growth | None:
    T, steps = config.prior.T, config.steps
    if not config.is_resampled or T == 1:
        return None
    if T is None:
        return Growth(10.0, 1e6, int(0.1 * steps), int(0.95 * steps), untruncated=True)
    return Growth(min(2.0, T), T, 0, steps // 2)
