"""Importance sampling against known Z, its error, and its warnings."""

import pickle
import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import special, stats

from tests.bounds import normal_bound
from tests.library.normalizer.problem import make
from tests.library.normalizer.test_coverage import assert_covers
from tfp_lars import LogNormalizer, Resampled, estimate_log_normalizer, proposals
from tfp_lars.normalizer import gaussian_mixture, importance, importance_fit
from tfp_lars.normalizer.run import Run, State

tfb = tfp.bijectors
tfd = tfp.distributions


def importance_estimate(dist, num_samples=20_000, **kwargs):
    return estimate_log_normalizer(dist, num_samples, method="importance", **kwargs)


def linear(slope, bias, d=50):
    """Standard normal in `d` dimensions and a(z) = sigmoid(slope * w.z + bias), with |w| = 1."""
    w = np.random.default_rng(0).normal(size=d)
    w = (w / np.linalg.norm(w)).astype(np.float32)
    return Resampled(
        proposals.standard_normal(d),
        lambda z: slope * tf.reduce_sum(z * w, axis=-1) + bias,
        T=None,
        from_logits=True,
    )


def log_z_of(slope, bias):
    u = np.linspace(-14, 14, 400_001)
    log_terms = stats.norm.logpdf(u) + special.log_expit(slope * u + bias)
    return special.logsumexp(log_terms) + np.log(u[1] - u[0])


