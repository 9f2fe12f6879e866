"""Tests of the tables: our numbers and the paper's, gains with errors, and findings."""

import csv
import dataclasses
import io
import json
import math

import numpy as np
import pytest
from scipy import stats

from examples.paper import command, experiments, report
from examples.paper.experiments import FIGURES
from examples.paper.findings import Finding, Lower, NearOneOverT, NoGain
from examples.paper.kinds import Row
from examples.paper.presets import Smaller
from examples.paper.results import Estimate, mean_over_seeds, student_t_tails
from examples.vae import datasets, run_directory
from tests.examples.paper.made_up import (
    IMAGES,
    JOINT,
    POST_HOC,
    STANDARD,
    TABLE,
    TINY,
    checkpoint,
    finish,
    results,
    study,
)


@pytest.fixture(autouse=True)
def _data_is_there(monkeypatch):
    """Fakes the digest, so that no data is needed."""
    monkeypatch.setattr(datasets, "digest", lambda name, data_dir=None: IMAGES)


def evaluated(**changes):
    return dataclasses.replace(TINY, evaluation=dataclasses.replace(TINY.evaluation, **changes))


def test_finished_run_is_known_by_configuration_version_and_evaluation(tmp_path):
    made = study(tmp_path)
    assert made.state(STANDARD).kind == run_directory.NOT_RUN
    finish(made, STANDARD)
    assert made.state(STANDARD).kind == run_directory.FINISHED
    longer = study(tmp_path, preset=dataclasses.replace(TINY, steps=200))
    assert longer.state(STANDARD).kind == run_directory.REFUSED
    assert "steps=100 there, 200 here" in longer.state(STANDARD).reason
    for name, other in {"iwae_samples": 7, "z_samples": 7777, "test_images": None}.items():
        found = study(tmp_path, preset=evaluated(**{name: other}))
        assert found.state(STANDARD).kind == run_directory.TO_EVALUATE
        assert "evaluated with 50 test images, 3 importance" in found.state(STANDARD).reason
    path = made.runs_dir / STANDARD.name / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": "0.0.1"}))
    assert made.state(STANDARD).kind == run_directory.REFUSED
    assert "version='0.0.1' there" in made.state(STANDARD).reason


def test_finished_run_of_other_data_is_not_used_again(tmp_path, monkeypatch):
    made = study(tmp_path)
    finish(made, STANDARD)
    monkeypatch.setattr(datasets, "digest", lambda name, data_dir=None: "others")
    assert made.state(STANDARD).kind == run_directory.REFUSED
    assert "images='1234' there, 'others' here" in made.state(STANDARD).reason
    # Runs from another machine can be shown without the data.
    assert study(tmp_path, compare_data=False).state(STANDARD).kind == run_directory.FINISHED

    def missing(name, data_dir=None):
        raise datasets.DataError("no images")

    monkeypatch.setattr(datasets, "digest", missing)
    assert made.state(STANDARD).kind == run_directory.FINISHED


def test_metrics_of_other_data_than_the_training_s_are_not_shown(tmp_path):
    made = study(tmp_path)
    finish(made, STANDARD, images="others")
    assert made.state(STANDARD).kind == run_directory.REFUSED
    assert "metrics of another configuration (images='others' there" in made.state(STANDARD).reason


def test_fuller_metrics_are_used_and_marked(tmp_path):
    fuller = evaluated(iwae_samples=7)
    finish(study(tmp_path, preset=fuller), STANDARD)
    made = study(tmp_path)
    assert made.state(STANDARD).kind == run_directory.FINISHED
    text = report.markdown(made.tables[0], TINY, results(made))
    assert "| standard [1] |" in text
    assert "[1] evaluated on 50 test images, 7 importance samples, 1,000 draws for Z." in text


def test_smaller_budget_of_an_architecture_is_noted_once(tmp_path):
    smaller = dataclasses.replace(TINY, smaller={"vae": Smaller(steps=7, iwae_samples=2)})
    made = study(tmp_path, preset=smaller)
    for run in (STANDARD, JOINT):
        finish(made, run)
    text = report.markdown(made.tables[0], smaller, results(made))
    assert "| standard [1] |" in text and "| joint [1] |" in text
    assert "[1] trained for 7 steps, evaluated on 50 test images, 2 importance samples" in text
    assert "| cited [2] |" in text


def test_table_names_the_revisions_where_they_differ(tmp_path):
    made = study(tmp_path)
    finish(made, STANDARD)
    finish(made, POST_HOC, z=0.02)
    assert "Revisions" not in report.markdown(made.tables[0], TINY, results(made))
    finish(made, POST_HOC, z=0.02, revision="def5678-dirty")
    text = report.markdown(made.tables[0], TINY, results(made))
    assert "Revisions: `abc1234` (standard), `def5678-dirty` (post-hoc)" in text


