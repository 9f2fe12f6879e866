"""The paper's tables from one command: what is run, what is used again, what is told."""

import csv
import dataclasses
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from examples.common import command_line
from examples.paper.experiments import experiments as paper
from examples.paper.experiments import report, step_time
from examples.paper.experiments import runner as reproduce
from examples.vae import run_state
from examples.vae import training as train_command

ROOT = pathlib.Path(__file__).parents[3]

TINY = paper.Preset(
    "tiny",
    steps=100,
    iwae_samples=3,
    z_samples=1000,
    test_images=50,
    checkpoint_every=50,
    batch_size=16,
    S=64,
)
STANDARD = paper.Run("mnist5k", "standard", latents=2)
JOINT = paper.Run("mnist5k", "lars", accept_units="8-8", latents=2)
POST_HOC = paper.Run("mnist5k", "lars", accept_units="8-8", latents=2, post_hoc=True)
TABLE = paper.Table(
    "tiny",
    "Three ways",
    ("elbo", "recons", "z"),
    (
        paper.Row("standard", STANDARD, (89.0, 63.2, 1.0)),
        paper.Row("post-hoc", POST_HOC, (87.3, 63.2, 0.023), versus="standard"),
        paper.Row("joint", JOINT, (86.6, 61.9, 0.015), versus="standard"),
        paper.Row("cited", None, (80.0, 60.0, None), note="Somebody (2016)"),
    ),
    (
        paper.Finding("post-hoc is better", (paper.Lower("post-hoc", "standard", "elbo"),)),
        paper.Finding("it leaves the rest", (paper.Same("post-hoc", "standard", "recons"),)),
    ),
)


def study(out, rows=TABLE.rows, preset=TINY):
    table = paper.Table(TABLE.name, TABLE.title, TABLE.metrics, tuple(rows), TABLE.findings)
    return reproduce.Study([table], [], preset, pathlib.Path(out))


# ---------------------------------------------------------------------------------- registry


def printed(table, label):
    (row,) = (row for row in paper.TABLES[table].rows if row.label == label)
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
    return reproduce.Study(*reproduce.choose(["all"]), paper.PRESETS["smoke"], pathlib.Path("out"))


def test_all_is_nine_tables_and_four_figures():
    tables, figures = reproduce.choose(["all"])
    assert [table.name for table in tables] == [f"table{i}" for i in range(1, 10)]
    names = ["figure_toy", "figure_ranked", "figure_z_trace", "figure_latent_2d"]
    assert [figure.name for figure in figures] == names


def test_tables_share_runs_and_no_two_runs_share_a_directory():
    runs = everything().runs
    assert len({run.name for run in runs}) == len(runs) == len(set(runs))
    # 24 of table 1; 2 post-hoc; 4 VampPriors; 4 sizes; 5 truncations; RealNVP, MAF and LARS RealNVP
    # twice, each dimension; outputs; 4 of two latents.
    assert len(runs) == 24 + 2 + 4 + 4 + 5 + 7 + 1 + 4
    shared = paper.Run("mnist", "lars")
    for name in ("table1", "table2", "table5", "table6", "table7", "table8"):
        assert shared in paper.TABLES[name].runs, name


def test_every_run_comes_after_its_base():
    runs = everything().runs
    post_hoc = [run for run in runs if run.base is not None]
    assert len(post_hoc) == 3
    for run in post_hoc:
        assert runs.index(run.base) < runs.index(run)


def test_every_table_is_consistent():
    for table in paper.TABLES.values():
        labels = [row.label for row in table.rows]
        assert len(set(labels)) == len(labels)
        for row in table.rows:
            assert len(row.paper) == len(table.metrics)
            assert row.versus is None or row.versus in labels
        for finding in table.findings:
            for check in finding.checks:
                assert set(report._labels(check)) <= set(labels)
                assert check.metric in report.METRICS


