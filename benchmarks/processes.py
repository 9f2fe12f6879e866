"""Child processes that contenders live in.

TensorFlow and PyTorch have threads of their own, which would get in each other's way in one
process. The parent imports neither; it tells a child whose turn it is, and gets seconds back.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import traceback
from collections.abc import Iterator
from typing import Any

from benchmarks import harness

__all__ = ["AbsentError", "Child"]


class AbsentError(Exception):
    """A contender that is not installed; the message says what is missing."""


class Child:
    """A process that makes contenders of one module, and runs their turns.

    Args:
      module: Module of contenders: functions that return a callable without arguments, warm. Its
        `use_threads(n)` is called first.
      threads: Number of threads that the module may use.

    Raises:
      AbsentError: The module, or what it needs, cannot be imported.
    """

    def __init__(self, module: str, threads: int):
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # no lines on devices between those on progress
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, module, threads), daemon=True)
        self._process.start()
        theirs.close()
        self._num_made = 0
        try:
            self._receive()
        except BaseException:
            self.close()
            raise

    def call(self, function: str, **kwargs) -> Any:
        """Calls a function of the module in the child; arguments and result are pickled."""
        return self._ask("call", function, kwargs)

    def contender(self, function: str, **kwargs) -> harness.Turn:
        """Has the child make a contender, and returns what runs its turns."""
        key = self._num_made
        self._num_made += 1
        self._ask("make", key, function, kwargs)
        return lambda num_calls: self._ask("turn", key, num_calls)

    def close(self) -> None:
        """Ends the process."""
        self._pipe.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _ask(self, *request) -> Any:
        self._pipe.send(request)
        return self._receive()

    def _receive(self) -> Any:
        try:
            kind, answer = self._pipe.recv()
        except EOFError:
            self._process.join(timeout=10)
            raise RuntimeError(
                f"A benchmark's process ended with exit code {self._process.exitcode}; -9 often "
                "means that memory ran out."
            ) from None
        if kind == "absent":
            raise AbsentError(answer)
        if kind == "error":
            raise RuntimeError(f"In a benchmark's process:\n{answer}")
        return answer


def _serve(pipe, module_name: str, threads: int) -> None:
    """What the child does until the pipe is closed."""
    try:
        with _quiet():
            module = importlib.import_module(module_name)
        module.use_threads(threads)
    except ImportError as error:
        pipe.send(("absent", str(error)))
        return
    except Exception:
        pipe.send(("error", traceback.format_exc()))
        return
    pipe.send(("ready", None))
    contenders = {}
    while True:
        try:
            request = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            pipe.send(("answer", _answer(module, contenders, *request)))
        except ImportError as error:
            pipe.send(("absent", str(error)))
        except Exception:
            pipe.send(("error", traceback.format_exc()))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what libraries write to stderr as they are loaded, such as that there is no GPU."""
    stderr = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _answer(module, contenders: dict, kind: str, *details) -> Any:
    if kind == "turn":
        key, num_calls = details
        return harness.time_calls(contenders[key], num_calls)
    *key, function, kwargs = details
    result = getattr(module, function)(**kwargs)
    if kind == "call":
        return result
    contenders[key[0]] = result
    return None
