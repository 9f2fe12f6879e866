"""Where a run keeps its configuration and what came of it; imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Mapping

from examples.common import files, revision
from examples.common.command_line import UserError
from examples.vae.config import Config, Evaluation

FINISHED = "finished"
TO_EVALUATE = "to evaluate"  # trained, but not evaluated as fully as wanted
INTERRUPTED = "interrupted"
FAILED = "failed"
NOT_RUN = "not run"
REFUSED = "refused"  # the directory holds something else


@dataclasses.dataclass(frozen=True)
class State:
    """State of a run.

    Attributes:
      kind: One of the constants above.
      reason: The same for a reader, with the reason.
      metrics: If it is finished, what `metrics.json` holds.
    """

    kind: str
    reason: str
    metrics: Mapping | None = None


class RunDirectory:
    """The directory of a run."""

    def __init__(self, path: os.PathLike | str):
        self.path = pathlib.Path(path)

    @property
    def config_file(self) -> pathlib.Path:
        return self.path / "config.json"

    @property
    def metrics_file(self) -> pathlib.Path:
        return self.path / "metrics.json"

    @property
    def failure_file(self) -> pathlib.Path:
        return self.path / "failure.json"

    def claim(self, config: Config, images: str) -> None:
        """Makes the directory this configuration's, or refuses if it is another's.

        What does not decide the weights, such as the evaluation, may change from claim to claim;
        `config.json` has the last.

        Args:
          config: Configuration of the run.
          images: Digest of the data. It belongs to the run: a fixed binarization of one's own and
            that of a download are called the same, and a resumed run must not change from one to
            the other.
        """
        with files.explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            if not self.config_file.exists():
                content = {**config.identity(), **config.to_json(), "images": images}
                content["revision"] = revision.revision()
                files.write_json(self.config_file, content)
        found = self.read_config()
        different = _different({**config.identity(), "images": images}, found)
        if different:
            longer = " To train it longer, use --continue-from with it."
            raise UserError(
                f"--out {self.path} holds a run of another configuration ({different}): name "
                "another directory, or delete that one." + (longer if "steps=" in different else "")
            )
        if _different(config.to_json(), found):
            with files.explained(self.path):
                files.write_json(self.config_file, {**found, **config.to_json()})

    def read_config(self) -> dict:
        """What `config.json` holds."""
        if not self.config_file.exists():
            raise UserError(f"{self.path} holds no run: there is no config.json in it.")
        return files.read_json(self.config_file)

    def config(self) -> Config:
        """The configuration of the run that is here."""
        found = self.read_config()
        if found.get("version") != revision.version():
            raise UserError(
                f"{self.path} was made by version {found.get('version')} of tfp_lars, this is "
                f"{revision.version()}: train it again, or install that version."
            )
        return Config.from_json(found)

    @property
    def images(self) -> str:
        """Digest of the images that it was trained on."""
        return self.read_config()["images"]

    def metrics(self) -> dict | None:
        """What `metrics.json` holds; `None` if there is none, or it cannot be read."""
        return _read(self.metrics_file) or None

    def last_step(self) -> int | None:
        """Step of the last checkpoint, if there is one."""
        names = (f.name for f in (self.path / "checkpoints").glob("ckpt-*.index"))
        steps = [int(m[1]) for name in names if (m := re.fullmatch(r"ckpt-(\d+)\.index", name))]
        return max(steps, default=None)

    def state(self, config: Config, images: str | None = None) -> State:
        """Compares what is here with what is wanted.

        Args:
          config: The run that is wanted. If it is post-hoc and has no `base_weights`, any will do.
          images: Digest of the data that it would be trained on now; `None` if that is unknown.

        Returns:
          state: A directory of another version, configuration or data set is `REFUSED`.
        """
        wanted = config.identity()
        if images is not None:
            wanted["images"] = images
        if config.post_hoc and config.base_weights is None:
            del wanted["base_weights"]
        found, failure = _read(self.config_file), _read(self.failure_file)
        if found is not None:
            different = _different(wanted, found)
            if different:
                text = f"{self.path.name} holds a run of another configuration ({different})"
                return State(REFUSED, text)
        if failure is not None:
            return State(FAILED, f"failed: {failure.get('message', 'no reason is known')}")
        if found is None:
            return State(NOT_RUN, "not run")
        metrics = self.metrics()
        if metrics is None:
            return self._unfinished(config)
        different = _different(
            {**wanted, "images": found.get("images")},
            {**metrics.get("config", {}), **metrics},
        )
        if different:
            text = f"{self.path.name} has metrics of another configuration ({different})"
            return State(REFUSED, text)
        if not evaluation_of(metrics).covers(config.evaluation):
            text = f"evaluated with {evaluation_of(metrics)}, wanted {config.evaluation}"
            return State(TO_EVALUATE, text)
        return State(FINISHED, "finished", metrics)

    def _unfinished(self, config):
        step = self.last_step()
        if step is None:
            return State(NOT_RUN, "interrupted before the first checkpoint")
        done = step >= config.steps
        reason = "trained, not evaluated" if done else f"interrupted at step {step:,}"
        return State(INTERRUPTED, reason)


def evaluation_of(metrics: Mapping) -> Evaluation:
    """How fully a model was evaluated, from its `metrics.json`."""
    names = [field.name for field in dataclasses.fields(Evaluation)]
    return Evaluation(**{name: metrics[name] for name in names})


def _different(wanted: Mapping, found: Mapping) -> str:
    """What is wanted and not there, in one line; empty if nothing."""
    wanted = json.loads(json.dumps(wanted))  # tuples become lists, as in a file
    return ", ".join(
        f"{name}={found.get(name)!r} there, {wanted[name]!r} here"
        for name in sorted(wanted)
        if wanted[name] != found.get(name)
    )


def _read(path):
    """The content of a file, `None` if there is no file, `{}` if it cannot be read."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
