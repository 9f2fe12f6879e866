"""Builds, trains and measures the four models of the paper's 2-D study."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

import tfp_lars as tfd_lars
from examples.common import quadrature
from examples.common.variables import tf_variable
from examples.toy_2d.targets import Target

__all__ = ["MODELS", "Budget", "Fit", "Model", "fit"]

_STEPS_PER_CALL = 100


@dataclasses.dataclass(frozen=True)
class Model:
    """One row of the table, with the paper's numbers for it."""

    name: str
    hidden_units: tuple[int, ...] | None  # layers of a(z); `None` for no resampling
    flow: bool
    paper_kl: float
    paper_z: float | None

    @property
    def resampled(self) -> bool:
        return self.hidden_units is not None


MODELS = (
    Model("N(0, I) + LARS, MLP[10-10]", (10, 10), False, 0.06, 0.09),
    Model("N(0, I) + LARS, MLP[10]", (10,), False, 0.66, 0.17),
    Model("RealNVP", None, True, 0.68, None),
    Model("RealNVP + LARS, MLP[10-10]", (10, 10), True, 0.08, 0.18),
)


@dataclasses.dataclass(frozen=True)
class Budget:
    """Budget for training and measuring a model.

    Attributes:
      steps: Training steps of each model.
      num_estimate: Draws from the proposal for the estimate of Z.
      num_draws: Draws from the model, for the figure and the chi-square test.
      grid_step: Step of the quadrature.
      flow_alone: Share of the steps of a resampled flow that train the flow alone.
    """

    steps: int = 8000
    num_estimate: int = 10**6
    num_draws: int = 10**5
    grid_step: float = 1 / 64
    flow_alone: float = 0.5


QUICK = Budget(steps=200, num_estimate=10**5, num_draws=10**4, grid_step=1 / 16)


@dataclasses.dataclass
class Fit:
    """A trained model and its measurements."""

    model: Model
    T: int | None
    log_pi: np.ndarray  # [size, size] at the nodes of the grid, like the next two
    log_a: np.ndarray
    log_p: np.ndarray
    draws: np.ndarray  # [num_draws, 2]
    numbers: dict[str, float | int | str | None]


def fit(
    model: Model,
    target: Target,
    T: int | None,
    *,
    budget: Budget,
    seed: int,
    report: Callable[[int, float], None],
) -> Fit:
    """Trains a model by maximum likelihood on fresh draws of the target, then measures it.

    Args:
      model: Model to train.
      target: Target density.
      T: Truncation, or `None` for untruncated resampling.
      budget: Budget for training and measuring.
      seed: Seed for weights, data and draws.
      report: Callback that receives the number of steps done and the loss at regular intervals.

    Returns:
      The trained and measured model.
    """
    keras.utils.set_random_seed(seed)
    # Networks of 32 units make this demo several times faster than the paper's 100. Both rows with
    # a flow use the same architecture.
    proposal = (
        tfd_lars.proposals.real_nvp(2, hidden_units=(32, 32), seed=seed)
        if model.flow
        else tfd_lars.proposals.standard_normal(2)
    )
    draw = target.distribution.sample
    steps, batch_size = budget.steps, 256
    if not model.resampled:
        _train(proposal, draw, [(proposal, 3e-3)], 0, steps, batch_size, seed, report)
        return _measure(model, None, target, proposal, None, budget, seed)

    accept = tfd_lars.AcceptanceNetwork(hidden_units=model.hidden_units)
    dist = tfd_lars.Resampled(
        proposal, accept, T=T, normalizer=tfd_lars.MovingAverage(1024, 0.9, seed=seed)
    )
    if not model.flow:
        _train(dist, draw, [(dist, 5e-2)], 0, steps, batch_size, seed, report)
        return _measure(model, dist.T, target, proposal, dist, budget, seed)
    # Without truncation a(z) can compensate for any proposal, so joint training does not move the
    # flow toward the target. Training the flow alone first does, and joint training keeps it there.
    alone = int(budget.flow_alone * steps)
    _train(proposal, draw, [(proposal, 3e-3)], 0, alone, batch_size, seed, report)
    parts = [(accept, 2e-2), (proposal, 1e-3)]
    _train(dist, draw, parts, alone, steps, batch_size, seed, report)
    return _measure(model, dist.T, target, proposal, dist, budget, seed)


