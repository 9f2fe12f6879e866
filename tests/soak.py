"""Compares many draws with exact laws: `python -m tests.soak --draws 1e8`.

The laws are random tables of states and 1-D densities, each with random acceptance functions, at
several truncations. Both the draws and their numbers of attempts are compared, by chi-square tests.
The exit code is 1 if a p-value is below the false-alarm rate over the number of tests. The result
of each configuration is written to a file, so that the same command resumes after Ctrl-C, SIGTERM
or SIGKILL. It starts again if any file of the clone has changed.
"""

import argparse
import math
import pathlib
import sys

import keras
import numpy as np

from examples.common import command_line, files
from tests import resuming
from tests.bounds import FALSE_ALARM_RATE, chi_square_p_value
from tests.library import laws
from tests.library.strategies import Case

NUM_MEMBERS = 16
NUM_ATTEMPTS = 20  # cells
BLOCK = 10**5  # draws at a time of all members together
TABLE_SEEDS = range(4)
NUM_CONFIGURATIONS = len(laws.TRUNCATIONS) * (len(TABLE_SEEDS) + len(laws.WITH_QUANTILES))
LIMIT = FALSE_ALARM_RATE / (2 * NUM_CONFIGURATIONS * NUM_MEMBERS)


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


def smallest_p_value(dist, law, count, num_draws, seed, on_block):
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
        on_block(n * len(law))
    p_values = [
        chi_square_p_value(found, expected / expected.sum())
        for found, expected in (
            *zip(counts, law, strict=True),
            *zip(attempt_counts, by_attempts, strict=True),
        )
    ]
    return min(p_values), len(p_values)


def number_of_draws(text):
    """Parses a number of at least 1, such as `1e8`."""
    value = float(text)
    if not 1.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be finite and at least 1, got {text}")
    return value


def summary(results, each):
    """Returns one line about the configurations that are done."""
    failed = sum(result["p_value"] < LIMIT for result in results.values())
    lowest = min((result["p_value"] for result in results.values()), default=1.0)
    return (
        f"{each * len(results) * NUM_MEMBERS:,} draws, "
        f"{sum(result['tests'] for result in results.values())} tests, smallest p-value "
        f"{lowest:.2g}, limit {LIMIT:.2g}: {failed} of {len(results)} configurations failed"
    )


def main(arguments=None):
    """Runs the comparison. Exits with 1 if a configuration fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--draws", type=number_of_draws, default=1e8, help="number of draws in all")
    parser.add_argument("--seed", type=int, default=0, help="seed of the laws and the draws")
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("out/soak.json"), help="file of results"
    )
    options = parser.parse_args(arguments)
    each = max(int(options.draws / NUM_CONFIGURATIONS / NUM_MEMBERS), 1)
    identity = {"draws": each, "seed": options.seed, "code": resuming.code(options.out)}
    results = resuming.earlier_results(options.out, identity, "results")  # by configuration
    options.out.parent.mkdir(parents=True, exist_ok=True)
    bar = keras.utils.Progbar(
        each * NUM_CONFIGURATIONS * NUM_MEMBERS, verbose=int(sys.stderr.isatty()), unit_name="draw"
    )
    bar.update(each * len(results) * NUM_MEMBERS)
    try:
        for index, (name, dist, law, count) in enumerate(configurations(options.seed)):
            if name in results:
                continue
            seed = options.seed * NUM_CONFIGURATIONS + index
            p_value, tests = smallest_p_value(dist, law, count, each, seed, bar.add)
            results[name] = {"p_value": p_value, "tests": tests}
            files.write_json(options.out, {"identity": identity, "results": results})
            outcome = "FAILED" if p_value < LIMIT else "ok"
            print(f"{len(results)}/{NUM_CONFIGURATIONS} {name}: {outcome}, p >= {p_value:.2g}")
            sys.stdout.flush()
    finally:
        print(summary(results, each), flush=True)
    if any(result["p_value"] < LIMIT for result in results.values()):
        sys.exit(1)


if __name__ == "__main__":
    command_line.run(main, interrupted="the same command resumes after the last configuration")
