"""Directory with the configuration and the results of a run. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import re
from collections.abc import Mapping

from examples.common import files, revision, schema
from examples.common.command_line import UserError
from examples.vae import stopping_rule
from examples.vae.config import Config, Evaluation

FINISHED = "finished"
TO_EVALUATE = "to evaluate"  # trained, but not evaluated with the wanted settings
INTERRUPTED = "interrupted"
FAILED = "failed"
NOT_RUN = "not run"
REFUSED = "refused"  # the directory belongs to another run

LAST, BEST = "checkpoints", "best"  # folders of checkpoints: the last, the best by validation NLL


# Types of the entries of `metrics.json` that are read.
_METRICS = {
    **dict.fromkeys(("nll", "elbo", "kl", "recons"), float),
    **dict.fromkeys(("nll_stderr", "elbo_stderr", "kl_stderr", "recons_stderr"), float),
    **dict.fromkeys(("z", "log_z_stderr", "expected_attempts"), float | None),
    "stderr_from_z": float,
    **dict.fromkeys(("training_seconds", "evaluation_seconds"), float | None),
    **dict.fromkeys(("steps", "num_parameters", "num_test_images"), int),
    **dict.fromkeys(("iwae_samples", "z_samples"), int),
    "test_images": int | None,
    **dict.fromkeys(("networks", "images", "revision"), str),
    "config": dict,
    "versions": dict[str, str],
    "machine": dict,
}


@dataclasses.dataclass(frozen=True)
class State:
    """State of a run.

    Attributes:
      kind: One of the constants of this module, such as `FINISHED`.
      reason: Description of the state, with the reason.
      metrics: Content of `metrics.json` if the run is finished, otherwise `None`.
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

    @property
    def validation_file(self) -> pathlib.Path:
        return self.path / "validation.json"

    @property
    def training_seconds(self) -> float:
        """Time spent on training up to the last checkpoint, over all resumptions."""
        found = (_read(self._timing_file) or {}).get("training_seconds")
        return found if isinstance(found, float) and math.isfinite(found) else 0.0

    @training_seconds.setter
    def training_seconds(self, seconds: float) -> None:
        files.write_json(self._timing_file, {"training_seconds": round(seconds, 1)})

    @property
    def _timing_file(self) -> pathlib.Path:
        return self.path / "timing.json"

    def claim(self, config: Config, images: str) -> None:
        """Assigns the directory to a configuration, or raises if it belongs to another one.

        Settings that do not determine the weights, such as the evaluation, may change between
        claims. `config.json` holds the most recent ones.

        Args:
          config: Configuration of the run.
          images: Digest of the data. It identifies the run, because different sources provide
            different images under the same name, and a resumed run must not change its images.

        Raises:
          UserError: The directory belongs to another configuration, or cannot be written.
        """
        self.check_links()
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
        """Returns the content of `config.json`."""
        if not self.config_file.exists():
            raise UserError(f"{self.path} holds no run: there is no config.json in it.")
        return files.read_json(self.config_file)

    def config(self) -> Config:
        """Returns the configuration of the run."""
        found = self.read_config()
        if found.get("version") != revision.version():
            raise UserError(
                f"{self.path} was made by version {found.get('version')} of tfp_lars, this is "
                f"{revision.version()}: train it again, or install that version."
            )
        return Config.from_json(found)

    @property
    def images(self) -> str:
        """Digest of the images that the run was trained on."""
        return str(self.read_config().get("images"))

    def metrics(self) -> dict | None:
        """Returns the content of `metrics.json`; `None` if it is missing or cannot be read."""
        found = _read(self.metrics_file)
        try:
            check_metrics(found or {})
            Config.from_json(found["config"])
        except (ValueError, UserError):
            return None
        return found

    def last_step(self) -> int | None:
        """Returns the step of the last checkpoint; `None` if there is none."""
        return max(saved_steps(self.path / LAST), default=None)

    def is_trained(self, config: Config) -> bool:
        """Returns whether the training of a configuration has ended here."""
        step = self.last_step()
        if step is None:
            return False
        if step >= config.steps:
            return True
        return config.stops_early and stopping_rule.has_stopped(
            stopping_rule.read(self.validation_file)
        )

    def is_of_final_weights(self, metrics: Mapping, config: Config) -> bool:
        """Returns whether metrics describe the end of the training, not an earlier step.

        Args:
          metrics: Content of `metrics.json`.
          config: Configuration of the run.
        """
        if not config.stops_early:
            return metrics["steps"] == config.steps
        best = max(saved_steps(self.path / BEST), default=None)
        if best is None:  # the checkpoints were deleted after the evaluation
            return True
        return metrics["steps"] == best and self._is_trained(config)

    def check_links(self) -> None:
        """Checks that no path in the directory leads out of it.

        Raises:
          UserError: There is a symbolic link. A training would write or delete files behind it.
        """
        for path in self.path.rglob("*"):
            if path.is_symlink():
                raise UserError(
                    f"{path} is a symbolic link, which may lead out of {self.path}: replace it by "
                    "a copy. The directory of the run as a whole may be a link."
                )

    def state(self, config: Config, images: str | None = None) -> State:
        """Compares the directory with a configuration.

        Args:
          config: Wanted configuration. If it is post-hoc without `base_weights`, any base matches.
          images: Digest of the data that a new run would use; `None` if unknown.

        Returns:
          state: State of the run; `REFUSED` for another version, configuration or data set.
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
            # Not `metrics["steps"]`, the step of the weights, which early stopping makes smaller.
            {**metrics["config"], "images": metrics["images"]},
        )
        if different:
            text = f"{self.path.name} has metrics of another configuration ({different})"
            return State(REFUSED, text)
        if not self.is_of_final_weights(metrics, config):
            return self._unfinished(config)
        if not evaluation_of(metrics).covers(config.evaluation):
            text = f"evaluated with {evaluation_of(metrics)}, wanted {config.evaluation}"
            return State(TO_EVALUATE, text)
        return State(FINISHED, "finished", metrics)

    def _unfinished(self, config):
        step = self.last_step()
        if step is None:
            return State(NOT_RUN, "interrupted before the first checkpoint")
        done = self._is_trained(config)
        reason = "trained, not evaluated" if done else f"interrupted at step {step:,}"
        return State(INTERRUPTED, reason)

    def _is_trained(self, config):
        try:
            return self.is_trained(config)
        except UserError:  # the validation NLLs cannot be read; training says so
            return False


def saved_steps(directory: pathlib.Path) -> list[int]:
    """Returns the steps of the checkpoints in a directory. TensorFlow writes the index last."""
    names = (file.name for file in directory.glob("ckpt-*.index"))
    return [int(m[1]) for name in names if (m := re.fullmatch(r"ckpt-(\d{1,18})\.index", name))]


def check_metrics(metrics: Mapping) -> None:
    """Checks that the entries of `metrics.json` are complete.

    Raises:
      ValueError: An entry is missing, or has another type.
    """
    schema.check(metrics, _METRICS)
    if (metrics["z"] is None) != (metrics["log_z_stderr"] is None):
        raise ValueError("z and log_z_stderr do not match")


def evaluation_of(metrics: Mapping) -> Evaluation:
    """Returns the settings of the evaluation that wrote these metrics."""
    names = [field.name for field in dataclasses.fields(Evaluation)]
    return Evaluation(**{name: metrics[name] for name in names})


def _different(wanted: Mapping, found: Mapping) -> str:
    """Returns the wanted entries that `found` lacks, in one line; empty if there are none."""
    wanted = json.loads(json.dumps(wanted))  # tuples become lists, as in a file
    return ", ".join(
        f"{name}={found.get(name)!r} there, {wanted[name]!r} here"
        for name in sorted(wanted)
        if wanted[name] != found.get(name)
    )


def _read(path):
    """Returns the content of a file, `None` if it is missing, `{}` if it cannot be read."""
    try:
        return files.load_json(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
