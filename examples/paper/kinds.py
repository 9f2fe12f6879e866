"""Types for the list of experiments: tables with their rows, and figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from examples.paper.findings import FigureFinding, Finding
from examples.paper.run import Run


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes:
      label: Name of the row, unique in its table.
      run: Run whose numbers the row shows. `None` for a cited model that is not trained here.
      paper: Numbers printed in the paper, one for each metric of the table. `None` if missing.
      versus: Label of the row that the gain is measured against.
      note: Footnote about the paper's number.
    """

    label: str
    run: Run | None
    paper: tuple[float | None, ...]
    versus: str | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
      name: Name on the command line.
      title: Title in the report.
      metrics: Keys of `METRICS`. Gains are in the first one.
      rows: Rows of the table.
      findings: Statements of the paper about its numbers.
      num_seeds: Number of seeds to train each run with. Every table shows the mean over all seeds
        that are finished.
    """

    name: str
    title: str
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...] = ()
    num_seeds: int = 1

    @property
    def runs(self) -> list[Run]:
        return [row.run for row in self.rows if row.run is not None]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure, drawn from finished runs by `python -m ... --run DIR ... --out FILE.png`.

    A figure without runs is a study of its own, whose command writes a directory.

    Attributes:
      name: Name on the command line.
      title: Title in the report.
      command: Module, followed by any arguments.
      runs: Runs that the figure is drawn from.
      labels: Label of each run, for figures with numbers.
      paper: Numbers printed in the paper, by name, one for each run. `None` if missing.
      findings: Statements of the paper about these numbers.
    """

    name: str
    title: str
    command: tuple[str, ...]
    runs: tuple[Run, ...] = ()
    labels: tuple[str, ...] = ()
    paper: Mapping[str, tuple[float | None, ...]] = dataclasses.field(default_factory=dict)
    findings: tuple[FigureFinding, ...] = ()
