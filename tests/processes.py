"""Python processes for tests that need a separate one."""

import os
import subprocess
import sys
import textwrap


def run_python(code: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess:
    """Runs `code` in a new Python process and returns the completed process.

    Args:
      code: Python source; common indentation is removed.
      check: Whether a non-zero exit code fails the test and shows the output of the process.
      **environment: Environment variables to set.
    """
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment},
        check=False,
    )
    if check:
        assert process.returncode == 0, process.stdout + process.stderr
    return process
