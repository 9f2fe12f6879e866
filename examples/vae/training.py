"""Training of a VAE: Keras `fit` with checkpoints, TensorBoard and a progress bar."""

from __future__ import annotations

import math
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from examples.common.command_line import UserError
from examples.common.progress import ProgressBar
from examples.vae import batches, checkpoints, datasets, models, priors
from examples.vae.build import MOST_STEPS_PER_CALL, build, on_gpu, take_weights
from examples.vae.config import Config
from examples.vae.early_stopping import BestValidation
from examples.vae.run_directory import RunDirectory


class Keeper(keras.callbacks.Callback):
    """Writes checkpoints and TensorBoard scalars. Raises if the loss is not finite."""

    def __init__(self, run: RunDirectory, manager: tf.train.CheckpointManager):
        super().__init__()
        self.run, self.manager = run, manager
        self.began = time.monotonic() - run.training_seconds
        with checkpoints.explained(run.path):
            self.writer = tf.summary.create_file_writer(str(run.path / "tensorboard"))

    def on_train_batch_end(self, batch, logs=None):
        check_loss(logs["loss"], self.model.num_steps, self.manager)

    def on_epoch_end(self, epoch, logs=None):
        checkpoints.check_finite(self.model)
        with checkpoints.explained(self.run.path):
            self.manager.save(checkpoint_number=self.model.num_steps)
            self.run.training_seconds = time.monotonic() - self.began
            step = self.model.num_steps
            with self.writer.as_default(step=step):
                for name, value in {**logs, **prior_scalars(self.model)}.items():
                    tf.summary.scalar(name, value)
                tf.summary.scalar("learning_rate", self.model.optimizer.learning_rate)
            self.writer.flush()


def check_loss(loss: float, step: int, manager: tf.train.CheckpointManager) -> None:
    """Raises if the loss is not finite."""
    if not np.isfinite(loss):
        last = manager.latest_checkpoint
        raise UserError(
            f"the loss became {loss} at or shortly before step {step}; "
            f"{'the last good checkpoint is ' + last if last else 'no checkpoint was made'}. "
            "Try another --seed, or a larger --batch-size."
        )


def prior_scalars(model: models.LatentVariableModel) -> dict[str, float]:
    """Returns Z and the expected attempts of a resampled prior, as means over several Z."""
    part = priors.resampled_part(model.prior)
    if part is None:
        return {}
    found = {"z": part.acceptance_rate, "attempts": part.expected_attempts}
    return {name: float(np.mean(value)) for name, value in found.items()}


class Progress(keras.callbacks.Callback):
    """Progress bar with the bound and Z. In a log file, prints one line for each checkpoint."""

    def __init__(self, start: int, steps: int, every: int):
        super().__init__()
        self.start = start
        self.every = 1 if sys.stdout.isatty() else every
        names = ("elbo", "kl", "recons", "z", "attempts")
        self.bar = ProgressBar(steps, "step", names, every=every)
        self.bar.update(start)

    def on_train_batch_end(self, batch, logs=None):
        step = self.model.num_steps
        if step % self.every and step < self.bar.target:
            return
        values = {k: logs[k] for k in ("elbo", "kl", "recons")} | prior_scalars(self.model)
        self.bar.update(step, list(values.items()), finalize=step >= self.bar.target)


def steps_per_call(
    start: int, stop: int, checkpoint_every: int, evaluate_every: int | None = None
) -> tuple[int, int]:
    """Returns the number of steps per call from Python, and between two checkpoints.

    Args:
      start: First step.
      stop: Step after the last one.
      checkpoint_every: Number of steps between checkpoints that the user requested.
      evaluate_every: Number of steps between evaluations, at multiples of which a call must end;
        `None` if there are none.

    Returns:
      per_call: Divisor of the number of remaining steps, so that no call runs out of batches.
      every: Multiple of `per_call`, at most `checkpoint_every`.
    """
    every = min(checkpoint_every, stop)
    per_call = math.gcd(MOST_STEPS_PER_CALL, stop - start)
    if evaluate_every is not None:
        per_call = math.gcd(per_call, start, evaluate_every)
    if every < per_call:
        per_call = math.gcd(per_call, every)
    return per_call, every - every % per_call


def make_deterministic() -> None:
    """Makes resumed runs bitwise equal to uninterrupted ones.

    Not on a GPU, where it would keep Keras from compiling the training step.
    """
    if not on_gpu():
        tf.config.experimental.enable_op_determinism()


def restored(
    config: Config, run: RunDirectory, base: models.LatentVariableModel | None
) -> tuple[models.LatentVariableModel, tf.train.CheckpointManager]:
    """Returns the model of a configuration at the last checkpoint, if any, and the checkpoints.

    Args:
      config: Configuration of the run.
      run: Directory of the run.
      base: Model to copy weights from, if `config.base` is set.
    """
    model = build(config)
    if base is not None:
        take_weights(base, model, config)
    manager = checkpoints.manager(run, model)
    checkpoints.resume(manager)
    return model, manager


def train(
    config: Config,
    images: datasets.Images,
    run: RunDirectory,
    *,
    base: models.LatentVariableModel | None = None,
    progress: bool = True,
) -> models.LatentVariableModel:
    """Trains the model of a configuration. Resumes from the last checkpoint if there is one.

    Args:
      config: Configuration of the run.
      images: Data set.
      run: Directory of the run, already claimed for this configuration.
      base: Model to copy weights from, if `config.base` is set.
      progress: Whether to show a progress bar.

    Returns:
      model: Model after `config.steps` steps. With early stopping, it has the weights with the best
        validation NLL.
    """
    make_deterministic()
    model, manager = restored(config, run, base)
    start = model.num_steps
    callbacks = [Keeper(run, manager)]
    stopper = None
    if config.stops_early:
        stopper = BestValidation(run, images.validation, config)
        callbacks.append(stopper)  # after the check of the loss
    model.steps_per_execution, every = steps_per_call(
        start, config.steps, config.checkpoint_every, stopper and stopper.every
    )
    if progress:
        callbacks.append(Progress(start, config.steps, every))
    if start < config.steps and not (stopper and stopper.stopped):
        training = batches.training_batches(
            images, batch_size=config.batch_size, seed=config.seed, start=start, stop=config.steps
        )
        with checkpoints.explained(run.path):
            model.fit(
                training,
                steps_per_epoch=every,
                epochs=math.ceil((config.steps - start) / every),
                callbacks=callbacks,
                shuffle=False,
                verbose=0,
            )
    if stopper:
        stopper.restore_best(model)
    return model
