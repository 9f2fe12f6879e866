"""Trained models, as their run directories keep them: `load` brings one back."""

from __future__ import annotations

import dataclasses
import os

import tfp_lars
from examples.common.command_line import UserError
from examples.vae import checkpoints, datasets, models
from examples.vae.build import build
from examples.vae.config import Config
from examples.vae.run_directory import RunDirectory


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model with the weights that its training ended with.

    Attributes:
      model: A Keras model; `model.prior` is its prior, a TFP distribution.
      config: What it was trained with.
      directory: Where it was kept.
    """

    model: models.LatentVariableModel
    config: Config
    directory: RunDirectory

    def images(self, data_dir: str | None = None) -> datasets.Images:
        """The data set that it was trained on.

        Raises:
          UserError: What is found there now are other images.
        """
        images = datasets.load(self.config.dataset, data_dir)
        if images.digest != self.directory.images:
            raise UserError(
                f"{self.directory.path} was trained on other images of {self.config.dataset} than "
                f"those of {images.source}: name the --data-dir of its training."
            )
        return images

    def resampled(self) -> tfp_lars.Resampled:
        """Its prior: over the latents, or, where these are resampled, over images.

        Raises:
          UserError: It is not resampled.
        """
        prior = self.model.prior
        if not isinstance(prior, tfp_lars.Resampled):
            raise UserError(
                f"--run {self.directory.path} has the prior {self.config.prior.name!r}, which has "
                "no a(z) over all of its dimensions: name a run of --prior lars or lars_real_nvp."
            )
        return prior


def load(path: os.PathLike | str) -> Trained:
    """Builds the model of a run and restores it: for `static_mnist` as it was at its best.

    Args:
      path: Directory of a run of `examples.vae.train`.

    Returns:
      trained: The model, and what it came from.

    Raises:
      UserError: There is no run, or it has no checkpoint yet.
    """
    run = RunDirectory(path)
    config = run.config()
    model = build(config)
    if not checkpoints.restore(checkpoints.trained(run, model, config)):
        raise UserError(f"{run.path} holds no checkpoint yet: train it first.")
    return Trained(model, config, run)
