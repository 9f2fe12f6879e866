"""What the commands that draw a figure share: their arguments, and how the file is written."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import pathlib
import tempfile
from collections.abc import Iterator

import PIL.Image
from matplotlib.figure import Figure

from examples.common.command_line import UserError
from examples.vae.run_directory import write_json


def parser(module: str, description: str) -> argparse.ArgumentParser:
    """A parser of the arguments that all figures of trained models take."""
    found = _Parser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = found.add_argument
    add(
        "--run",
        dest="runs",
        action="append",
        required=True,
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="directory of a run of examples.train; give it once for each run",
    )
    add("--out", type=png, required=True, metavar="FILE.png", default=argparse.SUPPRESS)
    add(
        "--data-dir",
        default=os.environ.get("TFP_LARS_DATA_DIR"),
        help="where the data set is, if the figure needs images",
    )
    add("--quiet", action="store_true", help="no progress bars")
    return found


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing the usage: the error is to be one line."""

    def error(self, message):
        raise UserError(message)


def png(text: str) -> pathlib.Path:
    """A path that ends in `.png`."""
    if not text.endswith(".png"):
        raise argparse.ArgumentTypeError(f"must end in .png, got {text}")
    return pathlib.Path(text)


def prepare(path: pathlib.Path) -> None:
    """Makes the directory of a file and tries to write there, before hours of work."""
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(None, "it is a directory")
        with tempfile.TemporaryFile(dir=path.parent):
            pass


def save(figure: Figure, path: pathlib.Path, numbers: dict, *, colors: int = 256) -> None:
    """Writes a figure, and the numbers behind it beside it as JSON, each whole or not at all.

    Args:
      figure: What to draw.
      path: Of the picture; the numbers go to the same name with `.json`.
      numbers: What JSON can hold.
      colors: Of the palette.
    """
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=100)
    # A palette halves the size; k-means keeps the colours of a few dots apart.
    with PIL.Image.open(drawn) as image:
        image.convert("RGB").quantize(colors, kmeans=1).save(small, format="png", optimize=True)
    with _explained(path):
        draft = path.with_name(path.name + ".draft")
        draft.write_bytes(small.getvalue())
        draft.replace(path)
        write_json(path.with_suffix(".json"), numbers)


@contextlib.contextmanager
def _explained(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"argument --out: cannot write {path} ({error.strerror}): name a file in a directory "
            "that can be written to."
        ) from None