def test_post_hoc_run_belongs_to_the_networks_of_its_base(tmp_path):
    made = study(tmp_path)
    finish(made, POST_HOC)
    assert made.state(POST_HOC).kind == run_directory.FINISHED  # the base has no metrics yet
    finish(made, STANDARD)
    assert made.state(POST_HOC).kind == run_directory.FINISHED
    finish(made, STANDARD, networks="others")
    assert made.state(POST_HOC).kind == run_directory.REFUSED
    assert "base_weights=" in made.state(POST_HOC).reason


def test_unfinished_runs_say_why(tmp_path):
    made = study(tmp_path)
    finish(made, JOINT)
    metrics = made.runs_dir / JOINT.name / "metrics.json"
    metrics.unlink()
    assert made.state(JOINT).reason == "interrupted before the first checkpoint"
    checkpoint(made, JOINT, 50)
    assert made.state(JOINT).reason == "interrupted at step 50"
    made.directory(JOINT).failure_file.write_text('{"message": "no space"}')
    assert made.state(JOINT).reason == "failed: no space"


def verdict(finding, made):
    runs = {row.label: row.run for row in made.tables[0].rows}
    return finding.verdict(runs, results(made))


def test_gain_has_the_error_of_the_paired_difference(tmp_path):
    """Images differ by tens of nats, priors by one. The error of log Z is shared by all images."""
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
    # On different images the two errors add up.
    finish(made, JOINT, nlls=(images - gain)[::2], z=0.02, log_z_stderr=0.03)
    assert results(made).difference(STANDARD, JOINT, "nll").stderr > 2.0


NOISE = (0.3, -0.1, 0.4)  # common to both runs of a seed


def three_seeds(tmp_path, gains):
    made = study(tmp_path)
    for seed, (noise, gain) in enumerate(zip(NOISE, gains, strict=True)):
        finish(made, STANDARD.at(seed), nll=90.0 + noise)
        finish(made, JOINT.at(seed), nll=90.0 + noise - gain, z=0.02, log_z_stderr=0.01)
    return made


def test_seeds_are_averaged_with_the_error_over_seeds(tmp_path):
    made = three_seeds(tmp_path, (2.0, 2.2, 1.8))
    found = results(made).estimate(STANDARD, "nll")
    assert math.isclose(found.value, 90.2, rel_tol=1e-9)
    assert math.isclose(found.stderr, np.std(NOISE, ddof=1) / math.sqrt(3), rel_tol=1e-6)
    # Paired over seeds, the common part cancels.
    gain = results(made).difference(STANDARD, JOINT, "nll")
    assert math.isclose(gain.value, 2.0, rel_tol=1e-9)
    assert math.isclose(gain.stderr, 0.2 / math.sqrt(3), rel_tol=1e-6)
    text = report.markdown(made.tables[0], TINY, results(made))
    assert "| standard [1] | 91.20 ± 0.15 |" in text
    assert "| joint [1] | 89.20 ± 0.26 |" in text and "| 2.00 ± 0.12 |" in text
    assert "[1] mean over the seeds 0, 1, 2, ± its standard error." in text
    rows = list(csv.DictReader(io.StringIO(report.csv_text(made.tables[0], results(made)))))
    assert rows[0]["seeds"] == "0 1 2"


def test_difference_uses_the_seeds_that_both_runs_have(tmp_path):
    """A seed that only one of them has would add the difference between seeds to the gain."""
    made = study(tmp_path)
    for seed, nll in enumerate((90.0, 91.0, 95.0)):
        finish(made, STANDARD.at(seed), nll=nll)
    finish(made, JOINT.at(1), nll=89.5, z=0.02, log_z_stderr=0.01)
    gain = results(made).difference(STANDARD, JOINT, "nll")
    assert math.isclose(gain.value, 1.5, rel_tol=1e-9)
    assert math.isclose(gain.stderr, 0.01, rel_tol=1e-6)  # one seed: the error over images
    finish(made, POST_HOC.at(7), nll=80.0, z=0.02, log_z_stderr=0.01)
    far = results(made).difference(STANDARD, POST_HOC, "nll")  # no common seed
    assert math.isclose(far.value, 92.0 - 80.0, rel_tol=1e-9)
    assert far.stderr > np.std([90.0, 91.0, 95.0], ddof=1) / math.sqrt(3)


def test_same_reconstruction_is_checked_seed_by_seed(tmp_path):
    made = study(tmp_path)
    for seed, recons in ((0, -60.0), (1, -61.0)):
        finish(made, STANDARD.at(seed), recons=recons)
    finish(made, POST_HOC, recons=-60.0)
    assert "**Holds**: recons 60.00 in both rows" in verdict(TABLE.findings[1], made)
    finish(made, POST_HOC.at(1), recons=-60.0)
    assert "**Does not hold** in 1 of 1: recons 60.0 and 61.0" in verdict(TABLE.findings[1], made)


