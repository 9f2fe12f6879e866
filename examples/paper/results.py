"""Metrics of finished runs: means over seeds, and differences between runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from examples.paper.run import Run
from examples.vae.config import Config
from examples.vae.run_directory import State


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its standard error.

    Attributes:
      value: The number.
      stderr: Its standard error; 0 if the number is exact.
      dof: Degrees of freedom of the standard error. Infinite if it is over many test images.
    """

    value: float
    stderr: float
    dof: float = math.inf

    @property
    def is_significant(self) -> bool:
        """Whether the number differs from 0 by more than its error, at the level of `LEVEL`.

        `False` if the error is unknown.
        """
        if self.dof == math.inf or self.stderr == 0.0:
            return abs(self.value) > 2.0 * self.stderr
        return student_t_tails(self.value / self.stderr, max(int(self.dof), 1)) < LEVEL


LEVEL = math.erfc(math.sqrt(2.0))  # probability of an error beyond two standard errors, 4.6 %


def student_t_tails(t: float, dof: int) -> float:
    """Returns the probability that a number of Student's t distribution is beyond -t and t.

    For an integer number of degrees of freedom, Abramowitz and Stegun have a finite sum in the
    angle `atan(t / sqrt(dof))` (26.7.3 and 26.7.4).

    Args:
      t: A real number.
      dof: Degrees of freedom, at least 1.
    """
    angle = math.atan(abs(t) / math.sqrt(dof))
    odd = dof % 2
    term = math.cos(angle) if odd else 1.0
    terms = []
    for k in range(1 + odd, dof, 2):
        terms.append(term)
        term *= math.cos(angle) ** 2 * k / (k + 1)
    inside = math.sin(angle) * math.fsum(terms)
    if odd:
        inside = (inside + angle) * 2.0 / math.pi
    return 1.0 - inside


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
      per_image: Name of the values for each test image, and the sign to multiply them by.
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
    "nll": Metric("NLL", lambda m: Estimate(m["nll"], m["nll_stderr"]), per_image=("nll", 1.0)),
    "elbo": Metric(
        "-ELBO", lambda m: Estimate(-m["elbo"], m["elbo_stderr"]), per_image=("elbo", -1.0)
    ),
    "kl": Metric("KL", lambda m: Estimate(m["kl"], m["kl_stderr"])),
    "recons": Metric("recons", lambda m: Estimate(-m["recons"], m["recons_stderr"])),
    "z": Metric("Z", _z, digits=None),
}


class Source(Protocol):
    """Where results come from: directories of runs, or the store."""

    def seeds(self, run: Run) -> Sequence[int]:
        """Returns the seeds that may be finished. The first one must be reported if it is not."""

    def state(self, run: Run) -> State:
        """Returns the state of a run, with its metrics if it is finished."""

    def per_image(self, run: Run, name: str) -> np.ndarray | None:
        """Returns `nll` or `elbo` of each test image of a run, `[N]`; `None` if missing."""


class Results:
    """Looks up the metrics of runs, averages them over seeds and compares runs.

    A run is looked up with all of its seeds, whatever its own seed.

    Args:
      source: Where the metrics come from.
    """

    def __init__(self, source: Source):
        self.source = source
        self._states: dict[Run, dict[int, State]] = {}

    def states(self, run: Run) -> dict[int, State]:
        """Returns the state of a run, by seed."""
        run = run.at(0)
        if run not in self._states:
            seeds = self.source.seeds(run)
            self._states[run] = {seed: self.source.state(run.at(seed)) for seed in seeds}
        return self._states[run]

    def by_seed(self, run: Run | None) -> dict[int, Mapping]:
        """Returns the metrics of a run, by seed, without seeds that are not finished."""
        states = {} if run is None else self.states(run)
        return {seed: state.metrics for seed, state in states.items() if state.metrics is not None}

    def metrics(self, run: Run | None) -> Mapping | None:
        """Returns the metrics of the first finished seed."""
        return next(iter(self.by_seed(run).values()), None)

    def why_missing(self, run: Run) -> str:
        """Returns the state of a run in words: that of a finished seed, if there is one."""
        states = self.states(run).values()
        return next((s for s in states if s.metrics is not None), next(iter(states))).reason

    def estimate(self, run: Run | None, metric: str) -> Estimate | None:
        """Returns the mean over all finished seeds."""
        found = [METRICS[metric].read(metrics) for metrics in self.by_seed(run).values()]
        return mean_over_seeds([estimate for estimate in found if estimate is not None])

    def pairs(self, one: Run, other: Run, metric: str) -> dict[int, tuple[Estimate, Estimate]]:
        """Returns the numbers of two runs, by seed, for the seeds that both have."""
        a, b = self.by_seed(one), self.by_seed(other)
        read = METRICS[metric].read
        found = {seed: (read(a[seed]), read(b[seed])) for seed in a if seed in b}
        return {seed: pair for seed, pair in found.items() if None not in pair}

    def difference(self, one: Run, other: Run, metric: str) -> Estimate | None:
        """Returns `one` minus `other`, the mean over the seeds that both have.

        With one such seed and the same test images, the standard error is that of the differences
        on each image. The error of log Z is shared by all images of a run, so it is added
        separately. With several seeds, it is the standard error over seeds. Runs that share no seed
        are compared by their means over seeds.
        """
        pairs = self.pairs(one, other, metric)
        if pairs:
            found = [self._paired(one.at(s), other.at(s), metric, *pairs[s]) for s in pairs]
            return mean_over_seeds(found)
        a, b = self.estimate(one, metric), self.estimate(other, metric)
        if a is None or b is None:
            return None
        return _difference_of_independent(a, b)

    def _paired(self, one, other, metric, a, b):
        """Returns `a - b`, the numbers of two finished runs, with its error over images."""
        stderr = math.hypot(a.stderr, b.stderr)
        metrics = [self.by_seed(run)[run.config.seed] for run in (one, other)]
        same = metrics[0]["images"] == metrics[1]["images"]
        pair = [self._per_image(run, metric) for run in (one, other)] if same else [None]
        if all(p is not None for p in pair) and len(pair[0]) == len(pair[1]):
            difference = pair[0] - pair[1]
            spread = float(difference.std(ddof=1) / math.sqrt(len(difference)))
            stderr = math.hypot(spread, *(m["stderr_from_z"] for m in metrics))
        return Estimate(a.value - b.value, stderr)

    def _per_image(self, run, metric):
        """Returns the value of each image, `[N]`, or `None` if unknown."""
        if METRICS[metric].per_image is None:
            return None
        name, sign = METRICS[metric].per_image
        values = self.source.per_image(run, name)
        return None if values is None else sign * values


def mean_over_seeds(estimates: Sequence[Estimate]) -> Estimate | None:
    """Returns the mean with its standard error over seeds, or the only estimate as it is."""
    if len(estimates) < 2:
        return estimates[0] if estimates else None
    values = np.array([estimate.value for estimate in estimates])
    stderr = float(values.std(ddof=1) / math.sqrt(len(values)))
    return Estimate(float(values.mean()), stderr, dof=len(values) - 1)


def _difference_of_independent(a: Estimate, b: Estimate) -> Estimate:
    """Returns `a - b`, with the degrees of freedom of Welch and Satterthwaite."""
    stderr = math.hypot(a.stderr, b.stderr)
    weight = a.stderr**4 / a.dof + b.stderr**4 / b.dof
    return Estimate(a.value - b.value, stderr, stderr**4 / weight if weight > 0.0 else math.inf)
