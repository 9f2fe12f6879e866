"""Command-line tools of the examples: arguments, one-line errors, and a quiet TensorFlow."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence

# Packages of the extra `examples`, by import name.
_EXTRA = {
    "PIL": "matplotlib",
    "matplotlib": "matplotlib",
    "mlxtend": "mlxtend",
    "scipy": "scipy",
    "tensorboard": "tensorboard",
    "tensorflow_datasets": "tensorflow-datasets",
}


class UserError(Exception):
    """An error that the user can fix, with a one-line message."""


class Parser(argparse.ArgumentParser):
    """A parser whose help shows every default and whose errors are one line.

    Args:
      module: Module name after `python -m`. `None` for the parser of a subcommand.
      description: Text whose first paragraph the help shows, such as a module docstring.
      **kwargs: Further arguments of `argparse.ArgumentParser`.
    """

    def __init__(self, module: str | None = None, description: str = "", **kwargs):
        if module is not None:
            kwargs["prog"] = f"python -m {module}"
        super().__init__(description=description.split("\n\n")[0], **kwargs)

    def add_argument(self, *names, **kwargs):
        """Adds an argument as argparse does, with its default at the end of the help.

        Additional keyword arguments:
          shown_default: Default to show in the help if `default` is `argparse.SUPPRESS`.
        """
        default = kwargs.pop("shown_default", kwargs.get("default"))
        flag = kwargs.get("action") == "store_true"
        if default is not None and default is not argparse.SUPPRESS and not flag:
            # Written as the user would type it. `%%` keeps argparse from formatting it.
            text = "-".join(map(str, default)) if isinstance(default, tuple) else str(default)
            shown = f"(default: {text.replace('%', '%%')})"
            kwargs["help"] = f"{kwargs['help']} {shown}" if kwargs.get("help") else shown
        return super().add_argument(*names, **kwargs)

    def error(self, message):
        raise UserError(message)


def positive(text: str) -> int:
    """Parses an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def units(text: str) -> tuple[int, ...]:
    """Parses layer sizes such as `100-100`."""
    return tuple(positive(part) for part in text.split("-"))


MOST_T = 2**31 - 1  # what the library takes


def truncation(text: str) -> int | None:
    """Parses an integer from 1 to `MOST_T`, or `inf`, for which it returns `None`."""
    if text in ("inf", "None"):
        return None
    value = positive(text)
    if value > MOST_T:
        raise argparse.ArgumentTypeError(f"must be at most {MOST_T}, or inf, got {text}")
    return value


def as_typed(module: str, arguments: Sequence[str] | None) -> str:
    """Returns the command line, quoted for a shell."""
    return shlex.join(["python", "-m", module, *(sys.argv[1:] if arguments is None else arguments)])


class Stopped(SystemExit):
    """Ctrl-C or SIGTERM. The exit code is 128 plus the number of the signal.

    Not a `KeyboardInterrupt`, because the library answers that with a partial result, and the
    command would continue.
    """


def run(main: Callable[[], None], interrupted: str = "nothing was written") -> None:
    """Runs a command. A `UserError` becomes one line on stderr and exit code 2.

    Ctrl-C and SIGTERM become one line and the exit codes 130 and 143.

    Args:
      main: Function that runs the command, without arguments.
      interrupted: Message to print after Ctrl-C or SIGTERM, about what was written.
    """
    try:
        with _stoppable():
            main()
    except UserError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        package = _EXTRA.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        _fail(not_installed(package))
    except (KeyboardInterrupt, Stopped) as stopped:
        code = stopped.code if isinstance(stopped, Stopped) else 128 + signal.SIGINT
        what = "terminated" if code == 128 + signal.SIGTERM else "interrupted"
        print(f"{what}: {interrupted}", file=sys.stderr)
        sys.exit(code)


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Makes Ctrl-C and SIGTERM raise `Stopped`, so that children and drafts are cleaned up."""

    def stop(number, frame):
        raise Stopped(128 + number)

    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    # Other handlers stay, such as that of nohup. Only the main thread gets signals.
    main_thread = threading.current_thread() is threading.main_thread()
    found = [n for n, handler in usual.items() if signal.getsignal(n) == handler and main_thread]
    for number in found:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in found:
            signal.signal(number, usual[number])


def _fail(message):
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


RESUMES = "the same command resumes from the last checkpoint"


def not_installed(package: str) -> str:
    """Returns the error message for a missing package that only the examples need."""
    return f'{package} is not installed: pip install ".[examples]" installs all that they need.'


def require(*modules: str) -> None:
    """Checks that modules are installed, so that a command fails before hours of work.

    Raises:
      UserError: A module is missing. The message says how to install it.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise UserError(not_installed(_EXTRA[module]))


def import_tensorflow() -> None:
    """Imports TensorFlow without its messages about the machine.

    The import takes seconds, so check the arguments first. `TF_CPP_MIN_LOG_LEVEL` in the
    environment overrides the level; 0 prints everything.
    """
    if "tensorflow" in sys.modules:
        return
    # 3, because cuInit logs a missing GPU as an error of level 2. Errors that matter to a command
    # are also raised as exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with early_log_filtered():
        import tensorflow  # noqa: F401


@contextlib.contextmanager
def early_log_filtered() -> Iterator[None]:
    """Drops lines of TensorFlow's log below `TF_CPP_MIN_LOG_LEVEL`.

    TensorFlow respects the level only after its logging is initialized. TensorFlow 2.18 does not
    initialize it on import. Other lines on stderr are printed at the end.
    """
    pattern = _startup_line(os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0"))
    with contextlib.nullcontext() if pattern is None else _filtered_stderr(pattern):
        yield


def _startup_line(level: str) -> re.Pattern | None:
    """Returns a pattern of the lines of TensorFlow's log below a level, `None` if none are."""
    below = "IWEF"[: int(level)] if level.isdigit() else ""
    if not below:
        return None
    return re.compile(
        rf"[{below}]\d{{4}} |\d{{4}}-\d\d-\d\d [\d:.]+: [{below}] "
        "|WARNING: All log messages before absl::InitializeLog|To enable the following instructions"
    )


@contextlib.contextmanager
def _filtered_stderr(dropped: re.Pattern) -> Iterator[None]:
    """Buffers writes to file descriptor 2, then prints all lines that `dropped` does not match."""
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
