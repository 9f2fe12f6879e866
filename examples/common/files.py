"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator, Mapping

from examples.common.command_line import UserError


def write(path: pathlib.Path, content: bytes) -> None:
    """Writes a file whole, or not at all."""
    draft = path.with_name(path.name + ".draft")
    draft.write_bytes(content)
    draft.replace(path)


def write_json(path: pathlib.Path, content: Mapping) -> None:
    """The same for JSON."""
    write(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: pathlib.Path) -> dict:
    """The content of a file that must be there."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): delete it.") from error


@contextlib.contextmanager
def explained(
    path: pathlib.Path, errors: tuple[type[Exception], ...] = (OSError,)
) -> Iterator[None]:
    """A full or read-only disk is the user's to fix."""
    try:
        yield
    except errors as error:
        reason = getattr(error, "strerror", None) or getattr(error, "message", str(error))
        raise UserError(
            f"cannot write to {path} ({reason.splitlines()[0]}): free some space there, or name "
            "another --out. The last checkpoint, if any, is intact."
        ) from error
