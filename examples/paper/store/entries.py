"""Files of the store: one JSON with the metrics of a run, and one file with values of each image.

    results/mnist-vae-lars-30000-s0.json
    results/mnist-vae-lars-30000-s0.npz

The name consists of the name of the configuration, the number of steps and the seed. The JSON holds
the entries of `metrics.json` that describe the run and where it was made, and no paths. The other
file holds the NLL and the bound of each test image, rounded to hundredths of a nat. Every file is
checked when it is read. Imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import io
import math
import pathlib
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from examples.common import files
from examples.common.command_line import UserError
from examples.vae.config import Config, Evaluation
from examples.vae.run_directory import RunDirectory, check_metrics, evaluation_of

FORMAT = 1
_PLAIN = re.compile(r"[^<>|`!\[\]\x00-\x1f\x7f]*")  # no tables, code or links in Markdown or HTML
UNIT = 0.01  # nats; values of each image are integer multiples of it

PER_IMAGE = ("nll", "elbo")
# Entries of `metrics.json` that are stored. The others name files on the machine of the run.
FIELDS = frozenset(
    {
        "nll", "nll_stderr", "elbo", "elbo_stderr", "kl", "kl_stderr", "recons", "recons_stderr",
        "stderr_from_z", "z", "log_z_stderr", "expected_attempts", "steps", "num_parameters",
        "num_test_images", "networks", "images", "config", "revision", "versions", "machine",
        "training_seconds", "evaluation_seconds",
        *(field.name for field in dataclasses.fields(Evaluation)),
    }
)  # fmt: skip
OPTIONAL_FIELDS = frozenset({"z_method", "z_warning"})  # which older entries do not have
CONFIG_FIELDS = frozenset({field.name for field in dataclasses.fields(Config)} - {"base"})
# Settings that may differ between two evaluations of the same weights.
NOT_IDENTITY = frozenset({"checkpoint_every", "evaluation"})
# Where and when a run was made. A repeated run with the same numbers may differ in these.
CIRCUMSTANCES = frozenset(
    {"evaluation_seconds", "machine", "revision", "training_seconds", "versions"}
)


class NotAddedError(UserError):
    """A run or a figure is not for the store: it is not finished, or its budget is too small."""


def name_of(config: Config) -> str:
    """Returns the name of a run in the store."""
    return f"{config.name}-{config.steps}-s{config.seed}"


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
    """A run of the store.

    Attributes:
      metrics: Content of the JSON, which has the form of `metrics.json` without some entries.
      hundredths: NLL and bound of each test image in hundredths of a nat, integers, `[N]`.
    """

    metrics: Mapping
    hundredths: Mapping[str, np.ndarray]

    @property
    def config(self) -> Config:
        return Config.from_json(self.as_metrics()["config"])

    @property
    def name(self) -> str:
        return name_of(self.config)

    def as_metrics(self) -> dict:
        """Returns the metrics in the form of `metrics.json`. The path of the base is not stored."""
        return {**self.metrics, "config": {**self.metrics["config"], "base": None}}

    def per_image(self, name: str) -> np.ndarray:
        """Returns `nll` or `elbo` of each test image in nats, `[N]`."""
        return UNIT * self.hundredths[name]

    def check(self) -> None:
        """Checks the entry.

        Raises:
          UserError: A field is missing or unknown, or parts of the entry do not match each other.
        """
        if self.metrics.get("format") != FORMAT:
            raise UserError(
                f"it has the format {self.metrics.get('format')!r}, expected {FORMAT}: a newer "
                "version of the examples may have written it"
            )
        _check_fields("", self.metrics, FIELDS | {"format"}, OPTIONAL_FIELDS)
        try:
            check_metrics(self.metrics)
        except ValueError as error:
            raise UserError(str(error)) from None
        # Pages do not show the warning, which has code.
        for text in _texts({k: v for k, v in self.metrics.items() if k != "z_warning"}):
            if not _PLAIN.fullmatch(text):
                raise UserError(f"it has {text!r}, which a page cannot show as it is")
        _check_fields(" of config", self.metrics["config"], CONFIG_FIELDS | {"version"})
        config, steps = self.config, self.metrics["steps"]
        if steps != config.steps and not config.stops_early:
            raise UserError(f"it has {steps!r} steps, but its configuration {config.steps}")
        if evaluation_of(self.metrics) != config.evaluation:
            raise UserError("its evaluation is not that of its configuration")
        if set(self.hundredths) != set(PER_IMAGE):
            raise UserError(f"the values of each image are {sorted(self.hundredths)}")
        count = self.metrics["num_test_images"]
        for name, values in self.hundredths.items():
            if values.shape != (count,) or values.dtype.kind != "i":
                raise UserError(
                    f"{name} of each image is {values.dtype} of shape {values.shape}, expected "
                    f"integers of shape ({count},)"
                )
            mean = UNIT * float(values.mean())
            # Each value is off by half a unit at most, and so is the mean.
            if not abs(mean - self.metrics[name]) <= 0.5001 * UNIT:
                raise UserError(
                    f"the mean {name} of the images is {mean:.4f}, but {name} is "
                    f"{self.metrics[name]:.4f}"
                )
            spread = UNIT * float(values.std(ddof=1)) / math.sqrt(count) if count > 1 else math.nan
            stderr = math.hypot(spread, self.metrics["stderr_from_z"])
            if not math.isclose(stderr, self.metrics[f"{name}_stderr"], rel_tol=0.02, abs_tol=UNIT):
                raise UserError(
                    f"the images and stderr_from_z give {stderr:.4f} as the standard error of the "
                    f"mean {name}, but {name}_stderr is {self.metrics[f'{name}_stderr']:.4f}"
                )
        self._check_ranges()

    def _check_ranges(self) -> None:
        """Checks the numbers that the values of each image do not determine."""
        metrics, resampled = self.metrics, self.config.is_resampled
        bound = metrics["recons"] - metrics["kl"]
        if not math.isclose(bound, metrics["elbo"], abs_tol=1e-3):
            raise UserError(f"recons - kl is {bound:.4f}, but elbo is {metrics['elbo']:.4f}")
        for name in ("z", "log_z_stderr", "expected_attempts"):
            if (metrics[name] is None) == resampled:
                prior = "a resampled prior" if resampled else "a prior that is not resampled"
                raise UserError(f"{name} is {metrics[name]}, but it has {prior}")
        ranges = {"z": (0.0, 1.0), "expected_attempts": (1.0, math.inf)}
        names = (*(f"{name}_stderr" for name in ("nll", "elbo", "kl", "recons", "log_z")),)
        names += ("stderr_from_z", "training_seconds", "evaluation_seconds")
        for name, (least, most) in (dict.fromkeys(names, (0.0, math.inf)) | ranges).items():
            if metrics[name] is not None and not least <= metrics[name] <= most:
                raise UserError(f"{name} is {metrics[name]}, expected {least} to {most}")

    def difference(self, other: Entry) -> str:
        """Returns in words what differs between two entries; empty if only circumstances do."""
        mine, others = ({**e.metrics, **e.metrics["config"]} for e in (self, other))
        names = sorted((mine.keys() | others.keys()) - {"config"} - CIRCUMSTANCES)
        different = [n for n in names if mine.get(n) != others.get(n)]
        for name in PER_IMAGE:
            if not np.array_equal(self.hundredths[name], other.hundredths[name]):
                different.append(f"{name} of each image")
        return ", ".join(
            f"{n}={others[n]!r} there, {mine[n]!r} here" if n in mine and n in others else n
            for n in different
        )


def _texts(content: object) -> Iterator[str]:
    """Yields all strings in JSON, also the names of entries."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for part in [*content, *content.values()] if isinstance(content, dict) else content:
            yield from _texts(part)


