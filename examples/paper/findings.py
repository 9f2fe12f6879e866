"""Statements of the paper about its tables and figures, as checks of our numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from examples.paper.results import METRICS, Estimate, Results, number, shown
from examples.paper.run import Run


class Check(Protocol):
    """A statement about rows of a table.

    Attributes:
      labels: Labels of the rows that it compares.
      metric: A key of `METRICS`.
    """

    metric: str

    @property
    def labels(self) -> Sequence[str]: ...

    def decide(self, runs: Sequence[Run], results: Results) -> tuple[bool | None, str]:
        """Returns `True`, `False` or `None` (not significant), and the numbers."""


@dataclasses.dataclass(frozen=True)
class Lower:
    """`metric` of the row `low` is lower than that of the row `high`."""

    low: str
    high: str
    metric: str = "nll"

    @property
    def labels(self) -> Sequence[str]:
        return self.low, self.high

    def decide(self, runs: Sequence[Run], results: Results) -> tuple[bool | None, str]:
        metric = METRICS[self.metric]
        difference = results.difference(runs[1], runs[0], self.metric)
        size = shown(Estimate(abs(difference.value), difference.stderr), metric.digits)
        which = "lower" if difference.value >= 0 else "higher"
        text = f"{self.low} is {size} {which} than {self.high}"
        if self.metric != "nll":
            text = f"{metric.heading} of {text}"
        if not difference.is_significant:
            return None, text
        return difference.value > 0, text


@dataclasses.dataclass(frozen=True)
class Same:
    """`metric` of two rows is bitwise equal, for each seed that both have."""

    one: str
    other: str
    metric: str

    @property
    def labels(self) -> Sequence[str]:
        return self.one, self.other

    def decide(self, runs: Sequence[Run], results: Results) -> tuple[bool | None, str]:
        pairs = results.pairs(*runs, self.metric) or {
            None: [results.estimate(run, self.metric) for run in runs]
        }
        differ = [pair for pair in pairs.values() if pair[0].value != pair[1].value]
        a, b = (differ or list(pairs.values()))[0]
        metric = METRICS[self.metric]
        same = f"{number(a.value, metric.digits)} in both rows"
        return not differ, f"{metric.heading} {f'{a.value!r} and {b.value!r}' if differ else same}"


@dataclasses.dataclass(frozen=True)
class NearOneOverT:
    """Z of the row is within a factor of `factor` of 1/T."""

    label: str
    factor: float = 5.0
    metric: str = "z"

    @property
    def labels(self) -> Sequence[str]:
        return (self.label,)

    def decide(self, runs: Sequence[Run], results: Results) -> tuple[bool | None, str]:
        product = results.estimate(runs[0], "z").value * runs[0].config.prior.T
        near = 1.0 / self.factor <= product <= self.factor
        return near, f"Z · T = {product:.2g} for {self.label}"


@dataclasses.dataclass(frozen=True)
class NoGain:
    """The NLL of row `one` is at most `margin` nats below that of row `other`."""

    one: str
    other: str
    margin: float = 0.3
    metric: str = "nll"

    @property
    def labels(self) -> Sequence[str]:
        return self.one, self.other

    def decide(self, runs: Sequence[Run], results: Results) -> tuple[bool | None, str]:
        gain = results.difference(runs[1], runs[0], self.metric)
        size = shown(gain, METRICS[self.metric].digits)
        return gain.value <= self.margin, f"{self.one} gains {size} over {self.other}"


@dataclasses.dataclass(frozen=True)
class Finding:
    """A statement about a table. It holds if all of its checks hold.

    Attributes:
      text: The statement.
      checks: What it says about rows of the table.
      source: Who states it.
    """

    text: str
    checks: tuple[Check, ...]
    source: str = "The paper"

    def verdict(self, runs: Mapping[str, Run | None], results: Results) -> str:
        """Returns one line that says whether the finding holds in our numbers.

        Args:
          runs: Run of each row, by label.
          results: Numbers of the runs.
        """
        held, failed, undecided, missing, texts = 0, [], [], {}, []
        for check in self.checks:
            absent = {
                label: results.why_missing(runs[label])
                for label in check.labels
                if results.estimate(runs[label], check.metric) is None
            }
            if absent:
                missing |= absent
                continue
            outcome, text = check.decide([runs[label] for label in check.labels], results)
            texts.append(text)
            if outcome is None:
                undecided.append(text)
            elif outcome:
                held += 1
            else:
                failed.append(text)
        total = len(self.checks)
        if failed:
            answer = f"**Does not hold** in {len(failed)} of {total}: {'; '.join(failed)}"
        elif undecided:
            answer = f"Not decided, within the error: {'; '.join(undecided)}"
        elif missing and held:
            answer = f"**Holds** in {held} of {total}, missing {_grouped(missing)}"
        elif missing:
            answer = f"Not decidable: missing {_grouped(missing)}"
        elif total > 3:
            answer = f"**Holds**, in {total} of {total}"
        else:
            answer = f"**Holds**: {'; '.join(texts)}"
        if (failed or undecided) and held:
            answer += f". Holds in {held} of {total}"
        if (failed or undecided) and missing:
            answer += f". Missing: {_grouped(missing)}"
        return f"{self.source}: {self.text}. {answer}."


def _grouped(missing: Mapping[str, str]) -> str:
    """Returns the missing rows in words, once for each reason; their number if there are many."""
    labels = {}
    for label, why in missing.items():
        labels.setdefault(why, []).append(label)
    return "; ".join(
        f"{'; '.join(names) if len(names) <= 3 else f'{len(names)} rows'} ({why})"
        for why, names in labels.items()
    )


@dataclasses.dataclass(frozen=True)
class FigureFinding:
    """A statement of the paper about a figure: `metric` is largest in the first row."""

    text: str
    metric: str

    def verdict(self, labels: Sequence[str], rows: Sequence[Mapping]) -> str:
        """Returns one line that says whether the finding holds in our numbers."""
        first = rows[0][self.metric]
        worse = [label for label, row in zip(labels, rows, strict=True) if row[self.metric] > first]
        answer = f"**Does not hold** for {', '.join(worse)}" if worse else "**Holds**"
        return f"The paper: {self.text}. {answer}."
