"""What makes a run, as one value and one file; imports no TensorFlow.

A run is a `Config` everywhere: the command line makes one, the tables list them, `config.json` in
the directory of the run holds it, and a process that trains it starts from that file.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from examples.common import revision
from examples.common.command_line import UserError
from examples.vae.datasets import DATASETS
from examples.vae.priors import PRIORS


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A sort of model.

    Attributes:
      title: Name for a reader.
      class_name: Class in `examples.vae.models`.
      accept_units: If images are resampled and not latents, the usual hidden layers of a(x).
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
    # a(x) has the layers of the encoder.
    "output_vae": Architecture("VAE with resampled images", "OutputVAE", (300, 300)),
}


@dataclasses.dataclass(frozen=True)
class PriorConfig:
    """A prior and its settings.

    Attributes:
      name: One of `PRIORS`.
      accept_units: Hidden layers of the acceptance network (of each one, where every dimension has
        its own); `None` for the usual ones. A `Config` resolves it.
      T: Truncation, `None` for untruncated resampling.
      num_samples: Proposals for each estimate of Z while training.
      decay: Decay of the moving average of Z.
      num_components: Gaussians of a mixture, or pseudo-inputs of the VampPrior.
    """

    name: str = "lars"
    accept_units: tuple[int, ...] | None = None
    T: int | None = 100
    num_samples: int = 1024
    decay: float = 0.9
    num_components: int = 500


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How well to look at a trained model.

    Attributes:
      iwae_samples: Draws of the latents for each image.
      z_samples: Draws of the proposal for Z.
      test_images: How many test images, evenly spaced; `None` for all.
    """

    iwae_samples: int = 1000
    z_samples: int = 10**7
    test_images: int | None = None

    def covers(self, other: Evaluation) -> bool:
        """Whether this one is at least as full in every respect."""
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
    """What makes a run; two runs of the same `identity` end with the same weights on a CPU.

    Attributes:
      dataset: One of `DATASETS`.
      model: One of `MODELS`.
      prior: Prior of the topmost latent.
      steps: Steps of the optimizer.
      num_latents: Dimensions of each latent.
      batch_size: Images for each step.
      seed: Seed for weights, batches and noise.
      post_hoc: Whether the prior alone is trained, to the networks of another run.
      base: Directory of the run that the weights come from: all of them, or, if `post_hoc`, those
        of the networks. `None` for new weights.
      base_weights: Digest of the weights that come from there.
      checkpoint_every: Steps between checkpoints.
      evaluation: What follows the training.
    """

    dataset: str
    model: str = "vae"
    prior: PriorConfig = PriorConfig()
    steps: int = 100_000
    num_latents: int = 50
    batch_size: int = 128
    seed: int = 0
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
        ):
            if value not in known:
                raise UserError(f"unknown --{option} {value!r}: choose from {', '.join(known)}.")
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
        """Whether images are resampled, and not latents."""
        return MODELS[self.model].resamples_images

    @property
    def is_resampled(self) -> bool:
        """Whether there is an a and a Z."""
        return PRIORS[self.prior.name].is_resampled

    @property
    def stops_early(self) -> bool:
        """Whether training ends when the validation NLL no longer improves, as in the paper."""
        return not DATASETS[self.dataset].dynamic

    @property
    def continues(self) -> bool:
        """Whether all weights come from another run."""
        return self.base is not None and not self.post_hoc

    @property
    def base_config(self) -> Config | None:
        """If `post_hoc`, the run that has to be finished before."""
        if not self.post_hoc:
            return None
        prior = dataclasses.replace(self.prior, name="standard", accept_units=None, T=100)
        return dataclasses.replace(self, prior=prior, post_hoc=False, base=None, base_weights=None)

    @property
    def _usual_accept_units(self):
        return MODELS[self.model].accept_units or PRIORS[self.prior.name].accept_units

    @property
    def name(self) -> str:
        """A name for the directory of the run, with all that is not as usual."""
        prior = self.prior
        parts = [self.dataset, self.model, prior.name]
        if self.is_resampled and prior.accept_units != self._usual_accept_units:
            parts.append("a" + "-".join(map(str, prior.accept_units)))
        parts += [f"T{prior.T or 'inf'}"] if prior.T != PriorConfig.T else []
        parts += [f"d{self.num_latents}"] if self.num_latents != Config.num_latents else []
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
        """What decides the weights, as JSON has it: not where the base is, nor the evaluation."""
        content = self.to_json()
        for name in ("base", "checkpoint_every", "evaluation"):
            del content[name]
        return {**content, "version": revision.version()}

    def to_json(self) -> dict:
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_json(cls, content: Mapping) -> Config:
        """From `to_json`; what else a file holds is left out."""
        names = [field.name for field in dataclasses.fields(cls)]
        try:
            found = {name: content[name] for name in names}
            prior = dict(found["prior"])
            if prior["accept_units"] is not None:
                prior["accept_units"] = tuple(prior["accept_units"])
            found["prior"] = PriorConfig(**prior)
            found["evaluation"] = Evaluation(**found["evaluation"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"no configuration of a run: {type(error).__name__} {error}.") from None
        return cls(**found)
