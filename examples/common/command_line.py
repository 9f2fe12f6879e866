"""What the example commands share: types of arguments, and errors that are one line."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence


class UserError(Exception):
    """Something that the user can mend, in one line."""


def positive(text: str) -> int:
    """An integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def units(text: str) -> tuple[int, ...]:
    """Layer sizes, as in `100-100`."""
    return tuple(positive(part) for part in text.split("-"))


def truncation(text: str) -> int | None:
    """An integer of at least 1, or `inf`."""
    return None if text in ("inf", "None") else positive(text)


def as_typed(module: str, arguments: Sequence[str] | None) -> str:
    """The command that was given, as one would type it."""
    return shlex.join(["python", "-m", module, *(sys.argv[1:] if arguments is None else arguments)])


def run(main: Callable[[], None]) -> None:
    """Runs a command; what the user can mend is one line on stderr and exit code 2."""
    try:
        main()
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from the last checkpoint", file=sys.stderr)
        sys.exit(130)
