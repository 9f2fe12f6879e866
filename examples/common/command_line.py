"""What the example commands share: arguments, errors of one line, and a quiet TensorFlow."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

# Packages of the extra `examples`, by the name that is imported.
_EXTRA = {
    "PIL": "matplotlib",
    "matplotlib": "matplotlib",
    "mlxtend": "mlxtend",
    "scipy": "scipy",
    "tensorboard": "tensorboard",
    "tensorflow_datasets": "tensorflow-datasets",
}


class UserError(Exception):
    """Something that the user can fix, in one line."""


class Parser(argparse.ArgumentParser):
    """A parser whose help shows every default, and whose errors are one line.

    Args:
      module: What follows `python -m`; `None` for the parser of a subcommand.
      description: The first paragraph is shown; a module's docstring will do.
      **kwargs: Further arguments of `argparse.ArgumentParser`.
    """

    def __init__(self, module: str | None = None, description: str = "", **kwargs):
        if module is not None:
            kwargs["prog"] = f"python -m {module}"
        super().__init__(description=description.split("\n\n")[0], **kwargs)

    def add_argument(self, *names, **kwargs):
        """As in argparse; the default is added to the help unless there is none to show.

        Further keyword arguments:
          shown_default: Shown instead of `default`, where that is `argparse.SUPPRESS`.
        """
        default = kwargs.pop("shown_default", kwargs.get("default"))
        flag = kwargs.get("action") == "store_true"
        if default is not None and default is not argparse.SUPPRESS and not flag:
            # As the user would type it, and with no formatting left for argparse to do.
            text = "-".join(map(str, default)) if isinstance(default, tuple) else str(default)
            shown = f"(default: {text.replace('%', '%%')})"
            kwargs["help"] = f"{kwargs['help']} {shown}" if kwargs.get("help") else shown
        return super().add_argument(*names, **kwargs)

    def error(self, message):
        raise UserError(message)


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


def run(main: Callable[[], None], interrupted: str = "nothing was written") -> None:
    """Runs a command; what the user can fix is one line on stderr and exit code 2.

    Args:
      main: The command, without arguments.
      interrupted: What Ctrl-C leaves behind, to be printed then.
    """
    try:
        main()
    except UserError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        package = _EXTRA.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        _fail(not_installed(package))
    except KeyboardInterrupt:
        print(f"interrupted: {interrupted}", file=sys.stderr)
        sys.exit(130)


def _fail(message):
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


RESUMES = "the same command resumes from the last checkpoint"


def not_installed(package: str) -> str:
    """The message for a package that only the examples need."""
    return f'{package} is not installed: pip install ".[examples]" installs all that they need.'


def require(*modules: str) -> None:
    """Fails now if a module is missing, not after hours of work.

    Raises:
      UserError: It names the package and how to install it.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise UserError(not_installed(_EXTRA[module]))


def import_tensorflow() -> None:
    """Imports TensorFlow without the lines that it prints about the machine.

    Call it after the arguments are known to be right: it takes seconds. `TF_CPP_MIN_LOG_LEVEL`
    in the environment overrides the level; 0 prints everything.
    """
    if "tensorflow" in sys.modules:
        return
    # 3, because a machine without a GPU is an error of level 2 to cuInit. What matters to a
    # command is raised as an exception, too.
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # TensorFlow follows the level only once its logging is initialized, which is too late for
    # some of the lines.
    with _filtered_stderr(_startup_line(level)):
        import tensorflow  # noqa: F401


def _startup_line(level: str) -> re.Pattern:
    """Matches lines of TensorFlow's log below a level."""
    below = "IWEF"[: int(level)] if level.isdigit() else ""
    if not below:
        return re.compile(r"(?!)")
    return re.compile(
        rf"[{below}]\d{{4}} |\d{{4}}-\d\d-\d\d [\d:.]+: [{below}] "
        "|WARNING: All log messages before absl::InitializeLog|To enable the following instructions"
    )


@contextlib.contextmanager
def _filtered_stderr(dropped: re.Pattern) -> Iterator[None]:
    """Holds back what the process writes to file descriptor 2, then prints all other lines."""
    sys.stderr.flush()
    original = os.dup(2)
    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(original, 2)
            os.close(original)
            held_back.seek(0)
            for line in held_back.read().decode(errors="replace").splitlines(keepends=True):
                if not dropped.match(line):
                    os.write(2, line.encode())
