"""Tests of the 2-D study: targets, quadrature, draws against densities, and the command."""

import functools
import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.special
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lars as tfd_lars
from examples.common import quadrature
from examples.common.command_line import UserError
from examples.toy_2d import command, models, targets

tfd = tfp.distributions

GRID = quadrature.Grid(step=1 / 32)


def small_network(z):
    """An acceptance function with sharp and flat parts: a ring with larger a on the right."""
    radius = tf.norm(z, axis=-1)
    return 1e-3 + 0.9 * tf.exp(-8.0 * (radius - 1.2) ** 2) * tf.sigmoid(3.0 * z[..., 0] + 1.0)


def resampled(T):
    return tfd_lars.Resampled(tfd_lars.proposals.standard_normal(2), small_network, T=T)


def measured(dist):
    log_pi = GRID.evaluate(dist.proposal.log_prob)
    log_a = GRID.evaluate(dist.accept_log_prob)
    return quadrature.fit_of(GRID, log_pi, log_pi, log_a, dist.T)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_target_is_a_density_that_its_draws_follow(name):
    """The chi-square test has a false-alarm rate of 1e-4 for each target. The seed is fixed."""
    target = targets.make(name).distribution
    log_q = GRID.evaluate(target.log_prob)
    mass = GRID.integral(np.exp(log_q))
    np.testing.assert_allclose(mass.value, 1.0, atol=1e-5)
    _, dof, p_value = quadrature.chi_square(GRID, log_q, target.sample(10**5, seed=1).numpy())
    assert dof > 100
    assert p_value > 1e-4


@pytest.mark.parametrize("name", ["ring", "grid", "wide_grid"])
def test_mixtures_of_separated_modes_are_1_80_nats_from_the_normal(name):
    log_q = GRID.evaluate(targets.make(name).distribution.log_prob)
    log_pi = GRID.evaluate(tfd_lars.proposals.standard_normal(2).log_prob)
    kl = GRID.kl(log_q, log_pi)
    assert abs(kl.value - 1.80) < 0.005
    assert kl.error < 1e-6


def test_quadrature_knows_its_own_error():
    """Compares KL and Z with closed forms. The error estimate detects a grid that is too coarse."""
    narrow = tfd.MultivariateNormalDiag([0.5, -0.3], [0.2, 0.4])
    normal = tfd.MultivariateNormalDiag([0.0, 0.0])
    expected = tfd.kl_divergence(narrow, normal).numpy()
    fine = GRID.kl(GRID.evaluate(narrow.log_prob), GRID.evaluate(normal.log_prob))
    np.testing.assert_allclose(fine.value, expected, rtol=1e-5)
    coarse_grid = quadrature.Grid(step=1 / 2)
    coarse = coarse_grid.kl(
        coarse_grid.evaluate(narrow.log_prob), coarse_grid.evaluate(normal.log_prob)
    )
    assert abs(coarse.value - expected) > 1e-3
    assert coarse.error > 1e-2
    # a(z) = exp(-|z|^2 / 2): Z = 1/2 in two dimensions.
    log_pi = GRID.evaluate(normal.log_prob)
    log_a = -0.5 * np.sum(np.square(GRID.nodes, dtype=np.float64), axis=-1)
    found = quadrature.fit_of(GRID, log_pi, log_pi, log_a, None)
    np.testing.assert_allclose(found["z"].value, 0.5, rtol=1e-6)
    np.testing.assert_allclose(found["max_a"], 1.0, atol=1e-3)  # no node at the origin
    np.testing.assert_allclose(found["z_limit"], 1.0)


@pytest.mark.parametrize("T", [None, 1, 2, 100])
def test_density_by_quadrature_is_the_library_s(T):
    dist = resampled(T)
    found = measured(dist)
    np.testing.assert_allclose(found["mass"].value, 1.0, atol=1e-6)
    frozen = dist.freeze(np.float32(np.log(found["z"].value)))
    every = 16
    actual = frozen.log_prob(GRID.nodes[::every, ::every]).numpy()
    bulk = actual > -30  # a(z) underflows in float32 below exp(-87)
    np.testing.assert_allclose(found["log_p"][::every, ::every][bulk], actual[bulk], atol=1e-4)