def _check_fields(
    where: str, found: Mapping, expected: frozenset[str], optional: frozenset[str] = frozenset()
) -> None:
    unknown = sorted(found.keys() - expected - optional)
    missing = sorted(expected - found.keys())
    if unknown:
        raise UserError(
            f"it has unknown fields{where}: {', '.join(unknown)}. A newer version of the examples "
            "may have written it"
        )
    if missing:
        raise UserError(f"it lacks fields{where}: {', '.join(missing)}")


def from_run(path: pathlib.Path) -> Entry:
    """Reads the directory of a finished run.

    Raises:
      NotAddedError: The run is not finished.
      UserError: The files of the run do not match each other, or lack something.
    """
    run = RunDirectory(path)
    if run.failure_file.exists() or not run.metrics_file.exists():
        raise NotAddedError("it is not finished")
    whole = run.metrics()  # `None` if it is not valid, which the checks below explain
    if whole is not None and not run.is_of_final_weights(whole, Config.from_json(whole["config"])):
        raise NotAddedError("it is not finished: its metrics are those of an earlier step")
    metrics, config = files.read_json(run.metrics_file), files.read_json(run.config_file)
    # The digest of the images stands beside the configuration in `metrics.json`.
    if not isinstance(metrics.get("config"), dict):
        raise UserError("metrics.json has no configuration")
    used = {"images": metrics.get("images"), **metrics["config"]}
    names = (CONFIG_FIELDS - NOT_IDENTITY) | {"version", "images"}
    different = sorted(name for name in names if used.get(name) != config.get(name))
    if different:
        raise UserError(
            f"metrics.json is of another configuration than config.json: {', '.join(different)}"
        )
    used = {name: value for name, value in used.items() if name not in ("base", "images")}
    found = {name: value for name, value in metrics.items() if name in FIELDS | OPTIONAL_FIELDS}
    # The settings of the evaluation that made the metrics, which may have been repeated.
    used["evaluation"] = {f.name: metrics.get(f.name) for f in dataclasses.fields(Evaluation)}
    entry = Entry(
        {"format": FORMAT, **found, "config": used},
        {name: _hundredths(run.path / f"test_{name}.npy") for name in PER_IMAGE},
    )
    entry.check()
    return entry