@pytest.mark.parametrize(("slope", "bias"), [(2.0, -6.0), (10.0, -60.0), (1000.0, -4000.0)])
def test_linear_acceptance_in_50_dimensions(slope, bias, seed):
    """Z from 5e-3 to 2e-9, with q fitted. A wrong weight would be off by far more than 0.02."""
    estimate = importance_estimate(linear(slope, bias), 100_000, seed=seed)
    assert estimate.stderr < 0.02
    error = estimate.log_z - log_z_of(slope, bias)
    assert abs(error) < stats.t.isf(1e-6 / 2, 31) * estimate.stderr
    assert estimate.warning is None
    assert estimate.effective_samples > 10_000
    assert (estimate.method, estimate.num_samples) == ("importance", 100_000 // 32 * 32)


def test_two_accepted_regions_of_unequal_weight(seed):
    """a(z) = 0.8 N-shaped around c and 0.2 around -c: Z is a sum of two Gaussian integrals."""
    d, distance, variance = 10, 5.0, 0.5
    center = np.full(d, distance / np.sqrt(d), np.float32)

    def log_accept(z):
        logs = [
            np.log(share).astype(np.float32)
            - tf.reduce_sum((z - sign * center) ** 2, axis=-1) / (2 * variance)
            for share, sign in ((0.8, 1.0), (0.2, -1.0))
        ]
        return tf.reduce_logsumexp(tf.stack(logs), axis=0)

    dist = Resampled(proposals.standard_normal(d), lambda z: tf.exp(log_accept(z)), T=None)
    expected = d / 2 * np.log(variance / (1 + variance)) - distance**2 / (2 * (1 + variance))
    estimate = importance_estimate(dist, 100_000, seed=seed)
    assert abs(estimate.log_z - expected) < stats.t.isf(1e-6 / 2, 31) * estimate.stderr
    assert estimate.stderr < 0.02


def test_estimate_is_unbiased_if_q_misses_a_mode(seed):
    """a(z) is high near -2 and near 2, and q covers only 2. The mean of Z, not of log Z, is right.

    1,000 members, each with 256 of 2,560 draws from the proposal. Without these, Z would be half as
    large.
    """
    zeros = np.zeros(1000, np.float32)
    dist = Resampled(tfd.Normal(zeros, 1.0), lambda z: tf.exp(-8 * (tf.abs(z) - 2.0) ** 2), T=None)
    z = np.linspace(-10, 10, 100_001)
    truth = np.sum(stats.norm.pdf(z) * np.exp(-8 * (np.abs(z) - 2) ** 2)) * (z[1] - z[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of the members see the disagreement
        estimate = importance_estimate(
            dist, 2560, importance_distribution=tfd.Normal(2.0, 0.25), seed=seed
        )
    ratios = np.exp(estimate.log_z) / truth
    stderr = np.std(ratios) / np.sqrt(ratios.size)
    assert abs(np.mean(ratios) - 1) < normal_bound() * stderr
    assert stderr < 0.02


def test_a_missed_mode_is_reported(seed):
    """With many draws from the proposal and hardly any elsewhere, both estimates are precise."""
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.exp(-8 * (tf.abs(z) - 2.0) ** 2), T=None)
    sampling = importance.ImportanceSampling(
        dist.proposal, dist.proposal_sums.log_accept_fn, tfd.Normal(2.0, 0.25)
    )
    state = make_state(sampling, seed)
    agreeing = sampling.result(state)
    assert agreeing.warning is None
    assert agreeing.degrees_of_freedom == 31
    # The same run, with the weights of the second mode lost, or counted twice.
    for factor in (0.5, 1.5):
        sums = tuple((w._replace(total=factor * w.total), plain) for w, plain in state.sums)
        result = sampling.result(State(state.seed, state.num_samples, 1, sums, state.seed))
        assert "plain Monte Carlo over 32000 draws" in result.warning
        assert "may miss a part" in result.warning
    # 200 effective draws are enough, but not of 320,000.
    factor = agreeing.effective_samples / 200
    sums = tuple((w._replace(squares=factor * w.squares), plain) for w, plain in state.sums)
    result = sampling.result(State(state.seed, state.num_samples, 1, sums, state.seed))
    assert "the effective sample size is only 200 of 320000" in result.warning


def test_error_of_replicates_is_that_of_their_mean():
    means = np.array([0.2, 0.25, 0.22, 0.3])
    stderr = importance.replicate_stderr(np.log(means.mean()), list(np.log(means)))
    np.testing.assert_allclose(stderr, stats.sem(means) / means.mean(), rtol=1e-12)


@pytest.mark.parametrize("stderr", [0.05, 0.2])
def test_target_is_compared_with_the_larger_error(stderr):
    """100 effective of 1,000 draws: the error from all weights is sqrt(1/100 - 1/1000)."""
    normal = tfd.Normal(0.0, 1.0)
    sampling = importance.ImportanceSampling(normal, tf.math.log_sigmoid, normal)
    estimate = LogNormalizer(-1.0, stderr, 1000, "importance", effective_samples=100.0)
    expected = max(stderr, np.sqrt(1 / 100 - 1 / 1000) / 0.85)
    np.testing.assert_allclose(sampling.error(estimate), expected, rtol=1e-12)


def make_state(sampling, seed, batch_size=10_000):
    run = Run(sampling, batch_size, State(np.array([seed, 0], np.int32), 0, 0, (), np.zeros(1)))
    run.advance(batch_size * sampling.num_replicates)
    return run.state


def test_low_effective_sample_size_is_a_warning(seed):
    """q is far from the accepted region, which the proposal hits rarely."""
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: 20 * (z - 3.0), T=None, from_logits=True)
    with pytest.warns(UserWarning, match="the effective sample size is only .* of 3200"):
        estimate = importance_estimate(
            dist, 3200, importance_distribution=tfd.Normal(-3.0, 1.0), seed=seed
        )
    assert "effective sample size" in estimate.warning


def test_intervals_cover(seed):
    """400 members, each with its own replicates, and a q with heavier tails than the target."""
    zeros = np.zeros(400, np.float32)
    dist = Resampled(tfd.Normal(zeros, 1.0), lambda z: 4.0 * z - 16.0, T=None, from_logits=True)
    estimate = importance_estimate(
        dist, 6400, importance_distribution=tfd.Normal(zeros + 4.0, 0.7), seed=seed
    )
    lower, upper = estimate.interval(0.95)
    truth = log_z_of(4.0, -16.0)
    assert_covers((lower <= truth) & (truth <= upper))


def test_target_is_reached(seed):
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: 5.0 * z - 25.0, T=None, from_logits=True)
    estimate = importance_estimate(dist, 10**6, target_stderr=0.01, seed=seed)
    assert estimate.stderr <= 0.01
    assert estimate.num_samples < 10**5
    assert abs(estimate.log_z - log_z_of(5.0, -25.0)) < 0.01 * stats.t.isf(1e-6 / 2, 31)


