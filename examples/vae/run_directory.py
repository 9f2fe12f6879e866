"""Where a run keeps its configuration, its state, and what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator

import keras
import tensorflow as tf

import tfp_lars
from examples.common.command_line import UserError
from examples.vae import datasets as data
from examples.vae import models, priors
from examples.vae.build import Config, build


class RunDirectory:
    """Where a run keeps its configuration, its state, and what came of it."""

    def __init__(self, path: os.PathLike | str):
        self.path = pathlib.Path(path)

    @property
    def config_file(self) -> pathlib.Path:
        return self.path / "config.json"

    def claim(self, config: Config, images: data.Images) -> None:
        """Makes the directory this configuration's, or refuses if it is another's.

        The images belong to it: a fixed binarization of one's own and that of a download are
        called the same, and a resumed run must not change from one to the other.
        """
        wanted = {**config.to_json(), "images": images.fingerprint()}
        wanted = json.loads(json.dumps(wanted))
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            if not self.config_file.exists():
                write_json(self.config_file, wanted)
        found = self.read_json(self.config_file)
        different = sorted(k for k in wanted.keys() | found.keys() if wanted.get(k) != found.get(k))
        if different:
            told = ", ".join(
                f"{k}={found.get(k)!r} there, {wanted.get(k)!r} here" for k in different
            )
            raise UserError(
                f"--out {self.path} holds a run of another configuration ({told}): name another "
                "directory, or delete that one."
            )

    def config(self) -> Config:
        """The configuration of the run that is here."""
        if not self.config_file.exists():
            raise UserError(f"{self.path} holds no run: there is no config.json in it.")
        found = self.read_json(self.config_file)
        version = found.pop("version", None)
        if version != tfp_lars.__version__:
            raise UserError(
                f"{self.path} was made by version {version} of tfp_lars, this is "
                f"{tfp_lars.__version__}: train it again, or install that version."
            )
        found.pop("images")
        prior = found.pop("prior")
        prior["accept_units"] = tuple(prior["accept_units"])
        return Config(prior=priors.PriorConfig(**prior), **found)

    def trained(self) -> tuple[models.LatentVariableModel, Config]:
        """The model that is here, with its last weights, or its best where there was a choice."""
        config = self.config()
        model = build(config)
        name = "best" if config.dataset == "static_mnist" else "checkpoints"
        if not restore(self.manager(model, name)):
            raise UserError(f"{self.path} holds no checkpoint yet: train it first.")
        return model, config

    @staticmethod
    def read_json(path: pathlib.Path) -> dict:
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}): delete it.") from error

    def manager(self, model: models.LatentVariableModel, name: str) -> tf.train.CheckpointManager:
        """Checkpoints of all that a training carries from step to step."""
        # By number: TF does not follow Keras 3 into lists of layers.
        state = [_tf_variable(v) for v in (*model.variables, *model.optimizer.variables)]
        checkpoint = tf.train.Checkpoint(state=state)
        return tf.train.CheckpointManager(checkpoint, str(self.path / name), max_to_keep=2)


def _tf_variable(variable) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable


def write_json(path: pathlib.Path, content: dict) -> None:
    """Writes a file whole, or not at all."""
    draft = path.with_name(path.name + ".draft")
    draft.write_text(json.dumps(content, indent=2) + "\n")
    draft.replace(path)


@contextlib.contextmanager
def explained(path: pathlib.Path) -> Iterator[None]:
    """A full or read-only disk is the user's to mend."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "message", str(error))
        raise UserError(
            f"cannot write to {path} ({reason.splitlines()[0]}): free some space there, or name "
            "another --out. The last checkpoint, if any, is intact."
        ) from error


def restore(manager: tf.train.CheckpointManager) -> bool:
    """Brings back the last checkpoint, if there is one."""
    if manager.latest_checkpoint is None:
        return False
    try:
        manager.checkpoint.restore(manager.latest_checkpoint).assert_consumed()
    except (tf.errors.OpError, AssertionError, ValueError) as error:
        raise UserError(
            f"the checkpoint {manager.latest_checkpoint} cannot be restored "
            f"({str(error).splitlines()[0]}): delete the directory, or name another."
        ) from error
    return True