@pytest.mark.parametrize("preset", paper.PRESETS)
def test_every_run_is_a_command_that_parses(preset):
    configs = set()
    for run in everything().runs:
        args = train_command.parse(run.arguments(paper.PRESETS[preset], "out/runs"))
        config = train_command.config_of(args)
        assert (config.dataset, config.model, config.prior.name) == (
            run.dataset,
            run.model,
            run.prior,
        )
        assert pathlib.Path(args.out) == pathlib.Path("out/runs") / run.name
        assert bool(args.post_hoc) == run.post_hoc
        configs.add((config, run.post_hoc))
    assert len(configs) == len(everything().runs)


def test_paper_preset_is_the_paper_s():
    args = train_command.parse(STANDARD.arguments(paper.PRESETS["paper"], "runs"))
    found = (args.steps, args.batch_size, args.S, args.components, args.iwae_samples)
    assert found == (10**7, 128, 1024, 500, 1000)
    assert args.z_samples == 10**10
    assert args.test_images is None


def test_unknown_table_prints_the_list(capsys, tmp_path):
    arguments = ["tabel1", "--preset", "smoke", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as stop:
        command_line.run(lambda: reproduce.main(arguments))
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert "unknown table 'tabel1'" in err
    for name in [*paper.TABLES, *paper.FIGURES]:
        assert name in err
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------ made-up runs


def finish(made, run, *, nll=90.0, nlls=None, z=None, log_z_stderr=0.0, recons=-60.0, **more):
    """What a run leaves behind, with numbers of our own."""
    path = made.runs_dir / run.name
    path.mkdir(parents=True, exist_ok=True)
    config = train_command.config_of(train_command.parse(made.arguments(run))).to_json()
    if run.base is not None:
        config["post_hoc"] = f"networks of {run.base.name}"
    nlls = np.full(50, nll) + np.linspace(-1, 1, 50) if nlls is None else nlls
    spread = nlls.std(ddof=1) / math.sqrt(len(nlls))
    np.save(path / "test_nll.npy", nlls)
    np.save(path / "test_elbo.npy", -nlls - 1.0)
    metrics = {
        "nll": float(nlls.mean()),
        "nll_stderr": math.hypot(spread, log_z_stderr),
        "elbo": float(-nlls.mean() - 1.0),
        "elbo_stderr": math.hypot(spread, log_z_stderr),
        "kl": 25.0,
        "kl_stderr": 0.1,
        "recons": recons,
        "recons_stderr": 0.1,
        "z": z,
        "log_z_stderr": None if z is None else log_z_stderr,
        "steps": made.preset.steps,
        "iwae_samples": made.preset.iwae_samples,
        "z_samples": made.preset.z_samples,
        "test_images": made.preset.test_images,
        "num_test_images": len(nlls),
        "networks": f"networks of {(run.base or run).name}",
        "config": config,
        "versions": {"tfp_lars": "0.1.0"},
        **more,
    }
    (path / "config.json").write_text(json.dumps({**config, "images": "1234"}))
    (path / "metrics.json").write_text(json.dumps(metrics))


def checkpoint(made, run, step):
    (made.runs_dir / run.name / "checkpoints").mkdir(parents=True)
    (made.runs_dir / run.name / "checkpoints" / f"ckpt-{step}.index").write_text("")


def results(made):
    return report.Results(made.runs_dir, {run.name: made.state(run) for run in made.runs})


def test_finished_run_is_known_by_configuration_version_and_evaluation(tmp_path):
    made = study(tmp_path)
    assert made.state(STANDARD).kind == run_state.NOT_RUN
    finish(made, STANDARD)
    assert made.state(STANDARD).kind == run_state.FINISHED
    longer = study(tmp_path, preset=dataclasses.replace(TINY, steps=200))
    assert longer.state(STANDARD).kind == run_state.REFUSED
    assert "steps=100 there, 200 here" in longer.state(STANDARD).told
    for name, other in {"iwae_samples": 7, "z_samples": 77, "test_images": None}.items():
        found = study(tmp_path, preset=dataclasses.replace(TINY, **{name: other}))
        assert found.state(STANDARD).kind == run_state.TO_EVALUATE
        assert name in found.state(STANDARD).told
    path = made.runs_dir / STANDARD.name / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": "0.0.1"}))
    assert made.state(STANDARD).kind == run_state.REFUSED
    assert "version='0.0.1' there" in made.state(STANDARD).told


def test_post_hoc_run_belongs_to_the_networks_of_its_base(tmp_path):
    made = study(tmp_path)
    finish(made, POST_HOC)
    assert made.state(POST_HOC).kind == run_state.FINISHED  # nothing is known of the base
    finish(made, STANDARD)
    assert made.state(POST_HOC).kind == run_state.FINISHED
    finish(made, STANDARD, networks="others")
    assert made.state(POST_HOC).kind == run_state.REFUSED
    assert "post_hoc=" in made.state(POST_HOC).told


def test_unfinished_runs_say_why(tmp_path):
    made = study(tmp_path)
    finish(made, JOINT)
    metrics = made.runs_dir / JOINT.name / "metrics.json"
    metrics.unlink()
    assert made.state(JOINT).told == "interrupted before the first checkpoint"
    checkpoint(made, JOINT, 50)
    assert made.state(JOINT).told == "interrupted at step 50"
    (made.runs_dir / JOINT.name / run_state.FAILURE_FILE).write_text('{"message": "no space"}')
    assert made.state(JOINT).told == "failed: no space"


def test_gain_has_the_error_of_the_paired_difference(tmp_path):
    """Images differ by tens of nats, priors by one; log Z is off for all images together."""
    rng = np.random.default_rng(0)
    images = 90.0 + 20.0 * rng.standard_normal(50)
    gain = 1.0 + 0.1 * rng.standard_normal(50)
    made = study(tmp_path)
    finish(made, STANDARD, nlls=images)
    finish(made, JOINT, nlls=images - gain, z=0.02, log_z_stderr=0.03)
    found = results(made).difference(STANDARD, JOINT, "nll")
    assert math.isclose(found.value, gain.mean(), rel_tol=1e-9)
    expected = math.hypot(gain.std(ddof=1) / math.sqrt(50), 0.03)
    assert math.isclose(found.stderr, expected, rel_tol=1e-6)
    # On other images the two errors add up instead.
    path = made.runs_dir / JOINT.name / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "images": "others"}))
    assert results(made).difference(STANDARD, JOINT, "nll").stderr > 2.0


