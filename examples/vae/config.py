"""Configuration of a run. Imports no TensorFlow.

A `Config` describes a run completely. The command line builds one, the tables list them, and
`config.json` in the directory of the run stores it. A training process starts from that file.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping

from examples.common import revision, schema
from examples.common.command_line import MOST_T, UserError
from examples.vae.datasets import DATASETS
from examples.vae.priors import PRIORS


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A model architecture.

    Attributes:
      title: Display name.
      class_name: Class in `examples.vae.models`.
      accept_units: Default hidden layers of a(x) if images are resampled; `None` if latents are.
    """

    title: str
    class_name: str
    accept_units: tuple[int, ...] | None = None

    @property
    def resamples_images(self) -> bool:
        return self.accept_units is not None


MODELS: Mapping[str, Architecture] = {
    "vae": Architecture("VAE (L=1)", "VAE"),
    "hvae": Architecture("HVAE (L=2)", "HVAE"),
    "conv_hvae": Architecture("ConvHVAE (L=2)", "ConvHVAE"),
    # a(x) has the same hidden layers as the encoder.
    "output_vae": Architecture("VAE with resampled images", "OutputVAE", (300, 300)),
}


# "auto" is "paper" from 10^6 steps on, and "short" below. See `examples.vae.schedule`.
SCHEDULES = ("auto", "short", "paper")