def test_seed_of_the_study_is_the_one_to_be_missed(tmp_path):
    """Other seeds count only if they are finished."""
    made = study(tmp_path, seed=1)
    (made.runs_dir / STANDARD.name).mkdir(parents=True)
    assert made.seeds(STANDARD) == [1, 0]
    assert results(made).why_missing(STANDARD) == "not run"
    finish(made, STANDARD.at(1))
    text = report.markdown(made.tables[0], TINY, results(made))
    assert "| standard [1] | 91.00 ± 0.08 |" in text and "[1] seed 1." in text


def test_table_has_ours_and_the_paper_s_side_by_side(tmp_path):
    made = study(tmp_path)
    finish(made, STANDARD, nll=90.0)
    finish(made, POST_HOC, nll=88.5, z=0.02, log_z_stderr=0.01)
    lines = report.markdown(made.tables[0], TINY, results(made)).splitlines()
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
        (0.001, "Not decided, within the error: "),
    ],
)
def test_verdict_follows_the_sign_unless_the_error_hides_it(tmp_path, better, answer):
    made = study(tmp_path)
    finish(made, STANDARD, nll=90.0)
    finish(made, POST_HOC, nll=90.0 - better, z=0.02, log_z_stderr=0.01)
    assert answer in verdict(TABLE.findings[0], made)


@pytest.mark.parametrize("dof", [1, 2, 3, 4, 7, 30])
def test_limit_of_a_verdict_is_that_of_the_t_distribution(dof):
    limit = stats.t.isf(stats.norm.sf(2.0), dof)
    for t in (-20.0, -3.0, 0.0, 0.1, 1.0, 2.0, limit, 100.0):
        tails = student_t_tails(t, dof)
        np.testing.assert_allclose(tails, 2.0 * stats.t.sf(abs(t), dof), rtol=0, atol=1e-14)
    assert Estimate(-1.001 * limit, 1.0, dof).is_significant
    assert not Estimate(0.999 * limit, 1.0, dof).is_significant
    assert Estimate(0.2001, 0.1).is_significant and not Estimate(0.1999, 0.1).is_significant
    assert not Estimate(9.0, math.nan, dof).is_significant
    assert Estimate(1.0, 0.0, dof).is_significant and not Estimate(0.0, 0.0, dof).is_significant


@pytest.mark.parametrize("num_seeds", [2, 3])
def test_seeds_without_a_difference_are_decided_as_rarely_as_the_level(num_seeds):
    """At 2 standard errors, 30 % of 2 seeds and 18 % of 3 would be. False-fail rate: 1e-6."""
    draws, count = np.random.default_rng(0).standard_normal([20_000, num_seeds]), 0
    for values in draws:
        mean = mean_over_seeds([Estimate(float(value), 0.1) for value in values])
        count += mean.is_significant
    assert abs(count / len(draws) - 0.0455) < 0.0073


def test_verdict_over_seeds_needs_more_than_two_standard_errors(tmp_path):
    """The means over 3 seeds differ by 3.5 standard errors, where t needs 4.5."""
    made = study(tmp_path)
    for seed, better in enumerate((1.0, 2.0, 3.0)):
        finish(made, STANDARD.at(seed), nll=90.0)
        finish(made, POST_HOC.at(seed), nll=90.0 - better, z=0.02, log_z_stderr=0.01)
    said = verdict(TABLE.findings[0], made)
    assert "Not decided, within the error: -ELBO of post-hoc is 2.00 ± 0.58 lower" in said


def test_degrees_of_freedom_of_runs_without_a_common_seed(tmp_path):
    made = study(tmp_path)
    for seed, nll in enumerate((90.0, 91.0, 92.0)):
        finish(made, STANDARD.at(seed), nll=nll)
        finish(made, JOINT.at(seed + 3), nll=2.0 * nll, z=0.02)
    found = results(made).difference(STANDARD, JOINT, "nll")
    assert math.isclose(found.stderr, math.sqrt(1.0 / 3.0 + 4.0 / 3.0))
    welch = stats.ttest_ind([90.0, 91.0, 92.0], [180.0, 182.0, 184.0], equal_var=False)
    assert math.isclose(found.dof, welch.df)


def test_verdict_is_open_if_the_error_is_unknown(tmp_path):
    """One image has no spread."""
    made = study(tmp_path)
    finish(made, STANDARD, nll=90.0)
    finish(made, POST_HOC, nll=88.0, z=0.02)
    for run in (STANDARD, POST_HOC):
        np.save(made.runs_dir / run.name / "test_elbo.npy", [-90.0])
    with np.errstate(all="ignore"), pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        assert "Not decided" in verdict(TABLE.findings[0], made)


