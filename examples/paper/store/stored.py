"""The store as a whole: reading all runs, adding runs, and results of a preset for the tables."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Mapping, Sequence

import numpy as np

from examples.common import files
from examples.common.command_line import UserError
from examples.paper.experiments import FIGURES, TABLES
from examples.paper.kinds import Figure
from examples.paper.more_tables import MORE_TABLES
from examples.paper.presets import PRESETS, Preset
from examples.paper.run import Run
from examples.paper.store import entries
from examples.paper.store.entries import Entry, NotAddedError
from examples.vae import run_directory
from examples.vae.config import Config
from examples.vae.run_directory import State, evaluation_of

ADDED, STORED_BEFORE = "added", "stored before"
_LEAST = PRESETS["laptop"]  # runs with a smaller budget are not stored
_NO_DATA = {"static_mnist": "not run: the data set could not be downloaded"}


class Store:
    """All runs of the store, by name.

    Args:
      directory: Directory of the store. It need not exist.

    Raises:
      UserError: A file is refused. The message names all refused files.
    """

    def __init__(self, directory: pathlib.Path):
        self.directory = directory
        self.entries: dict[str, Entry] = {}
        refused = []
        for path in sorted(directory.glob("*.json")):
            try:
                self.entries[path.stem] = entries.read(path)
            except UserError as error:
                refused.append(str(error))
        if refused:
            raise UserError(
                " ".join(refused) + " Restore these files from version control, or delete them "
                "with their .npz and add the runs again."
            )

    def add(self, path: pathlib.Path) -> tuple[str, str]:
        """Adds the run of a directory.

        Args:
          path: Directory of a run of `examples.vae.train`.

        Returns:
          name: Name of the run in the store.
          outcome: `ADDED` or `STORED_BEFORE`.

        Raises:
          NotAddedError: The run is not finished, or its budget is too small.
          UserError: The run is refused: its files do not match each other, its settings are not
            those of the tables, or the store has a different run of this name.
        """
        entry = entries.from_run(path)
        _check_budget(entry)
        check_settings(entry)
        stored = self.entries.get(entry.name)
        if stored is None:
            entries.write(entry, self.directory)
            self.entries[entry.name] = entry
            return entry.name, ADDED
        different = entry.difference(stored)
        if different:
            raise UserError(
                f"the store has a different {entry.name} ({different}). To replace it, delete "
                f"{entry.name}.json and {entry.name}.npz in {self.directory}"
            )
        return entry.name, STORED_BEFORE

    def figure_file(self, figure: Figure) -> pathlib.Path:
        return self.directory / "figures" / f"{figure.name}.json"

    def figure_numbers(self, figure: Figure) -> Mapping | None:
        """Returns the stored numbers of a figure, `None` if there are none.

        Raises:
          UserError: They are not those of stored runs.
        """
        path = self.figure_file(figure)
        if not path.exists():
            return None
        numbers = files.read_json(path)
        rows = numbers.get("runs")
        rows = rows if isinstance(rows, list) and all(isinstance(r, dict) for r in rows) else []
        runs = [str(row.get("run")) for row in rows]
        numeric = all(
            isinstance(r.get(n, 0), int | float | None) for r in rows for n in figure.paper
        )
        if len(runs) != len(figure.runs) or not set(runs) <= self.entries.keys() or not numeric:
            raise UserError(f"{path} is refused: it is not drawn from stored runs. Delete it.")
        return numbers

    def add_figure(self, figure: Figure, out: pathlib.Path, pictures: pathlib.Path) -> str:
        """Copies a figure of stored runs: its numbers into the store, its picture elsewhere.

        Args:
          figure: Figure that is drawn from runs.
          out: Output directory of `examples.paper`.
          pictures: Directory to copy the picture to.

        Returns:
          path: Name of the picture.

        Raises:
          NotAddedError: The figure is not drawn, or it shows runs that are not in the store.
          UserError: Its numbers cannot be read.
        """
        picture, numbers = (out / f"{figure.name}{suffix}" for suffix in (".png", ".json"))
        if not (picture.exists() and numbers.exists()):
            raise NotAddedError("it is not drawn")
        rows = []
        drawn = files.read_json(numbers).get("runs")
        if not isinstance(drawn, list) or not all(isinstance(row, dict) for row in drawn):
            raise UserError(f"{numbers} has no list of runs: delete it, and draw the figure again.")
        for row in drawn:
            row.pop("run", None)  # a path
            config = Config.from_json(row.pop("config", {}))
            stored = self.entries.get(entries.name_of(config))
            if stored is None or _different(config, stored):
                raise NotAddedError(f"{entries.name_of(config)} is not in the store")
            rows.append({"run": stored.name, **row})
        target = pictures / f"{figure.name.removeprefix('figure_')}.png"
        with files.explained(pictures):
            self.figure_file(figure).parent.mkdir(parents=True, exist_ok=True)
            pictures.mkdir(parents=True, exist_ok=True)
            files.write(target, picture.read_bytes())
            files.write_json(self.figure_file(figure), {"runs": rows})
        return target.name


def _check_budget(entry: Entry) -> None:
    """Checks that a run has at least the budget that the preset gives it or its architecture.

    Runs of the list of experiments with a number of steps of their own may be shorter.
    """
    config = entry.config
    steps = {run.steps for run in _listed(config.name)}
    least = _LEAST.of(Run(config, config.steps if config.steps in steps else None))
    if config.steps < least.steps or not config.evaluation.covers(least.evaluation):
        raise NotAddedError(
            f"{config.steps:,} steps, evaluated on {config.evaluation}, are less than the preset "
            f"{_LEAST.name} has"
        )


def check_settings(entry: Entry) -> None:
    """Checks that a run has the settings of the tables' run of its name, if there is one.

    The name does not show all settings. With others, the run would take the place of that run.

    Raises:
      UserError: It has other settings.
    """
    config = entry.config
    wanted = (_LEAST.of(run.at(config.seed)) for run in _listed(config.name))
    different = [_different(dataclasses.replace(c, steps=config.steps), entry) for c in wanted]
    if different and all(different):
        raise UserError(
            f"it has other settings than the run {config.name} of the tables ({different[0]}): "
            "train it with theirs"
        )


def _listed(name: str) -> list[Run]:
    """Returns the runs of the tables and figures whose configuration has a name."""
    parts = (*TABLES.values(), *MORE_TABLES.values(), *FIGURES.values())
    return [run for part in parts for run in part.runs if run.config.name == name]


def _different(wanted: Config, stored: Entry) -> str:
    """Returns the settings of a stored run that differ from the wanted ones, in words.

    The version of the code may differ. The base of a post-hoc run is not part of the wanted
    settings; other runs must have none.
    """
    left_out = entries.NOT_IDENTITY | ({"base", "base_weights"} if wanted.post_hoc else {"base"})
    ours, theirs = wanted.to_json(), stored.config.to_json()
    return ", ".join(
        f"{name}={theirs[name]!r} there, {ours[name]!r} here"
        for name in sorted(ours.keys() - left_out)
        if ours[name] != theirs[name]
    )


@dataclasses.dataclass(frozen=True)
class StoredResults:
    """Results of the store at the budget of a preset, a `Source` of the tables."""

    store: Store
    preset: Preset

    def seeds(self, run: Run) -> Sequence[int]:
        """Returns the stored seeds of a run, or the seed 0 if there are none."""
        name = entries.name_of(self.preset.of(run.at(0))).removesuffix("-s0")
        pattern = re.compile(rf"{re.escape(name)}-s(\d+)")
        found = [match for stored in self.store.entries if (match := pattern.fullmatch(stored))]
        return sorted(int(match[1]) for match in found) or [0]

    def state(self, run: Run) -> State:
        """Returns the state of a run: finished, not run, or why its stored results do not fit."""
        config, stored = self.preset.of(run), self._stored(run)
        if stored is None:
            return State(run_directory.NOT_RUN, _NO_DATA.get(config.dataset, "not run"))
        different = _different(config, stored)
        base = None if run.base is None else self._stored(run.base)
        weights = stored.metrics["config"]["base_weights"]
        if base is not None and base.metrics["networks"] != weights:
            different = different or f"base_weights={weights!r}, but {base.name} has others"
        if different:
            text = f"the stored run has another configuration ({different})"
            return State(run_directory.REFUSED, text)
        if not evaluation_of(stored.metrics).covers(config.evaluation):
            text = f"evaluated with {evaluation_of(stored.metrics)}, wanted {config.evaluation}"
            return State(run_directory.TO_EVALUATE, text)
        return State(run_directory.FINISHED, "finished", stored.as_metrics())

    def per_image(self, run: Run, name: str) -> np.ndarray | None:
        """Returns `nll` or `elbo` of each test image of a stored run, `[N]`."""
        stored = self._stored(run)
        return None if stored is None else stored.per_image(name)

    def _stored(self, run):
        return self.store.entries.get(entries.name_of(self.preset.of(run)))
