"""Our numbers beside the paper's, in Markdown and CSV, from what the runs left behind."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from examples.paper.experiments import experiments as paper
from examples.vae.run_state import State


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its standard error (0 if it is exact)."""

    value: float
    stderr: float


@dataclasses.dataclass(frozen=True)
class Metric:
    """How a column is read from `metrics.json`.

    Attributes:
      heading: Of the column.
      read: From the content of `metrics.json` to an estimate, `None` if there is none.
      digits: After the decimal point; `None` for three significant ones.
      per_image: File of the values of each test image, and the sign to give them.
    """

    heading: str
    read: Callable[[Mapping], Estimate | None]
    digits: int | None = 2
    per_image: tuple[str, float] | None = None


def _z(metrics):
    if metrics["z"] is not None:
        return Estimate(metrics["z"], metrics["z"] * metrics["log_z_stderr"])
    resampled = metrics["config"]["prior"]["name"].startswith("lars")
    return None if resampled else Estimate(1.0, 0.0)  # as the paper prints it


# The paper prints the bound and the reconstruction as losses.
METRICS: Mapping[str, Metric] = {
    "nll": Metric(
        "NLL", lambda m: Estimate(m["nll"], m["nll_stderr"]), per_image=("test_nll.npy", 1.0)
    ),
    "elbo": Metric(
        "-ELBO",
        lambda m: Estimate(-m["elbo"], m["elbo_stderr"]),
        per_image=("test_elbo.npy", -1.0),
    ),
    "kl": Metric("KL", lambda m: Estimate(m["kl"], m["kl_stderr"])),
    "recons": Metric("recons", lambda m: Estimate(-m["recons"], m["recons_stderr"])),
    "z": Metric("Z", _z, digits=None),
}


class Results:
    """Looks up numbers of runs.

    Args:
      runs: Directory that holds the directories of all runs.
      states: By name of the run.
    """

    def __init__(self, runs: pathlib.Path, states: Mapping[str, State]):
        self.runs, self.states = runs, states

    def metrics(self, run: paper.Run | None) -> Mapping | None:
        return None if run is None else self.states[run.name].metrics

    def why_missing(self, run: paper.Run) -> str:
        return self.states[run.name].told

    def estimate(self, run: paper.Run | None, metric: str) -> Estimate | None:
        metrics = self.metrics(run)
        return None if metrics is None else METRICS[metric].read(metrics)

    def difference(self, one: paper.Run, other: paper.Run, metric: str) -> Estimate | None:
        """One minus other; image by image where both were evaluated on the same images.

        The error of log Z is the same for all images of a run and adds to that of the mean.
        """
        a, b = self.estimate(one, metric), self.estimate(other, metric)
        if a is None or b is None:
            return None
        stderr = math.hypot(a.stderr, b.stderr)
        pair = [self._per_image(run, metric) for run in (one, other)]
        same = self._images(one) == self._images(other)
        if same and all(p is not None for p in pair):
            common = [_excess(e.stderr, _mean_stderr(p)) for e, p in zip((a, b), pair, strict=True)]
            stderr = math.hypot(_mean_stderr(pair[0] - pair[1]), *common)
        return Estimate(a.value - b.value, stderr)

    def _per_image(self, run, metric):
        """Values of each image, `[N]`; `None` if unknown."""
        if METRICS[metric].per_image is None:
            return None
        name, sign = METRICS[metric].per_image
        try:
            return sign * np.load(self.runs / run.name / name)
        except (OSError, ValueError):
            return None

    def _images(self, run):
        """What tells the test images of a run."""
        config = json.loads((self.runs / run.name / "config.json").read_text())
        return run.dataset, config.get("images"), self.metrics(run)["num_test_images"]


def _mean_stderr(values):
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _excess(stderr, part):
    """What is left of a standard error when an independent part is taken out."""
    return math.sqrt(max(stderr**2 - part**2, 0.0))


