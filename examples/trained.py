"""A trained model, as its run directory keeps it."""

from __future__ import annotations

import dataclasses
import os

import tfp_lars
from examples import data, models
from examples.command_line import UserError
from examples.experiment import Config, build
from examples.run_directory import RunDirectory, restore


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
        """The resampled distribution in it.

        Raises:
          UserError: There is none.
        """
        found = resampled_part(self.model)
        if found is None:
            raise UserError(
                f"--run {self.run.path} has the prior {self.config.prior.name!r}, and nothing in "
                "it is resampled: name a run of --prior lars or lars_real_nvp."
            )
        return found


def resampled_part(model: models.LatentVariableModel) -> tfp_lars.Resampled | None:
    """What is resampled in a model: its images, or its prior, or nothing."""
    for part in (getattr(model, "resampled_images", None), model.prior):
        if isinstance(part, tfp_lars.Resampled):
            return part
    return None


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
    config = run.config()
    model = build(config)
    name = "best" if config.dataset == "static_mnist" else "checkpoints"
    if not restore(run.manager(model, name)):
        raise UserError(f"{run.path} holds no checkpoint yet: train it first.")
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
    training = "post-hoc" if getattr(config, "post_hoc", None) else "jointly trained"
    return f"LARS{proposal}, {training},\na: MLP[{units}]"
