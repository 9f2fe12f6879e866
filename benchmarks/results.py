"""Results of a benchmark: goals, outcomes and measurements."""

from __future__ import annotations

import dataclasses

from benchmarks.harness import Spread

__all__ = ["CaseResult", "Curve", "Goal", "Outcome", "Timing"]


@dataclasses.dataclass(frozen=True)
class Goal:
    """Bounds on a measured quantity.

    Attributes:
      what: Description of the quantity.
      at_least: Lower bound, if any.
      at_most: Upper bound, if any.
      unit: Unit of the quantity, `"x"` for ratios.
      bounded_by: Known cause if the goal is missed. The report shows it only in that case.
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
        """Returns the unit as printed after a number."""
        return self.unit if self.unit in ("x", "%", "") else f" {self.unit}"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A goal and its measured value.

    Attributes:
      goal: Bounds on the value.
      value: Measured value. The median decides whether the goal is met.
      absent: Reason why there is no value.
    """

    goal: Goal
    value: Spread | None = None
    absent: str = ""

    @property
    def status(self) -> str:
        """Returns `"met"`, `"missed"` or `"absent"`."""
        if self.value is None:
            return "absent"
        return "met" if self.margin >= 1.0 else "missed"

    @property
    def margin(self) -> float:
        """Factor by which the value is better than the goal. At least 1 if the goal is met."""
        if self.value is None:
            raise ValueError(f"{self.goal.what!r} has no value: {self.absent}")
        value, margins = self.value.median, []
        if self.goal.at_least is not None:
            margins.append(value / self.goal.at_least)
        if self.goal.at_most is not None:
            # A value of 0 or less is the best possible under an upper bound.
            margins.append(float("inf") if value <= 0 else self.goal.at_most / value)
        return min(margins)


@dataclasses.dataclass(frozen=True)
class Timing:
    """Time or memory of one contender at one size.

    Attributes:
      size: Description of the size.
      contender: Name of the contender.
      value: Measured value, in `unit`.
      unit: `"s"` or `"MB"`.
    """

    size: str
    contender: str
    value: Spread
    unit: str = "s"


@dataclasses.dataclass(frozen=True)
class Curve:
    """Time as a function of size.

    Attributes:
      what: Description of the task.
      axis: Name of the size.
      sizes: Sizes in increasing order.
      seconds: Times, one entry per size.
      start: Smallest size in the fit of the slope.
      slope: Slope of log time against log size.
    """

    what: str
    axis: str
    sizes: list[float]
    seconds: list[Spread]
    start: float
    slope: Spread


@dataclasses.dataclass(frozen=True)
class CaseResult:
    """All results of a case.

    Attributes:
      name: Name of the case.
      title: Description of the comparison, in one line.
      outcomes: Goals and their values.
      timings: Measurements of the contenders.
      curves: Times as functions of size.
      notes: Conditions of the measurement.
    """

    name: str
    title: str
    outcomes: list[Outcome] = dataclasses.field(default_factory=list)
    timings: list[Timing] = dataclasses.field(default_factory=list)
    curves: list[Curve] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def to_json(self) -> dict:
        """Converts to plain dictionaries and lists. Each outcome includes its `status`."""
        plain = dataclasses.asdict(self)
        for outcome, entry in zip(self.outcomes, plain["outcomes"], strict=True):
            entry["status"] = outcome.status
        return plain

    @classmethod
    def from_json(cls, plain: dict) -> CaseResult:
        """Restores a result from the output of `to_json`."""
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