@pytest.mark.parametrize("T", [None, 2, 5])
def test_draws_follow_the_density(T):
    """Tests 10^5 draws on about 400 cells. The false-alarm rate is 1e-4. The seed is fixed."""
    dist = resampled(T)
    draws = dist.sample(10**5, seed=3).numpy()
    _, dof, p_value = quadrature.chi_square(GRID, measured(dist)["log_p"], draws)
    assert dof > 100
    assert p_value > 1e-4


def test_chi_square_notices_the_wrong_truncation():
    """Checks the power of the test above: draws with T = 3 against the density with T = 2."""
    draws = resampled(3).sample(10**5, seed=3).numpy()
    _, _, p_value = quadrature.chi_square(GRID, measured(resampled(2))["log_p"], draws)
    assert p_value < 1e-10


def test_chi_square_is_calibrated():
    """Correct draws have uniform p-values: Kolmogorov-Smirnov at a false-alarm rate of 1e-4."""
    normal = tfd_lars.proposals.standard_normal(2)
    log_p = GRID.evaluate(normal.log_prob)
    p_values = [
        quadrature.chi_square(GRID, log_p, normal.sample(10**4, seed=[5, i]).numpy())[2]
        for i in range(60)
    ]
    gap = np.max(np.abs(np.sort(p_values) - (np.arange(60) + 0.5) / 60)) + 0.5 / 60
    assert scipy.special.smirnov(60, gap) > 0.5e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "pentagon"], "--target: invalid choice: 'pentagon'"),
        (["--T", "0"], "--T: must be at least 1, got 0"),
        (["--steps", "0"], "--steps: must be at least 1, got 0"),
        (["--seed", "-1"], "--seed: must be at least 0"),
        (["--flow-alone", "1"], "--flow-alone: must be at least 0 and below 1, got 1"),
    ],
)
def test_bad_argument_leaves_nothing_behind(arguments, message, tmp_path):
    with pytest.raises(UserError, match=message):
        command.main(["--out", str(tmp_path / "new" / "out"), *arguments])
    assert list(tmp_path.iterdir()) == []


def test_output_that_cannot_be_written_is_one_line_and_exit_code_2(tmp_path):
    file = tmp_path / "file"
    file.touch()
    for out in [file, file / "below"]:
        run = subprocess.run(
            [sys.executable, "-m", "examples.toy_2d", "--out", str(out)],
            capture_output=True,
            text=True,
        )
        assert run.returncode == 2
        assert run.stderr.count("\n") == 1 and "cannot write to" in run.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_failure_in_the_middle_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(models, "fit", fail)
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "mine.txt").touch()
    for out in [tmp_path / "new" / "out", kept]:
        with pytest.raises(RuntimeError, match="out of luck"):
            command.main(["--out", str(out), "--quick"])
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
    assert [p.name for p in kept.iterdir()] == ["mine.txt"]


def test_quick_run_writes_everything_and_its_numbers_agree(tmp_path, capsys, monkeypatch):
    """Both values of Z agree within 4 standard errors in each row: false-alarm rate 2e-4.

    A short flow is traced in half of the time.
    """
    short_flow = functools.partial(tfd_lars.proposals.real_nvp, num_couplings=2)
    monkeypatch.setattr(tfd_lars.proposals, "real_nvp", short_flow)
    out = tmp_path / "a" / "b"
    command.main(["--out", str(out), "--quick", "--steps", "20", "--T", "100"])
    names = ["densities_T100.png", "draws_T100.png"]
    assert sorted(p.name for p in out.iterdir()) == [*names, "results.json", "table.md"]
    results = json.loads((out / "results.json").read_text())
    assert len(results["rows"]) == 4
    for row in results["rows"]:
        assert np.isfinite(row["kl"])
        if "z" in row:
            assert row["z_difference_in_stderr"] < 4
            assert 0 < row["z"] <= row["z_over_max_a"] * (1 + 1e-9)
    printed = capsys.readouterr().out
    assert (out / "table.md").read_text() in printed
