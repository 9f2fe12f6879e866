"""Writes results as Markdown and JSON."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence

from benchmarks.results import CaseResult, Outcome, Timing
from examples.common import files, tables

__all__ = ["goals_table", "markdown", "read_json", "summary", "write_json"]

_MARKS = {"met": "met", "missed": "**missed**", "absent": "absent"}


def markdown(results: Sequence[CaseResult], machine: Mapping[str, str], size: str) -> str:
    """Returns the complete report."""
    parts = ["# Benchmarks", summary(results)]
    if size != "full":
        parts.append(f"This is a {size} run, with smaller sizes and fewer rounds than a full run.")
    parts += [goals_table(results), *_bounds(results)]
    parts.append("![Margins over the goals](goals.png)")
    if any(result.curves for result in results):
        parts.append("![Growth of time with size](growth.png)")
    parts.append("Values are medians over rounds, with quartiles. Ratios are paired by round.")
    about = tables.markdown(["property", "value"], [list(pair) for pair in machine.items()])
    parts += ["## Machine", about]
    parts += [_case(result) for result in results]
    return "\n\n".join(parts) + "\n"


def summary(results: Sequence[CaseResult]) -> str:
    """Returns the number of goals met, missed and not measured, in one line."""
    statuses = [outcome.status for result in results for outcome in result.outcomes]
    counts = {status: statuses.count(status) for status in ("met", "missed", "absent")}
    return (
        f"{counts['met']} of {len(statuses)} goals met, {counts['missed']} missed, "
        f"{counts['absent']} not measured."
    )


def goals_table(results: Sequence[CaseResult]) -> str:
    """Returns a table with one row per goal."""
    rows = [
        [result.name, outcome.goal.what, *_value(outcome), str(outcome.goal), _mark(outcome)]
        for result in results
        for outcome in result.outcomes
    ]
    return tables.markdown(["case", "quantity", "median", "quartiles", "goal", "status"], rows)


def write_json(
    path: pathlib.Path, results: Sequence[CaseResult], machine: Mapping[str, str], size: str
) -> None:
    """Writes all results as JSON."""
    content = {"machine": dict(machine), "size": size, "cases": [r.to_json() for r in results]}
    files.write(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def read_json(path: pathlib.Path) -> tuple[list[CaseResult], dict[str, str], str]:
    """Reads the results, machine and size that `write_json` wrote."""
    content = json.loads(path.read_text(encoding="utf-8"))
    cases = [CaseResult.from_json(case) for case in content["cases"]]
    return cases, content["machine"], content["size"]


def _value(outcome: Outcome) -> tuple[str, str]:
    if outcome.value is None:
        return "-", "-"
    value, suffix = outcome.value, outcome.goal.suffix
    return f"{value.median:.2f}{suffix}", f"{value.low:.2f} to {value.high:.2f}"


def _mark(outcome: Outcome) -> str:
    return _MARKS[outcome.status] + (f" ({outcome.absent})" if outcome.absent else "")


def _bounds(results: Sequence[CaseResult]) -> list[str]:
    """Lists known causes of missed goals."""
    lines = [
        f"- {result.name}, {outcome.goal.what}: {outcome.goal.bounded_by}"
        for result in results
        for outcome in result.outcomes
        if outcome.status == "missed" and outcome.goal.bounded_by
    ]
    return ["What limits the missed goals:", "\n".join(lines)] if lines else []


def _case(result: CaseResult) -> str:
    parts = [f"## {result.name}", f"{result.title}."]
    parts += result.notes
    if result.timings:
        rows = [[t.size, t.contender, *_amounts(t), str(t.value.count)] for t in result.timings]
        parts.append(tables.markdown(["size", "contender", "median", "quartiles", "rounds"], rows))
    for curve in result.curves:
        rows = [
            [f"{size:,.0f}", *_amounts(Timing("", "", seconds))]
            for size, seconds in zip(curve.sizes, curve.seconds, strict=True)
        ]
        parts.append(
            f"{curve.what}: slope {curve.slope.median:.2f} for {curve.axis} ≥ {curve.start:,.0f}."
        )
        parts.append(tables.markdown([curve.axis, "median", "quartiles"], rows))
    return "\n\n".join(parts)


def _amounts(timing: Timing) -> tuple[str, str]:
    value = timing.value
    if timing.unit != "s":
        return f"{value.median:.1f} {timing.unit}", f"{value.low:.1f} to {value.high:.1f}"
    scale, unit = (1.0, "s") if value.median >= 1.0 else (1e3, "ms")
    low, middle, high = (_digits(scale * v) for v in (value.low, value.median, value.high))
    return f"{middle} {unit}", f"{low} to {high}"


def _digits(value: float) -> str:
    """Formats three significant digits. Large values have no exponent."""
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"