@pytest.mark.parametrize(
    ("family", "accept_fn"),
    [(tfd.Exponential, lambda z: 50 * (z - 12.0)), (tfd.Uniform, lambda z: 1000 * (z - 0.99))],
)
def test_fits_follow_the_support_of_the_proposal(family, accept_fn, seed):
    """P(z > 12) of an exponential and P(z > 0.99) of a uniform distribution, smoothed."""
    proposal = family(1.0) if family is tfd.Exponential else family()
    dist = Resampled(proposal, accept_fn, T=None, from_logits=True)
    z = np.linspace(0.0, 1.0 if isinstance(proposal, tfd.Uniform) else 40.0, 2_000_001)
    density = np.ones_like(z) if isinstance(proposal, tfd.Uniform) else np.exp(-z)
    expected = np.log(np.sum(density * special.expit(accept_fn(z))) * (z[1] - z[0]))
    estimate = importance_estimate(dist, 50_000, seed=seed)
    assert abs(estimate.log_z - expected) < stats.t.isf(1e-6 / 2, 31) * estimate.stderr
    assert estimate.stderr < 0.05


MIXTURES = {
    "normal": lambda: tfd.MixtureSameFamily(
        tfd.Categorical(logits=[0.0, 0.0]), tfd.Normal([-1.0, 1.0], 1.0)
    ),
    "reparameterized": lambda: proposals.gaussian_mixture(1, 3, seed=1),
    "positive": lambda: tfd.MixtureSameFamily(
        tfd.Categorical(probs=[0.2, 0.8]), tfd.Gamma([2.0, 3.0], 1.0)
    ),
    "of mixtures": lambda: tfd.MixtureSameFamily(
        tfd.Categorical(logits=[0.0, 0.0]),
        tfd.MixtureSameFamily(tfd.Categorical(logits=tf.zeros([2, 2])), tfd.Normal(tf.eye(2), 1.0)),
    ),
    "batch": lambda: tfd.MixtureSameFamily(
        tfd.Categorical(logits=tf.zeros([2])), tfd.Normal([[-1.0, 1.0], [0.0, 2.0]], 1.0)
    ),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_distributions_are_fitted_to_mixtures(name, seed):
    """TFP has no default bijector for mixtures, only for their components."""
    proposal = MIXTURES[name]()
    vector = proposal.event_shape.rank == 1
    dist = Resampled(
        proposal, lambda z: 5 * ((z[..., 0] if vector else z) - 8.0), T=None, from_logits=True
    )
    z = np.linspace(1e-3, 30.0, 100_001, dtype=np.float32)
    column = z[:, None] if vector or proposal.batch_shape.rank else z
    density = proposal.prob(column).numpy().astype(np.float64)
    accept = special.expit(5 * (z - 8.0)).reshape([-1] + [1] * proposal.batch_shape.rank)
    expected = np.log(np.sum(density * accept, axis=0) * (z[1] - z[0]))
    estimate = importance_estimate(dist, 50_000, seed=seed)
    assert estimate.log_z.shape == expected.shape == proposal.batch_shape
    bound = stats.t.isf(1e-6 / 4, 31)
    assert np.all(np.abs(estimate.log_z - expected) < bound * estimate.stderr)
    assert np.all(estimate.stderr < 0.05)


@pytest.mark.parametrize(
    "proposal",
    [
        lambda: tfd.MixtureSameFamily(
            tfd.Categorical(logits=[0.0, 0.0]), tfd.Uniform(0.0, [1.0, 2.0])
        ),
        lambda: tfd.Mixture(
            tfd.Categorical(logits=[0.0, 0.0]), [tfd.Normal(0.0, 1.0), tfd.Normal(1.0, 1.0)]
        ),
        lambda: tfd.MixtureSameFamily(
            tfd.Categorical(logits=[0.0, 0.0]), tfd.Sample(tfd.Normal([0.0, 1.0], 1.0), [3])
        ),
        lambda: tfd.MixtureSameFamily(tfd.Categorical(logits=[0.0, 0.0]), tfd.Poisson([1.0, 2.0])),
    ],
    ids=["supports differ", "families differ", "bijector of unknown batch shape", "discrete"],
)
def test_a_proposal_that_nothing_can_be_fitted_to_is_named(proposal):
    proposal = proposal()
    dist = Resampled(proposal, lambda z: tf.fill(tf.shape(z)[:1], 0.5))
    with pytest.raises(ValueError, match=rf"{proposal.name}.*Pass `importance_distribution`"):
        importance_estimate(dist)
    q = proposal.copy()
    estimate = importance_estimate(dist, importance_distribution=q, seed=1)
    np.testing.assert_allclose(estimate.log_z, np.log(0.5), rtol=1e-6)


def test_members_of_a_batch_have_their_own_fits(seed):
    """Scalar events and a batch of shape [2]: Z of 7e-3 and 1e-6."""
    bias = np.array([-10.0, -20.0], np.float32)
    dist = Resampled(tfd.Normal([0.0, 0.0], 1.0), lambda z: 4 * z + bias, T=None, from_logits=True)
    estimate = importance_estimate(dist, 50_000, seed=seed)
    expected = [log_z_of(4.0, b) for b in bias]
    bound = stats.t.isf(1e-6 / 4, 31)
    assert estimate.log_z.shape == (2,)
    assert np.all(np.abs(estimate.log_z - expected) < bound * estimate.stderr)
    assert np.all(estimate.stderr < 0.02)


def test_results_are_continued(seed):
    dist = linear(2.0, -6.0, d=2)
    part = importance_estimate(dist, 3200, batch_size=100, seed=seed)
    both = importance_estimate(dist, 3200, batch_size=100, continue_from=part)
    whole = importance_estimate(dist, 6400, batch_size=100, seed=seed)
    np.testing.assert_allclose(both.log_z, whole.log_z, rtol=1e-9)
    np.testing.assert_allclose(both.stderr, whole.stderr, rtol=1e-6)
    stored = pickle.loads(pickle.dumps(part))
    assert stored.importance_distribution is None
    assert importance_estimate(dist, 3200, continue_from=stored).num_samples == 6400
    with pytest.raises(ValueError, match="`continue_from`.*method='monte_carlo'"):
        estimate_log_normalizer(dist, 3200, continue_from=part)


@pytest.mark.parametrize(
    ("q", "message"),
    [
        (3.0, "`importance_distribution` must be a TFP distribution; got 3.0"),
        (tfd.Normal([0.0] * 3, 1.0), r"batch shape \(3,\)"),
        (tfd.MultivariateNormalDiag([0.0, 0.0]), r"event shape \(2,\); expected.*\(\)"),
        (tfd.Normal(np.float64(0.0), 1.0), "type.*float64"),
        (tfd.Poisson(3.0), "another support"),
        (tfd.Gamma(2.0, 1.0), "another support"),
    ],
    ids=["number", "batch", "event", "type", "discrete", "support"],
)
def test_wrong_importance_distributions_are_named(q, message):
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid)
    with pytest.raises((TypeError, ValueError), match=message):
        importance_estimate(dist, importance_distribution=q)


