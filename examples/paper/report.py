"""Reports our numbers beside the paper's, in Markdown and CSV, from finished runs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping

from examples.common import tables
from examples.paper.kinds import Figure, Row, Table
from examples.paper.presets import Preset
from examples.paper.results import METRICS, Results, number, shown
from examples.vae.run_directory import evaluation_of


def markdown(table: Table, preset: Preset, results: Results) -> str:
    """Returns a table, followed by which of the paper's findings hold in our numbers."""
    headings = ["model"]
    for name in table.metrics:
        headings += [METRICS[name].heading, "paper", "difference"]
    has_gain = any(row.versus for row in table.rows)
    headings += ["gain", "paper's gain"] if has_gain else []
    headings += ["steps"]
    rows, notes = [], []
    for row in table.rows:
        mark = ""
        for note in (row.note, _seeds(row, results), _budget(row, preset, results)):
            if note:
                notes += [] if note in notes else [note]
                mark += f" [{notes.index(note) + 1}]"
        rows.append([row.label + mark, *_cells(table, row, results, has_gain)])
    lines = [f"## {table.name}: {table.title}", "", tables.markdown(headings, rows), ""]
    lines += [f"[{i}] {note}." for i, note in enumerate(notes, 1)] + ([""] if notes else [])
    runs = {row.label: row.run for row in table.rows}
    lines += [f"- {finding.verdict(runs, results)}" for finding in table.findings]
    return "\n".join([*lines, *_revisions(table, results)]) + "\n"


def _seeds(row, results):
    """Returns a note about the seeds of a row; empty if it shows seed 0 alone."""
    seeds = ", ".join(map(str, results.by_seed(row.run)))
    if seeds in ("", "0"):
        return ""
    return f"mean over the seeds {seeds}, ± its standard error" if "," in seeds else f"seed {seeds}"


def _budget(row, preset, results):
    """Returns a note about a row whose budget differs from that of the preset."""
    metrics = results.metrics(row.run)
    if metrics is None:
        return ""
    parts, steps = [], metrics["config"]["steps"]
    if steps != (row.run.steps or preset.steps):
        parts.append(f"trained for {steps:,} steps")
    if evaluation_of(metrics) != preset.evaluation:
        parts.append(f"evaluated on {evaluation_of(metrics)}")
    return ", ".join(parts)


def _revisions(table, results):
    """Returns lines that name the revision behind each row, if there are several revisions."""
    found = {}
    for row in table.rows:
        for metrics in results.by_seed(row.run).values():
            found.setdefault(metrics["revision"], {})[row.label] = None  # an ordered set
    if len(found) < 2:
        return []
    return ["", "Revisions: " + ", ".join(f"`{r}` ({'; '.join(n)})" for r, n in found.items())]


def _cells(table, row, results, has_gain):
    cells = []
    metrics = results.metrics(row.run)
    for i, (name, printed) in enumerate(zip(table.metrics, row.paper, strict=True)):
        metric, ours = METRICS[name], results.estimate(row.run, name)
        if row.run is None:
            said = "as printed in the paper"
        elif metrics is None:
            said = results.why_missing(row.run) if i == 0 else ""
        else:
            said = "" if ours is None else shown(ours, metric.digits)
        cells += [said, number(printed, metric.digits)]
        both = ours is not None and printed is not None
        cells.append(number(ours.value - printed, metric.digits, "+") if both else "")
    if has_gain:
        gain, printed = gains(table, row, results)
        digits = METRICS[table.metrics[0]].digits
        cells += ["" if gain is None else shown(gain, digits), number(printed, digits)]
    return [*cells, "" if metrics is None else f"{metrics['steps']:,}"]


def gains(table: Table, row: Row, results: Results):
    """Returns the gain of a row over the row that it is compared with: ours and the paper's."""
    if row.versus is None:
        return None, None
    other = _row(table, row.versus)
    printed = None
    if row.paper[0] is not None and other.paper[0] is not None:
        printed = other.paper[0] - row.paper[0]
    if row.run is None or other.run is None:
        return None, printed
    return results.difference(other.run, row.run, table.metrics[0]), printed


def _row(table, label) -> Row:
    return next(row for row in table.rows if row.label == label)


