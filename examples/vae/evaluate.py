"""Evaluates a trained VAE: importance-weighted test NLL, the bound and its parts, Z, pictures.

    python -m examples.vae.evaluate out/lars --iwae-samples 5000

Writes `metrics.json`, `samples.png` and `reconstructions.png`. Also writes the NLL and the bound of
each test image to `test_nll.npy` and `test_elbo.npy`. Refuses to replace the metrics of another run
or of a more thorough evaluation.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Sequence

from examples.common import command_line, cores, locks
from examples.common.command_line import UserError, positive
from examples.vae.config import Evaluation
from examples.vae.run_directory import RunDirectory

MODULE = "examples.vae.evaluate"


def add_evaluation(parser: command_line.Parser) -> None:
    """Adds the options of an `Evaluation`. Omitted options are absent from the namespace."""
    for name, text in {
        "iwae-samples": "importance samples for each test image",
        "z-samples": "draws from the proposal for Z",
    }.items():
        parser.add_argument(
            f"--{name}",
            type=positive,
            metavar="N",
            default=argparse.SUPPRESS,
            shown_default=getattr(Evaluation, name.replace("-", "_")),
            help=text,
        )
    parser.add_argument(
        "--test-images",
        type=positive,
        metavar="N",
        default=argparse.SUPPRESS,
        help="number of test images, evenly spaced (default: all)",
    )


def evaluation_of(args: argparse.Namespace) -> Evaluation:
    """Returns the evaluation that the options of `add_evaluation` describe."""
    names = ("iwae_samples", "z_samples", "test_images")
    return Evaluation(**{name: vars(args)[name] for name in names if name in args})


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = command_line.Parser(MODULE, __doc__)
    parser.add_argument("run", help="directory of a run of examples.vae.train")
    parser.add_argument(
        "--out", type=pathlib.Path, help="directory to write to (default: that of the run)"
    )
    parser.add_argument("--data-dir", help="where the data set is (default: $TFP_LARS_DATA_DIR)")
    add_evaluation(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress bars")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    RunDirectory(args.run).config()  # fail before the slow imports if there is no run
    out = RunDirectory(args.out or args.run)
    if out.config_file.exists() and not out.path.samefile(args.run):
        raise UserError(f"--out {out.path} is the directory of another run: name another one.")
    command_line.require("matplotlib")
    cores.share()
    command_line.import_tensorflow()
    from examples.vae import evaluation, runs

    # A training or another evaluation writes the same files.
    with locks.held(out.path):
        found = runs.load(args.run)
        evaluation.evaluate(
            found.model,
            found.images(args.data_dir),
            found.config,
            out.path,
            evaluation=evaluation_of(args),
            command=command_line.as_typed(MODULE, arguments),
            training_seconds=found.directory.training_seconds,
            progress=not args.quiet,
        )


if __name__ == "__main__":
    command_line.run(main)
