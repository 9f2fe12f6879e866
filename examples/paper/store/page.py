"""Renders `docs/results.md` and the table of the README from the store. Imports no TensorFlow."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Mapping

from examples.common import files, tables
from examples.common.command_line import UserError
from examples.paper import report, step_time
from examples.paper.experiments import FIGURES, TABLES
from examples.paper.more_tables import MORE_TABLES
from examples.paper.presets import PRESETS
from examples.paper.results import METRICS, Results, number, shown
from examples.paper.run import Run
from examples.paper.store.stored import Store, StoredResults

LAPTOP, PAPER = PRESETS["laptop"], PRESETS["paper"]
_GENERATED = (
    "<!-- Rendered by `python -m examples.paper.store render` from results/. Edit "
    "results/template.md. -->\n\n"
)
_PLACE = re.compile(r"^<!-- render: (\w+) -->$", re.MULTILINE)
_README = re.compile(r"(<!-- results -->\n\n)(?:\|.*\n)+")  # the table after the marker


def render(store: Store, template: str) -> str:
    """Returns the page of results.

    Args:
      store: Finished runs.
      template: Text of the page. Lines `<!-- render: PART -->` are replaced by parts.

    Raises:
      UserError: The template names an unknown part, or lacks one.
    """
    parts = _parts(store)
    named = _PLACE.findall(template)
    if sorted(named) != sorted(parts):
        raise UserError(
            f"the template must name each of these parts once: {', '.join(sorted(parts))}; it "
            f"names {', '.join(sorted(named)) or 'none'}."
        )
    return _GENERATED + _PLACE.sub(lambda match: parts[match[1]].strip("\n"), template)


def _parts(store: Store) -> dict[str, str]:
    laptop = Results(StoredResults(store, LAPTOP))
    every = {**MORE_TABLES, **TABLES}
    figures = [
        report.figure_markdown(
            figure,
            store.figure_numbers(figure),
            f"figures/{figure.name.removeprefix('figure_')}.png",
        )
        for figure in FIGURES.values()
        if figure.runs
    ]
    return {
        "header": report.header(LAPTOP, every.values(), laptop),
        "more_tables": _one_level_down(
            report.markdown(table, LAPTOP, laptop) for table in MORE_TABLES.values()
        ),
        "tables": _one_level_down(
            [report.markdown(table, LAPTOP, laptop) for table in TABLES.values()]
            + _paper_tables(store)
        ),
        "figures": _one_level_down(figures),
        "runs": _runs(store),
    }


def _paper_tables(store: Store) -> list[str]:
    """Returns the tables at the paper's budget that have a finished run."""
    results = Results(StoredResults(store, PAPER))
    found = [t for t in TABLES.values() if any(results.metrics(run) for run in t.runs)]
    texts = [report.markdown(table, PAPER, results) for table in found]
    return [re.sub(r"^(## \w+):", r"\1 at the paper's budget:", text) for text in texts]


def _one_level_down(sections: Iterable[str]) -> str:
    return re.sub(r"^## ", "### ", "\n".join(sections), flags=re.MULTILINE)


def _runs(store: Store) -> str:
    """Returns a table of all stored runs: how long they took, where, and with which code."""
    headings = ["run", "training", "evaluation", "processor", "cores", "threads", "revision"]
    rows = []
    for name, entry in sorted(store.entries.items()):
        metrics = entry.metrics
        seconds = (metrics[f"{part}_seconds"] for part in ("training", "evaluation"))
        machine = [str(metrics["machine"].get(n, "")) for n in ("processor", "cores", "threads")]
        took = ["" if s is None else step_time.readable(s) for s in seconds]
        rows.append([f"`{name}`", *took, *machine, f"`{metrics['revision']}`"])
    return tables.markdown(headings, rows) if rows else "The store has no runs."


def readme_table(store: Store) -> str:
    """Returns the table of the README: the priors of the headline runs at three budgets."""
    results = Results(StoredResults(store, LAPTOP))
    headline = {row.label: row for row in MORE_TABLES["headline"].rows}
    longest = {row.label: row.run for row in MORE_TABLES["million"].rows}
    budgets = [
        {label: Run(row.run.config) for label, row in headline.items()},
        {label: row.run for label, row in headline.items()},
        longest,
    ]
    headings = ["prior"]
    for runs in budgets:
        (steps,) = {run.steps or LAPTOP.steps for run in runs.values()}
        headings.append(f"{steps:,} steps")
    rows = [
        [
            label,
            *(_nll(results, runs[label]) if label in runs else "not run" for runs in budgets),
            number(row.paper[0], METRICS["nll"].digits),
        ]
        for label, row in headline.items()
    ]
    return tables.markdown([*headings, "the paper, 10^7 steps"], rows)


def _nll(results: Results, run: Run) -> str:
    found = results.estimate(run, "nll")
    if found is None:
        return results.why_missing(run)
    num_seeds = len(results.by_seed(run))
    note = f" ({num_seeds} seeds)" if num_seeds > 1 else ""
    return shown(found, METRICS["nll"].digits) + note


def render_readme(store: Store, readme: str) -> str:
    """Returns the README with the current table after its marker."""
    if len(_README.findall(readme)) != 1:
        raise UserError("README.md must have one <!-- results -->, an empty line and a table.")
    return _README.sub(lambda match: f"{match[1]}{readme_table(store)}\n", readme)


def pages(store: Store, root: pathlib.Path) -> Mapping[pathlib.Path, str]:
    """Returns the content that each rendered file of a clone should have."""
    readme = root / "README.md"
    template = (store.directory / "template.md").read_text()
    return {
        root / "docs" / "results.md": render(store, template),
        readme: render_readme(store, readme.read_text()),
    }


def out_of_date(expected: Mapping[pathlib.Path, str]) -> list[pathlib.Path]:
    """Returns the files whose content is not the expected one."""
    return [p for p, text in expected.items() if not p.exists() or p.read_text() != text]


def write(expected: Mapping[pathlib.Path, str]) -> None:
    """Writes the files."""
    for path, text in expected.items():
        with files.explained(path.parent):
            files.write(path, text.encode())
