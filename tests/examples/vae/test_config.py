"""Configurations, their files and their derived properties."""

import dataclasses
import json
import math
import subprocess
import sys

import pytest

from examples.common.command_line import UserError
from examples.vae import train
from examples.vae.config import MODELS, Config, Evaluation, PriorConfig
from examples.vae.datasets import DATASETS
from examples.vae.priors import PRIORS

EVERY = [
    Config(dataset, model, PriorConfig(prior))
    for dataset in DATASETS
    for model in MODELS
    for prior in PRIORS
    if model != "output_vae" or prior == "lars"
]


def test_a_configuration_comes_back_from_its_file():
    others = [
        Config("mnist", prior=PriorConfig("lars", (7, 5), T=None, num_samples=3, decay=0.5)),
        Config("mnist", prior=PriorConfig("lars"), post_hoc=True, base="x", base_weights="1"),
        Config("mnist", evaluation=Evaluation(1, 2, 3), checkpoint_every=7, seed=3),
    ]
    for config in EVERY + others:
        found = Config.from_json(json.loads(json.dumps(config.to_json())))
        assert found == config and hash(found) == hash(config)


def test_names_of_different_runs_differ():
    assert len({config.name for config in EVERY}) == len(EVERY)
    usual = Config("mnist")
    changes = {
        "accept_units": (7, 5),
        "T": 7,
    }
    for name, value in changes.items():
        prior = dataclasses.replace(usual.prior, **{name: value})
        assert dataclasses.replace(usual, prior=prior).name != usual.name
    assert Config("mnist", prior=PriorConfig(T=None)).name == "mnist-vae-lars-Tinf"
    assert Config("mnist", prior=PriorConfig(accept_units=(100, 100))).name == "mnist-vae-lars"


@pytest.mark.parametrize(
    ("config", "units"),
    [
        (Config("mnist"), (100, 100)),
        (Config("mnist", prior=PriorConfig("lars_dimensionwise")), (20, 20)),
        (Config("mnist", "output_vae"), (300, 300)),
        (Config("mnist", "output_vae", PriorConfig(accept_units=(7,))), (7,)),
        (Config("mnist", prior=PriorConfig("maf")), None),
    ],
)
def test_usual_acceptance_networks(config, units):
    assert config.prior.accept_units == units


def test_questions_about_a_configuration():
    resampled = {name for name in PRIORS if Config("mnist", prior=PriorConfig(name)).is_resampled}
    assert resampled == {"lars", "lars_dimensionwise", "lars_real_nvp"}
    assert [name for name in DATASETS if Config(name).stops_early] == ["static_mnist"]
    assert [name for name in MODELS if Config("mnist", name).resamples_images] == ["output_vae"]
    assert Config("mnist", base="x").continues
    post_hoc = Config("mnist", prior=PriorConfig(T=7), post_hoc=True, base="x", base_weights="1")
    assert not post_hoc.continues
    assert post_hoc.base_config == Config("mnist", prior=PriorConfig("standard"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Config("cifar"), "unknown --dataset 'cifar': choose from mnist, "),
        (lambda: Config("mnist", "gan"), "unknown --model 'gan'"),
        (lambda: Config("mnist", prior=PriorConfig("flat")), "unknown --prior 'flat'"),
        (lambda: Config("mnist", "output_vae", PriorConfig("maf")), "got --prior maf"),
        (lambda: Config("mnist", prior=PriorConfig("maf"), post_hoc=True), "try lars"),
        (
            lambda: Config.from_json({"dataset": "mnist"}),
            "no configuration of a run: model is missing",
        ),
    ],
)
def test_impossible_runs_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize(
    ("one", "other", "covers"),
    [
        (Evaluation(10, 10, 10), Evaluation(10, 10, 10), True),
        (Evaluation(10, 10, None), Evaluation(10, 10, 10), True),
        (Evaluation(10, 10, 10), Evaluation(10, 10, None), False),
        (Evaluation(11, 10, 10), Evaluation(10, 10, 9), True),
        (Evaluation(11, 10, 9), Evaluation(10, 10, 10), False),
        (Evaluation(10, 9, 10), Evaluation(10, 10, 10), False),
    ],
)
def test_one_evaluation_covers_another_if_it_is_as_full_in_all_respects(one, other, covers):
    assert one.covers(other) == covers


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Config("mnist", seed=-1), "--seed must be at least 0 .*got -1"),
        (lambda: Config("mnist", seed=2**32), "--seed must be .* below 2.32, got 4294967296"),
        (lambda: PriorConfig(decay=1.0), "--decay must be at least 0 and below 1, got 1.0"),
        (lambda: PriorConfig(decay=-0.1), "--decay must be .*got -0.1"),
        (lambda: PriorConfig(T=2**31), "--T must be at most 2147483647, or inf, got 2147483648"),
        (lambda: PriorConfig(decay=math.nan), "--decay must be .*got nan"),
        (lambda: Evaluation(test_images=1), "--test-images must be at least 2.*got 1"),
    ],
)
def test_settings_out_of_range_are_named(make, message):
    with pytest.raises(UserError, match=message):
        make()


def test_settings_out_of_range_leave_no_directory(tmp_path):
    for option in (("--decay", "1.5"), ("--seed", "-1"), ("--test-images", "1")):
        with pytest.raises(UserError, match=option[0]):
            train.main(["--dataset", "mnist5k", "--out", str(tmp_path / "run"), *option])
    assert not (tmp_path / "run").exists()


def test_weights_depend_on_the_identity_alone():
    one = Config("mnist")
    same = dataclasses.replace(one, evaluation=Evaluation(1, 1, 2), checkpoint_every=3)
    assert one.identity() == same.identity()
    for change in ({"seed": 1}, {"steps": 7}, {"base_weights": "1"}, {"batch_size": 3}):
        assert dataclasses.replace(one, **change).identity() != one.identity()


def test_no_tensorflow_is_imported():
    code = "import sys, examples.vae.config, examples.vae.run_directory, examples.vae.train;"
    done = subprocess.run(
        [sys.executable, "-c", code + "print('tensorflow' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"
