"""Measures contenders in turns, so that machine noise affects all of them alike.

A turn is a number of consecutive calls. Its result is the mean time of one call. In each round
every contender has one turn, and each round starts with a different contender. Ratios compare
turns of the same round.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

__all__ = ["Spread", "Turn", "measure", "paired_ratio", "slope", "time_calls"]

# Number of calls -> seconds per call.
Turn = Callable[[int], float]


@dataclasses.dataclass(frozen=True)
class Spread:
    """Median and quartiles over `count` rounds."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarizes one value per round. At least one value is required."""
        low, median, high = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
        return cls(median, low, high, len(values))


def time_calls(
    call: Callable[[], object], num_calls: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Returns the mean seconds per call over `num_calls` calls."""
    start = clock()
    for _ in range(num_calls):
        call()
    return (clock() - start) / num_calls


def measure(
    contenders: Mapping[str, Turn],
    rounds: int,
    *,
    least_seconds: float = 0.1,
    num_calls: int | None = None,
    warm_up: int = 0,
    rest: float = 0.02,
    sleep: Callable[[float], None] = time.sleep,
    on_round: Callable[[int], None] = lambda done: None,
) -> dict[str, list[float]]:
    """Measures seconds per call for each contender and round.

    Args:
      contenders: Turns by name. They are warm: compiled, with threads started.
      rounds: Number of turns of each contender.
      least_seconds: Minimum duration of a turn. One trial call of each contender, which is not
        recorded, determines the number of calls.
      num_calls: Number of calls per turn, the same for all contenders. Skips the trial call, which
        suits long calls.
      warm_up: Number of rounds to run before the recorded ones.
      rest: Seconds to wait before each turn, so that idle threads of the last turn stop spinning.
      sleep: Function that waits for a number of seconds.
      on_round: Called with the number of completed rounds.

    Returns:
      seconds: Lists of length `rounds`, by name.
    """
    names = list(contenders)
    if num_calls is None:
        calls = {name: calls_needed(contenders[name](1), least_seconds) for name in names}
    else:
        calls = dict.fromkeys(names, num_calls)
    seconds = {name: [] for name in names}
    for i in range(-warm_up, rounds):
        first = i % max(len(names), 1)
        for name in names[first:] + names[:first]:
            sleep(rest)
            turn = contenders[name](calls[name])
            if i >= 0:
                seconds[name].append(turn)
        if i >= 0:
            on_round(i + 1)
    return seconds


def calls_needed(seconds: float, least_seconds: float, most: int = 1000) -> int:
    """Returns the number of calls of `seconds` each that take `least_seconds`, at most `most`."""
    if seconds * most <= least_seconds:
        return most
    return max(1, math.ceil(least_seconds / seconds))


def paired_ratio(above: Sequence[float], below: Sequence[float]) -> Spread:
    """Returns the spread of `above / below`, paired by round."""
    return Spread.of([a / b for a, b in zip(above, below, strict=True)])


def slope(sizes: Sequence[float], seconds: Sequence[Sequence[float]], start: float) -> Spread:
    """Fits the exponent of time against size by least squares in logarithms, for each round.

    Args:
      sizes: Shape `[K]`.
      seconds: Shape `[K, rounds]`.
      start: Smallest size to include.
    """
    large = [i for i, size in enumerate(sizes) if size >= start]
    if len(large) < 2:
        raise ValueError(
            f"`start` is {start}, which leaves {len(large)} of `sizes` {sizes}. Choose a smaller "
            "`start`, so that at least 2 sizes remain."
        )
    x = np.log([sizes[i] for i in large])
    return Spread.of([float(np.polyfit(x, y, 1)[0]) for y in np.log([seconds[i] for i in large]).T])
