"""Atomic writes of files, and errors that explain a full or read-only disk."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator, Mapping

from examples.common.command_line import UserError


def write(path: pathlib.Path, content: bytes) -> None:
    """Writes a file atomically: an interrupted write leaves the old content."""
    draft = path.with_name(path.name + ".draft")
    draft.write_bytes(content)
    draft.replace(path)


def write_json(path: pathlib.Path, content: Mapping) -> None:
    """Writes JSON atomically."""
    write(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: pathlib.Path) -> dict:
    """Returns the content of a JSON file. Raises a `UserError` if it cannot be read."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): delete it.") from error


@contextlib.contextmanager
def explained(
    path: pathlib.Path, errors: tuple[type[Exception], ...] = (OSError,)
) -> Iterator[None]:
    """Converts errors of writing, such as a full disk, to a `UserError`."""
    try:
        yield
    except errors as error:
        reason = getattr(error, "strerror", None) or getattr(error, "message", str(error))
        raise UserError(
            f"cannot write to {path} ({reason.splitlines()[0]}): free some space there, or name "
            "another --out. The last checkpoint, if any, is intact."
        ) from error
