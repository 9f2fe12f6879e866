"""Atomic writes of files, errors that explain a full or read-only disk, and safe reading.

Readers execute no code from a file. They raise `OSError` or `ValueError` for any content that is
not what they return.
"""

from __future__ import annotations

import contextlib
import glob
import io
import json
import pathlib
import secrets
import time
from collections.abc import Iterator, Mapping

import numpy as np

from examples.common.command_line import UserError

_OLD = 3600.0  # seconds; a write takes far less


def write(path: pathlib.Path, content: bytes) -> None:
    """Writes a file atomically: an interrupted write leaves the old content."""
    write_all({path: content})


def write_all(contents: Mapping[pathlib.Path, bytes]) -> None:
    """Writes files that belong together, the last of which marks them as complete.

    A failed write, as on a full disk, leaves the old files. An interruption while they are replaced
    leaves no last file, so that nobody takes old and new files for one result.

    Args:
      contents: Content by path. All paths are in the same directory.
    """
    # No two processes have the same draft.
    number = secrets.token_hex(8)
    drafts = {path: path.with_name(f"{path.name}.{number}.draft") for path in contents}
    for path in contents:
        _delete_old_drafts(path)
    try:
        for path, draft in drafts.items():
            with draft.open("xb") as file:  # follows no link
                file.write(contents[path])
        if len(drafts) > 1:
            list(drafts)[-1].unlink(missing_ok=True)
        for path, draft in drafts.items():
            draft.replace(path)
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


def _delete_old_drafts(path: pathlib.Path) -> None:
    """Deletes what killed processes left behind. Younger drafts may be those of a living one."""
    for draft in path.parent.glob(f"{glob.escape(path.name)}.*draft"):
        with contextlib.suppress(FileNotFoundError):  # another process may delete it first
            if time.time() - draft.lstat().st_mtime > _OLD:
                draft.unlink()


def write_json(path: pathlib.Path, content: Mapping) -> None:
    """Writes JSON atomically."""
    write(path, as_json(content))


def as_json(content: Mapping) -> bytes:
    """Returns the content of a JSON file."""
    return (json.dumps(content, indent=2) + "\n").encode()


def npy(values: np.ndarray) -> bytes:
    """Returns the content of a `.npy` file."""
    content = io.BytesIO()
    np.save(content, values, allow_pickle=False)
    return content.getvalue()


def parse_json(path: pathlib.Path) -> object:
    """Returns the content of a JSON file."""
    try:
        return json.loads(path.read_text())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def load_json(path: pathlib.Path) -> dict:
    """Returns the object in a JSON file."""
    content = parse_json(path)
    if not isinstance(content, dict):
        raise ValueError("it holds no JSON object")
    return content


def load_numbers(path: pathlib.Path) -> np.ndarray:
    """Returns the floating-point numbers in a `.npy` file, shape `[N]`."""
    with path.open("rb") as file:
        if np.lib.format.read_magic(file) != (1, 0):  # others are for long headers
            raise ValueError("it has another version of the format than a list of floats")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        # NumPy 1.26 reads a negative size as "all that follows".
        if len(shape) != 1 or shape[0] < 0 or not np.issubdtype(dtype, np.floating):
            raise ValueError(f"it holds {dtype} of shape {shape}, expected a list of floats")
        file.seek(0)
        try:
            # Unlike `np.load`, this reads neither archives nor pickles.
            return np.lib.format.read_array(file, allow_pickle=False)
        except (MemoryError, OverflowError):
            raise ValueError("it claims more numbers than fit into memory") from None


def read_json(path: pathlib.Path) -> dict:
    """Returns the content of a JSON file. Raises a `UserError` if it cannot be read."""
    try:
        return load_json(path)
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