def test_verdict_names_who_states_the_finding(tmp_path):
    made = study(tmp_path)
    finding = Finding(
        "lower", (Lower("post-hoc", "standard", "elbo"),), "Expected on each data set"
    )
    assert verdict(finding, made).startswith("Expected on each data set: lower. ")


def test_verdict_needs_its_rows(tmp_path):
    made = study(tmp_path)
    finish(made, STANDARD)
    said = verdict(TABLE.findings[0], made)
    assert "Not decidable: missing post-hoc (not run)" in said


def test_verdict_of_the_rows_that_are_there_names_the_others(tmp_path):
    made = study(tmp_path)
    finish(made, STANDARD, nll=90.0)
    finish(made, POST_HOC, nll=88.0, z=0.02, log_z_stderr=0.01)
    pairs = [("post-hoc", "standard"), ("joint", "standard"), ("joint", "post-hoc")]
    finding = Finding("lower", tuple(Lower(a, b, "elbo") for a, b in pairs))
    assert "**Holds** in 1 of 3, missing joint (not run)." in verdict(finding, made)
    finish(made, POST_HOC, nll=92.0, z=0.02, log_z_stderr=0.01)
    said = verdict(finding, made)
    assert "**Does not hold** in 1 of 3" in said and "Holds in 0" not in said
    assert said.endswith(". Missing: joint (not run).")
    missing = Finding("lower", (Lower("joint", "other", "elbo"), Lower("more", "joint", "elbo")))
    runs = {"joint": JOINT, "other": JOINT.at(0), "more": experiments.run("mnist5k", "vamp")}
    said = missing.verdict(runs, results(made))
    assert "Not decidable: missing joint; other; more (not run)." in said
    many = Finding("lower", tuple(Lower(str(i), "joint", "elbo") for i in range(9)))
    said = many.verdict({**runs, **{str(i): JOINT for i in range(9)}}, results(made))
    assert "Not decidable: missing 10 rows (not run)." in said


def test_reconstruction_must_be_the_same_to_the_last_bit(tmp_path):
    made = study(tmp_path)
    finish(made, STANDARD)
    finish(made, POST_HOC, recons=float(np.nextafter(-60.0, 0.0)))
    said = verdict(TABLE.findings[1], made)
    assert "**Does not hold**" in said


def test_z_near_one_over_t(tmp_path):
    rows = [
        Row(f"T = {T}", experiments.run("mnist5k", "lars", T=T, latents=2), (None, None, None))
        for T in ("10", "100")
    ]
    made = study(tmp_path, rows)
    finish(made, rows[0].run, z=0.08, log_z_stderr=0.01)
    finish(made, rows[1].run, z=0.2, log_z_stderr=0.01)
    finding = Finding("near", (NearOneOverT("T = 10"), NearOneOverT("T = 100")))
    said = verdict(finding, made)
    assert "**Does not hold** in 1 of 2: Z · T = 20 for T = 100" in said
    assert "Holds in 1 of 2" in said


@pytest.mark.parametrize(("gain", "answer"), [(0.2, "**Holds**"), (0.4, "**Does not hold**")])
def test_no_gain_is_a_gain_within_a_margin(tmp_path, gain, answer):
    made = study(tmp_path)
    finish(made, STANDARD, nll=90.0)
    finish(made, JOINT, nll=90.0 - gain, z=0.02, log_z_stderr=0.01)
    finding = Finding("nothing", (NoGain("joint", "standard"),))
    said = verdict(finding, made)
    assert answer in said
    assert f"joint gains {gain:.2f} ± 0.01 over standard" in said


def test_numbers_of_a_figure_stand_beside_the_paper_s():
    figure = FIGURES["figure_latent_2d"]
    rows = [{"kl": 0.41}, {"kl": 0.16, "kl_proposal": 1.2, "z": 0.031}, {"kl": 0.21}, {"kl": 0.5}]
    lines = report.figure_markdown(figure, {"runs": rows}, "where.png").splitlines()
    assert f"![{figure.title}](where.png)" in lines
    assert "| LARS, a = MLP[100-100] | 0.16 | 0.15 | 1.2 | 1.14 | 0.031 | 0.03 |" in lines
    assert "**Does not hold** for LARS post-hoc" in lines[-1]
    assert "Not drawn" in report.figure_markdown(figure, None, "where.png")


def test_as_is_renders_without_running(tmp_path, capsys):
    command.main(["table5", "--preset", "smoke", "--out", str(tmp_path), "--as-is"])
    assert "| VAE (L=1, MLP) | not run | 84.97 |" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()
    for name in ("table5.md", "table5.csv", "results.md"):
        assert (tmp_path / name).exists()
