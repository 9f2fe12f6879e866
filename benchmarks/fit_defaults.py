"""Table: the defaults of `fit` beside hand-tuned settings.

    python -m benchmarks.fit_defaults

For each target, `fit` runs without settings and with each learning rate and number of steps of a
grid. All runs share data, network and seed. The gain over the proposal is measured on test samples
that no run has seen. "Tuned" is the best run of the grid, chosen on these test samples. This
favors the tuned runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import time
from collections.abc import Sequence

import keras
import numpy as np

import tfp_lars as tfd_lars
from benchmarks.fit_targets import TARGETS, Target, latents
from examples.common import command_line, files

RATES, STEPS = (0.003, 0.01, 0.03), (2000, 6000)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the study and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fit_defaults", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--only", action="append", choices=TARGETS, metavar="TARGET")
    parser.add_argument(
        "--latents",
        type=pathlib.Path,
        metavar="FILE",
        help="NumPy file with arrays train and test: latents of a VAE, as one more target",
    )
    parser.add_argument("--default-only", action="store_true", help="without the grid")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="JSON file for the runs")
    args = parser.parse_args(arguments)
    targets = [TARGETS[name] for name in args.only or TARGETS]
    if args.latents is not None:
        targets.append(latents(args.latents))
    print(
        "| target | default, nats | tuned, nats | difference | rate, steps of tuned | default, s |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    rows = []
    for target in targets:
        rows.append(
            compare(target, [] if args.default_only else [*itertools.product(RATES, STEPS)])
        )
        print(line(rows[-1]), flush=True)
        if args.out is not None:
            files.write(args.out, json.dumps(rows, indent=1).encode())


def compare(target: Target, grid: Sequence[tuple[float, int]]) -> dict:
    """Fits a target with the defaults and with each setting of a grid."""
    train, test = target.samples()
    default, seconds = gain(target, train, test)
    tuned = [
        (
            gain(target, train, test, num_steps=steps, optimizer=optimizer(rate, steps))[0],
            rate,
            steps,
        )
        for rate, steps in grid
    ]
    return {"target": target.name, "default": default, "seconds": seconds, "tuned": tuned}


def gain(target: Target, train: np.ndarray, test: np.ndarray, **settings) -> tuple[float, float]:
    """Returns the gain over the proposal on test samples, in nats, and the seconds of `fit`."""
    keras.utils.set_random_seed(1)
    dist = tfd_lars.Resampled(target.proposal(), tfd_lars.AcceptanceNetwork(), T=100)
    start = time.perf_counter()
    fitted = tfd_lars.fit(dist, train, seed=1, progress=False, **settings).distribution
    seconds = time.perf_counter() - start
    test = test.astype(fitted.dtype.as_numpy_dtype)
    return float(np.mean(fitted.log_prob(test) - fitted.proposal.log_prob(test))), seconds


def optimizer(rate: float, num_steps: int) -> keras.optimizers.Optimizer:
    """Returns Adam with a warm-up and a cosine decay to 0."""
    warm_up = num_steps // 20
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, num_steps - warm_up, warmup_target=rate, warmup_steps=warm_up
    )
    return keras.optimizers.Adam(schedule, beta_2=0.99, global_clipnorm=1.0)


def line(row: dict) -> str:
    """Returns the line of a table."""
    cells = [row["target"], f"{row['default']:.3f}"]
    if row["tuned"]:
        best, rate, steps = max(row["tuned"])
        cells += [f"{best:.3f}", f"{row['default'] - best:+.3f}", f"{rate:g}, {steps:,}"]
    else:
        cells += ["", "", ""]
    return f"| {' | '.join(cells)} | {row['seconds']:.0f} |"


if __name__ == "__main__":
    command_line.run(main, interrupted="the file has the rows that were done")
