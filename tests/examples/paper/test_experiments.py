"""Tests of the list of experiments: the paper's numbers, and runs that tables share."""

import pathlib

import pytest

from examples.common import command_line
from examples.paper import command, experiments
from examples.paper.experiments import FIGURES, TABLES
from examples.paper.more_tables import MORE_TABLES
from examples.paper.presets import PRESETS
from examples.paper.results import METRICS
from examples.paper.study import Study
from examples.vae.config import Evaluation
from tests.examples.paper.made_up import STANDARD


def printed(table, label):
    (row,) = (row for row in TABLES[table].rows if row.label == label)
    return row.paper


@pytest.mark.parametrize(
    ("table", "label", "numbers"),
    [
        ("table1", "static MNIST, VAE (L=1), LARS", (86.53,)),
        ("table1", "dynamic MNIST, VAE (L=1), standard", (84.97,)),
        ("table1", "dynamic MNIST, ConvHVAE (L=2), LARS", (80.30,)),
        ("table1", "Omniglot, HVAE (L=2), standard", (101.38,)),
        ("table1", "Fashion-MNIST, ConvHVAE (L=2), LARS", (225.92,)),
        ("table2", "dynamic MNIST, LARS post-hoc", (87.3, 24.1, 63.2, 0.023)),
        ("table2", "Omniglot, LARS joint training", (108.4, 35.9, 72.5, 0.011)),
        ("table3", "VAE + IAF", (79.10,)),
        ("table3", "HVAE (L=2) + VampPrior", (81.24,)),
        ("table4", "IWAE (L=2)", (103.38,)),
        ("table4", "ConvHVAE (L=2) + LARS", (97.08,)),
        ("table5", "VAE + LARS, a = MLP[10-10]", (84.08, 0.02)),
        ("table5", "VAE + LARS, a = MLP[100-100-100]", (82.94, 0.014)),
        ("table6", "VAE (L=1, MLP)", (84.97, 1.0, 25.8, 63.3)),
        ("table6", "VAE + LARS, T = inf", (82.67, 2e-6, 24.8, 61.5)),
        ("table6", "VAE + LARS, T = 10", (83.71, 0.08, 25.0, 62.6)),
        ("table7", "VAE + MAF", (81.58, 1.0)),
        ("table7", "VAE + LARS RealNVP", (81.15, 0.027)),
        ("table7", "VAE + LARS in each dimension", (None, None)),
        ("table8", "VAE, resampled outputs", (83.63, 0.014)),
        ("table9", "VAE (L=1) + N(0, I)", (104.53, 1.0)),
        ("table9", "VAE + LARS RealNVP", (100.56, 0.018)),
        ("table9", "VAE + MAF", (None, None)),
    ],
)
def test_registry_has_the_printed_numbers(table, label, numbers):
    assert printed(table, label) == numbers


def everything():
    return Study(*command.choose(["all"]), PRESETS["smoke"], pathlib.Path("out"))


def test_all_is_nine_tables_and_four_figures():
    tables, figures = command.choose(["all"])
    assert [table.name for table in tables] == [f"table{i}" for i in range(1, 10)]
    names = ["figure_toy", "figure_ranked", "figure_z_trace", "figure_latent_2d"]
    assert [figure.name for figure in figures] == names


def test_tables_share_runs_and_no_two_runs_share_a_directory():
    runs = everything().runs
    assert len({run.name for run in runs}) == len(runs) == len(set(runs))
    # 24 runs of table 1; 2 post-hoc; 4 VampPriors; 4 sizes of a(z); 5 truncations; RealNVP, MAF and
    # LARS RealNVP on two data sets and LARS in each dimension; resampled outputs; 4 with 2 latents.
    assert len(runs) == 24 + 2 + 4 + 4 + 5 + 7 + 1 + 4
    shared = experiments.run("mnist", "lars")
    for name in ("table1", "table2", "table5", "table6", "table7", "table8"):
        assert shared in TABLES[name].runs, name


def test_every_run_comes_after_its_base():
    runs = everything().runs
    post_hoc = [run for run in runs if run.base is not None]
    assert len(post_hoc) == 3
    for run in post_hoc:
        assert runs.index(run.base) < runs.index(run)


def test_every_table_is_consistent():
    for table in [*TABLES.values(), *MORE_TABLES.values()]:
        labels = [row.label for row in table.rows]
        assert len(set(labels)) == len(labels)
        for row in table.rows:
            assert len(row.paper) == len(table.metrics)
            assert row.versus is None or row.versus in labels
        for finding in table.findings:
            for check in finding.checks:
                assert set(check.labels) <= set(labels)
                assert check.metric in METRICS


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_changes_the_budget_of_a_run_and_nothing_else(preset):
    runs = [run.at(seed) for run in everything().runs for seed in (0, 1)]
    configs = [PRESETS[preset].of(run) for run in runs]
    assert len(set(configs)) == len(configs)
    for run, config in zip(runs, configs, strict=True):
        assert config.name == run.config.name
        for name in ("dataset", "model", "num_latents", "seed", "post_hoc"):
            assert getattr(config, name) == getattr(run.config, name)
        for name in ("name", "accept_units", "T", "decay"):
            assert getattr(config.prior, name) == getattr(run.config.prior, name)