def markdown(table: paper.Table, results: Results) -> str:
    """A table and, below it, which of the paper's findings hold in our numbers."""
    headings = ["model"]
    for name in table.metrics:
        headings += [METRICS[name].heading, "paper", "difference"]
    has_gain = any(row.versus for row in table.rows)
    headings += ["gain", "paper's gain"] if has_gain else []
    headings += ["steps"]
    lines = [f"## {table.name}: {table.title}", "", _line(headings), _line(["---"] * len(headings))]
    notes = []
    for row in table.rows:
        mark = ""
        if row.note:
            notes.append(row.note)
            mark = f" [{len(notes)}]"
        lines.append(_line([row.label + mark, *_cells(table, row, results, has_gain)]))
    lines += [""] + [f"[{i}] {note}." for i, note in enumerate(notes, 1)] + ([""] if notes else [])
    lines += [f"- {verdict(finding, table, results)}" for finding in table.findings]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


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
            said = "" if ours is None else _shown(ours, metric.digits)
        cells += [said, _number(printed, metric.digits)]
        both = ours is not None and printed is not None
        cells.append(_number(ours.value - printed, metric.digits, "+") if both else "")
    if has_gain:
        gain, printed = gains(table, row, results)
        digits = METRICS[table.metrics[0]].digits
        cells += ["" if gain is None else _shown(gain, digits), _number(printed, digits)]
    return [*cells, "" if metrics is None else f"{metrics['steps']:,}"]


def gains(table: paper.Table, row: paper.Row, results: Results):
    """By how much a row is better than the one it is compared with: ours and the paper's."""
    if row.versus is None:
        return None, None
    other = _row(table, row.versus)
    printed = None
    if row.paper[0] is not None and other.paper[0] is not None:
        printed = other.paper[0] - row.paper[0]
    if row.run is None or other.run is None:
        return None, printed
    return results.difference(other.run, row.run, table.metrics[0]), printed


def _row(table, label) -> paper.Row:
    return next(row for row in table.rows if row.label == label)


def _number(value, digits, sign=""):
    if value is None:
        return ""
    if digits is None:
        return f"{value:{sign}.3g}"
    return f"{value:{sign}.{digits}f}"


def _shown(estimate, digits):
    text = _number(estimate.value, digits)
    if estimate.stderr == 0.0 or not math.isfinite(estimate.stderr):
        return text
    error = f"{estimate.stderr:.1g}" if digits is None else f"{estimate.stderr:.{digits}f}"
    return f"{text} ± {error}"


def verdict(finding: paper.Finding, table: paper.Table, results: Results) -> str:
    """One line: whether a finding of the paper holds in our numbers."""
    held, failed, open_, missing, told = 0, [], [], {}, []
    for check in finding.checks:
        rows = [_row(table, label) for label in _labels(check)]
        absent = {
            row.label: results.why_missing(row.run)
            for row in rows
            if results.estimate(row.run, check.metric) is None
        }
        if absent:
            missing |= absent
            continue
        outcome, text = _check(check, [row.run for row in rows], results)
        told.append(text)
        if outcome is None:
            open_.append(text)
        elif outcome:
            held += 1
        else:
            failed.append(text)
    total = len(finding.checks)
    head = f"The paper: {finding.text}."
    if failed:
        answer = f"**Does not hold** in {len(failed)} of {total}: {'; '.join(failed)}"
    elif missing:
        names = "; ".join(f"{label} ({why})" for label, why in missing.items())
        answer = f"Not decidable: missing {names}"
    elif open_:
        answer = f"Not decided, within two standard errors: {'; '.join(open_)}"
    elif total > 3:
        answer = f"**Holds**, in {total} of {total}"
    else:
        answer = f"**Holds**: {'; '.join(told)}"
    if (failed or missing or open_) and held:
        answer += f". Holds in {held} of {total}"
    return f"{head} {answer}."


def _labels(check):
    if isinstance(check, paper.Lower):
        return [check.low, check.high]
    if isinstance(check, paper.Same | paper.NoGain):
        return [check.one, check.other]
    return [check.label]


