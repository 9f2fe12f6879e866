"""A run of the list of experiments: what is trained, without the budget of a preset."""

from __future__ import annotations

import dataclasses

from examples.vae.config import Config


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of the list of experiments. A preset turns it into a complete configuration.

    Attributes:
      config: Data set, model, prior and seed. The preset replaces its budget.
      steps: Number of training steps at every preset. `None` for the number of the preset.
    """

    config: Config
    steps: int | None = None

    @property
    def name(self) -> str:
        """Name of the directory of the run, with its own number of steps and a seed other than 0.

        Two presets give a run the same name, so each preset needs an output directory of its own.
        """
        steps = [] if self.steps is None else [str(self.steps)]
        seed = [f"s{self.config.seed}"] if self.config.seed else []
        return "-".join([self.config.name, *steps, *seed])

    @property
    def base(self) -> Run | None:
        """Run that provides the networks if this one is post-hoc, otherwise `None`."""
        base = self.config.base_config
        return None if base is None else dataclasses.replace(self, config=base)

    def at(self, seed: int) -> Run:
        """Returns this run with another seed."""
        return dataclasses.replace(self, config=dataclasses.replace(self.config, seed=seed))
