"""2-D target densities with exact log densities and samplers.

The mixtures of separated Gaussians (`ring`, `grid`, `wide_grid`) have a single scale, chosen such
that KL(q || N(0, I)) = 1.80, as in the paper's study. A test checks it. The paper does not give its
means. The default is six modes on a ring because a network of 10 units reaches about the paper's
KL of 0.66 on it. On the grids its KL is much higher or lower.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import tensorflow_probability as tfp

# TFP is imported only where a target is made, so that a command can list the names quickly.

__all__ = ["TARGETS", "Target", "make"]


@dataclasses.dataclass(frozen=True)
class Target:
    """A 2-D target density `q`.

    Attributes:
      name: Value of `--target`.
      description: Means and scale, in words.
      distribution: TFP distribution with `event_shape` `[2]`, in float32.
    """

    name: str
    description: str
    distribution: tfp.distributions.Distribution


def make(name: str) -> Target:
    """Returns the target with a name from `TARGETS`."""
    if name not in TARGETS:
        raise ValueError(f"unknown target {name!r}; choose one of {', '.join(TARGETS)}")
    return TARGETS[name]()


def _ring() -> Target:
    angle = 2 * np.pi * np.arange(6) / 6
    return Target(
        "ring",
        "6 equal Gaussians on a circle of radius 1.5, standard deviation 0.1796",
        _gaussians(1.5 * _polar(angle), 0.1796),
    )


def _grid() -> Target:
    return Target(
        "grid",
        "9 equal Gaussians, means {-1, 0, 1} x {-1, 0, 1}, standard deviation 0.1155",
        _gaussians(_lattice([-1.0, 0.0, 1.0]), 0.1155),
    )


def _wide_grid() -> Target:
    return Target(
        "wide_grid",
        "9 equal Gaussians, means {-1.5, 0, 1.5} x {-1.5, 0, 1.5}, standard deviation 0.1768",
        _gaussians(_lattice([-1.5, 0.0, 1.5]), 0.1768),
    )


def _two_moons() -> Target:
    angle = np.pi * (np.arange(16) + 0.5) / 16
    upper = _polar(angle) - [0.5, 0.25]
    return Target(
        "two_moons",
        "16 equal Gaussians along each of two interleaved half circles of radius 1.2, "
        "standard deviation 0.18",
        _gaussians(1.2 * np.concatenate([upper, -upper]), 0.18),
    )


def _two_spirals() -> Target:
    # The arc length grows as the angle squared, so the root spaces the components evenly.
    angle = 3 * np.pi * np.sqrt((np.arange(100) + 0.5) / 100)
    arm = 2 * (angle / (3 * np.pi))[:, np.newaxis] * _polar(angle)
    return Target(
        "two_spirals",
        "100 equal Gaussians along each of two spirals of 1.5 turns and radius 2, "
        "standard deviation 0.08",
        _gaussians(np.concatenate([arm, -arm]), 0.08),
    )


def _checkerboard() -> Target:
    from tensorflow_probability import distributions as tfd

    corners = _lattice(np.arange(-2, 2))
    low = corners[corners.sum(axis=-1) % 2 == 0].astype(np.float32)
    squares = tfd.Independent(tfd.Uniform(low, low + 1), reinterpreted_batch_ndims=1)
    return Target(
        "checkerboard",
        "uniform on the 8 dark squares of a 4 x 4 board of unit squares",
        tfd.MixtureSameFamily(tfd.Categorical(logits=np.zeros(len(low), np.float32)), squares),
    )


def _polar(angle):
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _lattice(axis):
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape([-1, 2])


def _gaussians(means, scale):
    from tensorflow_probability import distributions as tfd

    means = np.asarray(means, np.float32)
    return tfd.MixtureSameFamily(
        tfd.Categorical(logits=np.zeros(len(means), np.float32)),
        tfd.MultivariateNormalDiag(means, np.full_like(means, scale)),
    )


TARGETS: dict[str, Callable[[], Target]] = {
    "ring": _ring,
    "grid": _grid,
    "wide_grid": _wide_grid,
    "checkerboard": _checkerboard,
    "two_moons": _two_moons,
    "two_spirals": _two_spirals,
}
