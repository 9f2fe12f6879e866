"""`fit`: maximum likelihood on samples, with settings that follow from the data."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _arguments, _fit_evaluation, _fit_samples, _seeds, ownership
from tfp_lars._fit_result import FitResult, mean_and_stderr
from tfp_lars._fit_training import Recipe, Snapshot, Trainer, checked_optimizer
from tfp_lars.normalizer import moving_averages, without_partial_estimates
from tfp_lars.resampled import Resampled

__all__ = ["FitResult", "fit"]

tfd = tfp.distributions

_NUM_EVALUATIONS = 40
_NUMBERS_AT_ONCE = 2**22  # of the samples that are passed to TensorFlow at once


def fit(
    dist: tfd.Distribution,
    samples: Any,
    *,
    num_steps: int | None = None,
    batch_size: int = 256,
    optimizer: Any = None,
    validation_split: float = 0.1,
    patience: int | None = None,
    trainable_proposal: bool = False,
    seed: int | tf.Tensor | None = None,
    progress: bool = True,
) -> FitResult:
    """Fits a distribution to samples by maximum likelihood.

    For a `Resampled`, this trains the acceptance network and, on request, the proposal. The main
    use is a better prior for a VAE that is already trained: `samples` are latents of its encoder.
    For any other TFP distribution, for example a flow alone, it trains all variables. As in the
    `fit` of Keras, networks run in training mode during the steps, and in inference mode elsewhere.
    A proposal that is not trained always runs in inference mode.

    Part of the samples is held out. Training stops early if their log-likelihood does not improve,
    and the best weights are restored. Ctrl-C stops the training and returns the result for the best
    weights so far.

    >>> proposal = tfd.MultivariateNormalDiag(tf.zeros(2))
    >>> dist = Resampled(proposal, AcceptanceNetwork((16, 16)), T=100)
    >>> rng = np.random.default_rng(0)
    >>> samples = 0.3 * rng.normal(size=(4096, 2)) + rng.choice([-1, 1], size=(4096, 1))
    >>> result = fit(dist, samples, num_steps=300, progress=False, seed=1)
    >>> bool(result.gain > 0.8)
    True
    >>> result.distribution.log_prob(result.distribution.sample(3, seed=2)).shape
    TensorShape([3])

    Args:
      dist: A `Resampled` with a moving average, or any trainable TFP distribution whose event is a
        single tensor.
      samples: Samples of the target, shape `[N]` + batch + event: an array, a tensor, or a
        `tf.data.Dataset` of samples or of batches of them, which is read as often as needed and
        must not have a `.repeat()`. Or a function that draws fresh ones. It gets a stateless seed,
        `int32[2]`, and returns any number of samples, preferably at least a batch. If it returns a
        pair of samples and their log densities, shape `[N]` + batch, these are used as
        `target_log_prob` of `Resampled.log_prob`.
      num_steps: Number of training steps. By default 30 epochs, but at least 1,000 and at most
        6,000 steps.
      batch_size: Number of samples per step. All samples are used if there are fewer.
      optimizer: An optimizer of Keras 3 or tf_keras. By default Adam with a warm-up, a cosine decay
        to 0 and clipped gradients. If it averages weights (`use_ema=True`), the averages are
        evaluated and returned.
      validation_split: Share of the samples to hold out, at most 50,000. For functions, and
        for data sets that are infinite or do not fit into memory, the first 10,000 samples are held
        out.
      patience: Number of evaluations without improvement after which training stops. There are 40
        evaluations, evenly spaced. The default is 10.
      trainable_proposal: Whether to train the proposal of a `Resampled`, too.
      seed: Python `int`, or an `int32[2]` stateless seed, for the order of the samples and the
        evaluation. The draws for Z in training follow the seed of the `MovingAverage`.
      progress: Whether to print the settings and show a progress bar.

    Returns:
      result: A `FitResult`. `result.distribution` is ready to use: its log Z is fixed. `dist` has
        the same weights. For a more precise log Z, call `dist.freeze(num_samples=...)`.
    """
    if not tf.executing_eagerly():
        raise RuntimeError("`fit` was called inside a tf.function. Call it outside.")
    _check_distribution(dist)
    if not isinstance(dist, Resampled):  # it has built its networks itself
        ownership.build_networks(dist)
    variables = _variables_to_train(dist, trainable_proposal)
    _check_no_fixed_log_z(dist, variables)
    _check_not_held(dist, trainable_proposal)
    batch_size = _arguments.checked_count("batch_size", batch_size)
    if num_steps is not None:
        num_steps = _arguments.checked_count("num_steps", num_steps)
    if not (_arguments.is_real_number(validation_split) and 0.0 < validation_split < 1.0):
        raise ValueError(f"`validation_split` must be between 0 and 1; got {validation_split!r}.")
    patience = 10 if patience is None else _arguments.checked_count("patience", patience)

    seeds = _seeds.integers(seed)
    sampled = _fit_samples.read(
        samples,
        dist.batch_shape + dist.event_shape,
        dist.batch_shape,
        tf.as_dtype(dist.dtype),
        batch_size,
        float(validation_split),
        np.random.default_rng(next(seeds)),
    )
    trains_proposal = trainable_proposal or not isinstance(dist, Resampled)
    recipe = Recipe.of(
        num_steps,
        sampled.num_train,
        sampled.batch_size,
        event_size=int(np.prod(dist.event_shape)),
        trains_proposal=trains_proposal,
    )
    chosen = recipe.optimizer() if optimizer is None else checked_optimizer(optimizer)
    trainer = Trainer(dist, variables, chosen, trains_proposal)
    if progress:
        settings = f"learning rate {recipe.learning_rate:g}, {recipe.warm_up:,} steps of warm-up"
        print(
            f"Fitting {sum(v.shape.num_elements() for v in variables):,} weights to "
            f"{'fresh' if sampled.num_train is None else f'{sampled.num_train:,}'} samples, "
            f"{len(sampled.held_out):,} held out: {recipe.num_steps:,} steps of "
            f"{sampled.batch_size}, {settings if optimizer is None else 'the given optimizer'}."
        )
    with without_partial_estimates():  # Ctrl-C in an evaluation ends the training, too
        loop = _Loop(dist, sampled, trainer, recipe.num_steps, seed=next(seeds))
        stopped = loop.run(patience, progress)
    return loop.result(stopped, seed=next(seeds))


class _Loop:
    """Trains, evaluates, and keeps the best weights.

    Args:
      dist: Distribution to fit.
      sampled: Training batches and held-out samples.
      trainer: Makes training steps.
      num_steps: Number of steps.
      seed: Seed for the evaluations.
    """

    def __init__(
        self,
        dist: tfd.Distribution,
        sampled: _fit_samples.Sampled,
        trainer: Trainer,
        num_steps: int,
        seed: int,
    ):
        self._dist, self._sampled, self._trainer = dist, sampled, trainer
        self._num_steps, self._num_done = num_steps, 0
        self._evaluation = _fit_evaluation.Evaluation(dist, sampled.held_out, seed)
        baseline = dist.proposal if isinstance(dist, Resampled) else dist
        baseline = _fit_evaluation.frozen(baseline, num_samples=2 * 10**6, seed=seed)
        self._before = _fit_evaluation.log_prob_in_batches(baseline)(sampled.held_out)
        self._errors_before = _fit_evaluation.log_z_errors(baseline, sampled.held_out)
        _check_support(self._before)
        _check_support(self._evaluation())
        self._rows: list[dict[str, float]] = []
        self._best = Snapshot(ownership.all_variables(dist))
        self._best_row = self._evaluate(np.nan)

    def run(self, patience: int, progress: bool) -> str:
        """Trains, restores the best weights, and returns why the training stopped."""
        bar = None
        if progress:
            bar = keras.utils.Progbar(
                self._num_steps, stateful_metrics=list(self._best_row), unit_name="step"
            )
        every = -(-self._num_steps // _NUM_EVALUATIONS)
        stopped = None
        try:
            while stopped is None:
                mean = self._train(min(every, self._num_steps - self._num_done))
                with self._trainer.averaged():
                    row = self._evaluate(mean)
                    if row["log_likelihood"] > self._best_row["log_likelihood"]:
                        self._best_row = row
                        self._best.take()
                if self._num_done == self._num_steps:
                    stopped = "finished"
                elif row["step"] - self._best_row["step"] >= patience * every:
                    stopped = "early"
                if bar is not None:
                    values = [item for item in row.items() if item[0] != "step"]
                    bar.update(self._num_done, values, finalize=stopped is not None)
        except KeyboardInterrupt:
            stopped = "interrupted"
        self._best.restore()
        if self._trainer.num_skipped and self._trainer.num_skipped == self._num_done:
            raise ValueError(
                f"None of {self._num_done} steps had a finite gradient. Check that `samples` are "
                "inside the support of the distribution and that its networks return finite values."
            )
        return stopped

    def result(self, stopped: str, seed: int) -> FitResult:
        """Returns the result for the current weights."""
        # The error of log Z should be small beside that of the mean over samples.
        _, stderr = mean_and_stderr(self._evaluation() - self._before)
        frozen = _fit_evaluation.frozen(
            self._dist, num_samples=2 * 10**6, target_stderr=max(0.3 * stderr, 1e-3), seed=seed
        )
        after = _fit_evaluation.log_prob_in_batches(frozen)(self._sampled.held_out)
        combined, before_errors = _fit_evaluation.combined_error, self._errors_before
        errors = _fit_evaluation.log_z_errors(frozen, self._sampled.held_out)
        # The error of a log Z that both have in common may cancel.
        of_gain = {
            key: errors.get(key, np.zeros([])) - before_errors.get(key, np.zeros([]))
            for key in {**before_errors, **errors}
        }
        value, value_stderr = mean_and_stderr(after)
        before, before_stderr = mean_and_stderr(self._before)
        gain, gain_stderr = mean_and_stderr(after - self._before)
        return FitResult(
            distribution=frozen,
            log_likelihood=value,
            log_likelihood_stderr=float(np.hypot(value_stderr, combined(errors))),
            proposal_log_likelihood=before,
            proposal_log_likelihood_stderr=float(np.hypot(before_stderr, combined(before_errors))),
            gain=gain,
            gain_stderr=float(np.hypot(gain_stderr, combined(of_gain))),
            history={name: np.array([r[name] for r in self._rows]) for name in self._rows[0]},
            best_step=int(self._best_row["step"]),
            num_steps=self._num_done,
            stopped=stopped,
            num_skipped=self._trainer.num_skipped,
            held_out=self._sampled.held_out,
            proposal=self._dist.proposal if isinstance(self._dist, Resampled) else None,
        )

    def _train(self, num_steps: int) -> float:
        """Makes some steps and returns their mean log-likelihood."""
        event_size = int(np.prod(self._sampled.held_out.shape[1:]))
        most = max(1, _NUMBERS_AT_ONCE // (self._sampled.batch_size * max(1, event_size)))
        total, left = 0.0, num_steps
        while left:
            count = min(left, most)
            total += count * self._trainer(self._sampled.take(count))
            left -= count
            self._num_done += count
        return total / num_steps

    def _evaluate(self, train_log_likelihood: float) -> dict[str, float]:
        """Returns and records what was measured at the current step."""
        value = float(np.mean(self._evaluation()))
        row = {
            "step": self._num_done,
            "log_likelihood": value if np.isfinite(value) else -np.inf,
            "train_log_likelihood": train_log_likelihood,
            "learning_rate": self._trainer.learning_rate,
        }
        if isinstance(self._dist, Resampled):
            row["acceptance_rate"] = self._evaluation.acceptance_rate
        self._rows.append(row)
        return row


def _check_distribution(dist: Any) -> None:
    if not isinstance(dist, tfd.Distribution):
        raise TypeError(f"`dist` must be a TFP distribution; got {dist!r}.")
    if tf.nest.is_nested(dist.dtype):
        raise TypeError(
            f"`dist` must have a single tensor as its event; {dist.name!r} is joint, with events "
            f"of type {dist.dtype}. `tfd.Blockwise` makes one tensor of several."
        )
    if not (dist.batch_shape.is_fully_defined() and dist.event_shape.is_fully_defined()):
        raise ValueError(
            f"`dist` must have a static shape; got batch shape {dist.batch_shape} and event shape "
            f"{dist.event_shape}."
        )


def _check_no_fixed_log_z(dist: tfd.Distribution, trained: list[tf.Variable]) -> None:
    """Raises if the training changes a Z that is fixed, also that of an inner distribution."""
    ids = {id(v) for v in trained}
    for part in (dist, *dist.submodules):
        if not (isinstance(part, Resampled) and _fit_evaluation.has_fixed_log_z(part)):
            continue
        if any(id(v) in ids for v in ownership.all_variables(part)):
            where = "`dist`" if part is dist else "a part of `dist`"
            raise ValueError(
                f"{part.name!r}, {where}, has a fixed log Z, which would be wrong after each step. "
                "Use its `copy(normalizer=tfp_lars.MovingAverage())`, which has a moving average."
            )


def _check_not_held(dist: tfd.Distribution, trainable_proposal: bool) -> None:
    """Raises if a moving average is held whose Z the training changes."""
    if isinstance(dist, Resampled) and not trainable_proposal:
        averages = moving_averages(dist.normalizer)  # pyright: ignore[reportArgumentType]
    else:
        averages = moving_averages(dist)
    if any(average.is_held for average in averages):
        raise ValueError(
            f"A moving average of `dist`, {dist.name!r}, is held, so its Z would be wrong after "
            "each step. Call `fit` outside of `with dist.held():`, or call `release()` first."
        )


def _variables_to_train(dist: tfd.Distribution, trainable_proposal: bool) -> list[tf.Variable]:
    variables = [v for v in ownership.all_variables(dist) if v.trainable]
    if isinstance(dist, Resampled):
        proposal = [v for v in ownership.all_variables(dist.proposal) if v.trainable]
        if trainable_proposal and not proposal:
            raise ValueError(
                f"`trainable_proposal=True`, but the proposal {dist.proposal.name!r} has no "
                "trainable variables. Use one that has, such as `tfp_lars.proposals.real_nvp(d)`, "
                "or parameters that are a `tf.Variable`."
            )
        if not trainable_proposal:
            if dist.T == 1:
                raise ValueError(
                    "`dist` has `T=1`, so it is its proposal and `accept_fn` has no effect. Pass "
                    "`dist.copy(T=100)`, or `trainable_proposal=True`."
                )
            of_proposal = {id(v) for v in proposal}
            variables = [v for v in variables if id(v) not in of_proposal]
    if not variables:
        what = "`accept_fn` of `dist`" if isinstance(dist, Resampled) else "`dist`"
        raise ValueError(
            f"{what} has no trainable variables. Use a network such as "
            "`tfp_lars.AcceptanceNetwork()`, or parameters that are a `tf.Variable`."
        )
    return variables


def _check_support(log_prob: np.ndarray) -> None:
    impossible = ~np.isfinite(log_prob)
    if np.any(impossible):
        raise ValueError(
            f"`samples`: {np.sum(impossible)} of {log_prob.size} held-out samples have the log "
            f"density {log_prob[impossible][0]} under the distribution. Resampling cannot extend "
            "the support of its proposal. Choose one that covers all samples, and check that all "
            "networks return finite values."
        )
