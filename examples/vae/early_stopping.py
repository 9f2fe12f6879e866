"""Early stopping on the validation NLL, as the paper does on statically binarized MNIST."""

from __future__ import annotations

import keras
import numpy as np

from examples.common import files
from examples.vae import checkpoints, datasets, evaluation
from examples.vae.config import Config
from examples.vae.run_directory import RunDirectory

NUM_EVALUATIONS = 50  # in the course of the whole budget
IWAE_SAMPLES, Z_SAMPLES = 20, 10**5  # of each


def num_images(config: Config, available: int) -> int:
    """How many validation images to look at each time.

    Short budgets look at some of them, a tenth as many as there are steps and at least 64: to look
    at 10,000 would take longer than the training. From 100,000 steps on it is all of them.
    """
    return available if config.steps >= 100_000 else min(available, max(64, config.steps // 10))


class BestValidation(keras.callbacks.Callback):
    """Keeps the weights of the best validation NLL, and stops when it has not improved for long.

    What it has seen is a table from steps to NLLs on disk. A resumed training adds the same
    values again for the steps that it repeats, so that it stops where the uninterrupted one does.

    Args:
      run: Directory of the run.
      validation: Images, `uint8`, 0 or 255, shape `[N, 28, 28]`.
      config: Configuration of the run.
      patience: How many looks in a row may bring nothing new.
    """

    def __init__(
        self,
        run: RunDirectory,
        validation: np.ndarray,
        config: Config,
        *,
        patience: int = 10,
    ):
        super().__init__()
        self.run = run
        self.validation = datasets.spread(validation, num_images(config, len(validation)))
        self.every = max(1, config.steps // NUM_EVALUATIONS)
        self.patience = patience
        self.file = run.path / "validation.json"
        self.last = 0

    def history(self) -> dict[int, float]:
        """Validation NLL by step, up to now."""
        if not self.file.exists():
            return {}
        return {int(k): v for k, v in files.read_json(self.file).items()}

    @property
    def stopped(self) -> bool:
        """Whether the last `patience` looks brought nothing new."""
        values = list(self.history().values())
        return len(values) > self.patience and np.argmin(values) < len(values) - self.patience

    def on_train_begin(self, logs=None):
        self.last = int(self.model.optimizer.iterations)

    def on_epoch_end(self, epoch, logs=None):
        step = int(self.model.optimizer.iterations)
        if step // self.every == self.last // self.every:
            return
        self.last = step
        history = {k: v for k, v in self.history().items() if k < step}
        history[step] = evaluation.validation_nll(
            self.model, self.validation, IWAE_SAMPLES, Z_SAMPLES
        )
        if history[step] == min(history.values()):
            checkpoints.manager(self.run, self.model, checkpoints.BEST).save(checkpoint_number=step)
        files.write_json(self.file, history)
        if self.stopped:
            self.model.stop_training = True

    def restore_best(self, model) -> None:
        """Gives the model the weights that it had when the validation NLL was best."""
        checkpoints.restore(checkpoints.manager(self.run, model, checkpoints.BEST))