CSV_COLUMNS = (
    "table", "row", "run", "metric", "ours", "stderr", "paper", "difference", "gain",
    "gain_stderr", "paper_gain", "steps", "seeds", "status",
)  # fmt: skip


def csv_text(table: Table, results: Results) -> str:
    """Returns CSV with a line for each row and metric. Gains are in lines of the first metric."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in table.rows:
        metrics = results.metrics(row.run)
        for i, (name, printed) in enumerate(zip(table.metrics, row.paper, strict=True)):
            ours = results.estimate(row.run, name)
            gain, paper_gain = gains(table, row, results) if i == 0 else (None, None)
            cited = row.run is None
            writer.writerow(
                {
                    "table": table.name,
                    "row": row.label,
                    "run": "" if cited else row.run.name,
                    "metric": name,
                    "ours": None if ours is None else ours.value,
                    "stderr": None if ours is None else ours.stderr,
                    "paper": printed,
                    "difference": ours.value - printed if ours and printed is not None else None,
                    "gain": None if gain is None else gain.value,
                    "gain_stderr": None if gain is None else gain.stderr,
                    "paper_gain": paper_gain,
                    "steps": None if metrics is None else metrics["steps"],
                    "seeds": " ".join(map(str, results.by_seed(row.run))),
                    "status": "as printed" if cited else results.why_missing(row.run),
                }
            )
    return out.getvalue()


def header(preset: Preset, tables: Iterable[Table], results: Results) -> str:
    """Returns the text above the tables: preset, package versions and an explanation."""
    evaluation = preset.evaluation
    images = "all" if evaluation.test_images is None else f"{evaluation.test_images:,}"
    runs = [run for table in tables for run in table.runs]
    versions = sorted({_versions(m) for run in runs for m in results.by_seed(run).values()})
    lines = [
        f"Preset `{preset.name}`: {preset.steps:,} steps of {preset.batch_size} images, "
        f"evaluated on {images} test images with {evaluation.iwae_samples:,} importance samples "
        f"each, Z from {evaluation.z_samples:,} draws. {'; '.join(versions)}".rstrip(),
        "",
        "Ours ± one standard error. With one seed, this is the error over test images and of the "
        "estimate of Z, not over trainings. With several seeds, which a note names, it is the "
        "error over seeds. Gain: by how much the NLL (in table2 the bound) is better than with the "
        "plain prior (tables 3 and 4: with the VampPrior). With one seed, its error is that of the "
        "mean of the differences on each image, otherwise that over the seeds that both have. A "
        "finding is decided if a difference exceeds two standard errors. If the error is over few "
        "seeds, the limit is that of the t distribution at the same level (4.6 %): 14 standard "
        "errors for two seeds, 4.5 for three.",
    ]
    if preset.steps < 10**7:
        lines[-1] += (
            " The paper's numbers are for 10,000,000 steps, ours for those in the last column."
        )
    return "\n".join(lines) + "\n"


def _versions(metrics):
    return ", ".join(f"{name} {version}" for name, version in metrics["versions"].items())


FIGURE_HEADINGS = {"kl": "KL(q, p)", "kl_proposal": "KL(q, π)", "z": "Z"}


def figure_markdown(figure: Figure, numbers: Mapping | None, where: str) -> str:
    """Returns the section about a figure, with its numbers beside the paper's.

    Args:
      figure: Figure of the list of experiments.
      numbers: Numbers that its command wrote. `None` if it is not drawn.
      where: Path of the picture, or of the directory if the figure has no runs.
    """
    lines = [f"## {figure.name}: {figure.title}", ""]
    if numbers is None:
        return "\n".join([*lines, "Not drawn, or older than its runs."]) + "\n"
    lines.append(f"![{figure.title}]({where})" if figure.runs else f"See `{where}`.")
    if figure.paper:
        headings = ["model"]
        for name in figure.paper:
            headings += [FIGURE_HEADINGS[name], "paper"]
        rows = []
        for i, (label, row) in enumerate(zip(figure.labels, numbers["runs"], strict=True)):
            rows.append([label])
            for name, printed in figure.paper.items():
                rows[-1] += [number(row.get(name), None), number(printed[i], None)]
        lines += ["", tables.markdown(headings, rows)]
    for finding in figure.findings:
        lines += ["", f"- {finding.verdict(figure.labels, numbers['runs'])}"]
    return "\n".join(lines) + "\n"
