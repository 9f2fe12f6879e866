"""Early stopping on the validation NLL, as in the paper for statically binarized MNIST."""

from __future__ import annotations

import keras
import numpy as np

from examples.common import files
from examples.common.command_line import UserError
from examples.vae import checkpoints, datasets, evaluation, stopping_rule
from examples.vae.config import Config
from examples.vae.run_directory import RunDirectory

NUM_EVALUATIONS = 50  # over the full training budget
IWAE_SAMPLES, Z_SAMPLES = 20, 10**5  # for each evaluation


def num_images(config: Config, available: int) -> int:
    """Returns the number of validation images for each evaluation.

    Runs of at least 100,000 steps use all images. Shorter runs use a tenth of the number of steps,
    at least 64, because evaluating all 10,000 images would take longer than the training.
    """
    return available if config.steps >= 100_000 else min(available, max(64, config.steps // 10))


def interval(config: Config) -> int:
    """Returns the number of steps between two evaluations."""
    return max(1, config.steps // NUM_EVALUATIONS)


class BestValidation(keras.callbacks.Callback):
    """Saves the weights with the best validation NLL, and stops when it no longer improves.

    It evaluates at each multiple of `interval`, so the steps of the evaluations depend neither on
    interruptions nor on checkpoints. Calls from Python must end at these steps. The validation NLLs
    are stored on disk by step. A resumed training computes the same values for repeated steps, so
    it stops at the same step as an uninterrupted one.

    Args:
      run: Directory of the run.
      validation: Images, `uint8`, 0 or 255, shape `[N, 28, 28]`.
      config: Configuration of the run.
    """

    def __init__(self, run: RunDirectory, validation: np.ndarray, config: Config):
        super().__init__()
        self.run = run
        self.validation = datasets.spread(validation, num_images(config, len(validation)))
        self.every = interval(config)

    @property
    def stopped(self) -> bool:
        """Whether the validation NLL no longer improves."""
        return stopping_rule.has_stopped(stopping_rule.read(self.run.validation_file))

    def on_train_batch_end(self, batch, logs=None):
        step = self.model.num_steps
        if step % self.every:
            return
        history = stopping_rule.read(self.run.validation_file)
        history = {k: v for k, v in history.items() if k < step}
        history[step] = evaluation.validation_nll(
            self.model, self.validation, IWAE_SAMPLES, Z_SAMPLES
        )
        if history[step] == stopping_rule.lowest(history):
            checkpoints.manager(self.run, self.model, checkpoints.BEST).save(checkpoint_number=step)
        files.write_json(self.run.validation_file, history)
        if self.stopped:
            self.model.stop_training = True

    def restore_best(self, model) -> None:
        """Restores the weights with the best validation NLL into the model.

        If they are damaged, restores the weights that were the best before, with a warning. The
        caller must hold the lock of the run.

        Raises:
          UserError: There are no such weights, or all of them are damaged.
        """
        if not checkpoints.restore_undamaged(
            checkpoints.manager(self.run, model, checkpoints.BEST)
        ):
            raise UserError(
                f"{self.run.path} has no weights with a best validation NLL: delete the directory, "
                "and train again. If each NLL in validation.json is NaN, try another --seed, or a "
                "larger --batch-size."
            )
