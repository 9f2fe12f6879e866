"""Keeps the results of finished runs in the repository and renders the tables from them.

    python -m examples.paper.store add out/laptop
    python -m examples.paper.store render

`add` copies the metrics of finished runs of the preset `laptop` and above into `results/`, and the
figures that show them into `docs/figures/`. It never replaces a stored run. `render` writes
`docs/results.md` and the results in `README.md`; `render --check` only compares them.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence

from examples.common import command_line
from examples.common.command_line import UserError
from examples.paper.experiments import FIGURES
from examples.paper.store import page
from examples.paper.store.entries import NotAddedError
from examples.paper.store.stored import Store

MODULE = "examples.paper.store"
ROOT = pathlib.Path(__file__).parents[3]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = command_line.Parser(MODULE, __doc__)
    parser.add_argument(
        "--root", type=pathlib.Path, default=ROOT, help="clone that holds the store"
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=command_line.Parser
    )
    add = commands.add_parser("add", help="add finished runs to the store")
    add.add_argument(
        "out",
        type=pathlib.Path,
        nargs="+",
        help="--out of examples.paper, or the directory of a run",
    )
    render = commands.add_parser("render", help="write docs/results.md and the README's results")
    render.add_argument("--check", action="store_true", help="write nothing, say what is old")
    return parser.parse_args(arguments)


def run_directories(out: pathlib.Path) -> list[pathlib.Path]:
    """Returns the directories of the runs in an output directory, or the run itself."""
    if (out / "config.json").exists():
        return [out]
    found = sorted(path.parent for path in (out / "runs").glob("*/config.json"))
    if not found:
        raise UserError(f"{out} holds no runs: name --out of examples.paper.")
    return found


def add(store: Store, outs: Sequence[pathlib.Path], pictures: pathlib.Path) -> None:
    """Adds the finished runs of output directories, and the figures that show them.

    Raises:
      UserError: Some runs or figures are refused. All others are added.
    """
    refused = 0
    for path in [path for out in outs for path in run_directories(out)]:
        try:
            name, outcome = store.add(path)
            print(f"{path.name}: {outcome} as {name}")
        except NotAddedError as reason:
            print(f"{path.name}: not added, {reason}")
        except UserError as error:
            refused += 1
            print(f"{path.name}: refused, {error}", file=sys.stderr)
    for out in (out for out in outs if (out / "runs").exists()):
        for figure in (figure for figure in FIGURES.values() if figure.runs):
            try:
                print(f"{figure.name}: copied as {store.add_figure(figure, out, pictures)}")
            except NotAddedError as reason:
                print(f"{figure.name}: not added, {reason}")
            except UserError as error:
                refused += 1
                print(f"{figure.name}: refused, {error}", file=sys.stderr)
    if refused:
        raise UserError(
            f"{refused} of the runs and figures are refused, see above. Nothing was replaced."
        )


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    store = Store(args.root / "results")
    if args.command == "add":
        add(store, args.out, args.root / "docs" / "figures")
        return
    pages = page.pages(store, args.root)
    old = page.out_of_date(pages)
    names = ", ".join(str(path.relative_to(args.root)) for path in old)
    if args.check and old:
        raise UserError(f"out of date: {names}. Run python -m {MODULE} render.")
    page.write({path: pages[path] for path in old})
    print(f"Wrote {names}." if old else "Everything is up to date.")
