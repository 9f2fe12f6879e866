"""Target densities in the plane: all known exactly, all easy to draw from.

The two mixtures of separated Gaussians, `grid` and `ring`, have one scale, and it is set such
that KL(q || N(0, I)) = 1.80, as in the paper's study (`tests/test_toy_2d.py` checks it).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow_probability as tfp

tfd = tfp.distributions

__all__ = ["DEFAULT", "TARGETS", "Target", "make"]

DEFAULT = "grid"


@dataclasses.dataclass(frozen=True)
class Target:
    """A density `q` over the plane.

    Attributes:
      name: what `--target` takes.
      description: means and scale, in words.
      distribution: a TFP distribution with `event_shape` `[2]`, in float32.
    """

    name: str
    description: str
    distribution: tfd.Distribution


def make(name: str) -> Target:
    """The target of that name; one of `TARGETS`."""
    if name not in TARGETS:
        raise ValueError(f"unknown target {name!r}; choose one of {', '.join(TARGETS)}")
    return TARGETS[name]()


def _grid() -> Target:
    axis = np.array([-1.0, 0.0, 1.0])
    means = np.stack(np.meshgrid(axis, axis), axis=-1).reshape([-1, 2])
    return Target(
        "grid",
        "9 equal Gaussians, means {-1, 0, 1} x {-1, 0, 1}, standard deviation 0.1155",
        _gaussians(means, 0.1155),
    )


def _ring() -> Target:
    angle = 2 * np.pi * np.arange(8) / 8
    return Target(
        "ring",
        "8 equal Gaussians on a circle of radius 1.5, standard deviation 0.1549",
        _gaussians(1.5 * _polar(angle), 0.1549),
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
    # The root spaces the components evenly along the arm, for its length grows as angle squared.
    angle = 3 * np.pi * np.sqrt((np.arange(100) + 0.5) / 100)
    arm = 2 * (angle / (3 * np.pi))[:, np.newaxis] * _polar(angle)
    return Target(
        "two_spirals",
        "100 equal Gaussians along each of two spirals of 1.5 turns and radius 2, "
        "standard deviation 0.08",
        _gaussians(np.concatenate([arm, -arm]), 0.08),
    )


def _checkerboard() -> Target:
    corner = np.arange(-2, 2)
    corners = np.stack(np.meshgrid(corner, corner), axis=-1).reshape([-1, 2])
    low = corners[corners.sum(axis=-1) % 2 == 0].astype(np.float32)
    squares = tfd.Independent(tfd.Uniform(low, low + 1), reinterpreted_batch_ndims=1)
    return Target(
        "checkerboard",
        "uniform on the 8 dark squares of a 4 x 4 board of unit squares",
        tfd.MixtureSameFamily(tfd.Categorical(logits=np.zeros(len(low), np.float32)), squares),
    )


def _polar(angle):
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _gaussians(means, scale):
    means = np.asarray(means, np.float32)
    return tfd.MixtureSameFamily(
        tfd.Categorical(logits=np.zeros(len(means), np.float32)),
        tfd.MultivariateNormalDiag(means, np.full_like(means, scale)),
    )


TARGETS: dict[str, Callable[[], Target]] = {
    "grid": _grid,
    "ring": _ring,
    "checkerboard": _checkerboard,
    "two_moons": _two_moons,
    "two_spirals": _two_spirals,
}
