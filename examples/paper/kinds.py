"""What the list of experiments is made of: tables with their rows, and figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from examples.paper.findings import FigureFinding, Finding
from examples.vae.config import Config


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes:
      label: Unique in its table.
      run: The run whose numbers it shows; `None` if the paper cites it and we do not train it.
      paper: The printed numbers, in the order of the table's metrics, `None` where there is none.
      versus: Label of the row that its gain is measured against.
      note: What to know about the paper's number.
    """

    label: str
    run: Config | None
    paper: tuple[float | None, ...]
    versus: str | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table: `metrics` are keys of `METRICS`; gains are those of the first of them."""

    name: str
    title: str
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def runs(self) -> list[Config]:
        return [row.run for row in self.rows if row.run is not None]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure: a command, `python -m ... --run DIR ... --out FILE.png`, on finished runs.

    Without runs it is a study of its own, that writes a directory.

    Attributes:
      name: What the user types.
      title: What it shows.
      command: The module, and arguments if any.
      runs: What it is drawn from.
      labels: One for each run, where the figure comes with numbers.
      paper: The printed numbers, by name, one for each run (`None` where there is none).
      findings: What the paper says about them.
    """

    name: str
    title: str
    command: tuple[str, ...]
    runs: tuple[Config, ...] = ()
    labels: tuple[str, ...] = ()
    paper: Mapping[str, tuple[float | None, ...]] = dataclasses.field(default_factory=dict)
    findings: tuple[FigureFinding, ...] = ()
