"""Contenders take turns, so that a noisy machine is noisy to all of them.

A turn is a number of calls that follow each other; its result is the time of one call. In each
round every contender has one turn, and each round begins with another contender. Ratios are of
turns of the same round.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

__all__ = ["Spread", "Turn", "measure", "paired_ratio", "slope", "time_calls"]

# Number of calls -> seconds of one of them.
Turn = Callable[[int], float]


@dataclasses.dataclass(frozen=True)
class Spread:
    """Median and quartiles of `count` rounds."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of one value for each round, at least one of them."""
        low, median, high = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
        return cls(median, low, high, len(values))


def time_calls(
    call: Callable[[], object], num_calls: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds that one of `num_calls` calls took, on average."""
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
    """Seconds of one call, a value for each round and contender.

    Args:
      contenders: A turn by name; warm: compiled, and threads started.
      rounds: How often each of them has its turn.
      least_seconds: How long a turn should last at least. One more call of each contender, that
        does not count, tells how many calls that takes.
      num_calls: In each turn, the same for all, without that one more: for calls that take long.
      warm_up: Rounds before the first one that counts.
      rest: Seconds before each turn, in which idle threads of the one before stop spinning.
      sleep: How to rest.
      on_round: Called with the number of rounds done.

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
    """How many calls of `seconds` each last `least_seconds`."""
    if seconds * most <= least_seconds:
        return most
    return max(1, math.ceil(least_seconds / seconds))


def paired_ratio(above: Sequence[float], below: Sequence[float]) -> Spread:
    """Of `above / below`, round by round."""
    return Spread.of([a / b for a, b in zip(above, below, strict=True)])


def slope(sizes: Sequence[float], seconds: Sequence[Sequence[float]], start: float) -> Spread:
    """Exponent of the growth of time with size: least squares in logarithms, round by round.

    Args:
      sizes: Shape `[K]`.
      seconds: Shape `[K, rounds]`.
      start: Smaller sizes are left out.
    """
    large = [i for i, size in enumerate(sizes) if size >= start]
    if len(large) < 2:
        raise ValueError(f"`start` is {start}, which leaves {len(large)} of `sizes` {sizes}.")
    x = np.log([sizes[i] for i in large])
    return Spread.of([float(np.polyfit(x, y, 1)[0]) for y in np.log([seconds[i] for i in large]).T])
