"""The problem that all contenders solve: one set of NumPy weights for all frameworks.

The proposal is the standard normal in d dimensions. The acceptance network is d-100-100-1 with
tanh. Its output bias is chosen to give the requested Z.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np

__all__ = ["Problem", "make"]

_NUM_DRAWS = 2**16  # for the output bias; Z is then accurate to about 1 %


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A standard normal proposal and the weights of an acceptance network.

    Attributes:
      layers: Kernel `[fan_in, fan_out]` and bias `[fan_out]` of each layer, `float32`. Hidden
        layers apply tanh. The last layer returns the logit of a(z).
    """

    layers: tuple[tuple[np.ndarray, np.ndarray], ...]

    @property
    def d(self) -> int:
        """Number of dimensions of z."""
        return self.layers[0][0].shape[0]

    @property
    def hidden_units(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return tuple(len(bias) for _, bias in self.layers[:-1])

    def logits(self, z: np.ndarray) -> np.ndarray:
        """Logits of a(z), shape `[N]`, for `z` of shape `[N, d]`."""
        h = z
        for kernel, bias in self.layers[:-1]:
            h = np.tanh(h @ kernel + bias)
        kernel, bias = self.layers[-1]
        return (h @ kernel + bias)[:, 0]


@functools.cache
def make(d: int, z: float, hidden_units: tuple[int, ...] = (100, 100)) -> Problem:
    """Returns the problem in `d` dimensions with acceptance rate near `z`. Deterministic."""
    rng = np.random.default_rng([d, *hidden_units])
    widths = (d, *hidden_units, 1)
    layers = []
    for fan_in, fan_out in itertools.pairwise(widths):
        # Glorot initialization. A larger output gain spreads a(z), as training does.
        gain = 2.0 if fan_out == 1 else 1.0
        kernel = rng.normal(size=(fan_in, fan_out)) * gain * np.sqrt(2.0 / (fan_in + fan_out))
        layers.append((kernel.astype(np.float32), np.zeros(fan_out, np.float32)))
    logits = Problem(tuple(layers)).logits(rng.normal(size=(_NUM_DRAWS, d)).astype(np.float32))
    layers[-1][1][:] = _bias(logits.astype(np.float64), z)
    return Problem(tuple(layers))


def _bias(logits: np.ndarray, z: float) -> float:
    """Finds the shift of the logits that gives a mean probability of `z`, by bisection."""
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if np.mean(1.0 / (1.0 + np.exp(-logits - middle))) < z:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
