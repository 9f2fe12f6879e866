"""Early stopping on statically binarized MNIST: when it looks, what it keeps, and interruptions."""

import dataclasses
import math

import numpy as np
import pytest

from examples.common.command_line import UserError
from examples.paper import experiments, runner
from examples.vae import (
    build,
    checkpoints,
    datasets,
    evaluation,
    run_directory,
    runs,
    stopping_rule,
    training,
)
from examples.vae.config import Evaluation
from tests.examples.paper.made_up import TINY, study

RUN = experiments.run("static_mnist", "standard", latents=2)
PIXELS = np.uint8(255 * (np.random.default_rng(0).random((20, 28, 28)) < 0.3))
IMAGES = datasets.Images("static_mnist", PIXELS, PIXELS, PIXELS, dynamic=False, source="made up")


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Returns a function that makes a study of a run with the given validation NLL by step."""

    def function(name, steps, every, nll, looks=None):
        def validation_nll(model, *args):
            if looks is not None:
                looks.append(model.num_steps)
            return float(nll(model.num_steps))

        monkeypatch.setattr(evaluation, "validation_nll", validation_nll)
        preset = dataclasses.replace(
            TINY,
            steps=steps,
            checkpoint_every=every,
            batch_size=8,
            evaluation=Evaluation(iwae_samples=2, z_samples=100),
        )
        return study(tmp_path / name, [], preset, compare_data=False)

    return function


def train(made):
    """Trains the run of a study from where it is. Returns the step and a digest of the weights."""
    run, config = made.directory(RUN), made.config(RUN)
    run.claim(config, IMAGES.digest)
    model = training.train(config, IMAGES, run, progress=False)
    return model.num_steps, build.weights_digest(model)


def evaluate(made):
    """Evaluates the weights that the run of a study has by now."""
    found = runs.load(made.directory(RUN).path)
    evaluation.evaluate(
        found.model,
        IMAGES,
        found.config,
        found.directory.path,
        evaluation=found.config.evaluation,
        command="x",
        progress=False,
    )


def interrupt(made, step):
    """Trains until the first checkpoint from a step on."""

    class Keeper(training.Keeper):
        def on_epoch_end(self, epoch, logs=None):
            super().on_epoch_end(epoch, logs)
            if self.model.num_steps >= step:
                raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "Keeper", Keeper)
        with pytest.raises(KeyboardInterrupt):
            train(made)


def test_early_stopped_run_is_finished_after_its_evaluation(make, monkeypatch, capsys):
    """Its metrics have the step of the best weights, its configuration the steps of the budget."""
    made = make("out", 1000, 100, lambda step: abs(step - 60))
    assert train(made)[0] == 60
    assert made.directory(RUN).last_step() == 260
    assert made.state(RUN) == run_directory.State(
        run_directory.INTERRUPTED, "trained, not evaluated"
    )
    evaluate(made)
    state = made.state(RUN)
    assert state.kind == run_directory.FINISHED and state.metrics["steps"] == 60
    # The runner reuses it.
    monkeypatch.setattr(runner, "visible_gpus", list)
    tasks = runner.Runner(made, jobs=1)
    assert tasks.begin(runner.Task(RUN.name, (), made.directory(RUN).path, made.out, run=RUN), 0)
    assert tasks.done == {RUN.name: True} and "finished before, NLL" in capsys.readouterr().out


def test_metrics_of_an_interrupted_training_count_as_unfinished(make):
    made = make("out", 1000, 100, lambda step: abs(step - 120))
    interrupt(made, 100)
    evaluate(made)
    run = made.directory(RUN)
    assert run.metrics()["steps"] == 100
    assert made.state(RUN).reason == "interrupted at step 100"
    run.validation_file.write_text("[]")  # damaged
    assert made.state(RUN).reason == "interrupted at step 100"
    run.validation_file.unlink()
    assert train(made)[0] == 120
    assert made.state(RUN).reason == "trained, not evaluated"
    evaluate(made)
    assert made.state(RUN).kind == run_directory.FINISHED


def test_steps_of_the_evaluations_depend_on_the_budget_alone(make):
    """Neither interruptions nor the checkpoint interval change them, or the final weights."""
    found = {}
    for name, every, stop in (("whole", 60, None), ("resumed", 60, 60), ("rarer", 100, None)):
        looks = []
        made = make(name, 210, every, lambda step: abs(step - 29), looks)
        if stop is not None:
            interrupt(made, stop)
        found[name] = *train(made), looks
    assert found["whole"][0] == 28
    assert found["whole"][2] == list(range(4, 69, 4))
    assert found["resumed"] == found["rarer"] == found["whole"]


def test_evaluation_that_is_nan_is_ignored(make):
    made = make("out", 200, 20, lambda step: math.nan if step <= 20 else step)
    assert train(made)[0] == 24
    # The other way round, the last NLLs are NaN.
    made = make("other", 200, 20, lambda step: math.nan if step > 12 else 100 - step)
    assert train(made)[0] == 12
    assert made.directory(RUN).last_step() == 12 + 4 * stopping_rule.PATIENCE


def test_training_without_a_finite_evaluation_is_an_error(make):
    made = make("out", 200, 20, lambda step: math.nan)
    for _ in range(2):  # also if it is repeated
        with pytest.raises(UserError, match="no weights with a best .*try another --seed"):
            train(made)
    assert not (made.directory(RUN).path / checkpoints.BEST).exists()


def test_rule_ignores_nan():
    values = [math.nan, 5.0, 3.0, math.nan, *[4.0] * 8]
    assert stopping_rule.lowest(dict(enumerate(values))) == 3.0
    assert not stopping_rule.has_stopped(dict(enumerate(values)))
    assert stopping_rule.has_stopped(dict(enumerate([*values, math.nan])))
    assert stopping_rule.lowest({1: math.nan}) is None and stopping_rule.lowest({}) is None
    assert not stopping_rule.has_stopped(dict.fromkeys(range(10), math.nan))
    assert stopping_rule.has_stopped(dict.fromkeys(range(11), math.nan))
