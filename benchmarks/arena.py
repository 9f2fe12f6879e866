"""Runs the contenders of one case in child processes and records which are absent."""

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
    """Prints to stderr. On a terminal, each line replaces the previous one."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line[:79]}", end="", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Size and resources of a run.

    Attributes:
      size: `"full"`, `"quick"`, or `"tiny"`, which only checks that the code runs.
      threads: Number of threads for each contender.
      show: Function that displays a progress line.
    """

    size: str = "full"
    threads: int = dataclasses.field(default_factory=cores.available)
    show: Callable[[str], None] = print_progress

    def pick(self, full: Value, quick: Value, tiny: Value) -> Value:
        """Returns the value for the current `size`."""
        return {"full": full, "quick": quick, "tiny": tiny}[self.size]


@dataclasses.dataclass(frozen=True)
class Times:
    """Times of several contenders at one size.

    Attributes:
      size: Description of the size.
      seconds: Seconds per call, a list with one entry per round for each contender.
      absent: Reasons why contenders were not measured, by name.
    """

    size: str
    seconds: Mapping[str, Sequence[float]]
    absent: Mapping[str, str]

    def timings(self) -> list[Timing]:
        """Returns the median and quartiles of each contender."""
        return [Timing(self.size, name, Spread.of(s)) for name, s in self.seconds.items()]

    def ratio(self, goal: Goal, above: str, below: str) -> Outcome:
        """Compares the ratio of the times of `above` and `below` with the goal."""
        for name in (above, below):
            if name in self.absent:
                return Outcome(goal, absent=f"{name}: {self.absent[name]}")
        return Outcome(goal, harness.paired_ratio(self.seconds[above], self.seconds[below]))

    def share(self, part: str, whole: str) -> str:
        """Formats the time of `part` as a percentage of the time of `whole`."""
        if part not in self.seconds or whole not in self.seconds:
            return "an unknown share"
        return f"{harness.paired_ratio(self.seconds[part], self.seconds[whole]).median:.0%}"


class Arena:
    """Context manager for the child processes of one case.

    Args:
      settings: Size and resources of the run.
      name: Name of the case, for progress lines.
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
        """Returns the result of a function of `with_tensorflow`."""
        return self._child(_TENSORFLOW).call(function, **kwargs)

    def call_torch(self, function: str, **kwargs) -> Any:
        """Returns the result of a function of `with_torch`.

        Raises:
          AbsentError: If a package is missing.
        """
        return self._child(_TORCH).call(function, **kwargs)

    def call_in_fresh_process(self, function: str, **kwargs) -> Any:
        """Same as `call`, in a new process that runs nothing else."""
        with Child(_TENSORFLOW, self.settings.threads) as child:
            return child.call(function, **kwargs)

    def tensorflow(self, function: str, **kwargs) -> Callable[[], Turn]:
        """Returns a contender of `with_tensorflow`, for `measure`."""
        return lambda: self._child(_TENSORFLOW).contender(function, **kwargs)

    def keras(self, function: str, **kwargs) -> Callable[[], Turn]:
        """Returns a contender of `with_keras`, for `measure`."""
        return lambda: self._child(_KERAS).contender(function, **kwargs)

    def torch(self, function: str, **kwargs) -> Callable[[], Turn]:
        """Returns a contender of `with_torch`, for `measure`. It may be absent."""
        return lambda: self._child(_TORCH).contender(function, **kwargs)

    def measure(
        self, size: str, contenders: Mapping[str, Callable[[], Turn]], rounds: int, **kwargs
    ) -> Times:
        """Measures contenders in turns.

        Args:
          size: Description of the size.
          contenders: Results of `tensorflow`, `keras` or `torch`, by name.
          rounds: Number of rounds.
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
        """Displays a progress line."""
        self.settings.show(f"{self._name}, {line}")

    def _progress(self, size: str, rounds: int) -> Callable[[int], None]:
        return lambda done: self.show(f"{size}: round {done} of {rounds}")

    def _child(self, module: str) -> Child:
        if module not in self._children:
            child = Child(module, self.settings.threads)
            self._children[module] = self._stack.enter_context(child)
        return self._children[module]
