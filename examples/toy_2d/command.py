"""The paper's 2-D study: `python -m examples.toy_2d --out DIR`.

Fits four models to a mixture of Gaussians q with KL(q || N(0, I)) = 1.80: the standard normal
resampled with a network of two layers, the same with one layer, a RealNVP flow, and the resampled
flow. Prints KL and Z beside the paper's numbers and writes `results.json`, `table.md`, and figures.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import pathlib
import shutil
import time
from collections.abc import Sequence

from examples.common import command_line, files, locks, revision, tables
from examples.common.command_line import UserError
from examples.toy_2d import targets

MODULE = "examples.toy_2d"
DESCRIPTION = "KL and Z of learned accept/reject sampling in 2-D, beside the paper's numbers."


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the study. Raises a `UserError` for wrong arguments before any work."""
    options = _parse(arguments)
    command_line.require("matplotlib", "scipy")
    start = time.monotonic()
    with _Output(options.out) as output:
        # The import takes seconds, so it comes after the check of the arguments.
        command_line.import_tensorflow()
        from examples.toy_2d import models

        target = targets.make(options.target)
        budget = models.QUICK if options.quick else models.Budget()
        if options.steps is not None:
            budget = dataclasses.replace(budget, steps=options.steps)
        budget = dataclasses.replace(budget, flow_alone=options.flow_alone)
        blocks = _fit_all(options, target, budget)
        table = _table(target, blocks, options)
        results = {
            "command": command_line.as_typed(MODULE, arguments),
            "revision": revision.revision(),
            "target": target.name,
            "target_description": target.description,
            "seed": options.seed,
            "steps": budget.steps,
            "flow_alone": budget.flow_alone,
            "quick": options.quick,
            "rows": [fit.numbers for fits in blocks.values() for fit in fits],
            "seconds": round(time.monotonic() - start, 1),
        }
        with files.explained(options.out):
            files.write_json(output / "results.json", results)
            files.write(output / "table.md", table.encode())
            _draw(output, target, blocks, budget)
    print(f"\n{table}\nWrote {options.out} in {time.monotonic() - start:.0f} s.")


def _parse(arguments):
    parser = command_line.Parser(MODULE, DESCRIPTION)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory to write to")
    parser.add_argument("--target", default="ring", choices=targets.TARGETS, help="density to fit")
    parser.add_argument(
        "--T",
        nargs="+",
        type=command_line.truncation,
        metavar="T",
        help="truncations to train with, each an integer or inf (default: inf 100; quick: inf)",
    )
    parser.add_argument(
        "--steps",
        type=command_line.positive,
        help="training steps of each model (default: 8000; quick: 200)",
    )
    parser.add_argument(
        "--flow-alone",
        type=_share,
        default=0.5,
        metavar="SHARE",
        help="share of the steps of RealNVP + LARS that train the flow alone, before joint ones",
    )
    parser.add_argument("--seed", type=_seed, default=0, help="seed for weights, data and draws")
    parser.add_argument("--quick", action="store_true", help="do a rough run, under a minute")
    options = parser.parse_args(arguments)
    if options.T is None:
        options.T = [None] if options.quick else [None, 100]
    options.T = list(dict.fromkeys(options.T))
    return options


def _seed(text):
    value = int(text)
    if not 0 <= value < 2**31 - 2:
        raise argparse.ArgumentTypeError(f"must be at least 0 and below 2^31 - 2, got {text}")
    return value


def _share(text):
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 0 and below 1, got {text}")
    return value


class _Output:
    """An output directory that receives all files at the end, or none after an error.

    Files are first written to a hidden directory inside it, so that moving them is a rename on the
    same disk. Creating the hidden directory also checks that the path is writable before any work.
    It holds the lock that keeps out other processes, and what a killed process left in it is
    deleted.
    """

    def __init__(self, path: pathlib.Path):
        self._path, self._hidden = path, path / ".partial"
        self._made: list[pathlib.Path] = []

    def __enter__(self) -> pathlib.Path:
        try:
            for parent in [*reversed(self._path.parents), self._path]:
                if not parent.exists():
                    parent.mkdir()
                    self._made.append(parent)
            self._hidden.mkdir(exist_ok=True)
            self._lock = locks.take(self._hidden)
        except OSError as error:
            self._remove_made()
            raise UserError(
                f"argument --out: cannot write to {self._path}: {error.strerror}"
            ) from None
        if self._lock is None:
            raise UserError(
                f"argument --out: {self._path} is in use by process {locks.holder(self._hidden)}: "
                "wait until it ends, or name another directory."
            )
        for file in self._files():
            file.unlink()
        return self._hidden

    def __exit__(self, kind, value, traceback):
        if kind is None:
            for file in self._files():
                file.replace(self._path / file.name)
        shutil.rmtree(self._hidden)
        os.close(self._lock)
        if kind is not None:
            self._remove_made()

    def _files(self):
        return sorted(file for file in self._hidden.iterdir() if file.name != "lock")

    def _remove_made(self):
        for path in reversed(self._made):
            path.rmdir()


