"""Predicts the duration of a run on this machine from timing a few steps."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
import time
from collections.abc import Callable

from examples.common import command_line
from examples.vae.config import Config, Evaluation
from examples.vae.datasets import DATASETS

_STEPS = 10  # training steps per execution of the timed model


@dataclasses.dataclass(frozen=True)
class Costs:
    """Costs of the parts of a run, in seconds.

    Attributes:
      start: Fixed cost of a run: imports and tracing.
      step: Cost of a training step.
      importance_sample: Cost of one draw of the latents for one image in the evaluation.
      proposal: Cost of one draw from the proposal in the evaluation of Z.
    """

    start: float
    step: float
    importance_sample: float
    proposal: float


def seconds(costs: Costs, config: Config, steps_done: int = 0) -> float:
    """Returns the remaining duration of a run, in seconds.

    The prediction leaves out pictures, checkpoints and reading the data.

    Args:
      costs: Costs on this machine.
      config: Configuration of the run.
      steps_done: Number of steps that are already done.
    """
    dataset, evaluation = DATASETS[config.dataset], config.evaluation
    images = min(dataset.num_test, evaluation.test_images or dataset.num_test)
    draws, proposals = images * evaluation.iwae_samples, evaluation.z_samples
    steps = max(config.steps - steps_done, 0)
    if config.stops_early:
        command_line.import_tensorflow()
        from examples.vae import early_stopping as early

        looks = steps // early.interval(config)
        draws += looks * early.num_images(config, dataset.num_validation) * early.IWAE_SAMPLES
        proposals += looks * early.Z_SAMPLES
    return (
        costs.start
        + steps * costs.step
        + draws * costs.importance_sample
        + proposals * costs.proposal
    )


def readable(seconds: float) -> str:
    """Formats a duration."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def kind(config: Config) -> Config:
    """Returns a run with the same cost per step, so that similar runs are timed once.

    T, the data set, the seed and the evaluation do not affect the cost of a step. The number of
    steps affects it only by the training recipe. A post-hoc run counts as joint training, which
    costs slightly more.
    """
    prior = dataclasses.replace(config.prior, T=100)
    return dataclasses.replace(
        config,
        dataset="mnist",
        prior=prior,
        steps=_STEPS,
        schedule="paper" if config.follows_paper else "short",
        seed=0,
        post_hoc=False,
        base=None,
        base_weights=None,
        evaluation=Evaluation(),
    )


def measure(config: Config) -> Costs:
    """Times training and evaluation on random images."""
    command_line.import_tensorflow()
    import numpy as np

    from examples.vae import batches, datasets, evaluation
    from examples.vae.build import build

    config = kind(config)
    rng = np.random.default_rng(0)
    pixels = np.uint8(255 * (rng.random((evaluation.IMAGES_PER_BATCH, 28, 28)) < 0.3))
    images = datasets.Images("mnist", pixels, pixels, pixels, dynamic=True, source="made up")
    model = build(config)

    def fit(num_steps):
        training = batches.training_batches(
            images, batch_size=config.batch_size, seed=0, start=0, stop=num_steps
        )
        model.fit(training, steps_per_epoch=num_steps, shuffle=False, verbose=0)

    def evaluate_images(num_samples):
        evaluation.importance_weighted(model, prior, pixels, num_samples)

    def evaluate_z(num_samples):
        evaluation.frozen_prior(model, num_samples, seed=0)

    first_fit = _timed(fit, _STEPS)
    _, step = _line_through(fit, _STEPS, 5 * _STEPS)
    prior, _ = evaluation.frozen_prior(model, 1_000, seed=0)
    samples = evaluation.SAMPLES_PER_CHUNK
    first_images, sample = _line_through(evaluate_images, samples, 3 * samples)
    first_z, proposal = 0.0, 0.0
    if config.is_resampled:
        first_z, proposal = _line_through(evaluate_z, 2**12, 2**16)
    return Costs(
        start=_import_time() + first_fit + first_images + first_z,
        step=step,
        importance_sample=sample / len(pixels),
        proposal=proposal,
    )


def _line_through(work: Callable[[int], object], few: int, many: int) -> tuple[float, float]:
    """Returns the seconds for `few` items and the seconds for each further item.

    The difference of two calls removes fixed costs such as tracing. On a busy machine the larger
    call may take no longer than the smaller one. Its mean is then the better estimate.
    """
    short, long = _timed(work, few), _timed(work, many)
    return short, (long - short) / (many - few) if long > short else long / many


def _timed(work: Callable[..., object], *args) -> float:
    start = time.perf_counter()
    work(*args)
    return time.perf_counter() - start


@functools.cache
def _import_time() -> float:
    command = [sys.executable, "-c", "import examples.vae.training"]
    return _timed(lambda: subprocess.run(command, check=True, capture_output=True))
