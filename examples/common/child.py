"""Runs a command in a child process that ends when its parent ends.

    python -m examples.common.child MODULE [ARGUMENT ...]

runs `python -m MODULE`. Its standard input is a pipe that the parent holds open and never writes
to. When the parent ends, even if it is killed, the pipe closes and the child exits at once. The
module must be able to resume after such an exit.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Sequence


def start(module: str, arguments: Sequence[str], **kwargs) -> subprocess.Popen:
    """Starts `python -m module` as a child of this process.

    Args:
      module: Module to run.
      arguments: Command-line arguments of the module.
      **kwargs: Further arguments of `subprocess.Popen`.

    Returns:
      child: The child process. It exits when its `stdin` is closed or garbage collected.
    """
    command = [sys.executable, "-m", __name__, module, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, **kwargs)


def _end_with_parent() -> None:
    while os.read(0, 1):  # blocks until the parent closes the pipe
        pass
    os.write(2, b"error: the process that started this one is gone\n")
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