def test_table_has_ours_and_the_paper_s_side_by_side(tmp_path):
    made = study(tmp_path)
    finish(made, STANDARD, nll=90.0)
    finish(made, POST_HOC, nll=88.5, z=0.02, log_z_stderr=0.01)
    lines = report.markdown(made.tables[0], results(made)).splitlines()
    rows = {c[0]: c for c in ([x.strip() for x in line.split("|")[1:-1]] for line in lines) if c}
    assert rows["model"] == [
        "model", "-ELBO", "paper", "difference", "recons", "paper", "difference",
        "Z", "paper", "difference", "gain", "paper's gain", "steps",
    ]  # fmt: skip
    assert rows["standard"] == [
        "standard", "91.00 ± 0.08", "89.00", "+2.00", "60.00 ± 0.10", "63.20", "-3.20",
        "1", "1", "+0", "", "", "100",
    ]  # fmt: skip
    assert rows["post-hoc"] == [
        "post-hoc", "89.50 ± 0.08", "87.30", "+2.20", "60.00 ± 0.10", "63.20", "-3.20",
        "0.02 ± 0.0002", "0.023", "-0.003", "1.50 ± 0.01", "1.70", "100",
    ]  # fmt: skip
    assert rows["joint"][1:4] == ["not run", "86.60", ""]
    assert rows["cited [1]"][1:4] == ["as printed in the paper", "80.00", ""]
    assert "[1] Somebody (2016)." in lines
    assert lines[-2].startswith("- The paper: post-hoc is better. **Holds**: ")
    assert "1.50 ± 0.01 lower" in lines[-2]
    assert "**Holds**" in lines[-1]


