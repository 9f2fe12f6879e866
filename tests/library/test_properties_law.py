"""The law of random discrete and 1-D continuous distributions: densities and draws.

The false-alarm rate of `FALSE_ALARM_RATE` holds for each test with all of its examples together.
Batch members have their own proposals and acceptance functions, so that one graph serves many laws.
"""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bounds import FALSE_ALARM_RATE, chi_square_p_value
from tests.library import strategies
from tests.library.strategies import Case, examples
from tfp_lars import Resampled

tfd = tfp.distributions

NUM_MEMBERS = 16
NUM_DRAWS = 4000
NUM_CELLS = 20

truncations = st.sampled_from([1, 2, 3, 7, 50, None])
seeds = st.integers(0, 2**16)


def recursion(proposal, accept, T):
    """Returns p_T by one more trial at a time: keep this draw, or start again with one fewer."""
    Z = np.sum(proposal * accept, -1, keepdims=True)
    if T is None:
        return proposal * accept / Z
    p = proposal
    for _ in range(T - 1):
        p = proposal * accept + (1.0 - Z) * p
    return p


def tables(seed, num_states, dtype):
    """Returns probabilities of the proposal and of acceptance, some of them 0 or 1."""
    rng = np.random.default_rng(seed)
    proposal = rng.dirichlet(np.full(num_states, 0.7), size=NUM_MEMBERS) + 1e-3
    accept = rng.uniform(size=proposal.shape) ** rng.integers(1, 4, size=[NUM_MEMBERS, 1])
    kind = rng.uniform(size=proposal.shape)
    accept = np.where(kind < 0.1, 0.0, np.where(kind > 0.9, 1.0, accept))
    accept[:, 0] = np.maximum(accept[:, 0], 0.1)  # something is accepted
    proposal[:, 0] += 0.1
    accept = accept.astype(dtype)
    return (proposal / proposal.sum(-1, keepdims=True)).astype(dtype), accept


def table_distribution(proposal, accept, T):
    Z = np.sum(proposal.astype(np.float64) * accept, -1)
    members = tf.range(NUM_MEMBERS)

    def accept_fn(i):
        member = tf.broadcast_to(members, tf.shape(i))
        return tf.gather_nd(accept, tf.stack([member, i], -1))

    return Resampled(
        tfd.Categorical(probs=proposal), accept_fn, T, normalizer=np.log(Z).astype(proposal.dtype)
    )


def assert_law(counts, probabilities):
    """Compares counts, `[K, M]`, with probabilities, `[M, K]`."""
    num_tests = settings().max_examples * len(probabilities)
    for member, expected in enumerate(probabilities):
        p_value = chi_square_p_value(counts[:, member], expected / expected.sum())
        assert p_value > FALSE_ALARM_RATE / num_tests, (member, counts[:, member], expected)


@examples(1.0)
@given(st.integers(2, 6), truncations, st.sampled_from(strategies.DTYPES), seeds)
def test_discrete_probabilities_solve_the_recursion(num_states, T, dtype, seed):
    """16 laws in each example."""
    proposal, accept = tables(seed, num_states, dtype)
    dist = table_distribution(proposal, accept, T)
    found = dist.prob(np.arange(num_states)[:, np.newaxis]).numpy().T  # [M, K]
    tolerance = 1e-12 if dtype == "float64" else 2e-6
    expected = recursion(*(x.astype(np.float64) for x in (proposal, accept)), T)
    np.testing.assert_allclose(found, expected, rtol=10 * tolerance, atol=tolerance)
    np.testing.assert_allclose(found.sum(-1), 1.0, rtol=10 * tolerance)


@examples(0.15)
@given(st.integers(2, 6), truncations, seeds)
def test_discrete_draws_follow_the_recursion(num_states, T, seed):
    proposal, accept = tables(seed, num_states, "float64")
    z = table_distribution(proposal, accept, T).sample(NUM_DRAWS, seed=seed).numpy()
    counts = np.stack([np.sum(z == k, 0) for k in range(num_states)])
    assert_law(counts, recursion(proposal, accept, T))


# Families of TFP with a quantile function, which gives the quadrature.
WITH_QUANTILES = [
    "Normal",
    "Laplace",
    "Logistic",
    "Gumbel",
    "Cauchy",
    "Uniform",
    "Kumaraswamy",
    "TruncatedNormal",
    "Exponential",
    "LogNormal",
    "Weibull",
    "TransformedDistribution",
]


def quadrature(case, points_per_cell=500):
    """Returns a distribution with its exact log Z, and quantiles of its proposal.

    Each quantile is the middle of an equal share of the mass, so that a mean over them is an
    integral over the proposal.
    """
    num = NUM_CELLS * points_per_cell
    u = (np.arange(num) + 0.5) / num
    dist = case.build()
    z = dist.proposal.quantile(u[:, np.newaxis])  # [num, M]
    log_z = np.log(np.mean(tf.exp(dist.accept_log_prob(z)), axis=0))
    return dist.copy(normalizer=log_z), z


@examples(0.3)
@given(st.sampled_from(WITH_QUANTILES), truncations, seeds)
def test_continuous_density_integrates_to_one(family, T, seed):
    dist, z = quadrature(Case(family, (4,), T, "float64", seed=seed))
    # Over the range of the points, by trapezoids. Outside of it lies 1 / len(z) of the proposal's
    # mass, which resampling raises by at most the largest ratio.
    steps = np.diff(z, axis=0)
    density = dist.prob(z).numpy()
    total = np.sum(0.5 * (density[1:] + density[:-1]) * steps, axis=0)
    most = np.exp(np.max(dist.log_ratio(z), axis=0))
    assert np.all(np.abs(total - 1.0) < 2e-3 + most / len(z))


@examples(0.15)
@given(st.sampled_from(WITH_QUANTILES), truncations, seeds)
def test_continuous_draws_follow_the_density(family, T, seed):
    """Cells have equal mass under the proposal. The quadrature gives their mass under p_T."""
    dist, z = quadrature(Case(family, (4,), T, "float64", seed=seed))
    ratios = np.exp(dist.log_ratio(z))  # [num, M]
    cells = np.mean(ratios.reshape(NUM_CELLS, -1, 4), axis=1) / NUM_CELLS  # [K, M]
    draws = dist.proposal.cdf(dist.sample(NUM_DRAWS, seed=seed)).numpy()
    index = np.minimum((draws * NUM_CELLS).astype(int), NUM_CELLS - 1)
    counts = np.stack([np.sum(index == k, 0) for k in range(NUM_CELLS)])
    assert_law(counts, cells.T)
