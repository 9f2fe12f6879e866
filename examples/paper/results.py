"""Reads the metrics of finished runs and computes differences between runs."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping

import numpy as np

from examples.vae.config import Config
from examples.vae.run_directory import State


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its standard error (0 if it is exact)."""

    value: float
    stderr: float


def number(value: float | None, digits: int | None, sign: str = "") -> str:
    """Formats a number with `digits` decimal places, or 3 significant digits if `None`."""
    if value is None:
        return ""
    if digits is None:
        return f"{value:{sign}.3g}"
    return f"{value:{sign}.{digits}f}"


def shown(estimate: Estimate, digits: int | None) -> str:
    """Formats a number with its standard error."""
    text = number(estimate.value, digits)
    if estimate.stderr == 0.0 or not math.isfinite(estimate.stderr):
        return text
    error = f"{estimate.stderr:.1g}" if digits is None else f"{estimate.stderr:.{digits}f}"
    return f"{text} ± {error}"


@dataclasses.dataclass(frozen=True)
class Metric:
    """A column of a table and how to read it from `metrics.json`.

    Attributes:
      heading: Heading of the column.
      read: Function from the content of `metrics.json` to an estimate, or `None` if missing.
      digits: Decimal places. `None` for three significant digits.
      per_image: File with the value for each test image, and the sign to multiply it by.
    """

    heading: str
    read: Callable[[Mapping], Estimate | None]
    digits: int | None = 2
    per_image: tuple[str, float] | None = None


def _z(metrics):
    if metrics["z"] is not None:
        return Estimate(metrics["z"], metrics["z"] * metrics["log_z_stderr"])
    is_resampled = Config.from_json(metrics["config"]).is_resampled
    return None if is_resampled else Estimate(1.0, 0.0)  # as the paper prints it


# The paper prints the bound and the reconstruction as losses.
METRICS: Mapping[str, Metric] = {
    "nll": Metric(
        "NLL", lambda m: Estimate(m["nll"], m["nll_stderr"]), per_image=("test_nll.npy", 1.0)
    ),
    "elbo": Metric(
        "-ELBO",
        lambda m: Estimate(-m["elbo"], m["elbo_stderr"]),
        per_image=("test_elbo.npy", -1.0),
    ),
    "kl": Metric("KL", lambda m: Estimate(m["kl"], m["kl_stderr"])),
    "recons": Metric("recons", lambda m: Estimate(-m["recons"], m["recons_stderr"])),
    "z": Metric("Z", _z, digits=None),
}


class Results:
    """Looks up the metrics of runs.

    Args:
      runs: Parent directory of all run directories.
      states: State of each run, by its name.
    """

    def __init__(self, runs: pathlib.Path, states: Mapping[str, State]):
        self.runs, self.states = runs, states

    def metrics(self, config: Config | None) -> Mapping | None:
        return None if config is None else self.states[config.name].metrics

    def why_missing(self, config: Config) -> str:
        return self.states[config.name].reason

    def estimate(self, config: Config | None, metric: str) -> Estimate | None:
        metrics = self.metrics(config)
        return None if metrics is None else METRICS[metric].read(metrics)

    def difference(self, one: Config, other: Config, metric: str) -> Estimate | None:
        """Returns `one` minus `other`.

        The standard error is that of the paired differences if both runs were evaluated on the same
        images. The error of log Z is shared by all images of a run, so it is added separately.
        """
        a, b = self.estimate(one, metric), self.estimate(other, metric)
        if a is None or b is None:
            return None
        stderr = math.hypot(a.stderr, b.stderr)
        pair = [self._per_image(config, metric) for config in (one, other)]
        same = self._images(one) == self._images(other)
        if same and all(p is not None for p in pair):
            difference = pair[0] - pair[1]
            spread = float(difference.std(ddof=1) / math.sqrt(len(difference)))
            stderr = math.hypot(spread, *(self.metrics(c)["stderr_from_z"] for c in (one, other)))
        return Estimate(a.value - b.value, stderr)

    def _per_image(self, config, metric):
        """Returns the value for each image, `[N]`, or `None` if unknown."""
        if METRICS[metric].per_image is None:
            return None
        name, sign = METRICS[metric].per_image
        try:
            return sign * np.load(self.runs / config.name / name)
        except (OSError, ValueError):
            return None

    def _images(self, config):
        """Returns a key that identifies the test images of a run."""
        metrics = self.metrics(config)
        return metrics["images"], metrics["num_test_images"]
