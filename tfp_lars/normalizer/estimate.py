"""log Z for evaluation: an estimate with its standard error."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _arguments, _seeds
from tfp_lars.normalizer import importance, importance_fit, monte_carlo, stopping
from tfp_lars.normalizer.batch_sums import BatchSums
from tfp_lars.normalizer.log_normalizer import LogNormalizer
from tfp_lars.normalizer.moving_average import moving_averages
from tfp_lars.normalizer.over_replicas import OverReplicas, check_strategy, gather
from tfp_lars.normalizer.run import BatchFn, Method, Run, State

__all__ = ["estimate_log_normalizer", "without_partial_estimates"]

tfd = tfp.distributions

_PILOT = 2**30  # a number that no batch has

_may_be_partial = contextvars.ContextVar("may_be_partial", default=True)


def estimate_log_normalizer(
    dist: Any,
    num_samples: int = 10**7,
    *,
    target_stderr: float | None = None,
    method: str = "monte_carlo",
    antithetic: bool | None = None,
    reflect_fn: Callable[[tf.Tensor], tf.Tensor] | None = None,
    importance_distribution: tfd.Distribution | None = None,
    batch_size: int | None = None,
    seed: int | tf.Tensor | None = None,
    progress: bool = False,
    strategy: tf.distribute.Strategy | None = None,
    continue_from: LogNormalizer | None = None,
) -> LogNormalizer:
    """Estimates log Z of a resampled distribution, for evaluation.

    Draws from the proposal in batches, in constant memory, and sums in float64. Networks run in
    inference mode. Call it outside of `tf.function`. After Ctrl-C it returns the estimate so far.

    >>> dist = Resampled(tfd.Uniform(), lambda z: z, T=100)  # Z = 1/2
    >>> estimate = estimate_log_normalizer(dist, num_samples=10**5, seed=0)
    >>> bool(abs(estimate.log_z - np.log(0.5)) < 4 * estimate.stderr)
    True
    >>> more = estimate_log_normalizer(dist, num_samples=10**5, continue_from=estimate)
    >>> more.num_samples
    200000

    Args:
      dist: A `Resampled`.
      num_samples: Number of proposals to draw; with `target_stderr` the maximum.
      target_stderr: Stop when the standard error of log Z is at most this for every batch member,
        and half the width of the 95 % interval at most 1.96 times this. The error includes what the
        draws may have missed, so that an a(z) which is high only in a small region does not stop
        the estimate before a draw has hit it. The number of draws is planned from the error so far
        instead of stopping at the first favorable look, so that the interval keeps its coverage.
      method: `"monte_carlo"`, the mean of a(z) over draws from the proposal, or `"importance"`, for
        Z that is too small for plain sampling (1e-6 and less). Importance sampling draws from a
        mixture of the proposal (10 %) and `importance_distribution`, and weights the draws. The
        estimate is unbiased, and its error comes from 32 replicates. It needs the exact log density
        of the proposal, not a bound such as that of `proposals.vae_marginal`. A warning appears if
        the effective sample size is low, or if the result disagrees with plain Monte Carlo over the
        draws from the proposal.
      antithetic: Whether to draw pairs: z and its reflection at the center of the proposal. `None`
        uses pairs if the proposal is known to be symmetric (`Normal`, `MultivariateNormal*`,
        `StudentT`, `Laplace`, `Logistic`, `Cauchy` and `Uniform`, also within `Independent` and
        `Sample`), if `num_samples` is large, and if a pilot of one batch shows that pairs help.
      reflect_fn: Maps z, of shape sample + batch + event, to its reflection, for other symmetric
        proposals. Both points must have the same density.
      importance_distribution: Any TFP distribution with the event shape and support of the
        proposal, for `method="importance"`. It should be close to the density of accepted draws,
        for example a mixture of encoder posteriors. By default a mixture of Gaussians is fitted in
        pilot rounds, whose draws `num_samples` does not include.
      batch_size: Number of proposals drawn at a time. By default chosen for speed and memory.
      seed: Python `int`, or an `int32[2]` stateless seed; the same seed gives the same estimate.
      progress: Whether to show a progress bar with the current estimate and its error.
      strategy: A `tf.distribute` strategy that spreads the batches over devices, or over machines
        with `MultiWorkerMirroredStrategy`, where all workers make the same call and get the same
        result. It does not depend on the number of replicas, except for rounding. Build the
        distribution in `strategy.scope()`, with the same weights on all workers. If a worker dies,
        the others raise a `RuntimeError`.
      continue_from: Result of an earlier call for this distribution, for example an interrupted
        one. `num_samples` further proposals are drawn, with the next random numbers of its seed,
        and added to it.

    Returns:
      estimate: A `LogNormalizer`. Its `warning` says if too few draws would be accepted to trust
        its error, which is then large, or if `target_stderr` was not reached.
    """
    if method not in ("monte_carlo", "importance"):
        raise ValueError(f"`method` must be 'monte_carlo' or 'importance'; got {method!r}.")
    sums = getattr(dist, "proposal_sums", None)
    if not isinstance(sums, monte_carlo.ProposalSums):
        raise TypeError(
            f"`dist` must be a `Resampled`; got {dist!r}. If it contains a `Resampled`, pass that "
            "one."
        )
    if not tf.executing_eagerly():
        raise RuntimeError(
            "`estimate_log_normalizer` was called inside a tf.function. Call it outside, and pass "
            "its result in."
        )
    num_samples = _arguments.checked_count("num_samples", num_samples)
    if batch_size is None:
        # The static shapes may be unknown.
        numbers_per_draw = int(
            np.prod(dist.batch_shape_tensor()) * np.prod(dist.event_shape_tensor())
        )
        batch_size = monte_carlo.default_batch_size(numbers_per_draw)
    batch_size = min(_arguments.checked_count("batch_size", batch_size), num_samples)
    if target_stderr is not None:
        target_stderr = _arguments.checked_positive("target_stderr", target_stderr)
    fingerprint, state = sums.fingerprint(), None
    if continue_from is not None:
        state = _checked_state(continue_from, method, fingerprint)
    if seed is None and state is not None:
        pair = tf.constant(state.seed)
    else:
        # The numbers of the batches continue, so that even the same seed gives new draws.
        pair = _seeds.new_seed() if seed is None else _seeds.stateless_seed(seed)
    if strategy is not None:
        pair = tf.constant(_first_of_workers(pair, fingerprint, strategy))

    def spread(batch_sums):
        return batch_sums if strategy is None else OverReplicas(batch_sums, strategy)

    if method == "monte_carlo":
        _check_unused("monte_carlo", importance_distribution=importance_distribution)
        estimator = monte_carlo.choose(
            sums, num_samples, pair, state, antithetic, reflect_fn, spread
        )
    else:
        _check_unused("importance", antithetic=antithetic, reflect_fn=reflect_fn)
        num_samples = _arguments.checked_count(
            "num_samples", num_samples, least=importance.FEWEST_SAMPLES
        )
        if importance_distribution is None and continue_from is not None:
            importance_distribution = continue_from.importance_distribution
        estimator = _importance_sampling(sums, importance_distribution, pair, spread)
    start = State(np.asarray(pair), 0, 0, (), fingerprint)
    if state is not None:
        start = dataclasses.replace(state, seed=start.seed)
    run = Run(estimator, batch_size, start)
    estimate = _estimate(estimator, run, num_samples, target_stderr, progress)
    if method == "importance" and estimate.warning is not None:
        warnings.warn(f"Importance sampling of log Z: {estimate.warning}.", stacklevel=2)
    return estimate


@contextlib.contextmanager
def without_partial_estimates() -> Iterator[None]:
    """Within a `with` block, Ctrl-C ends an estimate without a result, by `KeyboardInterrupt`."""
    token = _may_be_partial.set(False)
    try:
        yield
    finally:
        _may_be_partial.reset(token)


def _first_of_workers(
    seed: tf.Tensor, fingerprint: np.ndarray, strategy: tf.distribute.Strategy
) -> np.ndarray:
    """Returns the seed of the first worker, or raises if workers have other distributions."""
    check_strategy(strategy)
    fingerprints = gather(fingerprint, strategy)
    if not np.allclose(fingerprints, fingerprints[0], rtol=1e-4):
        raise ValueError(
            "The workers of `strategy` have distributions with different weights. Restore the same "
            "checkpoint on all workers, or set the same seed before the networks are built."
        )
    return gather(np.asarray(seed), strategy)[0]


def _check_unused(method: str, **arguments: Any) -> None:
    """Raises if an argument of another method was passed."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"`{name}` has no effect with method={method!r}. Drop it.")


