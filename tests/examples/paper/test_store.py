"""Tests of the store of results: what it accepts, what it refuses, and what is rendered from it."""

import dataclasses
import json
import math
import os
import pathlib
import platform
import subprocess
import sys

import numpy as np
import pytest

from examples.common import command_line
from examples.common.command_line import UserError
from examples.paper import experiments, report
from examples.paper.experiments import FIGURES, TABLES
from examples.paper.more_tables import MORE_TABLES
from examples.paper.presets import PRESETS
from examples.paper.results import Results
from examples.paper.store import command, entries, page, stored
from examples.paper.store.stored import Store, StoredResults
from examples.paper.study import Study
from examples.vae import run_directory
from tests.examples.paper.made_up import finish

ROOT = pathlib.Path(__file__).parents[3]
LAPTOP = PRESETS["laptop"]
STANDARD = experiments.run("mnist", "standard")
LARS = experiments.run("mnist", "lars")
POST_HOC = experiments.run("mnist", "lars", post_hoc=True)
NAME = "mnist-vae-standard-30000-s0"


def laptop(out, preset=LAPTOP):
    """A study with the tables 2 and 5, whose runs can be finished with invented numbers."""
    return Study([TABLES["table2"], TABLES["table5"]], [], preset, out, compare_data=False)


def images(seed=0):
    """NLLs of 50 images, which are no multiples of hundredths."""
    return 90.0 + 20.0 * np.random.default_rng(seed).standard_normal(50)


@pytest.fixture
def root(tmp_path):
    """A clone with an empty store."""
    (tmp_path / "clone" / "docs").mkdir(parents=True)
    (tmp_path / "clone" / "results").mkdir()
    readme = "# A library\n\nNLL: <!-- results -->\n\n| to be rendered |\n\nMore.\n"
    (tmp_path / "clone" / "README.md").write_text(readme)
    template = (ROOT / "results" / "template.md").read_text()
    (tmp_path / "clone" / "results" / "template.md").write_text(template)
    return tmp_path / "clone"


@pytest.fixture
def made(tmp_path):
    """A study with three finished runs."""
    made = laptop(tmp_path / "out")
    finish(made, STANDARD, nlls=images())
    finish(made, LARS, nlls=images() - 2.0, z=0.015, log_z_stderr=0.01)
    finish(made, POST_HOC, nlls=images() - 1.5, z=0.02, log_z_stderr=0.01)
    return made


@pytest.fixture
def store(root, made):
    """A clone whose store has the three runs."""
    command.main(["--root", str(root), "add", str(made.out)])
    return root / "results"


