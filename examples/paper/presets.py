"""Budgets for the runs: training steps, batch size and evaluation effort."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from examples.vae.config import Config, Evaluation


@dataclasses.dataclass(frozen=True)
class Preset:
    """A budget.

    Attributes:
      name: Name on the command line.
      steps: Training steps of each run.
      evaluation: Test images and numbers of draws for the evaluation of each run.
      checkpoint_every: Steps between checkpoints.
      batch_size: Images in each step.
      S: Draws from the proposal for each estimate of Z during training.
      components: Pseudo-inputs of the VampPrior.
      figures: Extra command-line options for each figure, by its name.
    """

    name: str
    steps: int
    evaluation: Evaluation
    checkpoint_every: int = 1000
    batch_size: int = 128
    S: int = 1024
    components: int = 500
    figures: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def of(self, config: Config) -> Config:
        """Returns a run from the list of experiments with this budget."""
        return dataclasses.replace(
            config,
            prior=dataclasses.replace(
                config.prior, num_samples=self.S, num_components=self.components
            ),
            steps=self.steps,
            batch_size=self.batch_size,
            checkpoint_every=self.checkpoint_every,
            evaluation=self.evaluation,
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
        # Feasible on a laptop.
        Preset(
            "quick",
            steps=5_000,
            evaluation=Evaluation(iwae_samples=200, z_samples=10**6, test_images=1_000),
            checkpoint_every=500,
            figures={"figure_toy": ("--quick",), "figure_z_trace": ("--samples", "1000000")},
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