def _importance_sampling(
    sums: monte_carlo.ProposalSums,
    other: tfd.Distribution | None,
    seed: tf.Tensor,
    spread: Callable[[BatchSums], BatchFn],
) -> importance.ImportanceSampling:
    """Returns importance sampling with a given distribution, or with one that is fitted."""
    if moving_averages(sums.proposal):
        raise ValueError(
            f"`method` is 'importance', which needs the log density of the proposal "
            f"{sums.proposal.name!r}. That contains a moving average. Freeze the distributions in "
            "the proposal first."
        )
    warning = None
    if other is None:
        key = tf.convert_to_tensor(tf.random.fold_in(seed, _PILOT))
        other, reached = importance_fit.fit_importance_distribution(
            sums.proposal, sums.log_accept_fn, key
        )
        if not reached:
            warning = (
                "the fit did not reach the accepted region: pass an `importance_distribution` that "
                "covers it"
            )
    else:
        other = importance.checked_distribution(other, sums.proposal)
    return importance.ImportanceSampling(sums.proposal, sums.log_accept_fn, other, warning, spread)


def _estimate(
    method: Method, run: Run, num_samples: int, target: float | None, progress: bool
) -> LogNormalizer:
    """Draws until the target or the number of samples is reached, or until Ctrl-C."""
    most = run.state.num_samples + max(run.unit, num_samples // run.unit * run.unit)
    estimate = method.result(run.state) if run.state.num_samples else None
    show = _progress_bar(most) if progress else lambda *_: None
    try:
        while (look := run.round_up(_next_look(method, estimate, target, most))) > (
            run.state.num_samples
        ):
            while run.state.num_samples < look:
                run.advance(look)
                estimate = method.result(run.state)
                show(estimate, False)
    except KeyboardInterrupt:
        if estimate is None or not _may_be_partial.get():
            raise
    result: Any = estimate  # at least one chunk was drawn
    show(result, True)
    if target is not None and result.warning is None and method.error(result) > target:
        return result.with_warning(
            f"`target_stderr` of {target:g} was not reached: raise `num_samples`"
        )
    return result


def _next_look(
    method: Method, estimate: LogNormalizer | None, target: float | None, most: int
) -> int:
    """Returns the total number of draws before the next look; that so far to stop."""
    if target is None:
        return most
    if estimate is None:
        return stopping.first_look(target, most)
    error = method.error(estimate)
    if error <= target:
        return estimate.num_samples
    return stopping.next_look(estimate.num_samples, error, target, most)


def _progress_bar(num_samples: int) -> Callable[[LogNormalizer, bool], None]:
    """Returns a function that shows an estimate, and whether it is the last one."""
    names = ["log_z", "stderr"]
    bar = keras.utils.Progbar(num_samples, unit_name="sample", stateful_metrics=names)

    def show(estimate, finalize):
        values = zip(names, [np.mean(estimate.log_z), np.max(estimate.stderr)], strict=True)
        bar.update(estimate.num_samples, values=list(values), finalize=finalize)

    return show


def _checked_state(estimate: Any, method: str, fingerprint: np.ndarray) -> State:
    """Returns the state of an earlier estimate of the same distribution, or raises."""
    if not isinstance(estimate, LogNormalizer):
        raise TypeError(
            "`continue_from` must be a result of `estimate_log_normalizer`; got "
            f"{type(estimate).__name__}."
        )
    if not isinstance(estimate.state, State) or estimate.method != method:
        raise ValueError(
            "`continue_from` must be a result of `estimate_log_normalizer` with "
            f"method={method!r}; got {estimate!r}."
        )
    known = estimate.state.fingerprint
    if known.shape != fingerprint.shape or not np.allclose(known, fingerprint, rtol=1e-4):
        raise ValueError(
            f"`continue_from` is an estimate of another distribution, or the weights of this one "
            f"have changed since; got {estimate!r}. Start a new estimate."
        )
    return estimate.state
