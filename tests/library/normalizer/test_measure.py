"""Densities of one measure are told from those of different measures."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import special

from tfp_lars import Resampled, estimate_log_normalizer
from tfp_lars.normalizer import measure
from tfp_lars.normalizer.measure import check_same_measure

tfb = tfp.bijectors
tfd = tfp.distributions
SEED = tf.constant([1, 2])
# `tfb.SoftmaxCentered` of TFP 0.25.
pytestmark = pytest.mark.filterwarnings("ignore:.*newshape:DeprecationWarning")


class OffByAFactor(tfd.Normal):
    """A density that is too large by a fifth."""

    def _log_prob(self, x):
        return super()._log_prob(x) + np.log(1.2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tfd.Normal(0.0, 1.0), tfd.StudentT(3.0, 0.5, 2.0)),
        (tfd.Cauchy(0.0, 1.0), tfd.Normal(0.0, 1.0)),
        (tfd.Beta(2.0, 3.0), tfb.Sigmoid()(tfd.Normal(0.0, 1.0))),
        (tfd.Gamma([2.0, 0.5], 1.0), tfb.Exp()(tfd.Normal([0.0, -1.0], 1.0))),
        (tfd.Dirichlet([2.0, 3.0, 4.0]), tfd.Dirichlet([1.0, 1.0, 1.0])),
    ],
)
def test_densities_of_one_measure_pass(one, other):
    check_same_measure(one, other, SEED, "")
    check_same_measure(other, one, SEED, "")


def test_a_factor_is_found_and_named():
    with pytest.raises(ValueError, match="off by a factor of 0.8.*Do this"):
        check_same_measure(tfd.Normal(0.0, 1.0), OffByAFactor(0.3, 1.5), SEED, "Do this.")
    batch = tfd.BatchConcat([tfd.Normal([0.0], 1.0), OffByAFactor([0.0], 1.0)], axis=0)
    with pytest.raises(ValueError, match="off by a factor of 1.2"):
        check_same_measure(batch, tfd.Normal([0.0, 0.0], 1.5), SEED, "")


def test_nothing_is_known_without_overlap():
    check_same_measure(tfd.Normal(0.0, 1.0), OffByAFactor(30.0, 1.0), SEED, "")
    # In 50 dimensions, a few draws of each make up both means, and their errors are too small.
    narrow, wide = (tfd.Sample(tfd.Normal(0.0, scale), 50) for scale in (1.0, 3.0))
    check_same_measure(narrow, wide, SEED, "")
    check_same_measure(wide, narrow, SEED, "")


def test_the_draws_from_the_two_distributions_are_independent(monkeypatch):
    drawn = []

    def sample(dist, *arguments):
        drawn.append(plain(dist, *arguments))
        return drawn[-1]

    plain = measure._proposal_draws.sample
    monkeypatch.setattr(measure._proposal_draws, "sample", sample)
    check_same_measure(tfd.Normal(0.0, 1.0), tfd.Normal(0.0, 2.0), SEED, "")
    first, second = drawn
    # The correlation of 4,096 independent pairs has a standard deviation of 1/64.
    assert abs(np.corrcoef(first, second)[0, 1]) < 6 / 64


SIMPLEX = tfd.Dirichlet([2.0, 3.0, 4.0])


def first_power(z):
    return z[..., 0] ** 60


def softmax_of_a_normal():
    return tfb.SoftmaxCentered()(tfd.MultivariateNormalDiag(tf.zeros(2), tf.fill([2], 2.0)))


@pytest.mark.parametrize(
    ("proposal", "accept_fn", "kwargs"),
    [
        (SIMPLEX, first_power, {}),
        (SIMPLEX, first_power, {"importance_distribution": softmax_of_a_normal}),
        (tfd.LKJ(3, 2.0), lambda z: 0.5 + 0.5 * z[..., 0, 1], {}),
    ],
)
def test_importance_sampling_refuses_bijectors_of_another_measure(proposal, accept_fn, kwargs):
    dist = Resampled(proposal, accept_fn, T=None)
    kwargs = {name: make() for name, make in kwargs.items()}
    with pytest.raises(ValueError, match="different measures.*Pass an `importance_distribution`"):
        estimate_log_normalizer(dist, 2000, method="importance", seed=1, **kwargs)


def test_importance_sampling_on_the_simplex_with_the_family_of_the_proposal(seed):
    """E[z_0**60] is a ratio of gamma functions."""
    exact = special.gammaln(62) - special.gammaln(2) + special.gammaln(9) - special.gammaln(69)
    other = tfd.Dirichlet([60.0, 3.0, 4.0])
    found = estimate_log_normalizer(
        Resampled(SIMPLEX, first_power, T=None),
        20_000,
        method="importance",
        importance_distribution=other,
        seed=seed,
    )
    low, high = found.interval(1.0 - 1e-6)
    assert low < exact < high < low + 0.05


@pytest.mark.parametrize(
    ("proposal", "accept_fn"),
    [
        (tfd.VonMisesFisher([0.0, 0.0, 1.0], 2.0), lambda z: 0.5 + 0.5 * z[..., 0]),
        (tfd.WishartTriL(5.0, tf.eye(2)), lambda z: tf.exp(-z[..., 0, 0])),
        (
            tfd.Blockwise([tfd.Normal(0.0, 1.0), tfd.MultivariateNormalDiag([0.0])]),
            lambda z: tf.sigmoid(z[..., 0]),
        ),
    ],
)
def test_importance_sampling_needs_a_bijector_to_all_of_the_support(proposal, accept_fn):
    dist = Resampled(proposal, accept_fn, T=None)
    with pytest.raises(ValueError, match="no bijector is known .* to all of the support"):
        estimate_log_normalizer(dist, 2000, method="importance", seed=1)
