"""Draws a figure of the paper from finished runs; nothing is trained.

    python -m examples.paper.figures ranked --run out/lars --run out/post_hoc --out ranked.png

The numbers behind the figure are written to a JSON file of the same name.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from examples.common import command_line
from examples.common.command_line import UserError, positive

MODULE = "examples.paper.figures"

FIGURES: Mapping[str, str] = {
    "ranked": "Draws from the proposal of trained models, ranked by a: best, random, worst",
    "z_trace": "How the estimate of Z settles as more and more proposals are drawn",
    "latent_2d": "The latent plane: where the encoder puts the data, and how the prior follows",
}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = command_line.Parser(MODULE, __doc__)
    figures = parser.add_subparsers(
        dest="figure", required=True, metavar="FIGURE", parser_class=command_line.Parser
    )
    options = {}
    for name, title in FIGURES.items():
        options[name] = figures.add_parser(name, help=title, description=title)
        _add_common(options[name])
    options["ranked"].add_argument(
        "--draws", type=positive, default=10**4, help="draws from the proposal to rank"
    )
    options["z_trace"].add_argument(
        "--samples", type=positive, default=10**7, help="draws from the proposal"
    )
    options["z_trace"].add_argument(
        "--repeats", type=positive, default=1, help="independent estimates"
    )
    args = parser.parse_args(arguments)
    if args.figure == "ranked":
        _check_draws(args)
    elif args.figure == "z_trace" and args.samples < 2:
        raise UserError("argument --samples: must be at least 2, got 1")
    return args


def _add_common(parser):
    parser.add_argument(
        "--run",
        dest="runs",
        action="append",
        required=True,
        metavar="DIR",
        help="directory of a run of examples.vae.train; give it once for each run",
    )
    parser.add_argument(
        "--out", type=_png, required=True, metavar="FILE.png", help="picture to write"
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="where the data set is, if the figure needs images (default: $TFP_LARS_DATA_DIR)",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress bars")


def _png(text):
    if not text.endswith(".png"):
        raise argparse.ArgumentTypeError(f"must end in .png, got {text}")
    return pathlib.Path(text)


GRID_ROWS = 5  # rows in each image grid of `ranked`


def grid_columns(num_runs: int) -> int:
    """Returns the columns of an image grid of `ranked`, so that all runs fit on a page."""
    return {1: 14, 2: 8}.get(num_runs, 5)


def _check_draws(args):
    count = GRID_ROWS * grid_columns(len(args.runs))
    if args.draws < count:
        raise UserError(
            f"argument --draws: must be at least {count}, which is what a grid shows, "
            f"got {args.draws}"
        )


@contextlib.contextmanager
def _explained(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"argument --out: cannot write {path} ({error.strerror}): name a file in a directory "
            "that can be written to."
        ) from None


def _prepare(path: pathlib.Path) -> None:
    """Creates the parent directory of a file and checks that it is writable, before any work."""
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(None, "it is a directory")
        with tempfile.TemporaryFile(dir=path.parent):
            pass


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    command_line.require("matplotlib")
    command_line.import_tensorflow()
    from examples.common import figures, files
    from examples.vae import runs

    figure = importlib.import_module(f"examples.paper.figures.{args.figure}")
    found = [runs.load(path) for path in args.runs]
    for run in found:
        figure.check(run)
    _prepare(args.out)
    drawn, rows = figure.make(found, args)
    command = command_line.as_typed(MODULE, arguments)
    rows = [
        {"run": str(run.directory.path), "config": run.config.to_json(), **row}
        for run, row in zip(found, rows, strict=True)
    ]
    with _explained(args.out):
        figures.save(drawn, args.out, colors=figure.COLORS)
        files.write_json(args.out.with_suffix(".json"), {"command": command, "runs": rows})
    print(f"Wrote {args.out} and {args.out.with_suffix('.json').name}.")
