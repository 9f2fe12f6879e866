"""Settings for the CPU cores that training commands use."""

from __future__ import annotations

import os

# Two parts can run in parallel: two chunks of an evaluation, or the encoder and the proposals in a
# training step of a resampled prior.
AT_A_TIME = 2


def share(cores: int | None = None) -> None:
    """Lets TensorFlow run two operations in parallel, each on half of the cores.

    By default, TensorFlow runs each operation on all cores. With networks as small as these, the
    threads of different operations then compete. Call this before any computation; later calls
    have no effect. `TF_NUM_INTRAOP_THREADS` in the environment overrides it.

    Args:
      cores: Number of cores to share. By default all available cores.
    """
    threads = max(1, (cores or available()) // AT_A_TIME)
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(threads))


def available() -> int:
    """Returns the number of cores that this process may use, or of all cores if unknown."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
