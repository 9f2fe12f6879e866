"""What has become of a run, from the files in its directory, without TensorFlow."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Collection, Mapping

FINISHED = "finished"
TO_EVALUATE = "to evaluate"  # trained, but evaluated in another way
INTERRUPTED = "interrupted"
FAILED = "failed"
NOT_RUN = "not run"
REFUSED = "refused"  # the directory holds something else

FAILURE_FILE = "failure.json"


@dataclasses.dataclass(frozen=True)
class State:
    """What has become of a run.

    Attributes:
      kind: One of the constants above.
      told: The same for a reader, with the reason.
      metrics: If it is finished, what `metrics.json` holds.
    """

    kind: str
    told: str
    metrics: Mapping | None = None


def state_of(
    path: pathlib.Path, config: Mapping, evaluation: Mapping, ignore: Collection[str] = ()
) -> State:
    """Compares what is in a directory with what is wanted.

    Args:
      path: Directory of the run; need not exist.
      config: What `config.json` must say, `Config.to_json()`.
      evaluation: What `metrics.json` must say besides: `iwae_samples` and so on.
      ignore: Entries of the configuration that may be anything.

    Returns:
      state: A directory of another version or configuration is `REFUSED`.
    """
    config = json.loads(json.dumps(config))  # as it is after a way through a file
    found, metrics, failure = (
        _read(path / name) for name in ("config.json", "metrics.json", FAILURE_FILE)
    )
    compared = config.keys() - set(ignore)
    if found is not None:
        different = _different(config, found, compared)
        if different:
            return State(REFUSED, f"{path.name} holds a run of another configuration ({different})")
    if failure is not None:
        return State(FAILED, f"failed: {failure.get('message', 'no reason is known')}")
    if found is None:
        return State(NOT_RUN, "not run")
    step = last_step(path)
    if not metrics:
        if step is None:
            return State(NOT_RUN, "interrupted before the first checkpoint")
        done = step >= config["steps"]
        told = "trained, not evaluated" if done else f"interrupted at step {step:,}"
        return State(INTERRUPTED, told)
    different = _different(config, metrics.get("config", {}), compared)
    if different:
        return State(REFUSED, f"{path.name} has metrics of another configuration ({different})")
    different = _different(evaluation, metrics, evaluation.keys())
    if different:
        return State(TO_EVALUATE, f"evaluated in another way ({different})")
    return State(FINISHED, "finished", metrics)


def last_step(path: pathlib.Path) -> int | None:
    """Of the last checkpoint, if there is one."""
    names = (f.name for f in (path / "checkpoints").glob("ckpt-*.index"))
    steps = [int(m[1]) for name in names if (m := re.fullmatch(r"ckpt-(\d+)\.index", name))]
    return max(steps, default=None)


def _different(wanted, found, names) -> str:
    told = []
    for name in sorted(names):
        if wanted.get(name) != found.get(name):
            told.append(f"{name}={found.get(name)!r} there, {wanted.get(name)!r} here")
    return ", ".join(told)


def _read(path):
    """A file's content, `None` if there is no file; one that cannot be read is as good as empty."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
