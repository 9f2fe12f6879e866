"""Integrals over the plane on a grid, with error estimates.

The rule is a plain sum over nodes. For smooth densities that vanish at the border it converges
faster than any power of the step. It fails for structure finer than the step and for mass beyond
the border. The first shows as a difference from the sum over every second node, the second as a
total mass below 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from examples.common.chi_square import pearson

__all__ = ["Estimate", "Grid", "chi_square", "fit_of", "log_mixture"]

# Share of a distribution's mass to ignore: samples almost never fall on such sparse nodes.
_NEGLIGIBLE = 1e-6


@dataclasses.dataclass(frozen=True)
class Estimate:
    """An integral, and how much it changed when the step was halved."""

    value: float
    error: float


class Grid:
    """Square grid of nodes `-limit + step * (i + 1/2)` on both axes.

    Each node is the center of a cell. The sum is therefore also exact for a piecewise constant
    density with edges at multiples of `2 * step`.

    Args:
      limit: Half the width of the square.
      step: Distance between neighboring nodes. `2 * limit / step` must be an even integer.
    """

    def __init__(self, limit: float = 6.0, step: float = 1 / 64):
        self.limit = limit
        self.step = step
        self.size = round(2 * limit / step)
        if self.size % 2 or not np.isclose(self.size * step, 2 * limit):
            raise ValueError(f"`step` {step} does not divide `limit` {limit}.")
        self.axis = -limit + step * (np.arange(self.size) + 0.5)  # [size]
        x, y = np.meshgrid(self.axis, self.axis, indexing="ij")
        self.nodes = np.stack([x, y], axis=-1).astype(np.float32)  # [size, size, 2]

    def evaluate(self, fn: Callable[[tf.Tensor], tf.Tensor]) -> np.ndarray:
        """Returns `fn`, which maps `[n, 2]` to `[n]`, at all nodes: float64 `[size, size]`."""
        fn = tf.function(fn, input_signature=[tf.TensorSpec([None, 2], tf.float32)])
        rows = self.nodes.reshape([-1, 2])
        values = [fn(chunk).numpy() for chunk in np.array_split(rows, -(-len(rows) // 16384))]
        return np.concatenate(values).astype(np.float64).reshape([self.size, self.size])

    def integral(self, values: np.ndarray) -> Estimate:
        """Returns the integral of a function with these values at the nodes, `[size, size]`."""
        fine = np.sum(values) * self.step**2
        coarse = np.sum(values[::2, ::2]) * (2 * self.step) ** 2
        return Estimate(float(fine), float(abs(fine - coarse)))

    def kl(self, log_q: np.ndarray, log_p: np.ndarray) -> Estimate:
        """Returns KL(q || p) from two log densities at the nodes, `[size, size]`."""
        inside = log_q > -np.inf
        ratio = np.subtract(log_q, log_p, where=inside, out=np.zeros_like(log_q))
        return self.integral(np.exp(log_q) * ratio)

    def bulk(self, log_density: np.ndarray) -> np.ndarray:
        """Returns a bool `[size, size]` mask of the densest nodes with all but 1e-6 of the mass."""
        density = np.exp(log_density).ravel()
        order = np.argsort(density)[::-1]
        mass = np.cumsum(density[order])
        kept = np.zeros(density.shape, bool)
        kept[order[: np.searchsorted(mass, (1 - _NEGLIGIBLE) * mass[-1]) + 1]] = True
        return kept.reshape(log_density.shape)


def log_mixture(
    grid: Grid, loc: np.ndarray, scale: np.ndarray, *, chunk_size: int = 2048
) -> np.ndarray:
    """Returns the log density of an equal mixture of diagonal Normals at the nodes.

    Each component is a function of x times a function of y, so the sum over components is an exact
    and cheap matrix product.

    Args:
      grid: Grid of nodes.
      loc: Means, `[N, 2]`.
      scale: Standard deviations, `[N, 2]`.
      chunk_size: Number of components in a matrix product.

    Returns:
      log_q: Log density, float64 `[size, size]`. -inf where the density underflows.
    """
    density = np.zeros([grid.size, grid.size])
    for start in range(0, len(loc), chunk_size):
        part = slice(start, start + chunk_size)
        deviation = grid.axis - loc[part, :, None]  # [chunk, 2, size]
        deviation /= scale[part, :, None]
        of_x, of_y = np.moveaxis(np.exp(-0.5 * np.square(deviation)), 1, 0)
        weight = 1.0 / np.prod(scale[part], axis=-1)
        density += (weight[:, None] * of_x).T @ of_y
    with np.errstate(divide="ignore"):
        return np.log(density / (2.0 * np.pi * len(loc)))


def fit_of(
    grid: Grid, log_q: np.ndarray, log_pi: np.ndarray, log_a: np.ndarray, T: int | None
) -> dict[str, np.ndarray | Estimate | float]:
    """Measures how well accept/reject sampling from `pi` with `a` fits `q`.

    Computes the density in float64, independently of the library, so that it can serve as a check.

    Args:
      grid: Grid at whose nodes the logs were evaluated.
      log_q: Log density of the target, `[size, size]`.
      log_pi: Log density of the proposal, `[size, size]`.
      log_a: Log acceptance probability, `[size, size]`.
      T: Truncation, or `None` for untruncated resampling.

    Returns:
      A dict with these keys:
        `log_p`: Log density of the fit at the nodes, `[size, size]`.
        `kl`, `kl_proposal`: KL(q || p) and KL(q || pi).
        `z`: Acceptance rate.
        `mass`: Integral of p, which is 1 up to grid errors.
        `proposal_mass_outside`: Mass of the proposal outside of the grid.
        `max_a`: Largest a where the proposal has mass.
        `z_limit`: Largest Z of an exact fit with this proposal.
    """
    z = grid.integral(np.exp(log_pi + log_a))
    log_p = log_pi + log_a - np.log(z.value)
    if T is not None:
        log_alpha = (T - 1) * np.log1p(-min(z.value, 1 - 1e-15))
        with np.errstate(divide="ignore"):  # log(0) at T = 1, where every draw is accepted
            log_tested = np.log1p(-np.exp(log_alpha))
        log_p = np.logaddexp(log_tested + log_p, log_alpha + log_pi)
    bulk_of_q = grid.bulk(log_q)
    return {
        "log_p": log_p,
        "kl": grid.kl(log_q, log_p),
        "kl_proposal": grid.kl(log_q, log_pi),
        "z": z,
        "mass": grid.integral(np.exp(log_p)),
        "proposal_mass_outside": max(0.0, 1.0 - grid.integral(np.exp(log_pi)).value),
        "max_a": float(np.exp(np.max(log_a[grid.bulk(log_pi)]))),
        "z_limit": float(np.exp(np.min((log_pi - log_q)[bulk_of_q]))),
    }


def chi_square(
    grid: Grid, log_p: np.ndarray, draws: np.ndarray, *, nodes_per_cell: int = 8
) -> tuple[float, int, float]:
    """Tests draws against a density on square cells with Pearson's chi-square test.

    Args:
      grid: Grid at whose nodes the density was evaluated.
      log_p: Log density at the nodes, `[size, size]`.
      draws: Draws to test, `[n, 2]`.
      nodes_per_cell: Number of nodes along each side of a cell.

    Returns:
      The statistic, its degrees of freedom, and the p-value.
    """
    cells = grid.size // nodes_per_cell
    edges = -grid.limit + grid.step * nodes_per_cell * np.arange(cells + 1)
    counts, _, _ = np.histogram2d(draws[:, 0], draws[:, 1], bins=[edges, edges])
    blocks = np.exp(log_p).reshape([cells, nodes_per_cell, cells, nodes_per_cell])
    expected = len(draws) * grid.step**2 * blocks.sum(axis=(1, 3))
    # Everything outside of the grid is one more cell.
    return pearson(*(np.append(n, len(draws) - n.sum()) for n in (counts, expected)))
