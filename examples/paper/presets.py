"""Budgets for the runs: training steps, batch size and evaluation effort."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from examples.paper.run import Run
from examples.vae.config import Config, Evaluation


@dataclasses.dataclass(frozen=True)
class Smaller:
    """A smaller budget for an expensive architecture. All of its priors share it.

    Attributes:
      steps: Training steps.
      iwae_samples: Importance samples for each test image.
    """

    steps: int
    iwae_samples: int


@dataclasses.dataclass(frozen=True)
class Preset:
    """A budget.

    Attributes:
      name: Name on the command line.
      steps: Training steps of each run without a number of its own.
      evaluation: Test images and numbers of draws for the evaluation of each run.
      checkpoint_every: Steps between checkpoints.
      batch_size: Images in each step.
      S: Draws from the proposal for each estimate of Z during training.
      components: Pseudo-inputs of the VampPrior.
      figures: Extra command-line options for each figure, by its name.
      untruncated_z_samples: Draws for Z without truncation, where Z is about 1e-6. `None` for as
        many as with truncation.
      smaller: Budgets of architectures that take too long with this one, by the name of the model.
    """

    name: str
    steps: int
    evaluation: Evaluation
    checkpoint_every: int = 1000
    batch_size: int = 128
    S: int = 1024
    components: int = 500
    figures: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    untruncated_z_samples: int | None = None
    smaller: Mapping[str, Smaller] = dataclasses.field(default_factory=dict)

    def of(self, run: Run) -> Config:
        """Returns the configuration of a run with this budget."""
        config, steps, evaluation = run.config, self.steps, self.evaluation
        smaller = self.smaller.get(config.model)
        if smaller is not None:
            steps = smaller.steps
            evaluation = dataclasses.replace(evaluation, iwae_samples=smaller.iwae_samples)
        if config.is_resampled and config.prior.T is None:
            draws = self.untruncated_z_samples or evaluation.z_samples
            evaluation = dataclasses.replace(evaluation, z_samples=draws)
        return dataclasses.replace(
            config,
            prior=dataclasses.replace(
                config.prior, num_samples=self.S, num_components=self.components
            ),
            steps=run.steps or steps,
            batch_size=self.batch_size,
            checkpoint_every=self.checkpoint_every,
            evaluation=evaluation,
        )


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        # Checks that everything runs. The numbers mean nothing.
        Preset(
            "smoke",
            steps=100,
            evaluation=Evaluation(iwae_samples=10, z_samples=10_000, test_images=100),
            checkpoint_every=100,
            batch_size=32,
            S=256,
            components=50,
            figures={
                "figure_toy": ("--quick", "--steps", "100"),
                "figure_ranked": ("--draws", "1000"),
                "figure_z_trace": ("--samples", "10000"),
            },
        ),
        # Minutes for each run on one core.
        Preset(
            "quick",
            steps=10_000,
            evaluation=Evaluation(iwae_samples=200, z_samples=10**6, test_images=1_000),
            figures={"figure_toy": ("--quick",), "figure_z_trace": ("--samples", "1000000")},
            untruncated_z_samples=10**7,
        ),
        # All tables in a day or two on two cores.
        Preset(
            "laptop",
            steps=30_000,
            evaluation=Evaluation(iwae_samples=1_000, z_samples=10**7),
            untruncated_z_samples=10**8,
            smaller={"conv_hvae": Smaller(steps=10_000, iwae_samples=200)},
        ),
        # The paper's budget. Its 10^10 draws for Z take minutes on a GPU and hours on a CPU.
        Preset(
            "paper",
            steps=10**7,
            evaluation=Evaluation(iwae_samples=1_000, z_samples=10**10),
            checkpoint_every=10_000,
            figures={"figure_z_trace": ("--samples", "1000000000")},
        ),
    )
}
