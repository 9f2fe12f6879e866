"""Replaces distributions inside a TFP distribution."""

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
    """Returns a distribution in which some of the inner distributions are replaced.

    Distributions that contain a replaced one (`tfd.Independent`, `tfd.Sample`,
    `tfd.TransformedDistribution`, mixtures, ...) are created again from their constructor
    arguments. Inner distributions that are not constructor arguments are not found.

    Args:
      distribution: Any TFP distribution.
      replace: Called with `distribution` and with the distributions among its arguments. Returns
        the replacement, or `None` to continue with the arguments of that distribution.

    Returns:
      rebuilt: `distribution` itself if nothing was replaced.
    """
    done = {}  # a distribution that occurs twice is replaced by one object

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
        # TFP's own `copy` would keep a reference to the original.
        return value if new is old else type(value)(**new)

    return visit(distribution)