@dataclasses.dataclass(frozen=True)
class PriorConfig:
    """A prior and its settings.

    Attributes:
      name: One of `PRIORS`.
      accept_units: Hidden layers of the acceptance network, or of each network if every dimension
        has its own. `None` for the default, which `Config` fills in.
      T: Maximum number of attempts; `None` for untruncated resampling.
      num_samples: Number of proposals for each estimate of Z during training.
      decay: Decay of the moving average of Z.
      num_components: Number of Gaussians of a mixture, or of pseudo-inputs of the VampPrior.
    """

    name: str = "lars"
    accept_units: tuple[int, ...] | None = None
    T: int | None = 100
    num_samples: int = 1024
    decay: float = 0.9
    num_components: int = 500

    def __post_init__(self):
        if not 0.0 <= self.decay < 1.0:
            raise UserError(f"--decay must be at least 0 and below 1, got {self.decay}.")
        if self.T is not None and self.T > MOST_T:
            raise UserError(f"--T must be at most {MOST_T}, or inf, got {self.T}.")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Settings of an evaluation.

    Attributes:
      iwae_samples: Number of importance samples for each image.
      z_samples: Number of draws from the proposal for the estimate of Z.
      test_images: Number of test images, evenly spaced; `None` for all.
    """

    iwae_samples: int = 1000
    z_samples: int = 10**7
    test_images: int | None = None

    def __post_init__(self):
        if self.test_images == 1:
            raise UserError("--test-images must be at least 2, for a standard error; got 1.")

    def covers(self, other: Evaluation) -> bool:
        """Returns whether every setting is at least as large as in `other`."""
        ours, theirs = (
            (float("inf") if e.test_images is None else e.test_images, e.iwae_samples, e.z_samples)
            for e in (self, other)
        )
        return all(a >= b for a, b in zip(ours, theirs, strict=True))

    def __str__(self) -> str:
        images = "all" if self.test_images is None else f"{self.test_images:,}"
        return (
            f"{images} test images, {self.iwae_samples:,} importance samples, "
            f"{self.z_samples:,} draws for Z"
        )


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration of a run. Runs of the same `identity` have the same final weights on a CPU.

    Attributes:
      dataset: One of `DATASETS`.
      model: One of `MODELS`.
      prior: Prior over the topmost latent.
      steps: Number of optimizer steps.
      num_latents: Number of dimensions of each latent.
      batch_size: Number of images in each step.
      seed: Seed for weights, batches and noise.
      schedule: Training recipe, one of `SCHEDULES`.
      post_hoc: Whether only the prior is trained, with the fixed networks of another run.
      base: Directory of the run to copy weights from: those of the networks if `post_hoc`,
        otherwise all. `None` for new weights.
      base_weights: Digest of the weights copied from `base`.
      checkpoint_every: Number of steps between checkpoints.
      evaluation: Settings of the evaluation after the training.
    """

    dataset: str
    model: str = "vae"
    prior: PriorConfig = PriorConfig()
    steps: int = 100_000
    num_latents: int = 50
    batch_size: int = 128
    seed: int = 0
    schedule: str = "auto"
    post_hoc: bool = False
    base: str | None = None
    base_weights: str | None = None
    checkpoint_every: int = 1000
    evaluation: Evaluation = Evaluation()

    def __post_init__(self):
        for option, value, known in (
            ("dataset", self.dataset, DATASETS),
            ("model", self.model, MODELS),
            ("prior", self.prior.name, PRIORS),
            ("schedule", self.schedule, SCHEDULES),
        ):
            if value not in known:
                raise UserError(f"unknown --{option} {value!r}: choose from {', '.join(known)}.")
        if not 0 <= self.seed < 2**32:
            raise UserError(f"--seed must be at least 0 and below 2^32, got {self.seed}.")
        if self.resamples_images and self.prior.name != "lars":
            raise UserError(
                f"--model {self.model} resamples images by the T, S and decay of --prior lars, "
                f"over a standard normal prior; got --prior {self.prior.name}."
            )
        if self.post_hoc and not self.is_resampled:
            raise UserError(
                f"--post-hoc fits a resampled prior, not --prior {self.prior.name}: try lars."
            )
        if self.is_resampled and self.prior.accept_units is None:
            prior = dataclasses.replace(self.prior, accept_units=self._usual_accept_units)
            object.__setattr__(self, "prior", prior)

    @property
    def resamples_images(self) -> bool:
        """Whether images are resampled instead of latents."""
        return MODELS[self.model].resamples_images

    @property
    def is_resampled(self) -> bool:
        """Whether the prior is resampled, with an acceptance function a and a normalizer Z."""
        return PRIORS[self.prior.name].is_resampled

    @property
    def follows_paper(self) -> bool:
        """Whether training follows the paper's schedule and gradient."""
        return self.schedule == "paper" or (self.schedule == "auto" and self.steps >= 10**6)

    @property
    def stops_early(self) -> bool:
        """Whether training ends when the validation NLL no longer improves, as in the paper."""
        return not DATASETS[self.dataset].dynamic

    @property
    def continues(self) -> bool:
        """Whether all initial weights come from another run."""
        return self.base is not None and not self.post_hoc

    @property
    def base_config(self) -> Config | None:
        """Configuration of the base run if `post_hoc`, otherwise `None`."""
        if not self.post_hoc:
            return None
        prior = dataclasses.replace(self.prior, name="standard", accept_units=None, T=100)
        return dataclasses.replace(self, prior=prior, post_hoc=False, base=None, base_weights=None)

    @property
    def _usual_accept_units(self):
        return MODELS[self.model].accept_units or PRIORS[self.prior.name].accept_units

    @property
    def name(self) -> str:
        """Name for the directory of the run, with all settings that differ from their defaults."""
        prior = self.prior
        parts = [self.dataset, self.model, prior.name]
        if self.is_resampled and prior.accept_units != self._usual_accept_units:
            parts.append("a" + "-".join(map(str, prior.accept_units)))
        parts += [f"T{prior.T or 'inf'}"] if prior.T != PriorConfig.T else []
        parts += [f"d{self.num_latents}"] if self.num_latents != Config.num_latents else []
        parts += [f"{self.schedule}-schedule"] if self.schedule != Config.schedule else []
        parts += ["post-hoc"] if self.post_hoc else []
        return "-".join(parts)

    @property
    def title(self) -> str:
        """Title for a figure, on two lines."""
        if self.resamples_images:
            return "LARS on images,\na like the encoder"
        title = PRIORS[self.prior.name].title
        if not self.is_resampled:
            return f"{title} prior"
        units = "-".join(map(str, self.prior.accept_units))
        training = "post-hoc" if self.post_hoc else "jointly trained"
        return f"{title}, {training},\na: MLP[{units}]"

    def identity(self) -> dict:
        """Returns the settings that determine the weights, as JSON.

        Excludes the path of the base, the checkpoint interval and the evaluation.
        """
        content = self.to_json()
        for name in ("base", "checkpoint_every", "evaluation"):
            del content[name]
        return {**content, "version": revision.version()}

    def to_json(self) -> dict:
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_json(cls, content: Mapping) -> Config:
        """Returns the configuration that `to_json` wrote. Ignores other entries."""
        try:
            found = _fields(cls, {**content, "prior": None, "evaluation": None})
            prior = _fields(PriorConfig, content["prior"], others=False)
            if prior["accept_units"] is not None:
                prior["accept_units"] = tuple(prior["accept_units"])
            found["prior"] = PriorConfig(**prior)
            found["evaluation"] = Evaluation(
                **_fields(Evaluation, content["evaluation"], others=False)
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"no configuration of a run: {error}.") from None
        return cls(**found)


def _fields(kind: type, content: Mapping, *, others: bool = True) -> dict:
    """Returns the fields of a dataclass from JSON, with the right types and positive counts.

    Args:
      kind: Dataclass.
      content: Value of each field by name.
      others: Whether there may be other entries.
    """
    hints = typing.get_type_hints(kind)
    unknown = [] if others else sorted(set(content) - set(hints))
    if unknown:
        raise ValueError(f"unknown settings {', '.join(map(repr, unknown))}")
    nested = {Evaluation, PriorConfig}
    schema.check(content, {n: None if hint in nested else hint for n, hint in hints.items()})
    found = {name: content[name] for name in hints}
    for name, value in found.items():
        numbers = value if isinstance(value, list) else [value]
        if any(type(n) is int and n < 1 for n in numbers) and name not in ("decay", "seed"):
            raise ValueError(f"{name} is {value}, expected at least 1")
    return found