def _check(check, runs, results):
    """`True`, `False` or `None` (within two standard errors), and the numbers."""
    if isinstance(check, paper.NearOneOverT):
        z = results.estimate(runs[0], "z").value
        product = z * int(runs[0].T)
        near = 1.0 / check.factor <= product <= check.factor
        return near, f"Z · T = {product:.2g} for {check.label}"
    metric = METRICS[check.metric]
    if isinstance(check, paper.Same):
        a, b = (results.estimate(run, check.metric).value for run in runs)
        return a == b, f"{metric.heading} {a!r} and {b!r}"
    if isinstance(check, paper.NoGain):
        gain = results.difference(runs[1], runs[0], check.metric)
        text = f"{check.one} gains {_shown(gain, metric.digits)} over {check.other}"
        return gain.value <= check.margin, text
    difference = results.difference(runs[1], runs[0], check.metric)
    size = _shown(Estimate(abs(difference.value), difference.stderr), metric.digits)
    which = "lower" if difference.value >= 0 else "higher"
    text = f"{check.low} is {size} {which} than {check.high}"
    if check.metric != "nll":
        text = f"{metric.heading} of {text}"
    if abs(difference.value) <= 2 * difference.stderr:
        return None, text
    return difference.value > 0, text


CSV_COLUMNS = (
    "table", "row", "run", "metric", "ours", "stderr", "paper", "difference", "gain",
    "gain_stderr", "paper_gain", "steps", "status",
)  # fmt: skip


def csv_text(table: paper.Table, results: Results) -> str:
    """One line for each row and metric; gains in the lines of the first metric."""
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
                    "status": "as printed" if cited else results.why_missing(row.run),
                }
            )
    return out.getvalue()


def header(preset: paper.Preset, results: Results) -> str:
    """What all tables of a study have in common."""
    images = "all" if preset.test_images is None else f"{preset.test_images:,}"
    found = [state.metrics for state in results.states.values() if state.metrics]
    versions = sorted({_versions(m) for m in found})
    lines = [
        f"Preset `{preset.name}`: {preset.steps:,} steps of {preset.batch_size} images, "
        f"evaluated on {images} test images with {preset.iwae_samples:,} importance samples each, "
        f"Z from {preset.z_samples:,} draws. {'; '.join(versions)}",
        "",
        "Ours ± one standard error: over test images, and of the estimate of Z; one seed, so not "
        "over trainings. Gain: by how much the NLL (in table2 the bound) is better than with the "
        "plain prior (tables 3 and 4: with the VampPrior); its error is that of the mean of the "
        "differences on each image.",
    ]
    if preset.steps < 10**7:
        lines[-1] += f" The paper's numbers are for 10,000,000 steps, ours for {preset.steps:,}."
    return "\n".join(lines) + "\n"


def _versions(metrics):
    return ", ".join(f"{name} {version}" for name, version in metrics["versions"].items())


FIGURE_HEADINGS = {"kl": "KL(q, p)", "kl_proposal": "KL(q, π)", "z": "Z"}


def figure_markdown(figure: paper.Figure, numbers: Mapping | None) -> str:
    """A figure, and the numbers in it beside the paper's."""
    lines = [f"## {figure.name}: {figure.title}", ""]
    if numbers is None:
        return "\n".join([*lines, "Not drawn, or older than its runs."]) + "\n"
    where = f"{figure.name}.png" if figure.runs else f"{figure.name}/"
    lines.append(f"![{figure.title}]({where})" if figure.runs else f"See `{where}`.")
    if figure.paper:
        headings = ["model"]
        for name in figure.paper:
            headings += [FIGURE_HEADINGS[name], "paper"]
        lines += ["", _line(headings), _line(["---"] * len(headings))]
        for i, (label, row) in enumerate(zip(figure.labels, numbers["runs"], strict=True)):
            cells = [label]
            for name, printed in figure.paper.items():
                cells += [_number(row.get(name), None), _number(printed[i], None)]
            lines.append(_line(cells))
        if "kl" in figure.paper:
            kls = [row["kl"] for row in numbers["runs"]]
            worse = [label for label, kl in zip(figure.labels, kls, strict=True) if kl > kls[0]]
            said = f"**Does not hold** for {', '.join(worse)}" if worse else "**Holds**"
            lines += [
                "",
                f"- The paper: a resampled prior is closer to the aggregate posterior "
                f"than the standard one, in KL. {said}.",
            ]
    return "\n".join(lines) + "\n"
