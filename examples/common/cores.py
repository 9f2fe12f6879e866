"""How the commands that train use the cores of a CPU."""

from __future__ import annotations

import os

# Neither waits for the other: two chunks of an evaluation; in a training step of a resampled prior,
# the encoder and the proposals.
AT_A_TIME = 2


def share(cores: int | None = None) -> None:
    """Lets TensorFlow run two operations at a time, each on half of the cores.

    Its own way is each on all of them, and for networks as small as these the threads get in each
    other's way. To be called before anything is computed; later it changes nothing.
    `TF_NUM_INTRAOP_THREADS` in the environment overrides it.

    Args:
      cores: How many to share out; by default all that are available.
    """
    threads = max(1, (cores or available()) // AT_A_TIME)
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(threads))


def available() -> int:
    """How many cores this process may use, where the system tells, else how many there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
