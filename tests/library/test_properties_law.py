"""The law of random discrete and 1-D continuous distributions: densities and draws.

The false-alarm rate of `FALSE_ALARM_RATE` holds for each test with all of its examples together.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bounds import FALSE_ALARM_RATE, chi_square_p_value
from tests.library import laws, strategies
from tests.library.strategies import Case, examples

NUM_DRAWS = 4000

truncations = st.sampled_from(laws.TRUNCATIONS)
seeds = st.integers(0, 2**16)


def assert_law(counts, probabilities):
    """Compares counts with probabilities, both `[M, K]`."""
    num_tests = settings().max_examples * len(probabilities)
    for found, expected in zip(counts, probabilities, strict=True):
        p_value = chi_square_p_value(found, expected / expected.sum())
        assert p_value > FALSE_ALARM_RATE / num_tests, (found, expected)


@examples(1.0)
@given(st.integers(2, 6), truncations, st.sampled_from(strategies.DTYPES), seeds)
def test_discrete_probabilities_solve_the_recursion(num_states, T, dtype, seed):
    """16 laws in each example."""
    proposal, accept = laws.tables(seed, num_states, dtype)
    dist = laws.table_distribution(proposal, accept, T)
    found = dist.prob(np.arange(num_states)[:, np.newaxis]).numpy().T  # [M, K]
    tolerance = 1e-12 if dtype == "float64" else 2e-6
    expected = laws.recursion(*(x.astype(np.float64) for x in (proposal, accept)), T)
    np.testing.assert_allclose(found, expected, rtol=10 * tolerance, atol=tolerance)
    np.testing.assert_allclose(found.sum(-1), 1.0, rtol=10 * tolerance)


@examples(0.15)
@given(st.integers(2, 6), truncations, seeds)
def test_discrete_draws_follow_the_recursion(num_states, T, seed):
    proposal, accept = laws.tables(seed, num_states, "float64")
    z = laws.table_distribution(proposal, accept, T).sample(NUM_DRAWS, seed=seed).numpy()
    assert_law(laws.count_states(z, num_states), laws.recursion(proposal, accept, T))


@examples(0.3)
@given(st.sampled_from(laws.WITH_QUANTILES), truncations, seeds)
def test_continuous_density_integrates_to_one(family, T, seed):
    dist, z = laws.quadrature(Case(family, (4,), T, "float64", seed=seed))
    # Over the range of the points, by trapezoids. Outside of it lies 1 / len(z) of the proposal's
    # mass, which resampling raises by at most the largest ratio.
    steps = np.diff(z, axis=0)
    density = dist.prob(z).numpy()
    total = np.sum(0.5 * (density[1:] + density[:-1]) * steps, axis=0)
    most = np.exp(np.max(dist.log_ratio(z), axis=0))
    assert np.all(np.abs(total - 1.0) < 2e-3 + most / len(z))


@examples(0.15)
@given(st.sampled_from(laws.WITH_QUANTILES), truncations, seeds)
def test_continuous_draws_follow_the_density(family, T, seed):
    """Cells have equal mass under the proposal. The quadrature gives their mass under p_T."""
    dist, z = laws.quadrature(Case(family, (4,), T, "float64", seed=seed))
    counts = laws.count_cells(dist, dist.sample(NUM_DRAWS, seed=seed))
    assert_law(counts, laws.cells_of_density(dist, z))
