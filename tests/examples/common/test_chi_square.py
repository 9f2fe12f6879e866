"""Tests of Pearson's test against SciPy, and of the merging of sparse cells."""

import numpy as np
from scipy import stats

from examples.common.chi_square import pearson


def test_full_cells_are_scipy_s():
    counts, expected = np.array([18, 25, 57]), np.array([20.0, 30.0, 50.0])
    found = stats.chisquare(counts, expected)
    np.testing.assert_allclose(pearson(counts, expected), (found.statistic, 2, found.pvalue))


def test_sparse_cells_make_one():
    merged = stats.chisquare([30, 55, 15], [40.0, 45.0, 15.0])
    found = pearson([30, 55, 6, 9], [40.0, 45.0, 8.0, 7.0])
    np.testing.assert_allclose(found, (merged.statistic, 2, merged.pvalue))


def test_cells_that_are_sparse_together_join_the_smallest():
    merged = stats.chisquare([30, 70], [38.0, 62.0])
    found = pearson([25, 70, 2, 3], [32.0, 62.0, 4.0, 2.0])
    np.testing.assert_allclose(found, (merged.statistic, 1, merged.pvalue))
