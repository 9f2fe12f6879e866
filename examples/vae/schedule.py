"""The training recipe: learning rate and KL warm-up as functions of the step."""

from __future__ import annotations

import dataclasses

import keras
import tensorflow as tf

from examples.vae.config import Config


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Learning rate and warm-up, as a function of the budget alone, so that priors compare fairly.

    At 10^7 steps it is the paper's: 3e-4, 1e-4 from step 10^6 on, warm-up over 10^5. Budgets below
    10^6 cannot afford so small a rate and take larger ones first; their warm-up is a tenth of them,
    but 3,000 steps where that is more, and at most two fifths: a flow that meets the whole KL term
    before the decoder has learned anything does not recover in a short run. Times are halved where
    the paper halves them, on statically binarized MNIST. Networks that are trained already need no
    warm-up.

    Attributes:
      boundaries: Steps at which the rate changes.
      rates: One more than there are boundaries.
      warm_up: Steps over which the weight of the KL term goes from 0 to 1.
    """

    boundaries: tuple[int, ...]
    rates: tuple[float, ...]
    warm_up: int

    @classmethod
    def of(cls, config: Config) -> Schedule:
        """The schedule of a run."""
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
        """Weight of the KL term at a step, counted from 0: KL warm-up."""
        return tf.minimum(1.0, (tf.cast(step, tf.float32) + 1.0) / (self.warm_up + 1.0))
