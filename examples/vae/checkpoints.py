"""Checkpoints of the complete training state."""

from __future__ import annotations

import contextlib
import pathlib

import tensorflow as tf

from examples.common import files
from examples.common.command_line import UserError
from examples.common.variables import tf_variable
from examples.vae import models
from examples.vae.config import Config
from examples.vae.run_directory import RunDirectory

LAST, BEST = "checkpoints", "best"


def manager(
    run: RunDirectory, model: models.LatentVariableModel, name: str = LAST
) -> tf.train.CheckpointManager:
    """Returns the manager of the `LAST` or the `BEST` checkpoints, the best by validation NLL."""
    # A flat list, because TF does not track Keras 3 layers inside lists. A test pins the order.
    state = [tf_variable(v) for v in (*model.variables, *model.optimizer.variables)]
    checkpoint = tf.train.Checkpoint(state=state)
    _check_paths(run.path / name)
    return tf.train.CheckpointManager(checkpoint, str(run.path / name), max_to_keep=2)


def _check_paths(directory: pathlib.Path) -> None:
    """Raises if TensorFlow would read, or delete as outdated, checkpoints in other directories."""
    found = tf.train.get_checkpoint_state(str(directory))  # its paths include the directory
    if found is None:
        return
    for path in (found.model_checkpoint_path, *found.all_model_checkpoint_paths):
        if pathlib.Path(path).resolve().parent != directory.resolve():
            raise UserError(
                f"{directory / 'checkpoint'} names {path}, which is outside of the directory: "
                "delete the directory, or name another."
            )


def trained(
    run: RunDirectory, model: models.LatentVariableModel, config: Config
) -> tf.train.CheckpointManager:
    """Returns the manager of the checkpoints that hold the final weights."""
    return manager(run, model, BEST if config.stops_early else LAST)


def restore(checkpoints: tf.train.CheckpointManager) -> bool:
    """Restores the last checkpoint. Returns `False` if there is none."""
    if checkpoints.latest_checkpoint is None:
        return False
    try:
        checkpoints.checkpoint.restore(checkpoints.latest_checkpoint).assert_consumed()
    except (tf.errors.OpError, AssertionError, ValueError) as error:
        raise UserError(
            f"the checkpoint {checkpoints.latest_checkpoint} cannot be restored "
            f"({str(error).splitlines()[0]}): delete the directory, or name another."
        ) from error
    return True


def explained(path: pathlib.Path) -> contextlib.AbstractContextManager:
    """Like `files.explained`, and also handles TensorFlow's errors."""
    return files.explained(path, (OSError, tf.errors.OpError))
