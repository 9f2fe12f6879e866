"""Makes the paper's tables and figures, ours beside the paper's.

    python -m examples.paper table2 table5 --preset quick --out out/quick

Trains the required models, which `examples.paper.experiments` lists, each in its own process.
Writes `table2.md`, `table2.csv` and so on, and `results.md` with all tables. Finished runs are
reused and interrupted runs resume. A failed run does not stop the others; the same command retries
it. `tables`, `figures` and `all` select groups. The tables of `examples.paper.more_tables` are not
part of them.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from collections.abc import Iterable, Sequence

from examples.common import command_line, cores
from examples.common.command_line import UserError
from examples.paper.experiments import FIGURES, TABLES
from examples.paper.kinds import Figure, Table
from examples.paper.more_tables import MORE_TABLES
from examples.paper.presets import PRESETS

MODULE = "examples.paper"


def choose(names: Iterable[str]) -> tuple[list[Table], list[Figure]]:
    """Returns the tables and figures with these names, in the paper's order."""
    tables = {**TABLES, **MORE_TABLES}
    known = {**tables, **FIGURES}
    groups = {"all": {**TABLES, **FIGURES}, "tables": TABLES, "figures": FIGURES}
    names = list(names)
    unknown = [name for name in names if name not in known and name not in groups]
    if unknown:
        for name, part in known.items():
            print(f"  {name:17} {part.title}", file=sys.stderr)
        raise UserError(
            f"unknown table {', '.join(map(repr, unknown))}: choose from {', '.join(known)}, "
            f"{', '.join(groups)}"
        )
    wanted = {part for name in names for part in groups.get(name, [name])}
    return (
        [table for name, table in tables.items() if name in wanted],
        [figure for name, figure in FIGURES.items() if name in wanted],
    )


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = command_line.Parser(
        MODULE,
        __doc__,
        epilog="tables and figures: "
        + ", ".join([*TABLES, *MORE_TABLES, *FIGURES, "tables", "figures", "all"]),
    )
    add = parser.add_argument
    add("names", nargs="+", metavar="TABLE", help="tables, figures or groups, see below")
    add("--preset", required=True, choices=PRESETS, help="the budget")
    add("--out", type=pathlib.Path, required=True, help="directory for runs, tables and figures")
    add("--jobs", type=command_line.positive, default=1, help="runs at a time")
    add("--seed", type=_seed, default=0, help="seed of the runs; tables show the mean over seeds")
    add("--only", nargs="+", metavar="RUN", default=(), help="runs to make (default: all)")
    add("--data-dir", help="where the data sets are (default: $TFP_LARS_DATA_DIR)")
    add("--dry-run", action="store_true", help="list the runs and how long they would take")
    add("--as-is", action="store_true", help="render from what is finished, run nothing")
    return parser.parse_args(arguments)


def _seed(text: str) -> int:
    if (value := int(text)) < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, got {text}")
    return value


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    from examples.paper import runner
    from examples.paper.study import Study

    study = Study(
        *choose(args.names),
        PRESETS[args.preset],
        args.out,
        compare_data=not args.as_is,
        seed=args.seed,
        only=args.only,
    )
    if args.data_dir is not None:
        os.environ["TFP_LARS_DATA_DIR"] = args.data_dir  # inherited by the child processes
    if args.as_is:
        print(runner.render(study))
        return
    command_line.require("matplotlib", "scipy", "tensorboard")
    if args.dry_run:
        # As the child processes do, so that timings agree.
        os.environ.update(runner.threads(args.jobs, cores.available(), os.environ))
        cores.share()
        runner.dry_run(study, args.jobs)
        return
    if not runner.reproduce(study, args.jobs):
        print("error: not everything went well, see above", file=sys.stderr)
        sys.exit(1)