def _hundredths(path: pathlib.Path) -> np.ndarray:
    try:
        values = files.load_numbers(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path.name} cannot be read ({error})") from None
    found = np.rint(values / UNIT).astype(np.int32)
    small = found.astype(np.int16)  # takes less space, and is enough up to 327 nats
    return small if np.array_equal(small, found) else found


def read(path: pathlib.Path) -> Entry:
    """Reads and checks a JSON of the store and the values of each image beside it.

    Raises:
      UserError: Something is wrong with the files. The message names them.
    """
    try:
        entry = Entry(_read_json(path), _read_values(path.with_suffix(".npz")))
        entry.check()
        if entry.name != path.stem:
            raise UserError(f"its configuration is that of {entry.name}")
    except UserError as error:
        reason = str(error).rstrip(".")
        raise UserError(f"{path} is refused: {reason}.") from error
    return entry


def _read_json(path):
    try:
        content = files.parse_json(path)
    except (OSError, ValueError) as error:
        raise UserError(f"it cannot be read ({error})") from None
    if not isinstance(content, dict) or not isinstance(content.get("config", {}), dict):
        raise UserError("it is no description of a run")
    return content


def _read_values(path):
    try:
        # From memory, because NumPy leaves a broken file open.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except (
        OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        raise UserError(f"{path.name} cannot be read ({error})") from None


def write(entry: Entry, directory: pathlib.Path) -> None:
    """Writes the files of an entry. The JSON comes last, because it makes the entry complete."""
    path = directory / f"{entry.name}.json"
    packed = io.BytesIO()
    np.savez_compressed(packed, **entry.hundredths)
    with files.explained(directory):
        directory.mkdir(parents=True, exist_ok=True)
        files.write(path.with_suffix(".npz"), packed.getvalue())
        files.write_json(path, dict(sorted(entry.metrics.items())))