def _train(dist, draw, parts, first, last, batch_size, seed, report):
    """Runs Adam on `-log_prob`, steps `first` to `last`; `parts` pairs owners with rates."""
    if last <= first:
        return
    groups = []
    for owner, rate in parts:
        schedule = keras.optimizers.schedules.CosineDecay(rate, last - first, alpha=0.01)
        optimizer = keras.optimizers.Adam(schedule)
        variables = [tf_variable(v) for v in owner.trainable_variables]
        optimizer.build(variables)
        groups.append((optimizer, variables))

    @tf.function
    def steps(start, end):
        loss = tf.constant(0.0)
        for i in tf.range(start, end):
            z = draw(batch_size, seed=tf.stack([seed, i]))
            with tf.GradientTape() as tape:
                loss = -tf.reduce_mean(dist.log_prob(z))
            # At T = 1 the loss does not depend on a(z), so its gradients are unconnected.
            gradients = tape.gradient(
                loss, [v for _, v in groups], unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            for (optimizer, variables), gradient in zip(groups, gradients, strict=True):
                optimizer.apply(gradient, variables)
        return loss

    for start in range(first, last, _STEPS_PER_CALL):
        end = min(start + _STEPS_PER_CALL, last)
        report(end, float(steps(tf.constant(start), tf.constant(end))))


def _measure(model, T, target, proposal, dist, budget, seed):
    """Measures KL and Z by quadrature, estimates Z with the library, and tests the draws."""
    grid = quadrature.Grid(step=budget.grid_step)
    log_q = grid.evaluate(target.distribution.log_prob)
    log_pi = grid.evaluate(proposal.log_prob)
    if dist is None:
        log_a = np.zeros_like(log_pi)
        draws = proposal.sample(budget.num_draws, seed=seed + 1).numpy()
    else:
        log_a = grid.evaluate(dist.accept_log_prob)
        draws = dist.sample(budget.num_draws, seed=seed + 1).numpy()
    found = quadrature.fit_of(grid, log_q, log_pi, log_a, T)
    if dist is None:  # Z is 1, not the flow's mass on the grid
        log_p = log_pi
        kl = found["kl_proposal"]
    else:
        log_p, kl = found["log_p"], found["kl"]
    _, dof, p_value = quadrature.chi_square(grid, log_p, draws, nodes_per_cell=_cell(budget))
    numbers = {
        "model": model.name,
        "T": T,
        "kl": kl.value,
        "kl_grid_error": kl.error,
        "kl_paper": model.paper_kl,
        "kl_proposal": found["kl_proposal"].value,
        "proposal_mass_outside_grid": found["proposal_mass_outside"],
        "z_limit_of_exact_fit": found["z_limit"],
        "chi_square_dof": dof,
        "chi_square_p_value": p_value,
        "z_paper": model.paper_z,
    }
    if dist is not None:
        estimate = tfd_lars.estimate_log_normalizer(
            dist, num_samples=budget.num_estimate, seed=seed + 2
        )
        z_hat, z = float(np.exp(estimate.log_z)), found["z"].value
        stderr = z_hat * float(estimate.stderr)
        numbers |= {
            "z": z,
            "z_grid_error": found["z"].error,
            "z_estimate": z_hat,
            "z_estimate_stderr": stderr,
            "z_difference_in_stderr": abs(z_hat - z) / stderr,
            "max_a": found["max_a"],
            "z_over_max_a": z / found["max_a"],
            "expected_attempts": z**-1 if T is None else (1 - (1 - z) ** T) / z,
        }
    return Fit(model, T, log_pi, log_a, log_p, draws, numbers)


def _cell(budget):
    """Returns the number of nodes along a cell of side 1/8."""
    return max(1, round(1 / (8 * budget.grid_step)))
