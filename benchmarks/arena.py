"""Where a case lets its contenders meet: their processes, their turns, and what was absent."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from benchmarks import harness
from benchmarks.harness import Spread, Turn
from benchmarks.processes import AbsentError, Child
from benchmarks.results import Goal, Outcome, Timing
from examples.common import cores

__all__ = ["Arena", "Settings", "Times"]

Value = TypeVar("Value")

_TENSORFLOW, _TORCH = "benchmarks.with_tensorflow", "benchmarks.with_torch"
_KERAS = "benchmarks.with_keras"


def print_progress(line: str) -> None:
    """To stderr; on a terminal each line takes the place of the one before."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line[:79]}", end="", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How much to measure.

    Attributes:
      size: `"full"`, `"quick"`, or `"tiny"`: to see that it runs.
      threads: For each contender.
      show: What to do with lines on progress.
    """

    size: str = "full"
    threads: int = dataclasses.field(default_factory=cores.available)
    show: Callable[[str], None] = print_progress

    def pick(self, full: Value, quick: Value, tiny: Value) -> Value:
        """The one that fits the size."""
        return {"full": full, "quick": quick, "tiny": tiny}[self.size]


@dataclasses.dataclass(frozen=True)
class Times:
    """What was measured of several contenders at one size.

    Attributes:
      size: In words.
      seconds: A list for each contender, one entry for each round.
      absent: Why others took no part, by name.
    """

    size: str
    seconds: Mapping[str, Sequence[float]]
    absent: Mapping[str, str]

    def timings(self) -> list[Timing]:
        """Medians and quartiles."""
        return [Timing(self.size, name, Spread.of(s)) for name, s in self.seconds.items()]

    def ratio(self, goal: Goal, above: str, below: str) -> Outcome:
        """Whether the time of `above` over that of `below` is as the goal has it."""
        for name in (above, below):
            if name in self.absent:
                return Outcome(goal, absent=f"{name}: {self.absent[name]}")
        return Outcome(goal, harness.paired_ratio(self.seconds[above], self.seconds[below]))

    def share(self, part: str, whole: str) -> str:
        """The time of one contender in percent of that of another, in words."""
        if part not in self.seconds or whole not in self.seconds:
            return "an unknown part"
        return f"{harness.paired_ratio(self.seconds[part], self.seconds[whole]).median:.0%}"


class Arena:
    """The processes of one case; a context manager.

    Args:
      settings: How much to measure.
      name: Of the case, for lines on progress.
    """

    def __init__(self, settings: Settings, name: str):
        self.settings = settings
        self._name = name
        self._stack = contextlib.ExitStack()
        self._children: dict[str, Child] = {}

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()

    def call(self, function: str, **kwargs) -> Any:
        """What a function of `with_tensorflow` returns."""
        return self._child(_TENSORFLOW).call(function, **kwargs)

    def call_in_fresh_process(self, function: str, **kwargs) -> Any:
        """The same, in a process that does nothing else."""
        with Child(_TENSORFLOW, self.settings.threads) as child:
            return child.call(function, **kwargs)

    def tensorflow(self, function: str, **kwargs) -> Callable[[], Turn]:
        """A contender of `with_tensorflow`, for `measure`."""
        return lambda: self._child(_TENSORFLOW).contender(function, **kwargs)

    def keras(self, function: str, **kwargs) -> Callable[[], Turn]:
        """A contender of `with_keras`, for `measure`."""
        return lambda: self._child(_KERAS).contender(function, **kwargs)

    def torch(self, function: str, **kwargs) -> Callable[[], Turn]:
        """A contender of `with_torch`, for `measure`; it may turn out to be absent."""
        return lambda: self._child(_TORCH).contender(function, **kwargs)

    def measure(
        self, size: str, contenders: Mapping[str, Callable[[], Turn]], rounds: int, **kwargs
    ) -> Times:
        """Lets contenders take turns.

        Args:
          size: In words.
          contenders: By name, from `tensorflow`, `keras` or `torch`.
          rounds: How many.
          **kwargs: Passed to `harness.measure`.
        """
        turns, absent = {}, {}
        self.show(f"{size}: warming up")
        for name, make in contenders.items():
            try:
                turns[name] = make()
            except AbsentError as reason:
                absent[name] = str(reason)
                self.show(f"{size}: {name} is absent ({reason})")
        seconds = harness.measure(turns, rounds, on_round=self._progress(size, rounds), **kwargs)
        return Times(size, seconds, absent)

    def show(self, line: str) -> None:
        """Shows a line on progress."""
        self.settings.show(f"{self._name}, {line}")

    def _progress(self, size: str, rounds: int) -> Callable[[int], None]:
        return lambda done: self.show(f"{size}: round {done} of {rounds}")

    def _child(self, module: str) -> Child:
        if module not in self._children:
            child = Child(module, self.settings.threads)
            self._children[module] = self._stack.enter_context(child)
        return self._children[module]
