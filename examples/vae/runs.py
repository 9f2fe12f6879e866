"""A trained model, as its run directory keeps it."""

from __future__ import annotations

import dataclasses
import os

import tfp_lars
from examples.common.command_line import UserError
from examples.vae import datasets as data
from examples.vae import models
from examples.vae.build import Config
from examples.vae.run_directory import RunDirectory


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model with the weights that its training ended with."""

    model: models.LatentVariableModel
    config: Config
    run: RunDirectory

    def images(self, data_dir: str | None = None) -> data.Images:
        """The data set that it was trained on.

        Raises:
          UserError: What is found there now are other images.
        """
        images = data.load(self.config.dataset, data_dir)
        if images.fingerprint() != self.run.read_json(self.run.config_file)["images"]:
            raise UserError(
                f"{self.run.path} was trained on other images of {self.config.dataset} than those "
                f"of {images.source}: name the --data-dir of its training."
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
                f"--run {self.run.path} has the prior {self.config.prior.name!r}, which has no "
                "a(z) over all of its dimensions: name a run of --prior lars or lars_real_nvp."
            )
        return prior


def load(path: os.PathLike | str) -> Trained:
    """Builds the model of a run and restores it: for `static_mnist` as it was at its best.

    Args:
      path: Directory of a run of `examples.train`.

    Returns:
      trained: The model, and what it came from.

    Raises:
      UserError: There is no run, or it has no checkpoint yet.
    """
    run = RunDirectory(path)
    model, config = run.trained()
    return Trained(model, config, run)


def describe(config: Config) -> str:
    """What tells a run from others in a figure, in a few words on two lines."""
    prior = config.prior
    if config.model == "output_vae":
        return "LARS on images,\na like the encoder"
    if not prior.name.startswith("lars"):
        return f"{prior.name} prior"
    proposal = " on RealNVP" if prior.name == "lars_real_nvp" else ""
    units = "-".join(map(str, prior.accept_units))
    training = "post-hoc" if config.post_hoc else "jointly trained"
    return f"LARS{proposal}, {training},\na: MLP[{units}]"
