"""Early stopping on the validation NLL, as the paper does on statically binarized MNIST."""

from __future__ import annotations

import keras
import numpy as np

from examples.vae import datasets as data
from examples.vae import evaluation as evaluate
from examples.vae.build import Config
from examples.vae.run_directory import RunDirectory, restore, write_json


class BestValidation(keras.callbacks.Callback):
    """Keeps the weights of the best validation NLL, and stops when it has not improved for long.

    What it has seen is a table from steps to NLLs on disk. A resumed training adds the same
    values again for the steps that it repeats, so that it stops where the uninterrupted one does.

    Args:
      run: Directory of the run.
      validation: Images, `uint8`, 0 or 255, shape `[N, 28, 28]`. Short budgets look at some of
        them, a tenth as many as there are steps and at least 64: to look at 10,000 would take
        longer than the training. From 100,000 steps on it is all of them.
      config: Of the run.
      num_evaluations: How many times to look in the course of the whole budget.
      patience: How many looks in a row may bring nothing new.
      iwae_samples: For each image and look.
    """

    def __init__(
        self,
        run: RunDirectory,
        validation: np.ndarray,
        config: Config,
        *,
        num_evaluations: int = 50,
        patience: int = 10,
        iwae_samples: int = 20,
    ):
        super().__init__()
        few = max(64, config.steps // 10) if config.steps < 100_000 else None
        self.run, self.validation = run, data.spread(validation, few)
        self.every = max(1, config.steps // num_evaluations)
        self.patience, self.iwae_samples = patience, iwae_samples
        self.file = run.path / "validation.json"
        self.last = 0

    def history(self) -> dict[int, float]:
        """Validation NLL by step, up to now."""
        if not self.file.exists():
            return {}
        return {int(k): v for k, v in self.run.read_json(self.file).items()}

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
        history[step] = evaluate.validation_nll(self.model, self.validation, self.iwae_samples)
        if history[step] == min(history.values()):
            self.run.manager(self.model, "best").save(checkpoint_number=step)
        write_json(self.file, history)
        if self.stopped:
            self.model.stop_training = True

    def restore_best(self, model) -> None:
        """Gives the model the weights that it had when the validation NLL was best."""
        restore(self.run.manager(model, "best"))