def content(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def change(path, **changes):
    """Changes entries of a JSON file. Dots lead to entries of entries; `None` deletes."""
    found = json.loads(path.read_text())
    for name, value in changes.items():
        *parents, last = name.split("__")
        inner = found
        for parent in parents:
            inner = inner[parent]
        if value is None:
            del inner[last]
        else:
            inner[last] = value
    path.write_text(json.dumps(found))


# ---------------------------------------------------------------------------------- adding runs
def test_finished_runs_are_added_under_name_steps_and_seed(store):
    names = {path.name for path in store.iterdir()} - {"template.md"}
    runs = ("mnist-vae-standard", "mnist-vae-lars", "mnist-vae-lars-post-hoc")
    assert names == {f"{run}-30000-s0{end}" for run in runs for end in (".json", ".npz")}


def test_stored_files_name_no_paths_and_no_host(store, made):
    for path, text in content(store).items():
        if path.suffix == ".json":
            assert str(made.out).encode() not in text
            assert b'"/' not in text
            assert platform.node().encode() not in text
            assert b'"base"' not in text


def test_adding_the_same_run_again_changes_nothing(store, root, made, capsys):
    before = content(store)
    command.main(["--root", str(root), "add", str(made.out)])
    assert content(store) == before
    assert capsys.readouterr().out.count(": stored before as ") == 3


def test_a_repeated_run_with_the_same_numbers_is_not_refused(store, root, made, capsys):
    """It took another time, with another revision of the code."""
    before = content(store)
    path = made.runs_dir / LARS.name / "metrics.json"
    change(path, training_seconds=1.0, evaluation_seconds=2.0, revision="another")
    command.main(["--root", str(root), "add", str(made.out)])
    assert content(store) == before
    assert capsys.readouterr().out.count(": stored before as ") == 3


def test_a_single_run_can_be_added(root, made, capsys):
    command.main(["--root", str(root), "add", str(made.runs_dir / LARS.name)])
    assert capsys.readouterr().out == "mnist-vae-lars: added as mnist-vae-lars-30000-s0\n"


def test_values_of_each_image_are_kept_to_a_hundredth_of_a_nat(store):
    found = Store(store).entries[NAME]
    np.testing.assert_allclose(found.per_image("nll"), images(), atol=0.00501)
    np.testing.assert_allclose(found.per_image("elbo"), -images() - 1.0, atol=0.00501)


def test_images_with_many_nats_do_not_overflow(tmp_path, root):
    made = laptop(tmp_path / "out")
    finish(made, STANDARD, nlls=300.0 + 3 * images())
    command.main(["--root", str(root), "add", str(made.out)])
    found = Store(root / "results").entries[NAME].per_image("nll")
    np.testing.assert_allclose(found, 300.0 + 3 * images(), atol=0.00501)


def test_ten_thousand_images_are_small(tmp_path, root):
    made = laptop(tmp_path / "out")
    nlls = 90.0 + 23.0 * np.random.default_rng(0).standard_normal(10_000)
    finish(made, STANDARD, nlls=nlls)
    command.main(["--root", str(root), "add", str(made.out)])
    assert (root / "results" / f"{NAME}.npz").stat().st_size < 2 * 22_000
    assert (root / "results" / f"{NAME}.json").stat().st_size < 4_000


def test_headline_runs_and_other_seeds_have_names_of_their_own(tmp_path, root):
    made = laptop(tmp_path / "out")
    finish(made, MORE_TABLES["headline"].rows[0].run)
    finish(made, STANDARD.at(2))
    command.main(["--root", str(root), "add", str(made.out)])
    expected = ["mnist-vae-standard-200000-s0", "mnist-vae-standard-30000-s2"]
    assert sorted(Store(root / "results").entries) == expected


def test_listed_runs_may_be_shorter_than_the_preset(tmp_path, root, capsys):
    made = laptop(tmp_path / "out")
    listed = experiments.run("mnist", "lars", steps=10_000)
    assert listed in MORE_TABLES["order"].runs
    finish(made, listed.at(1), z=0.02, log_z_stderr=0.01)
    finish(made, experiments.run("mnist", "lars", steps=9_000), z=0.02, log_z_stderr=0.01)
    finish(made, experiments.run("mnist", "maf", steps=10_000))
    command.main(["--root", str(root), "add", str(made.out)])
    assert list(Store(root / "results").entries) == ["mnist-vae-lars-10000-s1"]
    assert "9,000 steps, evaluated on all test images" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("preset", "setting"),
    [
        (dataclasses.replace(LAPTOP, batch_size=64), "batch_size=64 there, 128 here"),
        (dataclasses.replace(LAPTOP, S=512), "'num_samples': 512"),
    ],
)
def test_run_with_other_settings_does_not_take_the_place_of_a_run_of_the_tables(
    root, tmp_path, preset, setting, capsys
):
    """The name does not show these settings."""
    other = laptop(tmp_path / "other", preset)
    finish(other, LARS, z=0.015, log_z_stderr=0.01)
    with pytest.raises(UserError, match="1 of the runs and figures are refused"):
        command.main(["--root", str(root), "add", str(other.out)])
    said = capsys.readouterr().err
    assert "refused, it has other settings than the run mnist-vae-lars of the tables" in said
    assert setting in said
    assert not Store(root / "results").entries
    # More steps, another seed, and names that no table has are accepted.
    made = laptop(tmp_path / "out", dataclasses.replace(LAPTOP, steps=60_000))
    finish(made, LARS.at(5), z=0.015, log_z_stderr=0.01)
    finish(made, experiments.run("mnist", "lars", latents=7), z=0.015, log_z_stderr=0.01)
    command.main(["--root", str(root), "add", str(made.out)])
    assert len(Store(root / "results").entries) == 2