def test_an_importance_distribution_beyond_the_proposal_has_another_support():
    dist = Resampled(tfd.Gamma(2.0, 1.0), lambda z: tf.exp(-z))
    with pytest.raises(ValueError, match="another support"):
        importance_estimate(dist, importance_distribution=tfd.Normal(2.0, 1.0))


def test_an_accepted_region_that_is_never_reached_is_reported(seed):
    """All draws of all rounds have a(z) = 0."""
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.cast(z > 50.0, tf.float32), T=None)
    with pytest.warns(UserWarning, match="did not reach the accepted region"):
        estimate = importance_estimate(dist, 3200, seed=seed)
    assert estimate.log_z == -np.inf


def test_parts_of_mixture_draws_are_independent(seed):
    same = tfd.Poisson(30.0)
    z, log_weight = importance_fit.mixture_draws(same, same, 40, 20, tf.constant([seed, 1]))
    assert np.any(z[:20] != z[20:])
    np.testing.assert_allclose(log_weight, 0.0, atol=1e-12)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_half_precision_needs_a_given_distribution(dtype, seed):
    proposal = tfd.MultivariateNormalDiag(tf.zeros(2, dtype))
    dist = Resampled(proposal, lambda z: tf.fill(tf.shape(z)[:1], tf.constant(0.5, z.dtype)))
    with pytest.raises(ValueError, match=rf"`method` is 'importance'.*{dtype.name}.*float32"):
        dist.freeze(num_samples=1000, method="importance")
    estimate = importance_estimate(dist, importance_distribution=proposal.copy(), seed=seed)
    np.testing.assert_allclose(estimate.log_z, np.log(0.5), rtol=1e-2)


