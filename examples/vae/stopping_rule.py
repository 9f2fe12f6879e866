"""When training ends by the validation NLL. Imports no TensorFlow."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping

from examples.common import files
from examples.common.command_line import UserError

PATIENCE = 10  # consecutive evaluations without improvement before training ends


def read(file: pathlib.Path) -> dict[int, float]:
    """Returns the validation NLLs in a file by step; none if there is no file.

    Raises:
      UserError: The file cannot be read.
    """
    if not file.exists():
        return {}
    try:
        return {int(k): float(v) for k, v in files.read_json(file).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{file} cannot be read ({error}): delete it.") from None


def lowest(history: Mapping[int, float]) -> float | None:
    """Returns the lowest validation NLL; `None` if there is none. Ignores NaN."""
    return min((nll for nll in history.values() if not math.isnan(nll)), default=None)


def has_stopped(history: Mapping[int, float]) -> bool:
    """Returns whether the last `PATIENCE` evaluations brought no improvement.

    Args:
      history: Validation NLLs by step, in the order of the evaluations.
    """
    values, best = list(history.values()), lowest(history)
    return (0 if best is None else values.index(best)) < len(values) - PATIENCE
