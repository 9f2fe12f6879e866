"""A `LogNormalizer` as plain values, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfp_lars.normalizer import LogNormalizer
from tfp_lars.normalizer.batch_sums import Sums
from tfp_lars.normalizer.run import State

__all__ = ["fields", "from_fields"]

_COUNTS = ("num_samples", "num_values", "degrees_of_freedom")
_ARRAYS = ("log_z", "stderr", "effective_samples")


def fields(estimate: LogNormalizer) -> dict[str, Any]:
    """Returns all fields by name: numbers, strings, arrays, a dictionary for `state`, or `None`.

    `importance_distribution` stays a distribution.
    """
    values = {field.name: getattr(estimate, field.name) for field in dataclasses.fields(estimate)}
    for name in (*_COUNTS, *_ARRAYS):
        convert = int if name in _COUNTS else np.asarray
        values[name] = None if values[name] is None else convert(values[name])
    if values["state"] is not None:
        values["state"] = _fields_of_state(estimate.state)
    return values


def from_fields(values: Mapping[str, Any]) -> LogNormalizer:
    """Returns the estimate with these fields. Fields that are missing have their defaults.

    Args:
      values: Result of `fields`. Arrays may be tensors.
    """
    values = dict(values)
    for name in _ARRAYS:
        if values.get(name) is not None:
            values[name] = np.asarray(values[name])[()]
    if values.get("state") is not None:
        values["state"] = _state(values["state"])
    return LogNormalizer(**values)


def _fields_of_state(state: State) -> dict[str, Any]:
    # One array for each kind of sum, with the shape [replicates, kinds of value] + batch.
    sums = {
        name: np.array([[getattr(part, name) for part in parts] for parts in state.sums])
        for name in Sums._fields
    }
    return {
        "seed": np.asarray(state.seed),
        "num_samples": int(state.num_samples),
        "num_batches": int(state.num_batches),
        "fingerprint": np.asarray(state.fingerprint),
        "sums": sums,
    }


def _state(values: Mapping[str, Any]) -> State:
    sums = [np.asarray(values["sums"][name]) for name in Sums._fields]
    replicates, kinds = sums[0].shape[:2]
    return State(
        seed=np.asarray(values["seed"]),
        num_samples=values["num_samples"],
        num_batches=values["num_batches"],
        sums=tuple(
            tuple(Sums(*(array[i, k] for array in sums)) for k in range(kinds))
            for i in range(replicates)
        ),
        fingerprint=np.asarray(values["fingerprint"]),
    )