def test_csv_has_a_line_for_each_row_and_metric(tmp_path):
    made = study(tmp_path)
    finish(made, STANDARD, nll=90.0)
    finish(made, JOINT, nll=88.0, z=0.02, log_z_stderr=0.01)
    rows = list(csv.DictReader(io.StringIO(report.csv_text(made.tables[0], results(made)))))
    assert len(rows) == 4 * 3
    found = {(row["row"], row["metric"]): row for row in rows}
    joint = found["joint", "elbo"]
    assert math.isclose(float(joint["ours"]), 89.0)
    assert math.isclose(float(joint["difference"]), 89.0 - 86.6)
    assert math.isclose(float(joint["gain"]), 2.0)
    assert math.isclose(float(joint["paper_gain"]), 89.0 - 86.6)
    assert (joint["steps"], joint["status"]) == ("100", "finished")
    assert found["post-hoc", "elbo"]["status"] == "not run"
    assert found["post-hoc", "elbo"]["ours"] == ""
    assert found["cited", "z"]["status"] == "as printed"


@pytest.mark.parametrize(
    ("better", "answer"),
    [
        (1.5, "**Holds**: -ELBO of post-hoc is 1.50 ± 0.01 lower than standard"),
        (-1.5, "**Does not hold** in 1 of 1: -ELBO of post-hoc is 1.50 ± 0.01 higher than"),
        (0.001, "Not decided, within two standard errors"),
    ],
)
def test_verdict_follows_the_sign_unless_the_error_hides_it(tmp_path, better, answer):
    made = study(tmp_path)
    finish(made, STANDARD, nll=90.0)
    finish(made, POST_HOC, nll=90.0 - better, z=0.02, log_z_stderr=0.01)
    assert answer in report.verdict(TABLE.findings[0], TABLE, results(made))


def test_verdict_needs_its_rows(tmp_path):
    made = study(tmp_path)
    finish(made, STANDARD)
    said = report.verdict(TABLE.findings[0], TABLE, results(made))
    assert "Not decidable: missing post-hoc (not run)" in said


def test_reconstruction_must_be_the_same_to_the_last_bit(tmp_path):
    made = study(tmp_path)
    finish(made, STANDARD)
    finish(made, POST_HOC, recons=float(np.nextafter(-60.0, 0.0)))
    said = report.verdict(TABLE.findings[1], TABLE, results(made))
    assert "**Does not hold**" in said


def test_z_near_one_over_t(tmp_path):
    rows = [
        paper.Row(f"T = {T}", paper.Run("mnist5k", "lars", T=T, latents=2), (None, None, None))
        for T in ("10", "100")
    ]
    made = study(tmp_path, rows)
    finish(made, rows[0].run, z=0.08, log_z_stderr=0.01)
    finish(made, rows[1].run, z=0.2, log_z_stderr=0.01)
    finding = paper.Finding("near", (paper.NearOneOverT("T = 10"), paper.NearOneOverT("T = 100")))
    said = report.verdict(finding, made.tables[0], results(made))
    assert "**Does not hold** in 1 of 2: Z · T = 20 for T = 100" in said
    assert "Holds in 1 of 2" in said


@pytest.mark.parametrize(("gain", "answer"), [(0.2, "**Holds**"), (0.4, "**Does not hold**")])
def test_no_gain_is_a_gain_within_a_margin(tmp_path, gain, answer):
    made = study(tmp_path)
    finish(made, STANDARD, nll=90.0)
    finish(made, JOINT, nll=90.0 - gain, z=0.02, log_z_stderr=0.01)
    finding = paper.Finding("nothing", (paper.NoGain("joint", "standard"),))
    said = report.verdict(finding, TABLE, results(made))
    assert answer in said
    assert f"joint gains {gain:.2f} ± 0.01 over standard" in said


