"""Checkpoints of the complete training state."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import sys

import numpy as np
import tensorflow as tf

from examples.common import files
from examples.common.command_line import UserError
from examples.common.variables import tf_variable
from examples.vae import models
from examples.vae.config import Config
from examples.vae.run_directory import BEST, LAST, RunDirectory, saved_steps


def manager(
    run: RunDirectory, model: models.LatentVariableModel, name: str = LAST
) -> tf.train.CheckpointManager:
    """Returns the manager of the `LAST` or the `BEST` checkpoints, the best by validation NLL."""
    # A flat list, because TF does not track Keras 3 layers inside lists. A test pins the order.
    state = [tf_variable(v) for v in (*model.variables, *model.optimizer.variables)]
    checkpoint = tf.train.Checkpoint(state=state)
    run.check_links()
    _check_list(run.path / name)
    return tf.train.CheckpointManager(checkpoint, str(run.path / name), max_to_keep=2)


def _check_list(directory: pathlib.Path) -> None:
    """Checks TensorFlow's list of checkpoints. Deletes it if it is damaged; nothing needs it.

    Raises:
      UserError: TensorFlow would read, or delete as outdated, checkpoints in other directories.
    """
    file = directory / "checkpoint"
    if not file.exists():
        return
    try:
        found = tf.train.get_checkpoint_state(str(directory))  # its paths include the directory
    except ValueError:  # also for bytes that are no text
        found = None
    if found is None:
        with files.explained(directory):
            file.unlink()
        return
    for path in (found.model_checkpoint_path, *found.all_model_checkpoint_paths):
        if pathlib.Path(path).resolve().parent != directory.resolve():
            raise UserError(
                f"{file} names {path}, which is outside of the directory: "
                "delete the directory, or name another."
            )


def trained(
    run: RunDirectory, model: models.LatentVariableModel, config: Config
) -> tf.train.CheckpointManager:
    """Returns the manager of the checkpoints that hold the final weights."""
    return manager(run, model, BEST if config.stops_early else LAST)


def restore(checkpoints: tf.train.CheckpointManager) -> bool:
    """Restores the last checkpoint, by its number. Returns `False` if there is none.

    Raises:
      UserError: It is damaged. An earlier one would be another model.
    """
    steps = _newest_first(checkpoints)
    problem = _try(checkpoints, steps[0]) if steps else None
    if problem is not None:
        remedy = "delete the directory, or name another."
        if len(steps) > 1:
            remedy = "run its training command again, which uses an earlier checkpoint."
        raise UserError(f"{problem}: {remedy}")
    return bool(steps)


def resume(checkpoints: tf.train.CheckpointManager) -> bool:
    """Restores the last checkpoint that is not damaged. Warns about each damaged one.

    Also deletes what a killed process left behind. The caller must hold the lock of the run.

    Returns:
      found: `False` if there are no checkpoints.

    Raises:
      UserError: All checkpoints are damaged.
    """
    for path in pathlib.Path(checkpoints.directory).glob("ckpt-*_temp"):
        shutil.rmtree(path, ignore_errors=True)
    for path in pathlib.Path(checkpoints.directory).glob("checkpoint.tmp*"):
        path.unlink(missing_ok=True)
    return _newest_undamaged(checkpoints, "resuming from") is not None


def restore_undamaged(checkpoints: tf.train.CheckpointManager) -> bool:
    """Restores the last checkpoint that is not damaged. Warns of each damaged one and deletes it.

    Then `restore` finds the same weights later. The caller must hold the lock of the run.

    Returns:
      found: `False` if there are no checkpoints.

    Raises:
      UserError: All checkpoints are damaged.
    """
    directory = pathlib.Path(checkpoints.directory)
    used = _newest_undamaged(checkpoints, "using the weights of")
    for step in _newest_first(checkpoints):
        if used is not None and step > used:
            # The index first: files without one are no checkpoint.
            for path in (directory / f"ckpt-{step}.index", *directory.glob(f"ckpt-{step}.data-*")):
                path.unlink(missing_ok=True)
    return used is not None


def _newest_undamaged(checkpoints: tf.train.CheckpointManager, consequence: str) -> int | None:
    """Restores the last checkpoint that is not damaged, and returns its step."""
    problems = []
    for step in _newest_first(checkpoints):
        problem = _try(checkpoints, step)
        if problem is None:
            for line in problems:
                print(f"warning: {line}: {consequence} step {step}.", file=sys.stderr, flush=True)
            return step
        problems.append(problem)
    if problems:
        raise UserError(f"{'; '.join(problems)}: delete the directory, or name another.")
    return None


def _newest_first(checkpoints: tf.train.CheckpointManager) -> list[int]:
    # From the names of the files, because TensorFlow's list of them may be damaged or outdated.
    return sorted(saved_steps(pathlib.Path(checkpoints.directory)), reverse=True)


def _try(checkpoints: tf.train.CheckpointManager, step: int) -> str | None:
    """Restores the checkpoint of a step. Returns the problem, `None` if there is none."""
    path = pathlib.Path(checkpoints.directory) / f"ckpt-{step}"
    try:
        checkpoints.checkpoint.restore(str(path)).assert_consumed()
    except Exception as error:  # damaged files raise many types of errors
        reason = str(error).strip() or type(error).__name__
        return f"the checkpoint {path} cannot be restored ({reason.splitlines()[0]})"
    return None


def check_finite(model: models.LatentVariableModel) -> None:
    """Checks the weights before they are saved. The loss shows a bad update only one step later.

    Raises:
      UserError: A weight is not finite.
    """
    for variable in model.trainable_variables:
        if not np.all(np.isfinite(variable)):
            raise UserError(
                f"a weight of {variable.path} is not finite at step {model.num_steps}, which is "
                "not saved. "
                "Try another --seed, or a larger --batch-size."
            )


def explained(path: pathlib.Path) -> contextlib.AbstractContextManager:
    """Like `files.explained`, and also handles TensorFlow's errors."""
    return files.explained(path, (OSError, tf.errors.OpError))