def test_stored_runs_have_the_settings_of_the_tables(tmp_path):
    """`add` accepts all of them, if their names were free."""
    store = Store(ROOT / "results")
    table_names = {run.config.name for table in TABLES.values() for run in table.runs}
    assert table_names & {entry.config.name for entry in store.entries.values()}
    for entry in store.entries.values():
        stored.check_settings(entry)


def test_early_stopped_runs_are_added_and_shown(root, tmp_path):
    """Their weights are those of an earlier step than the last one."""
    made = laptop(tmp_path / "out")
    static = experiments.run("static_mnist", "standard")
    finish(made, static, steps=12_000)
    assert made.state(static).kind == run_directory.FINISHED
    command.main(["--root", str(root), "add", str(made.out)])
    state = StoredResults(Store(root / "results"), LAPTOP).state(static)
    assert state.kind == run_directory.FINISHED and state.metrics["steps"] == 12_000


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: (path / "metrics.json").unlink(), "it is not finished"),
        (lambda path: change(path / "metrics.json", steps=9_000), "those of an earlier step"),
        (lambda path: (path / "failure.json").write_text("{}"), "it is not finished"),
        (lambda path: change(path / "metrics.json", iwae_samples=999), "are less than the preset"),
    ],
)
def test_unfinished_and_smaller_runs_are_left_out(root, made, spoil, reason, capsys):
    spoil(made.runs_dir / LARS.name)
    command.main(["--root", str(root), "add", str(made.out)])
    out = capsys.readouterr().out
    assert f"{LARS.name}: not added, " in out and reason in out
    assert len(Store(root / "results").entries) == 2


def test_runs_of_the_preset_quick_are_left_out(root, tmp_path, capsys):
    made = laptop(tmp_path / "out", PRESETS["quick"])
    finish(made, STANDARD)
    command.main(["--root", str(root), "add", str(made.out)])
    assert "not added, 10,000 steps, evaluated on 1,000 test images" in capsys.readouterr().out
    assert not Store(root / "results").entries


def test_method_of_z_is_stored_where_it_is_known(root, made):
    """Older runs do not have it. Both kinds are read again."""
    change(made.runs_dir / LARS.name / "metrics.json", z_method="importance", z_warning="few `x`")
    command.main(["--root", str(root), "add", str(made.out)])
    new, old = (
        entries.read(root / "results" / f"{run.name}-30000-s0.json").metrics
        for run in (LARS, POST_HOC)
    )
    assert (new["z_method"], new["z_warning"]) == ("importance", "few `x`")
    assert "z_method" not in old


def without_z(path):
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "z": None, "log_z_stderr": None}))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (
            lambda path: change(path / "metrics.json", config__batch_size=7),
            "metrics.json is of another configuration than config.json: batch_size",
        ),
        (
            lambda path: change(path / "metrics.json", images="others"),
            "metrics.json is of another configuration than config.json: images",
        ),
        (lambda path: change(path / "metrics.json", machine=None), "it lacks fields: machine"),
        (lambda path: change(path / "metrics.json", z=7.0), "z is 7.0, expected 0.0 to 1.0"),
        (lambda path: change(path / "metrics.json", z=-1.0), "z is -1.0, expected 0.0 to 1.0"),
        (
            lambda path: change(path / "metrics.json", expected_attempts=0.5),
            "expected_attempts is 0.5, expected 1.0 to inf",
        ),
        (lambda path: without_z(path / "metrics.json"), "z is None, but it has a resampled prior"),
        (lambda path: (path / "metrics.json").write_text('{"nll": 1'), "metrics.json cannot be"),
        (lambda path: np.save(path / "test_nll.npy", images(1)), "the mean nll of the images is"),
        (lambda path: np.save(path / "test_elbo.npy", images()), "the mean elbo of the images is"),
        (lambda path: np.save(path / "test_nll.npy", images()[:40]), "expected integers of shape"),
        (lambda path: (path / "test_nll.npy").unlink(), "test_nll.npy cannot be read"),
        (lambda path: (path / "test_nll.npy").write_bytes(b"x"), "test_nll.npy cannot be read"),
    ],
)
def test_inconsistent_run_is_refused_and_the_others_are_added(root, made, spoil, reason, capsys):
    spoil(made.runs_dir / LARS.name)
    with pytest.raises(UserError, match="1 of the runs and figures are refused"):
        command.main(["--root", str(root), "add", str(made.out)])
    err = capsys.readouterr().err
    assert err.startswith(f"{LARS.name}: refused, ") and reason in err
    assert len(Store(root / "results").entries) == 2


