"""Tests of the predicted durations of runs."""

import dataclasses
import math
import os

import pytest

from examples.paper import command, experiments, runner, step_time
from examples.paper.presets import PRESETS
from examples.vae import datasets
from tests.examples.paper.made_up import (
    IMAGES,
    JOINT,
    POST_HOC,
    STANDARD,
    TABLE,
    TINY,
    finish,
    study,
)


def test_estimated_time_is_the_sum_of_its_parts():
    costs = step_time.Costs(start=10.0, step=0.01, importance_sample=1e-5, proposal=1e-6)
    quick = PRESETS["quick"]
    run = experiments.run("mnist", "lars")
    # 10 + 10,000 steps, 1,000 images with 200 draws, 10^6 proposals
    assert math.isclose(step_time.seconds(costs, quick.of(run)), 10 + 100 + 2 + 1)
    assert math.isclose(step_time.seconds(costs, quick.of(run), steps_done=9000), 10 + 10 + 2 + 1)
    full = dataclasses.replace(
        quick, evaluation=dataclasses.replace(quick.evaluation, test_images=None)
    )
    omniglot = experiments.run("omniglot", "lars")
    assert math.isclose(step_time.seconds(costs, full.of(omniglot)), 10 + 100 + 16.14 + 1)
    # Early stopping: 50 evaluations on 1,000 validation images with 20 draws, and 10^5 proposals.
    static = experiments.run("static_mnist", "lars")
    assert math.isclose(step_time.seconds(costs, quick.of(static)), 10 + 100 + 2 + 1 + 10 + 5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (80, "80 s"), (150, "2.5 min"), (9000, "2.5 h"), (216_000, "2.5 days")],
)
def test_durations_are_readable(seconds, text):
    assert step_time.readable(seconds) == text


def test_time_of_a_step_is_positive_on_a_busy_machine(monkeypatch):
    """The first call, with 10 items, takes 3 seconds; the second, with 50 items, takes 1."""
    clock = iter([0.0, 3.0, 3.0, 4.0])
    monkeypatch.setattr(step_time.time, "perf_counter", lambda: next(clock))
    assert step_time._line_through(lambda n: None, 10, 50) == (3.0, 1 / 50)
    clock = iter([0.0, 1.0, 1.0, 4.0])
    assert step_time._line_through(lambda n: None, 10, 50) == (1.0, 2 / 40)


def test_measured_costs_are_finite(monkeypatch):
    monkeypatch.setattr(step_time, "_import_time", lambda: 0.0)
    costs = step_time.measure(TINY.of(JOINT))
    for value in dataclasses.astuple(costs):
        assert value >= 0.0 and math.isfinite(value)
    assert costs.step > 0.0 and costs.proposal > 0.0


def test_dry_run_lists_the_runs_and_starts_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(datasets, "digest", lambda name, data_dir=None: IMAGES)
    made = study(tmp_path)
    finish(made, STANDARD)
    costs = step_time.Costs(start=10.0, step=0.5, importance_sample=0.0, proposal=0.0)
    monkeypatch.setattr(step_time, "measure", lambda config: costs)
    runner.dry_run(made, jobs=1)
    out = capsys.readouterr().out
    assert f"{STANDARD.name}: finished" in out
    assert f"{POST_HOC.name}: not run, about 60 s, 500 ms a step" in out
    assert "3 runs, about 2.0 min one after the other. The estimates" in out
    assert not (tmp_path / "runs" / JOINT.name).exists()


@pytest.mark.parametrize(
    ("rows", "jobs", "cores", "text"),
    [
        ([0, 2], 1, 2, "2 runs, about 2.0 min one after the other. "),
        ([0, 2], 2, 2, "2 runs, about 2.0 min one after the other, 60 s with --jobs 2."),
        ([0, 2], 2, 1, "2 runs, about 2.0 min one after the other, 2.0 min with --jobs 2."),
        # Standard, and after it post-hoc; joint runs beside them.
        ([0, 1, 2], 2, 2, "3 runs, about 3.0 min one after the other, 2.0 min with --jobs 2."),
    ],
)
def test_dry_run_estimates_parallel_runs_on_a_cpu(
    tmp_path, capsys, monkeypatch, rows, jobs, cores, text
):
    monkeypatch.setattr(datasets, "digest", lambda name, data_dir=None: IMAGES)
    monkeypatch.setattr(runner, "visible_gpus", list)
    monkeypatch.setattr(runner.cores, "available", lambda: cores)
    costs = step_time.Costs(start=10.0, step=0.5, importance_sample=0.0, proposal=0.0)
    monkeypatch.setattr(step_time, "measure", lambda config: costs)
    runner.dry_run(study(tmp_path, [TABLE.rows[i] for i in rows]), jobs)
    assert text in capsys.readouterr().out


def test_dry_run_uses_the_threads_of_a_child(monkeypatch, tmp_path):
    names = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    for name in names:
        monkeypatch.setenv(name, "")  # so that monkeypatch restores the original value
        monkeypatch.delenv(name)
    found = {}
    monkeypatch.setattr(command.cores, "available", lambda: 8)
    monkeypatch.setattr(runner, "dry_run", lambda *_: found.update(os.environ))
    arguments = ["table2", "--preset", "smoke", "--out", str(tmp_path), "--dry-run"]
    command.main([*arguments, "--jobs", "4"])
    assert [found[name] for name in names] == ["2", "2", "2"]


def test_runs_of_the_same_cost_are_timed_once():
    laptop, run = PRESETS["laptop"], experiments.run("mnist", "lars")
    others = {
        "seed": run.at(1),
        "steps": experiments.run("mnist", "lars", steps=200_000),
        "T": experiments.run("mnist", "lars", T="inf"),
        "data set": experiments.run("omniglot", "lars"),
    }
    for what, other in others.items():
        assert step_time.kind(laptop.of(other)) == step_time.kind(laptop.of(run)), what
    # The paper's recipe has another cost, also in the few steps that are timed.
    paper = step_time.kind(PRESETS["paper"].of(run))
    assert paper != step_time.kind(laptop.of(run))
    assert paper.follows_paper and not step_time.kind(laptop.of(run)).follows_paper
    assert step_time.kind(paper) == paper
