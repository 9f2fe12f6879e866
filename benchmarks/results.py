"""What a benchmark found: goals, met or missed, and the times behind them."""

from __future__ import annotations

import dataclasses

from benchmarks.harness import Spread

__all__ = ["CaseResult", "Curve", "Goal", "Outcome", "Timing"]


@dataclasses.dataclass(frozen=True)
class Goal:
    """What is asked of a number.

    Attributes:
      what: The number, in words.
      at_least: Its lower bound, if any.
      at_most: Its upper bound, if any.
      unit: Follows the number: `"x"` for ratios.
      bounded_by: What stands in the way of a goal that is missed; shown only then.
    """

    what: str
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"
    bounded_by: str = ""

    def __str__(self) -> str:
        bounds = [("≥", self.at_least), ("≤", self.at_most)]
        return ", ".join(f"{sign} {b:g}{self.suffix}" for sign, b in bounds if b is not None)

    @property
    def suffix(self) -> str:
        """The unit as it follows a number."""
        return self.unit if self.unit in ("x", "%", "") else f" {self.unit}"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A goal and what was found.

    Attributes:
      goal: What was asked.
      value: What was found; the median decides.
      absent: Why there is no value.
    """

    goal: Goal
    value: Spread | None = None
    absent: str = ""

    @property
    def status(self) -> str:
        """`"met"`, `"missed"` or `"absent"`."""
        if self.value is None:
            return "absent"
        return "met" if self.margin >= 1.0 else "missed"

    @property
    def margin(self) -> float:
        """How many times better than asked; the goal is met from 1 on."""
        if self.value is None:
            raise ValueError(f"There is no value of {self.goal.what!r}: {self.absent}")
        value, margins = self.value.median, []
        if self.goal.at_least is not None:
            margins.append(value / self.goal.at_least)
        if self.goal.at_most is not None:
            # Where less is better, nothing at all is best.
            margins.append(self.goal.at_most / value if value > 0 else float("inf"))
        return min(margins)


@dataclasses.dataclass(frozen=True)
class Timing:
    """How long, or how much, one contender took at one size.

    Attributes:
      size: In words.
      contender: Its name.
      value: In `unit`.
      unit: `"s"` or `"MB"`.
    """

    size: str
    contender: str
    value: Spread
    unit: str = "s"


@dataclasses.dataclass(frozen=True)
class Curve:
    """How time grows with a size.

    Attributes:
      what: What was timed.
      axis: What the size is.
      sizes: In rising order.
      seconds: One for each size.
      start: From here on the slope was fitted.
      slope: In logarithms of both.
    """

    what: str
    axis: str
    sizes: list[float]
    seconds: list[Spread]
    start: float
    slope: Spread


@dataclasses.dataclass(frozen=True)
class CaseResult:
    """All that a case found.

    Attributes:
      name: Of the case.
      title: What was compared, in one line.
      outcomes: The goals.
      timings: What is behind them.
      curves: Growth.
      notes: What a reader should know to judge the numbers.
    """

    name: str
    title: str
    outcomes: list[Outcome] = dataclasses.field(default_factory=list)
    timings: list[Timing] = dataclasses.field(default_factory=list)
    curves: list[Curve] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def to_json(self) -> dict:
        """Plain dictionaries and lists; each outcome with its `status`."""
        plain = dataclasses.asdict(self)
        for outcome, entry in zip(self.outcomes, plain["outcomes"], strict=True):
            entry["status"] = outcome.status
        return plain

    @classmethod
    def from_json(cls, plain: dict) -> CaseResult:
        """What `to_json` was made from."""
        return cls(
            name=plain["name"],
            title=plain["title"],
            outcomes=[
                Outcome(Goal(**entry["goal"]), _spread(entry["value"]), entry["absent"])
                for entry in plain["outcomes"]
            ],
            timings=[
                Timing(**{**entry, "value": _spread(entry["value"])}) for entry in plain["timings"]
            ],
            curves=[
                Curve(
                    **{
                        **entry,
                        "seconds": [_spread(s) for s in entry["seconds"]],
                        "slope": _spread(entry["slope"]),
                    }
                )
                for entry in plain["curves"]
            ],
            notes=list(plain["notes"]),
        )


def _spread(plain: dict | None) -> Spread | None:
    return None if plain is None else Spread(**plain)
