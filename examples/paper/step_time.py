"""How long a run will take on this machine: a few steps are timed, the rest is arithmetic."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
import time
from collections.abc import Callable

from examples.common import command_line
from examples.vae.config import Config
from examples.vae.datasets import DATASETS

_STEPS = 10  # for each call from Python, when they are timed


@dataclasses.dataclass(frozen=True)
class Costs:
    """Seconds for each of what a run does.

    Attributes:
      start: Once: imports and tracing.
      step: For each step of the training.
      importance_sample: For each image and draw of the latents in the evaluation.
      proposal: For each draw from the proposal in the evaluation of Z.
    """

    start: float
    step: float
    importance_sample: float
    proposal: float


def seconds(costs: Costs, config: Config, steps_done: int = 0) -> float:
    """What is left of a run, in seconds. Pictures, checkpoints and reading the data not counted.

    Args:
      costs: Costs on this machine.
      config: What is trained.
      steps_done: Steps that need not be done again.
    """
    dataset, evaluation = DATASETS[config.dataset], config.evaluation
    images = min(dataset.num_test, evaluation.test_images or dataset.num_test)
    draws, proposals = images * evaluation.iwae_samples, evaluation.z_samples
    steps = max(config.steps - steps_done, 0)
    if config.stops_early:
        command_line.import_tensorflow()
        from examples.vae import early_stopping as early

        looks = steps // max(config.checkpoint_every, config.steps // early.NUM_EVALUATIONS)
        draws += looks * early.num_images(config, dataset.num_validation) * early.IWAE_SAMPLES
        proposals += looks * early.Z_SAMPLES
    return (
        costs.start
        + steps * costs.step
        + draws * costs.importance_sample
        + proposals * costs.proposal
    )


def readable(seconds: float) -> str:
    """A duration for a reader."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def kind(config: Config) -> Config:
    """A run that costs the same for each step: T and the data set do not matter.

    A post-hoc fit is taken to cost what joint training does; it is somewhat less.
    """
    prior = dataclasses.replace(config.prior, T=100)
    return dataclasses.replace(
        config, dataset="mnist", prior=prior, post_hoc=False, base=None, base_weights=None
    )


def measure(config: Config) -> Costs:
    """Times a few steps of each sort, on made-up images."""
    command_line.import_tensorflow()
    import numpy as np

    from examples.vae import batches, datasets, evaluation
    from examples.vae.build import build

    config = dataclasses.replace(kind(config), steps=_STEPS)
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
    """Seconds for a few, and for each one more: every call has a cost of its own, say tracing.

    On a busy machine the larger call may take no longer than the first; its mean is then the
    better estimate.
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