def test_numbers_of_a_figure_stand_beside_the_paper_s():
    figure = paper.FIGURES["figure_latent_2d"]
    rows = [{"kl": 0.41}, {"kl": 0.16, "kl_proposal": 1.2, "z": 0.031}, {"kl": 0.21}, {"kl": 0.5}]
    lines = report.figure_markdown(figure, {"runs": rows}).splitlines()
    assert "| LARS, a = MLP[100-100] | 0.16 | 0.15 | 1.2 | 1.14 | 0.031 | 0.03 |" in lines
    assert "**Does not hold** for LARS post-hoc" in lines[-1]
    assert "Not drawn" in report.figure_markdown(figure, None)


def test_as_is_renders_without_running(tmp_path, capsys):
    reproduce.main(["table5", "--preset", "smoke", "--out", str(tmp_path), "--as-is"])
    assert "| VAE (L=1, MLP) | not run | 84.97 |" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()
    for name in ("table5.md", "table5.csv", "results.md"):
        assert (tmp_path / name).exists()


# --------------------------------------------------------------------------- time estimates


def test_estimated_time_is_the_sum_of_its_parts():
    costs = step_time.Costs(start=10.0, step=0.01, importance_sample=1e-5, proposal=1e-6)
    quick = paper.PRESETS["quick"]
    run = paper.Run("mnist", "lars")
    # 10 + 5,000 steps, 1,000 images with 200 draws, 10^6 proposals
    assert math.isclose(step_time.seconds(costs, run, quick), 10 + 50 + 2 + 1)
    assert math.isclose(step_time.seconds(costs, run, quick, steps_done=4000), 10 + 10 + 2 + 1)
    full = dataclasses.replace(quick, test_images=None)
    omniglot = paper.Run("omniglot", "lars")
    assert math.isclose(step_time.seconds(costs, omniglot, full), 10 + 50 + 16.14 + 1)
    # Early stopping: 10 looks at 500 validation images with 20 draws, and 10^5 proposals.
    static = paper.Run("static_mnist", "lars")
    assert math.isclose(step_time.seconds(costs, static, quick), 10 + 50 + 2 + 1 + 1 + 1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (80, "80 s"), (150, "2.5 min"), (9000, "2.5 h"), (216_000, "2.5 days")],
)
def test_durations_are_readable(seconds, text):
    assert step_time.told(seconds) == text


def test_time_of_a_step_is_positive_on_a_busy_machine(monkeypatch):
    """The first call, of 10, took 3 seconds; the second, of 50, took 1."""
    clock = iter([0.0, 3.0, 3.0, 4.0])
    monkeypatch.setattr(step_time.time, "perf_counter", lambda: next(clock))
    assert step_time._line_through(lambda n: None, 10, 50) == (3.0, 1 / 50)
    clock = iter([0.0, 1.0, 1.0, 4.0])
    assert step_time._line_through(lambda n: None, 10, 50) == (1.0, 2 / 40)


def test_measured_costs_are_finite(monkeypatch):
    monkeypatch.setattr(step_time, "_import_time", lambda: 0.0)
    costs = step_time.measure(JOINT, TINY)
    for value in dataclasses.astuple(costs):
        assert value >= 0.0 and math.isfinite(value)
    assert costs.step > 0.0 and costs.proposal > 0.0


def test_dry_run_lists_the_runs_and_starts_nothing(tmp_path, capsys, monkeypatch):
    made = study(tmp_path)
    finish(made, STANDARD)
    costs = step_time.Costs(start=10.0, step=0.5, importance_sample=0.0, proposal=0.0)
    monkeypatch.setattr(step_time, "measure", lambda kind, preset: costs)
    reproduce.dry_run(made, jobs=1)
    out = capsys.readouterr().out
    assert f"{STANDARD.name}: finished" in out
    assert f"{POST_HOC.name}: not run, about 60 s, 500 ms a step" in out
    assert "3 runs, about 2.0 min" in out
    assert not (tmp_path / "runs" / JOINT.name).exists()


# --------------------------------------------------------------------------------- processes


