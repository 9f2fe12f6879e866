"""Checkpoints of all that a training carries from step to step."""

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
    """The checkpoints of a run: its last ones, or those of the best validation NLL."""
    # By number: TF does not follow Keras 3 into lists of layers. A test pins the order.
    state = [tf_variable(v) for v in (*model.variables, *model.optimizer.variables)]
    checkpoint = tf.train.Checkpoint(state=state)
    return tf.train.CheckpointManager(checkpoint, str(run.path / name), max_to_keep=2)


def trained(
    run: RunDirectory, model: models.LatentVariableModel, config: Config
) -> tf.train.CheckpointManager:
    """The checkpoints that a training ends with."""
    return manager(run, model, BEST if config.stops_early else LAST)


def restore(checkpoints: tf.train.CheckpointManager) -> bool:
    """Brings back the last checkpoint, if there is one."""
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
    """As `files.explained`, with TensorFlow's errors."""
    return files.explained(path, (OSError, tf.errors.OpError))
