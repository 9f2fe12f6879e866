"""A command in a process of its own that ends when the process that started it ends.

    python -m examples.common.child MODULE [ARGUMENT ...]

runs `python -m MODULE`. Its standard input is a pipe that the parent holds open and never writes
to. When the parent is gone, even killed, the pipe is at its end, and the child exits. Whatever it
runs must be able to resume after that, as after being killed itself.
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
      module: The command.
      arguments: Its arguments.
      **kwargs: Further arguments of `subprocess.Popen`.

    Returns:
      child: Keep it while the child is to live, then close its `stdin`.
    """
    command = [sys.executable, "-m", __name__, module, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, **kwargs)


def _end_with_parent() -> None:
    while os.read(0, 1):  # nothing is ever written: this waits for the end
        pass
    os.write(2, b"error: the process that started this one is gone\n")
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