@pytest.fixture
def fake_training(tmp_path, monkeypatch):
    """A stand-in for `examples.train` that takes milliseconds; files tell it what to do.

    `todo/NAME`: `fail`, `hang`, or nothing; `made/NAME`: a finished run to be copied.
    """
    code = """
        import pathlib, shutil, sys, time
        here = pathlib.Path(__file__).parent
        out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
        with (here / "calls.txt").open("a") as calls:
            calls.write(out.name + "\\n")
        todo = here / "todo" / out.name
        what = todo.read_text() if todo.exists() else ""
        if what == "hang":
            (here / "hanging").write_text("")
            time.sleep(600)
        if what == "fail":
            print("error: the disk is full", file=sys.stderr)
            sys.exit(2)
        shutil.copytree(here / "made" / "runs" / out.name, out, dirs_exist_ok=True)
    """
    here = tmp_path / "fake"
    (here / "todo").mkdir(parents=True)
    (here / "fake_training.py").write_text(textwrap.dedent(code))
    made = study(here / "made")
    for run in (STANDARD, POST_HOC, JOINT):
        finish(made, run)
    monkeypatch.setenv("PYTHONPATH", str(here))
    monkeypatch.setattr(reproduce, "TRAIN", "fake_training")
    return here


def calls(here):
    return (here / "calls.txt").read_text().split()


@pytest.mark.parametrize("jobs", [1, 3])
def test_bases_come_first_and_finished_runs_are_not_run_again(
    fake_training, tmp_path, capsys, jobs
):
    made = study(tmp_path / "out")
    assert reproduce.reproduce(made, jobs)
    order = calls(fake_training)
    assert sorted(order) == sorted(run.name for run in made.runs)
    assert order.index(STANDARD.name) < order.index(POST_HOC.name)
    assert reproduce.reproduce(made, jobs)
    assert calls(fake_training) == order
    assert capsys.readouterr().out.count("finished before, NLL 90.00") == 3


def test_failed_run_is_reported_and_the_rest_goes_on(fake_training, tmp_path, capsys):
    (fake_training / "todo" / STANDARD.name).write_text("fail")
    made = study(tmp_path / "out")
    assert not reproduce.reproduce(made)
    out = capsys.readouterr().out
    assert f"{STANDARD.name}: failed after" in out
    assert ": the disk is full (log: " in out
    assert f"{POST_HOC.name}: not started: it needs {STANDARD.name}" in out
    assert "| standard | failed: the disk is full |" in out
    assert "| joint | 91.00 ± 0.08 |" in out
    log = made.runs_dir / STANDARD.name / reproduce.LOG_FILE
    assert "the disk is full" in log.read_text()
    # The same command tries it again.
    (fake_training / "todo" / STANDARD.name).unlink()
    assert reproduce.reproduce(made)
    assert "started again, failed: the disk is full" in capsys.readouterr().out


def test_directory_of_another_configuration_is_refused_and_left_alone(
    fake_training, tmp_path, capsys
):
    other = study(tmp_path / "out", preset=dataclasses.replace(TINY, steps=7))
    finish(other, JOINT)
    before = {p: p.read_bytes() for p in (other.runs_dir / JOINT.name).iterdir()}
    assert not reproduce.reproduce(study(tmp_path / "out"))
    out = capsys.readouterr().out
    assert f"{JOINT.name}: refused: {JOINT.name} holds a run of another configuration" in out
    assert "steps=7 there, 100 here" in out
    assert {p: p.read_bytes() for p in (other.runs_dir / JOINT.name).iterdir()} == before
    assert JOINT.name not in calls(fake_training)


def test_other_evaluation_is_done_again(fake_training, tmp_path, capsys):
    other = study(tmp_path / "out", preset=dataclasses.replace(TINY, iwae_samples=7))
    finish(other, JOINT)
    assert reproduce.reproduce(study(tmp_path / "out"))
    out = capsys.readouterr().out
    assert "started again, evaluated in another way (iwae_samples=7 there, 3 here)" in out
    assert JOINT.name in calls(fake_training)


def test_process_that_leaves_nothing_behind_has_failed(fake_training, tmp_path, capsys):
    (fake_training / "made" / "runs" / JOINT.name / "metrics.json").unlink()
    assert not reproduce.reproduce(study(tmp_path / "out"))
    assert "it ended without a result" in capsys.readouterr().out


