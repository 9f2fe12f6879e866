"""Compares many draws with exact laws: `python -m tests.soak --draws 1e8`.

The laws are random tables of states and 1-D densities, each with random acceptance functions, at
several truncations. Both the draws and their numbers of attempts are compared, by chi-square tests.
The exit code is 1 if a p-value is below the false-alarm rate over the number of tests.
"""

import argparse
import sys

import numpy as np

from tests.bounds import FALSE_ALARM_RATE, chi_square_p_value
from tests.library import laws
from tests.library.strategies import Case

NUM_MEMBERS = 16
NUM_ATTEMPTS = 20  # cells
BLOCK = 10**5  # draws at a time of all members together
TABLE_SEEDS = range(4)


def configurations(seed):
    """Yields a name, a distribution, its law `[M, K]`, and a function that counts draws."""
    for T in laws.TRUNCATIONS:
        for table in TABLE_SEEDS:
            num_states = 3 + table
            proposal, accept = laws.tables([seed, table], num_states, "float64")
            yield (
                f"table of {num_states} states, T={T}",
                laws.table_distribution(proposal, accept, T),
                laws.recursion(proposal, accept, T),
                lambda z, n=num_states: laws.count_states(z.numpy(), n),
            )
        for family in laws.WITH_QUANTILES:
            dist, z = laws.quadrature(Case(family, (NUM_MEMBERS,), T, "float64", seed=seed))
            yield (
                f"{family}, T={T}",
                dist,
                laws.cells_of_density(dist, z),
                lambda z, dist=dist: laws.count_cells(dist, z),
            )


def smallest_p_value(dist, law, count, num_draws, seed):
    """Returns the smallest p-value over all members, and the number of tests."""
    by_attempts = laws.attempts_law(dist.acceptance_rate, dist.T, NUM_ATTEMPTS)
    counts, attempt_counts = np.zeros(law.shape, int), np.zeros(by_attempts.shape, int)
    left = num_draws
    while left > 0:
        n = min(left, BLOCK // len(law))
        z, attempts = dist.sample_with_attempts(n, seed=[seed, left])
        counts += count(z)
        cell = np.minimum(attempts, NUM_ATTEMPTS) - 1
        attempt_counts += laws.count_states(cell, NUM_ATTEMPTS)
        left -= n
    p_values = [
        chi_square_p_value(found, expected / expected.sum())
        for found, expected in (
            *zip(counts, law, strict=True),
            *zip(attempt_counts, by_attempts, strict=True),
        )
    ]
    return min(p_values), len(p_values)


def main(arguments=None):
    """Runs the comparison and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--draws", type=float, default=1e8, help="number of draws in all")
    parser.add_argument("--seed", type=int, default=0, help="seed of the laws and the draws")
    options = parser.parse_args(arguments)
    num = len(laws.TRUNCATIONS) * (len(TABLE_SEEDS) + len(laws.WITH_QUANTILES))
    each = max(int(options.draws / num / NUM_MEMBERS), 1)
    lowest = FALSE_ALARM_RATE / (2 * num * NUM_MEMBERS)
    found, num_tests = [], 0
    for name, dist, law, count in configurations(options.seed):
        p_value, tests = smallest_p_value(dist, law, count, each, len(found))
        found.append(p_value)
        num_tests += tests
        print(f"{name}: {'FAILED' if p_value < lowest else 'ok'}, p >= {p_value:.2g}", flush=True)
    failed = sum(p < lowest for p in found)
    print(
        f"{each * num * NUM_MEMBERS:,} draws, {num_tests} tests, smallest p-value "
        f"{min(found):.2g}, limit {lowest:.2g}: {failed} of {num} configurations failed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
