"""The training recipe: learning rate and KL warm-up as functions of the step."""

from __future__ import annotations

import dataclasses

import keras
import tensorflow as tf

from examples.vae.config import Config


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Learning rate and KL warm-up. They do not depend on the prior, so priors compare fairly.

    At 10^7 steps this is the paper's schedule: a rate of 3e-4, 1e-4 from step 10^6 on, and a
    warm-up of 10^5 steps. Budgets below 10^6 steps are too short for these rates and start with a
    larger one. Their warm-up is a tenth of the budget, but at least 3,000 steps or two fifths of
    the budget, whichever is less. With a shorter warm-up, a flow receives the full KL term before
    the decoder has learned anything, and does not recover in a short run. As in the paper, all
    times are halved on statically binarized MNIST. Trained networks need no warm-up.

    Attributes:
      boundaries: Steps at which the rate changes.
      rates: Learning rates, one more than boundaries.
      warm_up: Number of steps over which the weight of the KL term rises from 0 to 1.
    """

    boundaries: tuple[int, ...]
    rates: tuple[float, ...]
    warm_up: int

    @classmethod
    def of(cls, config: Config) -> Schedule:
        """Returns the schedule of a run."""
        scale = 0.5 if config.stops_early else 1.0
        if config.steps >= 10**6:
            boundaries, rates, warm_up = (0.1,), (3e-4, 1e-4), 0.01 * config.steps
        else:
            boundaries, rates = (0.5, 0.8), (1e-3, 3e-4, 1e-4)
            warm_up = max(0.1 * config.steps, min(0.4 * config.steps, 3000))
        trained_before = config.post_hoc or config.continues
        return cls(
            tuple(int(scale * share * config.steps) for share in boundaries),
            rates,
            0 if trained_before else int(scale * warm_up),
        )

    def learning_rate(self) -> keras.optimizers.schedules.LearningRateSchedule:
        return keras.optimizers.schedules.PiecewiseConstantDecay(
            list(self.boundaries), list(self.rates)
        )

    def kl_weight(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the weight of the KL term at a step, counted from 0."""
        return tf.minimum(1.0, (tf.cast(step, tf.float32) + 1.0) / (self.warm_up + 1.0))