def test_arguments_of_the_other_method_are_refused():
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid)
    q = tfd.Normal(0.0, 1.0)
    with pytest.raises(ValueError, match="`importance_distribution` has no effect"):
        estimate_log_normalizer(dist, 1000, importance_distribution=q)
    with pytest.raises(ValueError, match="`antithetic` has no effect"):
        importance_estimate(dist, antithetic=True)
    with pytest.raises(ValueError, match="`num_samples` must be an integer of at least 512"):
        importance_estimate(dist, 100)
    discrete = Resampled(tfd.Poisson(3.0), lambda z: tf.exp(-z))
    with pytest.raises(ValueError, match="discrete. No distribution can be fitted"):
        importance_estimate(discrete)
    nested = Resampled(make(), tf.sigmoid)
    with pytest.raises(ValueError, match="contains a moving average. Freeze"):
        importance_estimate(nested)


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: tfb.Shift(0.0)(d)])
@pytest.mark.parametrize("where", ["proposal", "importance_distribution", "both"])
def test_draws_of_reparameterized_mixtures_are_used(where, wrap, seed):
    """TFP draws them with a `GradientTape` of its own. All components are standard normals."""
    mixture = wrap(proposals.gaussian_mixture(2, 3, init_spread=0.0))
    normal = proposals.standard_normal(2)
    dist = Resampled(
        normal if where == "importance_distribution" else mixture,
        lambda z: 2.0 * z[..., 0] - 6.0,
        T=None,
        from_logits=True,
    )
    q = normal if where == "proposal" else mixture
    estimate = importance_estimate(dist, importance_distribution=q, seed=seed)
    assert abs(estimate.log_z - log_z_of(2.0, -6.0)) < stats.t.isf(1e-6 / 2, 31) * estimate.stderr
    assert estimate.stderr < 0.1


def test_discrete_proposals_work_with_a_given_distribution(seed):
    """Poisson(1) and a(k) = 1 for k of at least 10: P = 1.1e-7."""
    dist = Resampled(tfd.Poisson(1.0), lambda k: tf.cast(k >= 10.0, tf.float32), T=None)
    estimate = importance_estimate(
        dist, 32_000, importance_distribution=tfd.Poisson(11.0), seed=seed
    )
    expected = stats.poisson.logsf(9, 1.0)
    assert abs(estimate.log_z - expected) < stats.t.isf(1e-6 / 2, 31) * estimate.stderr
    assert estimate.stderr < 0.05


def test_freeze_passes_the_method_on(seed):
    dist = linear(2.0, -6.0, d=2)
    frozen = dist.freeze(method="importance", num_samples=3200, seed=seed)
    assert frozen.estimate.method == "importance"


def test_mixture_density_agrees_with_tfp():
    rng = np.random.default_rng(0)
    for batch in ((), (2, 3)):
        means = rng.normal(size=(*batch, 4, 3))
        scales = np.tril(rng.normal(size=(*batch, 4, 3, 3)) * 0.3) + 2 * np.eye(3)
        log_weights = np.log(rng.dirichlet(np.ones(4), size=batch or None))
        ours = gaussian_mixture.GaussianMixture(
            gaussian_mixture.Parameters(log_weights, means, scales)
        )
        theirs = tfd.MixtureSameFamily(
            tfd.Categorical(logits=log_weights), tfd.MultivariateNormalTriL(means, scales)
        )
        z = theirs.sample(5, seed=1)
        np.testing.assert_allclose(ours.log_prob(z), theirs.log_prob(z), rtol=1e-9)
        draws = ours.sample(100_000, seed=2)
        assert draws.shape == (100_000, *batch, 3)
        error = np.abs(np.mean(draws, axis=0) - theirs.mean())
        size = np.prod(error.shape, dtype=int)
        assert np.all(error < normal_bound(size) * theirs.stddev() / np.sqrt(100_000))
        np.testing.assert_allclose(np.std(draws, axis=0), theirs.stddev(), rtol=0.02)