def test_run_of_another_configuration_under_the_same_name_is_refused(root, made, tmp_path, capsys):
    """Of a name that no table has. Others are compared with the tables first."""
    store, small = root / "results", experiments.run("mnist", "lars", latents=7)
    finish(made, small, nlls=images(), z=0.015, log_z_stderr=0.01)
    command.main(["--root", str(root), "add", str(made.out)])
    other = laptop(tmp_path / "other", dataclasses.replace(LAPTOP, batch_size=64))
    finish(other, small, nlls=images(), z=0.015, log_z_stderr=0.01)
    finish(other, small.at(1), nlls=images(), z=0.015, log_z_stderr=0.01)
    before = content(store)
    with pytest.raises(UserError, match="1 of the runs and figures are refused"):
        command.main(["--root", str(root), "add", str(other.out)])
    err = capsys.readouterr().err
    name = "mnist-vae-lars-d7-30000-s0"
    assert f"the store has a different {name} (batch_size=128 there, 64 here" in err
    assert f"delete {name}.json and {name}.npz" in err
    after = content(store)
    assert before.items() <= after.items() and len(after) == len(before) + 2  # seed 1


def test_another_result_of_the_same_configuration_is_refused(store, root, made, capsys):
    finish(made, LARS, nlls=images() - 2.3, z=0.015, log_z_stderr=0.01)
    before = content(store)
    with pytest.raises(UserError):
        command.main(["--root", str(root), "add", str(made.out)])
    assert "nll of each image" in capsys.readouterr().err
    assert content(store) == before


def test_interrupted_addition_is_completed(store, root, made, capsys):
    """The values of the images are written first, so a crash leaves them without a JSON."""
    before = content(store)
    (store / f"{NAME}.json").unlink()
    (store / f"{NAME}.npz").write_bytes(b"partial")
    command.main(["--root", str(root), "add", str(made.out)])
    assert f"mnist-vae-standard: added as {NAME}" in capsys.readouterr().out
    assert content(store) == before


def test_directory_without_runs_is_named(root, tmp_path):
    with pytest.raises(UserError, match=f"{tmp_path} holds no runs"):
        command.main(["--root", str(root), "add", str(tmp_path)])


# --------------------------------------------------------------------------- reading the store
def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def replace_values(path, **values):
    with np.load(path.with_suffix(".npz")) as found:
        np.savez(path.with_suffix(".npz"), **{**found, **values})