def budgets(preset):
    """The steps and the evaluation of each run, by name."""
    configs = {run.name: PRESETS[preset].of(run) for run in everything().runs}
    return {name: (config.steps, config.evaluation) for name, config in configs.items()}


@pytest.mark.parametrize(
    ("preset", "usual", "untruncated"),
    [
        ("smoke", (100, Evaluation(10, 10_000, 100)), (100, Evaluation(10, 10_000, 100))),
        ("quick", (10_000, Evaluation(200, 10**6, 1000)), (10_000, Evaluation(200, 10**7, 1000))),
        ("laptop", (30_000, Evaluation(1000, 10**7)), (30_000, Evaluation(1000, 10**8))),
        ("paper", (10**7, Evaluation(1000, 10**10)), (10**7, Evaluation(1000, 10**10))),
    ],
)
def test_budgets_of_the_presets(preset, usual, untruncated):
    found = budgets(preset)
    assert found.pop("mnist-vae-lars-Tinf") == untruncated
    small = {name: found.pop(name) for name in list(found) if "conv_hvae" in name}
    assert set(found.values()) == {usual}
    # All priors of an architecture have the same budget.
    expected = (10_000, Evaluation(200, 10**7)) if preset == "laptop" else usual
    assert len(small) == 10 and set(small.values()) == {expected}


def test_headline_runs_keep_their_steps_and_have_names_of_their_own():
    headline = MORE_TABLES["headline"]
    paper = [row.paper[0] for row in headline.rows]
    assert paper == [84.97, 83.04, 82.67, 81.86, 81.15]
    for preset in PRESETS.values():
        assert {preset.of(run).steps for run in headline.runs} == {200_000}
    names = [run.name for run in headline.runs]
    assert names[0] == "mnist-vae-standard-200000"
    assert not set(names) & {run.name for run in everything().runs}
    study = Study([headline], [], PRESETS["laptop"], pathlib.Path("out"), seed=2)
    assert [run.name for run in study.runs] == [f"{name}-s2" for name in names]


def test_post_hoc_run_and_its_base_have_the_same_seed_and_steps():
    run = experiments.run("mnist", "lars", post_hoc=True, steps=7).at(3)
    assert run.name == "mnist-vae-lars-post-hoc-7-s3"
    assert run.base.name == "mnist-vae-standard-7-s3"
    assert PRESETS["laptop"].of(run.base).seed == 3


def test_seeds_are_trained_one_after_the_other():
    study = Study(*command.choose(["seeds"]), PRESETS["laptop"], pathlib.Path("out"))
    names = ["mnist-vae-standard", "mnist-vae-lars"]
    expected = [*names, *(f"{name}-s{seed}" for seed in (1, 2) for name in names)]
    assert [run.name for run in study.runs] == expected
    later = Study(*command.choose(["seeds"]), PRESETS["laptop"], pathlib.Path("out"), seed=3)
    assert [PRESETS["laptop"].of(run).seed for run in later.runs] == [3, 3, 4, 4, 5, 5]


def test_figures_of_another_seed_have_files_of_their_own():
    tables, figures = command.choose(["figure_ranked", "figure_toy"])
    study = Study(tables, figures, PRESETS["smoke"], pathlib.Path("out"), seed=1)
    toy, ranked = figures
    assert study.figure_name(toy) == "figure_toy"  # has no runs
    said = study.figure_command(ranked)
    assert str(pathlib.Path("out/figure_ranked-s1.png")) in said
    assert str(pathlib.Path("out/runs/mnist-vae-lars-s1")) in said


def test_negative_seed_is_refused():
    with pytest.raises(command_line.UserError, match="--seed: must be at least 0, got -1"):
        command.parse(["table2", "--preset", "smoke", "--out", "x", "--seed", "-1"])


def test_paper_preset_is_the_paper_s():
    found = PRESETS["paper"].of(STANDARD)
    assert (found.steps, found.batch_size) == (10**7, 128)
    assert (found.prior.num_samples, found.prior.num_components) == (1024, 500)
    assert found.evaluation == Evaluation(1000, 10**10, None)


@pytest.mark.parametrize(
    ("names", "count"), [(["tables"], 9), (["figures"], 4), (["table1", "headline"], 2)]
)
def test_tables_and_figures_can_be_named_together(names, count):
    assert sum(map(len, command.choose(names))) == count


def test_unknown_table_prints_the_list(capsys, tmp_path):
    arguments = ["tabel1", "--preset", "smoke", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as stop:
        command_line.run(lambda: command.main(arguments))
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert "unknown table 'tabel1'" in err
    for name in [*TABLES, *MORE_TABLES, *FIGURES]:
        assert name in err
    assert not (tmp_path / "out").exists()
