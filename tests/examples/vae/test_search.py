"""The comparison of training recipes."""

import dataclasses
import functools

import numpy as np
import pytest

from examples.common.command_line import UserError
from examples.vae import datasets, search
from examples.vae.config import Config
from examples.vae.schedule import Schedule

SMALL = ("--dataset", "mnist5k", "--prior", "lars", "--steps", "10", "--images", "20")
EVALUATION = ("--iwae-samples", "5", "--z-samples", "1000")


def test_each_recipe_changes_one_thing():
    config = Config("mnist", steps=10_000, schedule="short")
    short = Schedule.of(config)
    for name, change in search.RECIPES.items():
        if name in search.BATCH_SIZES:
            continue
        assert search.configuration(config, name) == config
        changed = change(config, short)
        different = [
            field.name
            for field in dataclasses.fields(Schedule)
            if field.name != "rate" and getattr(changed, field.name) != getattr(short, field.name)
        ]
        steps = (0, 250, 500, 5_000, 9_999)
        same_rate = np.allclose([short.rate(s) for s in steps], [changed.rate(s) for s in steps])
        count = len(different) + (not same_rate)
        assert count == {"the short recipe": 0, "the paper's recipe": 7}.get(name, 1), name


@pytest.mark.parametrize(("name", "batch_size"), search.BATCH_SIZES.items())
def test_batches_of_another_size_have_the_same_number_of_images(name, batch_size):
    config = Config("mnist", steps=10_000, schedule="short")
    found = search.configuration(config, name)
    assert found.batch_size == batch_size != config.batch_size
    assert found.batch_size * found.steps == config.batch_size * config.steps
    assert dataclasses.replace(found, batch_size=config.batch_size, steps=config.steps) == config
    schedule = Schedule.of(found)
    assert search.RECIPES[name](found, schedule) == schedule


def test_cosine_decay_has_the_same_rise_and_peak():
    config = Config("mnist", steps=10_000, schedule="short")
    rate = search.RECIPES["cosine decay"](config, Schedule.of(config)).rate
    found = [float(rate(step)) for step in (250, 500, 5_250, 10_000)]
    np.testing.assert_allclose(found, [1.5e-3, 3e-3, 1.5e-3, 0.0], atol=1e-8)


def test_finished_trainings_are_kept(capsys, tmp_path, monkeypatch):
    recipes = ("--recipe", "the short recipe", "T fixed")
    arguments = [*SMALL, *EVALUATION, "--out", str(tmp_path)]
    monkeypatch.setattr(datasets, "load", functools.cache(datasets.load))  # takes seconds
    search.main([*arguments, *recipes])
    first = capsys.readouterr().out
    assert "| recipe | LARS |" in first
    table = first[first.index("| recipe") :]
    assert len(set(table.splitlines()[2:])) == 2
    monkeypatch.setattr(search, "_validation_nll", None)  # calling it would fail
    search.main([*arguments, *recipes])
    assert table in capsys.readouterr().out
    assert len(list(tmp_path.glob("*.json"))) == 2
    with pytest.raises(UserError, match="belongs to another configuration"):
        search.main([*arguments, *recipes, "--images", "21"])


def test_truncation_concerns_resampled_priors_only_and_the_model_all(monkeypatch, tmp_path):
    found = []
    monkeypatch.setattr(search, "_validation_nll", lambda config, *_: found.append(config) or 1.0)
    arguments = ["--prior", "lars", "real_nvp", "--T", "inf", "--recipe", "T fixed"]
    arguments += ["--model", "hvae"]
    search.main([*SMALL, *EVALUATION, *arguments, "--out", str(tmp_path)])
    assert [config.prior.T for config in found] == [None, 100]
    assert {config.model for config in found} == {"hvae"}
    names = {path.name for path in tmp_path.glob("*.json")}
    assert names == {
        f"T-fixed-mnist5k-hvae-{p}-short-schedule-10-s0.json" for p in ("lars-Tinf", "real_nvp")
    }
