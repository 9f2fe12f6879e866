"""Child processes that run the contenders.

TensorFlow and PyTorch each have a thread pool, and the pools would compete within one process. The
parent process imports neither. It asks a child to run a turn and receives the seconds per call.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Iterator
from typing import Any

from benchmarks import harness

__all__ = ["AbsentError", "Child"]


class AbsentError(Exception):
    """Raised when a contender is not installed. The message names what is missing."""


class Child:
    """Child process that creates the contenders of one module and runs their turns.

    Args:
      module: Module of contenders: functions that return a warm callable without arguments. Its
        `use_threads(n)` is called first.
      threads: Number of threads that the module may use.

    Raises:
      AbsentError: If the module or one of its dependencies cannot be imported.
    """

    def __init__(self, module: str, threads: int):
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # keeps device messages out of the progress lines
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
        """Calls a function of the module in the child. Arguments and result are pickled."""
        return self._ask("call", function, kwargs)

    def contender(self, function: str, **kwargs) -> harness.Turn:
        """Creates a contender in the child and returns a function that runs its turns."""
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
                f"A benchmark process ended with exit code {self._process.exitcode}. Exit code -9 "
                "often means that memory ran out."
            ) from None
        if kind == "absent":
            raise AbsentError(answer)
        if kind == "error":
            raise RuntimeError(f"A benchmark process raised an error:\n{answer}")
        return answer


def _serve(pipe, module_name: str, threads: int) -> None:
    """Answers requests in the child until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
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
    """Hides messages that libraries write to stderr on import, such as a missing GPU."""
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
