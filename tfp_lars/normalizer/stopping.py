"""How many samples a target error takes. Pure functions.

Stopping at the first look with a small error would favor samples whose error is underestimated. The
number of samples is planned instead: the error so far predicts how many samples the target takes,
and these are drawn before the next look. Most runs look a few times only, and rarely twice near the
target.
"""

from __future__ import annotations

import math

__all__ = ["first_look", "next_look"]

_FIRST = 10.0
_MARGIN = 1.1  # a second look near the target should be rare
_GROWTH = 8.0  # errors from few samples predict poorly


def first_look(target: float, most: int) -> int:
    """Returns the number of samples before the first look, at most `most`.

    A mean Z of values that are 0 or 1 takes `(1 - Z) / (Z * target**2)` samples. After
    `10 / target` samples, either these are enough, or the samples contain about `100 * Z` zeros.
    The decision to stop then never depends on a few zeros.

    Args:
      target: Wanted standard error of the log of the mean.
      most: Largest number of samples.
    """
    return min(most, math.ceil(_FIRST / target))


def next_look(count: int, error: float, target: float, most: int) -> int:
    """Returns the number of samples after which to look again, at most `most`.

    Args:
      count: Number of samples so far.
      error: Standard error that they give, above `target`. It may be infinite.
      target: Wanted standard error.
      most: Largest number of samples.
    """
    growth = min(_GROWTH, _MARGIN * (error / target) ** 2)
    return min(most, math.ceil(growth * count))
