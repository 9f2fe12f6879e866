"""Distributions inside distributions: replaces parts of a TFP distribution by building it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow_probability as tfp

__all__ = ["rebuild"]

tfd = tfp.distributions


def rebuild(
    distribution: tfd.Distribution,
    replace: Callable[[tfd.Distribution], tfd.Distribution | None],
) -> tfd.Distribution:
    """A distribution with some of the distributions in it replaced.

    What holds a replaced part (`tfd.Independent`, `tfd.Sample`, `tfd.TransformedDistribution`,
    mixtures, ...) is made again from its own constructor arguments. Parts that a distribution does
    not take as an argument are not seen.

    Args:
      distribution: Any TFP distribution.
      replace: Called with `distribution` and with those in its arguments. It returns what takes
        the place of its argument, or `None` to have the arguments of that looked at.

    Returns:
      rebuilt: `distribution` itself where nothing in it was replaced.
    """
    done = {}  # one part that is used twice stays one part

    def visit(value: Any) -> Any:
        if isinstance(value, tfd.Distribution):
            if id(value) not in done:
                done[id(value)] = visit_distribution(value)
            return done[id(value)]
        if isinstance(value, dict):
            parts = {key: visit(part) for key, part in value.items()}
            return parts if any(parts[key] is not value[key] for key in value) else value
        if isinstance(value, (list, tuple)):
            parts = [visit(part) for part in value]
            if all(new is old for new, old in zip(parts, value, strict=True)):
                return value
            return tuple(parts) if isinstance(value, tuple) else parts
        return value

    def visit_distribution(value: tfd.Distribution) -> tfd.Distribution:
        replacement = replace(value)
        if replacement is not None:
            return replacement
        old = value.parameters
        new = visit(old)
        # TFP's own `copy` makes the copy hold on to the original, and so to what was replaced.
        return value if new is old else type(value)(**new)

    return visit(distribution)
