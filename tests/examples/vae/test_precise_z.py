"""Estimates of Z in the evaluation of untruncated priors, against quadrature."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lars
from examples.paper.figures import z_trace
from examples.vae import datasets, evaluation, models, precise_z


def slope(z):
    return 6.0 * z[..., 0] - 30.0


def exact_log_z():
    """Returns log Z of `slope`, about -14, by quadrature over the first dimension."""
    z = np.linspace(-12.0, 12.0, 200_001)
    log_a = -np.logaddexp(0.0, -slope(z[:, np.newaxis]))
    log_pi = -0.5 * z**2 - 0.5 * np.log(2.0 * np.pi)
    return np.logaddexp.reduce(log_pi + log_a) + np.log(z[1] - z[0])


def make(T=None, d=2):
    proposal = tfp_lars.proposals.standard_normal(d)
    return tfp_lars.Resampled(proposal, slope, T=T, from_logits=True)


def metrics(T, kind=models.VAE):
    model = kind(lambda encode: make(T), num_latents=2)
    pixels = np.uint8(255 * (np.random.default_rng(0).random((5, 28, 28)) < 0.3))
    images = datasets.Images("mnist5k", pixels, pixels, pixels, dynamic=True, source="made up")
    return evaluation.compute_metrics(model, images, iwae_samples=2, z_samples=1000)


def test_evaluation_of_an_untruncated_prior_finds_a_tiny_z():
    """The tolerance is 5 standard errors, a false-alarm rate of 6e-7. The seed is fixed."""
    assert -15.0 < exact_log_z() < -13.0  # 1,000 draws from the proposal see nothing of it
    found = metrics(None)
    assert found["z_method"] == "importance" and found["z_warning"] is None
    assert 0.0 < found["log_z_stderr"] < 0.02
    assert abs(np.log(found["z"]) - exact_log_z()) < 5 * found["log_z_stderr"]


def test_truncated_priors_need_no_importance_sampling():
    found = metrics(100)
    assert found["z_method"] == "monte_carlo"
    assert "was tried" not in found["z_warning"]


class WithoutDensity(models.VAE):
    proposal_has_density = models.OutputVAE.proposal_has_density


def test_proposals_without_an_exact_density_keep_plain_monte_carlo():
    assert metrics(None, WithoutDensity)["z_method"] == "monte_carlo"


def test_precise_estimates_are_not_repeated():
    plain = tfp_lars.LogNormalizer(np.log(1e-4), 0.019, 10**6, "monte_carlo")
    assert precise_z.improved(plain, make(), seed=0) is plain


@pytest.mark.parametrize(
    ("plain_stderr", "stderr", "warning", "reason"),
    [
        (0.5, 0.01, "few effective samples", "few effective samples"),
        (0.5, 0.6, None, "its error is larger"),
    ],
)
def test_doubtful_importance_sampling_is_not_used(
    monkeypatch, plain_stderr, stderr, warning, reason
):
    found = tfp_lars.LogNormalizer(-1.0, stderr, 10**5, "importance", warning=warning)
    monkeypatch.setattr(tfp_lars, "estimate_log_normalizer", lambda *args, **kwargs: found)
    plain = tfp_lars.LogNormalizer(-9.0, plain_stderr, 10**6, "monte_carlo", warning="few draws")
    used = precise_z.improved(plain, make(), seed=0)
    assert (used.log_z, used.stderr, used.method) == (-9.0, plain_stderr, "monte_carlo")
    expected = f"few draws; importance sampling was tried and not used: {reason}"
    assert used.warning == expected


def test_errors_of_several_z_add_up():
    """Four Z with errors of 0.015 each have an error of 0.03 together, which is too much."""
    proposal = tfp_lars.proposals.standard_normal(2)
    shifts = tf.constant([-3.0, -3.5, -4.0, -4.5])
    dist = tfp_lars.Resampled(
        tfp.distributions.BatchBroadcast(proposal, [4]),
        lambda z: 2.0 * z[..., 0] + shifts,
        T=None,
        from_logits=True,
    )
    plain = tfp_lars.LogNormalizer(np.full(4, -3.0), np.full(4, 0.015), 10**5, "monte_carlo")
    used = precise_z.improved(plain, dist, seed=1)
    assert used.method == "importance"
    assert np.linalg.norm(used.stderr) < 0.02


def test_figure_of_z_shows_the_estimate_by_importance_sampling():
    counts = np.array([100, 1000])
    estimates = [(counts, np.array([0.0, 2e-7]), np.array([0.0, 1e-7]))] * 2
    best = z_trace.best(make(), estimates, has_density=True)
    numbers = z_trace.numbers_of(estimates, best)
    assert numbers["z_method"] == "importance" and numbers["z_warning"] is None
    assert numbers["z_stderr"] < 0.02 * numbers["z"]
    assert abs(np.log(numbers["z"]) - exact_log_z()) < 0.1
    low, high = z_trace.draw([estimates], ["a run"], [best]).axes[0].get_ylim()
    assert low <= numbers["z"] <= high
    plain = z_trace.best(make(), estimates, has_density=False)
    assert plain.method == "monte_carlo"
    np.testing.assert_allclose(np.exp(plain.log_z), 2e-7)
    np.testing.assert_allclose(plain.stderr, 0.5 / np.sqrt(2))