def test_em_finds_two_weighted_clusters():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-3, 0.5, (4000, 2)), rng.normal(4, 1.0, (4000, 2))])
    weights = np.repeat([0.9, 0.1], 4000) / 4000
    fitted = gaussian_mixture.fit(x, weights, 2, rng)
    order = np.argsort(fitted.means[:, 0])
    np.testing.assert_allclose(np.exp(fitted.log_weights[order]), [0.9, 0.1], atol=0.01)
    np.testing.assert_allclose(fitted.means[order], [[-3, -3], [4, 4]], atol=0.1)
    variances = np.einsum("kij,kij->ki", fitted.scales, fitted.scales)[order]
    np.testing.assert_allclose(variances, [[0.25, 0.25], [1, 1]], rtol=0.1)


def test_fit_follows_units_and_correlations():
    rng = np.random.default_rng(0)
    factor = np.array([[1.0, 0.0], [8.0, 6.0]])
    x = rng.normal(size=(8000, 2)) @ factor.T
    fitted = gaussian_mixture.fit(x, np.full(8000, 1 / 8000), 1, rng)
    np.testing.assert_allclose(fitted.scales[0] @ fitted.scales[0].T, np.cov(x.T), rtol=0.01)


def test_fit_to_few_points_ignores_the_noise_of_correlations():
    """400 independent points in 30 dimensions. The largest correlation of the sample is 0.14."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 30))
    fitted = gaussian_mixture.fit(x, np.full(400, 1 / 400), 1, rng)
    covariance = fitted.scales[0] @ fitted.scales[0].T
    deviations = np.sqrt(np.diag(covariance))
    correlations = covariance / deviations / deviations[:, None] - np.eye(30)
    assert np.max(np.abs(correlations)) < 0.05
    assert np.max(np.abs(np.corrcoef(x.T) - np.eye(30))) > 0.1


def test_next_power_leaves_enough_effective_draws():
    """Weights exp(t u) of normal u have the effective share exp(-t**2)."""
    u = np.random.default_rng(0).normal(size=100_000)
    beta, advanced = importance_fit.next_beta(np.zeros_like(u), 1000 * u, 0.0, 0.3)
    np.testing.assert_allclose(1000 * beta, np.sqrt(-np.log(0.3)), rtol=0.02)
    assert advanced
    assert importance_fit.next_beta(np.zeros_like(u), 0.1 * u, 0.0, 0.3) == (1.0, True)
    nowhere = np.where(u > 3, 0.0, -np.inf)
    assert importance_fit.next_beta(np.zeros_like(u), nowhere, 0.0, 0.3) == (0.0, False)
    assert importance_fit.effective_share(np.full(3, -np.inf)) == 0.0


def test_estimates_above_one_are_frozen_at_one():
    """Importance sampling does not know that Z is at most 1. Half of the estimates exceed it."""
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.sigmoid(z + 14.0), T=None)
    other = tfd.Normal(0.5, 1.0)
    estimates = [
        estimate_log_normalizer(
            dist, 2000, method="importance", importance_distribution=other, seed=seed
        )
        for seed in range(4)
    ]
    above = [estimate for estimate in estimates if estimate.log_z > 0.0]
    assert 0 < len(above) < 4
    for estimate in estimates:
        frozen = dist.freeze(estimate)
        assert frozen.estimate is estimate
        np.testing.assert_allclose(frozen.log_normalizer, min(estimate.log_z, 0.0), rtol=1e-6)
    with pytest.raises(ValueError, match="at most 0"):
        dist.freeze(LogNormalizer(np.float64(0.5), np.float64(0.01), 2000, "importance"))
