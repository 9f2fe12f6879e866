"""Targets for the study of the defaults of `fit`.

The defaults were chosen while looking at the targets of `CHOSEN_ON`. Those of `FRESH` were added
afterward, so that they show how the defaults do on data that they were not chosen on.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

__all__ = ["CHOSEN_ON", "FRESH", "TARGETS", "Target", "latents"]

tfd = tfp.distributions

Sampler = Callable[[int, np.random.Generator], np.ndarray]

_NUM_SAMPLES = 20_000


@dataclasses.dataclass(frozen=True)
class Target:
    """A distribution to fit and a proposal that covers it.

    Attributes:
      name: Name in tables.
      samples: Returns samples for training and for test, shape `[n]` + event.
      proposal: Returns the proposal.
    """

    name: str
    samples: Callable[[], tuple[np.ndarray, np.ndarray]]
    proposal: Callable[[], tfd.Distribution]


def _drawn(draw: Sampler) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    return lambda: (
        draw(_NUM_SAMPLES, np.random.default_rng(0)),
        draw(_NUM_SAMPLES, np.random.default_rng(1)),
    )


def _normal(d: int) -> Callable[[], tfd.Distribution]:
    return lambda: tfd.MultivariateNormalDiag(tf.zeros(d))


def _rings(n: int, rng: np.random.Generator) -> np.ndarray:
    radius = rng.choice([0.6, 1.8], size=n) + 0.1 * rng.normal(size=n)
    angle = rng.uniform(0, 2 * np.pi, size=n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)


def _moons(n: int, rng: np.random.Generator) -> np.ndarray:
    angle, side = rng.uniform(0, np.pi, size=n), rng.choice([-1.0, 1.0], size=n)
    arc = np.stack([np.cos(angle) - 0.5, np.sin(angle) - 0.25], axis=-1)
    return 1.2 * side[:, np.newaxis] * arc + 0.1 * rng.normal(size=(n, 2))


def _grid(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.choice([-1.5, 0.0, 1.5], size=(n, 2)) + 0.18 * rng.normal(size=(n, 2))


def _spirals(n: int, rng: np.random.Generator) -> np.ndarray:
    angle = 3 * np.pi * np.sqrt(rng.random(n))
    arm = 2 * angle / (3 * np.pi) * np.stack([np.cos(angle), np.sin(angle)])
    return (rng.choice([-1.0, 1.0], size=n) * arm).T + 0.08 * rng.normal(size=(n, 2))


def _checkerboard(n: int, rng: np.random.Generator) -> np.ndarray:
    row, column = rng.integers(4, size=n), rng.integers(2, size=n)
    corner = np.stack([row, 2 * column + row % 2], axis=-1) - 2.0
    return corner + rng.random((n, 2))


def _mixture(d: int, num_components: int, scale: float) -> Sampler:
    """Gaussians with random means. Each coordinate has variance 1 on average."""
    means = np.sqrt(1 - scale**2) * np.random.default_rng(d).normal(size=(num_components, d))

    def draw(n, rng):
        return means[rng.integers(num_components, size=n)] + scale * rng.normal(size=(n, d))

    return draw


def _bits(d: int, num_components: int) -> Sampler:
    """A mixture of independent bits."""
    probs = np.random.default_rng(d).beta(0.5, 0.5, size=(num_components, d))

    def draw(n, rng):
        return (rng.random((n, d)) < probs[rng.integers(num_components, size=n)]).astype(np.int32)

    return draw


def latents(path: pathlib.Path) -> Target:
    """Returns stored latents of a VAE as a target: a NumPy file with arrays train and test."""
    with np.load(path) as stored:
        train, test = stored["train"], stored["test"]
    return Target("latents", lambda: (train, test), _normal(train.shape[1]))


def _uniform_bits(d: int) -> Callable[[], tfd.Distribution]:
    return lambda: tfd.Independent(tfd.Bernoulli(logits=tf.zeros(d)), 1)


CHOSEN_ON = (
    Target("rings 2-D", _drawn(_rings), _normal(2)),
    Target("moons 2-D", _drawn(_moons), _normal(2)),
    Target("grid 2-D", _drawn(_grid), _normal(2)),
    Target("mixture 10-D", _drawn(_mixture(10, 8, 0.7)), _normal(10)),
    Target("mixture 50-D", _drawn(_mixture(50, 8, 0.9)), _normal(50)),
    Target("bits 16-D", _drawn(_bits(16, 6)), _uniform_bits(16)),
)
FRESH = (
    Target("spirals 2-D", _drawn(_spirals), _normal(2)),
    Target("checkerboard 2-D", _drawn(_checkerboard), _normal(2)),
    Target("mixture 5-D", _drawn(_mixture(5, 12, 0.5)), _normal(5)),
    Target("mixture 30-D", _drawn(_mixture(30, 12, 0.8)), _normal(30)),
    Target("bits 10-D", _drawn(_bits(10, 4)), _uniform_bits(10)),
    Target("bits 24-D", _drawn(_bits(24, 10)), _uniform_bits(24)),
)
TARGETS = {target.name: target for target in (*CHOSEN_ON, *FRESH)}