BROKEN = {
    "truncated": (truncate, "it cannot be read"),
    "no object": (lambda p: p.write_text("[1]"), "it is no description of a run"),
    "other mean": (lambda p: change(p, nll=80.0), "the mean nll of the images is"),
    "other bound": (lambda p: change(p, elbo=-80.0), "the mean elbo of the images is"),
    "mean off by more than rounding": (
        lambda p: change(p, nll=float(images().mean()) + 0.011),
        "the mean nll of the images is",
    ),
    "other number": (
        lambda p: change(p, num_test_images=49),
        r"expected integers of shape \(49,\)",
    ),
    "values truncated": (lambda p: truncate(p.with_suffix(".npz")), "s0.npz cannot be read"),
    "values missing": (lambda p: p.with_suffix(".npz").unlink(), "s0.npz cannot be read"),
    "values are objects": (
        lambda p: replace_values(p, nll=np.array([{}], dtype=object)),
        "s0.npz cannot be read",
    ),
    "values are floats": (
        lambda p: replace_values(p, nll=images()),
        "nll of each image is float64",
    ),
    "values of another run": (
        lambda p: replace_values(p, nll=np.int32(100 * images(1))),
        "the mean nll of the images is",
    ),
    "more values": (lambda p: replace_values(p, kl=np.arange(50)), "the values of each image are"),
    "no number": (lambda p: change(p, nll="90"), "nll is '90', expected a finite number"),
    "not a number": (lambda p: change(p, nll=math.nan), "nll is nan, expected a finite number"),
    "unknown error": (lambda p: change(p, kl_stderr=math.nan), "kl_stderr is nan, expected"),
    "unknown time": (lambda p: change(p, training_seconds=math.inf), "training_seconds is inf"),
    "error that the images do not have": (
        lambda p: change(p, nll_stderr=0.2),
        "the images and stderr_from_z give 2.60.* of the mean nll, but nll_stderr is 0.2",
    ),
    "negative error": (lambda p: change(p, elbo_stderr=-0.08), "but elbo_stderr is -0.08"),
    "negative error of a part": (lambda p: change(p, kl_stderr=-0.1), "kl_stderr is -0.1"),
    "parts of another bound": (lambda p: change(p, recons=-1.0), "recons - kl is -34.*elbo is -93"),
    "z without resampling": (lambda p: change(p, z=0.5, log_z_stderr=0.1), "prior that is not"),
    "link": (lambda p: change(p, machine__processor="[x](javascript:1)"), "cannot show as it is"),
    "picture": (lambda p: change(p, machine__processor="!x"), "a page cannot show as it is"),
    "fewer steps": (lambda p: change(p, steps=7), "it has 7 steps, but its configuration 30000"),
    "other evaluation": (lambda p: change(p, iwae_samples=2000), "its evaluation is not that of"),
    "other seed": (lambda p: change(p, config__seed=1), "its configuration is that of .*-s1"),
    "other steps": (lambda p: change(p, config__steps=7, steps=7), "is that of .*-7-s0"),
    "unknown field": (lambda p: change(p, bits=1.0), "unknown fields: bits. A newer version"),
    "unknown setting": (lambda p: change(p, config__tempo=1), "unknown fields of config: tempo"),
    "unknown prior setting": (lambda p: change(p, config__prior__tempo=1), "'tempo'"),
    "missing field": (lambda p: change(p, revision=None), "it lacks fields: revision"),
    "missing setting": (lambda p: change(p, config__model=None), "lacks fields of config: model"),
    "newer format": (lambda p: change(p, format=2), "it has the format 2, expected 1: a newer"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_file_is_named_and_refused_and_nothing_is_overwritten(store, root, made, case):
    spoil, reason = BROKEN[case]
    spoil(store / f"{NAME}.json")
    finish(made, STANDARD.at(1))
    before = content(root)
    for arguments in (["add", str(made.out)], ["render"], ["render", "--check"]):
        with pytest.raises(UserError, match=f"{NAME}.json is refused: .*{reason}") as error:
            command.main(["--root", str(root), *arguments])
        assert "Restore these files from version control" in str(error.value)
        assert "mnist-vae-lars" not in str(error.value)
    assert content(root) == before


def test_tables_of_the_store_are_those_of_the_directories(store, made):
    stored = Results(StoredResults(Store(store), LAPTOP))
    for table in made.tables:
        expected = report.markdown(table, LAPTOP, Results(made))
        assert report.markdown(table, LAPTOP, stored) == expected
        assert "90" in expected  # not all rows are missing


def test_seeds_of_the_store_are_averaged_and_paired(root, tmp_path):
    made = laptop(tmp_path / "out")
    gains = (2.0, 2.2, 1.8)
    for seed, gain in enumerate(gains):
        finish(made, STANDARD.at(seed), nlls=images(seed))
        finish(made, LARS.at(seed), nlls=images(seed) - gain, z=0.02, log_z_stderr=0.01)
    command.main(["--root", str(root), "add", str(made.out)])
    results = Results(StoredResults(Store(root / "results"), LAPTOP))
    means = [images(seed).mean() for seed in range(3)]
    found = results.estimate(STANDARD, "nll")
    assert math.isclose(found.value, np.mean(means))
    assert math.isclose(found.stderr, np.std(means, ddof=1) / math.sqrt(3))
    gain = results.difference(STANDARD, LARS, "nll")
    assert math.isclose(gain.value, 2.0) and math.isclose(gain.stderr, 0.2 / math.sqrt(3))
    table = page.readme_table(Store(root / "results"))
    ours = f"{found.value:.2f} ± {found.stderr:.2f} (3 seeds)"
    assert f"| standard normal | {ours} | not run | not run | 84.97 |" in table
    # The longest runs have two priors.
    assert "| RealNVP | not run | not run | not run | 81.86 |" in table


def state(store, run, preset=LAPTOP):
    return StoredResults(Store(store), preset).state(run)


def test_stored_run_must_have_the_configuration_of_the_preset(store):
    assert state(store, LARS).kind == run_directory.FINISHED
    assert state(store, LARS.at(1)).kind == run_directory.NOT_RUN
    found = state(store, LARS, dataclasses.replace(LAPTOP, batch_size=64))
    assert found.kind == run_directory.REFUSED
    assert "another configuration (batch_size=128 there, 64 here)" in found.reason
    more = dataclasses.replace(LAPTOP.evaluation, iwae_samples=5000)
    found = state(store, LARS, dataclasses.replace(LAPTOP, evaluation=more))
    assert found.kind == run_directory.TO_EVALUATE
    assert "evaluated with all test images, 1,000 importance samples" in found.reason


def test_stored_results_outlive_the_version_that_made_them(store):
    """A table of finished runs needs only their settings, not the same code."""
    change(store / "mnist-vae-lars-30000-s0.json", config__version="0.0.1")
    assert state(store, LARS).kind == run_directory.FINISHED


def test_run_that_continues_another_is_not_a_run_from_scratch(store):
    change(store / "mnist-vae-lars-30000-s0.json", config__base_weights="those of another run")
    found = state(store, LARS)
    assert found.kind == run_directory.REFUSED
    assert "base_weights='those of another run' there, None here" in found.reason


def test_rows_of_a_data_set_that_cannot_be_downloaded_say_so(store):
    found = state(store, experiments.run("static_mnist", "lars"))
    assert found.reason == "not run: the data set could not be downloaded"


def test_post_hoc_run_belongs_to_the_stored_networks(store):
    assert state(store, POST_HOC).kind == run_directory.FINISHED
    change(store / f"{NAME}.json", networks="others")
    found = state(store, POST_HOC)
    assert found.kind == run_directory.REFUSED
    assert f"but {NAME} has others" in found.reason


# ----------------------------------------------------------------------------------- the pages
def test_pages_of_this_repository_are_up_to_date(capsys):
    command.main(["render", "--check"])
    assert capsys.readouterr().out == "Everything is up to date.\n"


def test_empty_store_renders(root):
    text = page.render(Store(root / "results"), (root / "results" / "template.md").read_text())
    for name, table in {**MORE_TABLES, **TABLES}.items():
        assert f"### {name}: {table.title}" in text
    assert "| standard normal | not run | 84.97 |" in text
    assert "The store has no runs." in text
    assert "<!-- render:" not in text


def test_check_names_the_pages_that_are_old_and_writes_nothing(store, root, capsys):
    with pytest.raises(UserError, match=r"out of date: docs/results.md, README.md\. Run"):
        command.main(["--root", str(root), "render", "--check"])
    assert not (root / "docs" / "results.md").exists()
    command.main(["--root", str(root), "render"])
    assert "Wrote docs/results.md, README.md." in capsys.readouterr().out
    command.main(["--root", str(root), "render", "--check"])
    readme = (root / "README.md").read_text()
    nll = images().mean()
    assert f"| standard normal | {nll:.2f} ± " in readme and readme.endswith("\n\nMore.\n")
    text = (root / "docs" / "results.md").read_text()
    assert f"| dynamic MNIST, VAE (L=1), standard | {nll:.2f} ± " in text
    assert f"| `{NAME}` | 10.0 min | 2.0 min | A processor | 2 | 1 | `abc1234` |" in text
    (root / "README.md").write_text(readme.replace("84.97", "84.98"))
    with pytest.raises(UserError, match=r"out of date: README.md\. Run"):
        command.main(["--root", str(root), "render", "--check"])


def test_runs_at_the_budget_of_the_paper_have_tables_of_their_own(root, tmp_path):
    made = laptop(tmp_path / "out", PRESETS["paper"])
    finish(made, LARS, nlls=images(), z=0.015, log_z_stderr=0.01)
    command.main(["--root", str(root), "add", str(made.out)])
    text = page.render(Store(root / "results"), (root / "results" / "template.md").read_text())
    assert "### table5 at the paper's budget: Sizes of a(z)" in text
    assert "### table9 at the paper's budget" not in text


def test_template_and_readme_must_have_their_places(root):
    store = Store(root / "results")
    with pytest.raises(UserError, match="must name each of these parts once: figures, header"):
        page.render(store, "# Results\n\n<!-- render: nothing -->\n")
    with pytest.raises(UserError, match="README.md must have one <!-- results -->"):
        page.render_readme(store, "# A library\n")


def test_results_are_rendered_without_tensorflow(store, root, tmp_path):
    """Puts a `tensorflow` module that cannot be imported on the path."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tensorflow.py").write_text("raise RuntimeError('imported')")
    path = os.pathsep.join([str(tmp_path / "broken"), str(ROOT)])
    for arguments in (["render"], ["add", str(tmp_path / "out")]):
        done = subprocess.run(
            [sys.executable, "-m", "examples.paper.store", "--root", str(root), *arguments],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_refusal_is_one_line_and_exit_code_2(store, root, capsys):
    truncate(store / f"{NAME}.json")
    with pytest.raises(SystemExit) as stop:
        command_line.run(lambda: command.main(["--root", str(root), "render"]))
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1


# -------------------------------------------------------------------------------------- figures
def draw(made, name="figure_z_trace", run=LARS):
    """Writes a figure and its numbers, as `examples.paper.figures` does."""
    made.out.mkdir(exist_ok=True)
    (made.out / f"{name}.png").write_bytes(b"a picture")
    rows = [
        {"run": str(made.runs_dir / run.name), "config": made.config(run).to_json(), "z": 0.015}
    ]
    numbers = {"command": f"python -m ... --out {made.out}", "runs": rows}
    (made.out / f"{name}.json").write_text(json.dumps(numbers))


def test_figures_of_stored_runs_are_copied(store, root, made, capsys):
    draw(made)
    command.main(["--root", str(root), "add", str(made.out)])
    out = capsys.readouterr().out
    assert "figure_z_trace: copied as z_trace.png" in out
    assert "figure_ranked: not added, it is not drawn" in out
    assert (root / "docs" / "figures" / "z_trace.png").read_bytes() == b"a picture"
    figure = FIGURES["figure_z_trace"]
    expected = {"runs": [{"run": "mnist-vae-lars-30000-s0", "z": 0.015}]}
    assert Store(store).figure_numbers(figure) == expected
    text = page.render(Store(store), (store / "template.md").read_text())
    assert f"![{figure.title}](figures/z_trace.png)" in text


@pytest.mark.parametrize(
    "broken", ['{"runs": [{"config": 3}]}', '{"runs": [{}]}', '{"runs": ["a"]}', "{}", "{", "[]"]
)
def test_figure_with_broken_numbers_is_refused_and_the_others_are_added(
    store, root, made, capsys, broken
):
    draw(made)
    draw(made, "figure_ranked")
    (made.out / "figure_ranked.json").write_text(broken)
    with pytest.raises(UserError, match="1 of the runs and figures are refused"):
        command.main(["--root", str(root), "add", str(made.out)])
    said = capsys.readouterr()
    assert "figure_z_trace: copied as z_trace.png" in said.out
    assert "figure_ranked: refused, " in said.err
    assert not (root / "docs" / "figures" / "ranked.png").exists()


@pytest.mark.parametrize("broken", ['{"runs": [{"run": "another"}]}', '{"runs": []}', "{}", "{"])
def test_stored_figure_must_show_stored_runs(store, root, broken):
    (store / "figures").mkdir()
    (store / "figures" / "figure_z_trace.json").write_text(broken)
    with pytest.raises(UserError, match=r"figure_z_trace.json (is refused|cannot be read)"):
        command.main(["--root", str(root), "render"])


def test_figure_of_a_run_that_is_not_stored_is_left_out(store, root, made, capsys):
    other = laptop(made.out, dataclasses.replace(LAPTOP, batch_size=64))
    for case, run in ((other, LARS), (made, LARS.at(5))):
        draw(case, run=run)
        command.main(["--root", str(root), "add", str(made.out)])
        said = f"figure_z_trace: not added, {entries.name_of(case.config(run))} is not in the store"
        assert said in capsys.readouterr().out
    assert not (root / "docs" / "figures").exists()
