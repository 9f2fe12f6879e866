"""A study: which tables and figures to make, with which budget, and where."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import shlex
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from examples.common import files
from examples.common.command_line import UserError
from examples.paper.kinds import Figure, Table
from examples.paper.presets import Preset
from examples.paper.run import Run
from examples.vae import datasets
from examples.vae.config import Config
from examples.vae.run_directory import RunDirectory, State


@dataclasses.dataclass(frozen=True)
class Study:
    """Tables and figures to make, the budget, and the output directory.

    Attributes:
      tables: Tables to render.
      figures: Figures to draw.
      preset: Budget of the runs.
      out: Output directory. Runs are in `out/runs`.
      compare_data: Whether existing runs must match the data on this machine. If `False`, finished
        runs can be shown on a machine without the data.
      seed: First seed of the runs.
      only: Names of runs. Other runs are left out, except those that these depend on. Empty for
        all runs.
    """

    tables: Sequence[Table]
    figures: Sequence[Figure]
    preset: Preset
    out: pathlib.Path
    compare_data: bool = True
    seed: int = 0
    only: Collection[str] = ()

    @property
    def runs_dir(self) -> pathlib.Path:
        return self.out / "runs"

    @functools.cached_property
    def runs(self) -> list[Run]:
        """All required runs without duplicates, each after the run that it depends on.

        Raises:
          UserError: `only` names a run that is not required.
        """
        wanted = [
            run.at(self.seed + i) for t in self.tables for i in range(t.num_seeds) for run in t.runs
        ]
        wanted += [run.at(self.seed) for figure in self.figures for run in figure.runs]
        if self.only:
            names = {run.name for run in wanted}
            unknown = sorted(set(self.only) - names)
            if unknown:
                raise UserError(
                    f"unknown run {', '.join(map(repr, unknown))} in --only: the chosen tables and "
                    f"figures have {', '.join(sorted(names))}."
                )
            wanted = [run for run in wanted if run.name in self.only]
        with_bases = [r for run in wanted for r in (run.base, run) if r is not None]
        return list(dict.fromkeys(with_bases))

    def directory(self, run: Run) -> RunDirectory:
        return RunDirectory(self.runs_dir / run.name)

    def config(self, run: Run) -> Config:
        """Returns the full configuration of a run from the list of experiments."""
        config = self.preset.of(run)
        if run.base is None:
            return config
        base = self.directory(run.base)
        metrics = base.metrics() or {}  # empty until the base run has finished
        return dataclasses.replace(
            config, base=str(base.path), base_weights=metrics.get("networks")
        )

    def images(self, run: Run) -> str | None:
        """Returns the digest of the data of a run; `None` if not found or not to be compared."""
        if not self.compare_data:
            return None
        try:
            return datasets.digest(run.config.dataset)
        except datasets.DataError:
            return None

    def seeds(self, run: Run) -> Sequence[int]:
        """Returns the first seed of this study and all further seeds that have a directory."""
        pattern = re.compile(rf"{re.escape(run.at(0).name)}(?:-s(\d+))?")
        paths = self.runs_dir.glob("*") if self.runs_dir.exists() else ()
        found = [match for path in paths if (match := pattern.fullmatch(path.name))]
        return list(dict.fromkeys([self.seed, *sorted(int(match[1] or 0) for match in found)]))

    def state(self, run: Run) -> State:
        """Returns the state of a run of this study."""
        return self.directory(run).state(self.config(run), self.images(run))

    def per_image(self, run: Run, name: str) -> np.ndarray | None:
        """Returns `nll` or `elbo` of each test image of a run, `[N]`; `None` if missing."""
        try:
            return files.load_numbers(self.directory(run).path / f"test_{name}.npy")
        except (OSError, ValueError):
            return None

    def prepare(self, run: Run) -> list[str]:
        """Writes the configuration of a run and returns the arguments of the command.

        Raises:
          UserError: The data is not available, or the directory is not writable.
        """
        directory = self.directory(run)
        directory.claim(self.config(run), datasets.digest(run.config.dataset))
        return ["--config", str(directory.config_file)]

    def figure_name(self, figure: Figure) -> str:
        """Returns the name of a figure's files. Seeds other than 0 have files of their own."""
        return f"{figure.name}-s{self.seed}" if self.seed and figure.runs else figure.name

    def figure_command(self, figure: Figure) -> list[str]:
        """Returns the module and arguments that draw a figure."""
        paths = [self.directory(run.at(self.seed)).path for run in figure.runs]
        runs = [text for path in paths for text in ("--run", str(path))]
        more = self.preset.figures.get(figure.name, ())
        name = self.figure_name(figure)
        out = self.out / (f"{name}.png" if figure.runs else name)
        return [*figure.command, *runs, "--out", str(out), *more]

    def figure_numbers(self, figure: Figure) -> Mapping | None:
        """Returns the numbers that the figure's command wrote; `None` if missing or out of date."""
        name = self.figure_name(figure) + (".json" if figure.runs else "/results.json")
        try:
            found = files.load_json(self.out / name)
            made = (self.out / name).stat().st_mtime
            inputs = [self.directory(run.at(self.seed)).metrics_file for run in figure.runs]
            if any(path.stat().st_mtime > made for path in inputs):
                return None
        except (OSError, ValueError):
            return None
        command = shlex.join(["python", "-m", *self.figure_command(figure)])
        return found if found.get("command") == command else None
