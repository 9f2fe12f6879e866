"""The workers of a training on several machines, as `TF_CONFIG` describes them.

Imports no TensorFlow, which reads `TF_CONFIG` when it is imported.
"""

from __future__ import annotations

import json
import os
from typing import Any

from examples.common.command_line import UserError
from examples.vae.config import Config

MIRRORED, MULTI_WORKER = "mirrored", "multi_worker"
STRATEGIES = (MIRRORED, MULTI_WORKER)

_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)


def check(strategy: str, config: Config) -> None:
    """Checks that a run can be trained with a strategy.

    Args:
      strategy: One of `STRATEGIES`.
      config: Configuration of the run.

    Raises:
      UserError: Early stopping, or no usable `TF_CONFIG`.
    """
    if config.stops_early:
        raise UserError(
            f"--strategy cannot train on {config.dataset}, whose training stops early by the "
            "validation NLL: drop --strategy."
        )
    if strategy == MULTI_WORKER:
        is_chief()


def is_chief() -> bool:
    """Returns whether this process is the first worker, which writes all files.

    Raises:
      UserError: `TF_CONFIG` does not describe workers.
    """
    try:
        found: Any = json.loads(os.environ.get("TF_CONFIG", ""))
        cluster, task = found["cluster"], found["task"]
        kind, index = task["type"], int(task["index"])
        valid = set(cluster) <= {"chief", "worker"} and 0 <= index < len(cluster[kind])
    except (ValueError, KeyError, TypeError):
        valid = False
    if not valid:
        raise UserError(
            "--strategy multi_worker needs the environment variable TF_CONFIG on each worker, "
            f"for example {_EXAMPLE}; got {os.environ.get('TF_CONFIG')!r}."
        )
    return index == 0 and (kind == "chief" or "chief" not in cluster)