def test_interrupt_stops_the_children(fake_training, tmp_path, monkeypatch):
    (fake_training / "todo" / JOINT.name).write_text("hang")
    runner = reproduce.Runner(study(tmp_path / "out", TABLE.rows[2:3]), jobs=1)
    children = []

    def interrupted(interval=0.0):
        children.extend(child for _, child, _ in runner.running.values())
        while not (fake_training / "hanging").exists():
            assert children[0].poll() is None
            time.sleep(0.02)
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "collect", interrupted)
    monkeypatch.setattr(reproduce, "_PATIENCE", 2.0)  # where SIGINT is ignored, as behind nohup
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    (child,) = children
    assert child.returncode not in (None, 0)


def test_children_share_gpus_or_cores():
    inherited = {"PATH": "/bin", "PYTHONPATH": "/more"}
    one = reproduce.environment(0, 1, [], 8, inherited)
    assert "OMP_NUM_THREADS" not in one
    assert one["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "/more"]
    two = reproduce.environment(1, 2, [], 8, inherited)
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        assert two[name] == "4"
    assert reproduce.environment(1, 4, [], 2, inherited)["OMP_NUM_THREADS"] == "1"
    chosen = reproduce.environment(1, 2, [], 8, {**inherited, "OMP_NUM_THREADS": "3"})
    assert chosen["OMP_NUM_THREADS"] == "3"
    for slot, gpu in enumerate(["2", "5", "2"]):
        found = reproduce.environment(slot, 3, ["2", "5"], 8, inherited)
        assert found["CUDA_VISIBLE_DEVICES"] == gpu
        assert "OMP_NUM_THREADS" not in found


def test_figure_is_drawn_once_from_finished_runs(fake_training, tmp_path, capsys):
    code = """
        import json, pathlib, shlex, sys
        out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
        command = shlex.join(["python", "-m", "fake_figure", *sys.argv[1:]])
        out.with_suffix(".json").write_text(json.dumps({"command": command}))
        print("drawn")
    """
    (fake_training / "fake_figure.py").write_text(textwrap.dedent(code))
    figure = paper.Figure("figure_made", "Made up", "fake_figure", (JOINT,))
    made = reproduce.Study([], [figure], TINY, tmp_path / "out")
    assert reproduce.reproduce(made)
    assert "figure_made: finished in" in capsys.readouterr().out
    assert (tmp_path / "out" / "figure_made.log").read_text() == "drawn\n"
    assert reproduce.reproduce(made)
    assert "figure_made: drawn before" in capsys.readouterr().out
    # Drawn again when its run has changed since.
    later = time.time() + 100
    os.utime(made.runs_dir / JOINT.name / "metrics.json", (later, later))
    assert reproduce.reproduce(made)
    assert "figure_made: finished in" in capsys.readouterr().out


def test_two_real_runs_make_a_table(tmp_path, capsys, monkeypatch):
    """The whole way: a standard VAE, then a(z) fitted to it, each a process, and the table."""
    monkeypatch.delenv("TFP_LARS_DATA_DIR", raising=False)  # mnist5k needs none
    made = study(tmp_path / "out", TABLE.rows[:2])
    assert reproduce.reproduce(made, jobs=2), capsys.readouterr().out
    capsys.readouterr()
    states = {run: made.state(run) for run in (STANDARD, POST_HOC)}
    standard, post_hoc = (states[run].metrics for run in (STANDARD, POST_HOC))
    assert standard["recons"] == post_hoc["recons"]
    assert standard["networks"] == post_hoc["networks"] == post_hoc["config"]["post_hoc"]
    assert post_hoc["nll"] != standard["nll"]
    text = (tmp_path / "out" / "results.md").read_text()
    assert "it leaves the rest. **Holds**" in text
    assert "not run" not in text
    for run in states:
        assert "100/100" in (made.runs_dir / run.name / reproduce.LOG_FILE).read_text()


def test_wrong_arguments_do_not_wait_for_tensorflow():
    code = "import sys; from examples import reproduce; print('tensorflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
