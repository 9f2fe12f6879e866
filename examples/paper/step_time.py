"""How long a run will take on this machine: a few steps are timed, the rest is arithmetic."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
import time
from collections.abc import Callable

from examples.paper.experiments import experiments as paper

_TEST_IMAGES = {"omniglot": 8_070, "mnist5k": 500}
_VALIDATION_IMAGES = 10_000  # of static_mnist, the only one that is stopped early
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


def seconds(costs: Costs, run: paper.Run, preset: paper.Preset, steps_done: int = 0) -> float:
    """What is left of a run, in seconds. Pictures, checkpoints and reading the data not counted.

    Args:
      costs: On this machine.
      run: What is trained.
      preset: And how much of everything.
      steps_done: That need not be done again.
    """
    images = _TEST_IMAGES.get(run.dataset, 10_000)
    if preset.test_images is not None:
        images = min(images, preset.test_images)
    draws, proposals = images * preset.iwae_samples, preset.z_samples
    steps = max(preset.steps - steps_done, 0)
    if run.dataset == "static_mnist":  # as `early_stopping` looks at the validation images
        looks = steps // max(preset.checkpoint_every, preset.steps // 50)
        draws += looks * min(_VALIDATION_IMAGES, max(64, preset.steps // 10)) * 20
        proposals += looks * 10**5
    return (
        costs.start
        + steps * costs.step
        + draws * costs.importance_sample
        + proposals * costs.proposal
    )


def told(seconds: float) -> str:
    """A duration for a reader."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def kind(run: paper.Run) -> paper.Run:
    """A run that costs the same for each step: T and the data set do not matter.

    A post-hoc fit is taken to cost what joint training does; it is somewhat less.
    """
    return dataclasses.replace(run, dataset="mnist", T="100", post_hoc=False)


def measure(run: paper.Run, preset: paper.Preset) -> Costs:
    """Times a few steps of each sort, on made-up images."""
    import numpy as np

    from examples.vae import datasets as data
    from examples.vae import evaluation as evaluate
    from examples.vae import training as train
    from examples.vae.build import build

    few = dataclasses.replace(preset, steps=_STEPS)
    config = train.config_of(train.parse(kind(run).arguments(few, "runs")))
    rng = np.random.default_rng(0)
    pixels = np.uint8(255 * (rng.random((evaluate.IMAGES_PER_BATCH, 28, 28)) < 0.3))
    images = data.Images("mnist", pixels, pixels, pixels, dynamic=True, source="made up")
    model = build(config)

    def fit(num_steps):
        batches = data.training_batches(
            images, batch_size=config.batch_size, seed=0, start=0, stop=num_steps
        )
        model.fit(batches, steps_per_epoch=num_steps, shuffle=False, verbose=0)

    def evaluate_images(num_samples):
        evaluate.importance_weighted(model, prior, pixels, num_samples)

    def evaluate_z(num_samples):
        evaluate.frozen_prior(model, num_samples, seed=0)

    first_fit = _timed(fit, _STEPS)
    _, step = _line_through(fit, _STEPS, 5 * _STEPS)
    prior, _ = evaluate.frozen_prior(model, 1_000, seed=0)
    samples = evaluate.SAMPLES_PER_CHUNK
    first_images, sample = _line_through(evaluate_images, samples, 3 * samples)
    first_z, proposal = 0.0, 0.0
    if config.prior.name.startswith("lars"):
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
    command = [sys.executable, "-c", "import examples.train"]
    return _timed(lambda: subprocess.run(command, check=True, capture_output=True))
