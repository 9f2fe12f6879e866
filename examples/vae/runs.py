"""Loads trained models from their run directories."""

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
    """A model with its final weights.

    Attributes:
      model: Keras model. `model.prior` is its prior, a TFP distribution.
      config: Configuration of the run.
      directory: Directory of the run.
    """

    model: models.LatentVariableModel
    config: Config
    directory: RunDirectory

    def images(self, data_dir: str | None = None) -> datasets.Images:
        """Returns the data set that the model was trained on.

        Raises:
          UserError: The images in the data directory differ from the training data.
        """
        images = datasets.load(self.config.dataset, data_dir)
        if images.digest != self.directory.images:
            raise UserError(
                f"{self.directory.path} was trained on other images of {self.config.dataset} than "
                f"those of {images.source}: name the --data-dir of its training."
            )
        return images

    def resampled(self) -> tfp_lars.Resampled:
        """Returns the resampled prior, over latents or over images.

        Raises:
          UserError: The prior is not resampled as a whole.
        """
        prior = self.model.prior
        if not isinstance(prior, tfp_lars.Resampled):
            raise UserError(
                f"--run {self.directory.path} has the prior {self.config.prior.name!r}, which has "
                "no a(z) over all of its dimensions: name a run of --prior lars or lars_real_nvp."
            )
        return prior


def load(path: os.PathLike | str) -> Trained:
    """Builds the model of a run and restores its final weights.

    For `static_mnist` these are the weights with the best validation NLL.

    Args:
      path: Directory of a run of `examples.vae.train`.

    Returns:
      trained: Model, configuration and directory of the run.

    Raises:
      UserError: There is no run, or it has no checkpoint.
    """
    run = RunDirectory(path)
    config = run.config()
    model = build(config)
    if not checkpoints.restore(checkpoints.trained(run, model, config)):
        raise UserError(f"{run.path} holds no checkpoint yet: train it first.")
    return Trained(model, config, run)