def _fit_all(options, target, budget):
    """Returns the fits by truncation. The flow without resampling is fitted once and shared."""
    from examples.toy_2d import models

    print(f"Target: {target.name}, {target.description}.")
    flow_alone = None
    blocks = {}
    for T in options.T:
        blocks[T] = []
        for model in models.MODELS:
            if not model.resampled and flow_alone is not None:
                blocks[T].append(flow_alone)
                continue
            fit = models.fit(
                model,
                target,
                T,
                budget=budget,
                seed=options.seed,
                report=_progress(f"{model.name}, {_name(T)}", budget.steps),
            )
            if not model.resampled:
                flow_alone = fit
            blocks[T].append(fit)
    return blocks


def _progress(title, steps):
    from examples.common.progress import ProgressBar

    print(title, flush=True)
    bar = ProgressBar(steps, "step", ["loss"])

    def report(done, loss):
        if not math.isfinite(loss):
            raise UserError(
                f"the loss of {title} became {loss} at or before step {done}: try another --seed."
            )
        bar.update(done, values=[("loss", loss)])

    return report


def _name(T):
    return "T = inf" if T is None else f"T = {T}"


_HEADINGS = (
    "model", "T", "KL(q, p)", "paper", "KL(q, π)", "Z", "Z / max a", "paper", "limit",
    "Z estimated",
)  # fmt: skip


def _table(target, blocks, options):
    """Returns the table in Markdown."""
    # The paper's numbers are for a target of KL 1.80, without truncation.
    is_paper_s = target.name in ("ring", "grid", "wide_grid")
    rows = [
        _cells(fit, T, comparable=is_paper_s and T is None)
        for T, fits in blocks.items()
        for fit in fits
    ]
    worst = max(fit.numbers["kl_grid_error"] for fits in blocks.values() for fit in fits)
    return "\n".join(
        [
            f"Target `{target.name}`: {target.description}. Seed {options.seed}.",
            "",
            tables.markdown(_HEADINGS, rows),
            "",
            "KL in nats and Z by quadrature; halving its step moves no KL by more than "
            f"{worst:.1e}. Z / max a: Z if a(z) were rescaled to a maximum of 1. Limit: min π / q, "
            "the largest Z of an exact fit with this proposal. The last column is the library's "
            "estimate, with its standard error.",
            "",
        ]
    )


def _cells(fit, T, comparable):
    n = fit.numbers
    cells = [n["model"], "-", f"{n['kl']:.3f}", f"{n['kl_paper']:.2f}" if comparable else ""]
    cells.append(f"{n['kl_proposal']:.2f}")
    if not fit.model.resampled:
        return [*cells, "-", "-", "", "-", "-"]
    cells[1] = "inf" if T is None else str(T)
    return [
        *cells,
        f"{n['z']:.4f}",
        f"{n['z_over_max_a']:.4f}",
        f"{n['z_paper']:.2f}" if comparable and n["z_paper"] else "",
        _limit(n["z_limit_of_exact_fit"]),
        f"{n['z_estimate']:.4f} ± {n['z_estimate_stderr']:.4f}",
    ]


def _limit(value):
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _draw(output, target, blocks, budget):
    from examples.common import quadrature
    from examples.toy_2d import figures

    grid = quadrature.Grid(step=budget.grid_step)
    log_q = grid.evaluate(target.distribution.log_prob)
    for T, fits in blocks.items():
        end = "inf" if T is None else T
        title = f"{target.name}, {_name(T)}"
        figures.draw_densities(output / f"densities_T{end}.png", grid, log_q, fits, title)
        figures.draw_draws(output / f"draws_T{end}.png", grid, log_q, fits, title)
