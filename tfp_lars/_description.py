"""Distributions as JSON values and arrays. `_rebuilding` builds them again.

A description names classes of TFP, of Keras and of this package, and the arguments of their
constructors. Nothing else can be named, so that a description from an unknown source executes no
code. Arrays are listed separately, by their path in the description.
"""

from __future__ import annotations

import collections
import inspect
import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _network_config, _saved_estimate, _shared_parts
from tfp_lars._describable import describable, kind_and_name
from tfp_lars.normalizer import LogNormalizer, MovingAverage
from tfp_lars.normalizer.gaussian_mixture import GaussianMixture
from tfp_lars.resampled import Resampled

__all__ = ["Describer", "inlined", "short_name"]

tfd = tfp.distributions

_REMEDY = (
    "Save its variables with `tf.train.Checkpoint(dist=dist)` instead, or with "
    "`model.save_weights('model.weights.h5')` in a Keras model, and restore them into a "
    "distribution that is built in the same way."
)


class Describer:
    """Describes a distribution.

    Args:
      dist: A `Resampled`, or a distribution of TFP, whose parameters are numbers, arrays,
        variables, distributions and bijectors of TFP, Keras 3 networks, or proposals of this
        package.
      for_model: Whether the description is for a Keras model. If Keras is saving this model, parts
        with variables get the ids by which Keras finds objects that several layers share.

    Attributes:
      config: JSON values.
      arrays: Values of tensors and variables by path.
    """

    def __init__(self, dist: tfd.Distribution, *, for_model: bool = False):
        self._has_ids = for_model and _shared_parts.are_found()
        self.arrays: dict[str, np.ndarray] = {}
        self._paths: dict[int, str] = {}
        self._kept: list[Any] = []  # an `id` is unique only while its object lives
        self._saved: dict[int, str] = {}  # paths by the id of the variable
        self.config = self._describe(dist, "dist")
        missing = [v for v in dist.variables if id(v) not in self._saved]
        if missing:
            raise ValueError(
                f"The distribution {dist.name!r} has {len(missing)} variables that are not among "
                f"its constructor arguments, such as {missing[0].name!r}. {_REMEDY}"
            )

    def _describe(self, value: Any, path: str) -> Any:
        # TFP takes the type of a NumPy value, but not that of a Python number, for its own.
        # `np.float64` is a subclass of `float`.
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in "OSU":
            return {"kind": "array", **self._array(value, path), "numpy": True}
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            text = float.__repr__(value)  # subclasses may have another one
            return float(value) if math.isfinite(value) else {"kind": "float", "value": text}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            raise ValueError(
                f"A {type(value).__name__} ({path}) is a named tuple, a class of your own, and "
                "cannot be saved. Pass a dictionary or a plain tuple instead."
            )
        if isinstance(value, (list, tuple)):
            items = [self._describe(item, f"{path}.{i}") for i, item in enumerate(value)]
            return {"kind": "tuple" if isinstance(value, tuple) else "list", "items": items}
        if isinstance(value, dict):
            other = [key for key in value if not isinstance(key, str)]
            if other:
                raise ValueError(
                    f"The key {other[0]!r} in a dictionary ({path}) cannot be saved. Use strings "
                    "as keys."
                )
            items = {key: self._describe(item, f"{path}.{key}") for key, item in value.items()}
            is_ordered = isinstance(value, collections.OrderedDict)
            return {"kind": "ordered_dict" if is_ordered else "dict", "items": items}
        if isinstance(value, (tf.DType, np.dtype)) or _is_numpy_type(value):
            dtype: Any = value
            return {"kind": "dtype", "name": tf.as_dtype(dtype).name}
        if isinstance(value, tf.TensorShape):
            return {"kind": "shape", "value": value.as_list()}
        if isinstance(value, LogNormalizer):
            return self._estimate(value, path)
        if isinstance(value, (np.ndarray, np.generic)) or _is_plain_tensor(value):
            return {"kind": "array", **self._array(value, path)}
        if id(value) in self._paths:
            return {"kind": "same", "path": self._paths[id(value)]}
        described = self._describe_object(value, path)
        self._paths[id(value)] = path
        self._kept.append(value)
        if self._has_ids:
            _shared_parts.add_id(described, value)
        return {**described, "path": path}

    def _describe_object(self, value: Any, path: str) -> dict[str, Any]:
        """Describes what may occur at several places, where it must stay the same object."""
        if isinstance(value, tf.Variable):
            if value.constraint is not None:
                raise ValueError(
                    f"The variable {value.name!r} ({path}) has a constraint, which is code and "
                    "cannot be saved. Pass a `tfp.util.TransformedVariable`, whose bijector keeps "
                    f"its value in the allowed range. {_REMEDY}"
                )
            return {"kind": "variable", **self._variable(value, path), "name": short_name(value)}
        if isinstance(value, tfp.util.TransformedVariable):
            return {
                "kind": "transformed_variable",
                "variable": self._describe(value.pretransformed_input, f"{path}.variable"),
                "bijector": self._describe(value.bijector, f"{path}.bijector"),
                "name": value.name,
            }
        if isinstance(value, MovingAverage):
            return self._moving_average(value, path)
        if isinstance(value, keras.Layer):
            return self._network(value, path)
        kind, name = kind_and_name(type(value))
        if name is None:
            raise ValueError(
                f"A distribution with {_text(value)} cannot be described ({path}), because it is "
                f"your own code or has no configuration. {_REMEDY}"
            )
        if hasattr(value, "get_config") and not isinstance(value, tfd.Distribution):
            weights = [self._variable(v, f"{path}.{i}") for i, v in enumerate(value.variables)]
            return {"kind": kind, "name": name, "config": value.get_config(), "weights": weights}
        return {"kind": kind, "name": name, "parameters": self._parameters(value, path)}

    def _parameters(self, value: Any, path: str) -> dict[str, Any]:
        given = dict(value.parameters)
        if isinstance(value, Resampled) and value.estimate is not None:
            given["normalizer"] = value.estimate
            self._saved[id(value.normalizer)] = path
        described = {}
        for name, parameter in inspect.signature(type(value).__init__).parameters.items():
            # Functions that are defaults are code of TFP and need no description.
            is_default = callable(parameter.default) and given.get(name) is parameter.default
            if name in given and name != "self" and not is_default:
                described[name] = self._describe(given[name], f"{path}.{name}")
        return described

    def _estimate(self, estimate: LogNormalizer, path: str) -> dict[str, Any]:
        fields = _saved_estimate.fields(estimate)
        before = dict(self.arrays), dict(self._paths), dict(self._saved)
        try:
            self._describe(fields["importance_distribution"], path)
        except ValueError:
            # It need not be known: a continued estimate fits another one.
            fields["importance_distribution"] = None
        self.arrays, self._paths, self._saved = before
        described = {
            name: self._describe(value, f"{path}.{name}") for name, value in fields.items()
        }
        return {"kind": "estimate", **described}

    def _moving_average(self, average: MovingAverage, path: str) -> dict[str, Any]:
        return {
            "kind": "moving_average",
            "num_samples": average.num_samples,
            "decay": average.decay,
            "score_function": average.score_function,
            "same_draws": average.same_draws,
            "name": average.name,
            "weights": {
                short_name(v): self._variable(v, f"{path}.{short_name(v)}")
                for v in average.variables
            },
        }

    def _network(self, network: keras.Layer, path: str) -> dict[str, Any]:
        try:
            serialize = keras.saving.serialize_keras_object
            config: Any = (_shared_parts.with_ids if self._has_ids else serialize)(network)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise ValueError(
                f"The Keras network {network.name!r} ({path}) has no configuration: {error} Give "
                "its class a `get_config` and the decorator "
                "`@keras.saving.register_keras_serializable()`."
            ) from error
        config = _network_config.without_compilation(config)
        try:
            _network_config.check(config)
        except ValueError as error:
            raise ValueError(
                f"The Keras network {network.name!r} ({path}) could not be loaded again. {error} "
                "Replace the layer by a class of your own with this decorator."
            ) from error
        weights = []
        for i, v in enumerate(network.variables):
            variable = v.value if isinstance(v, keras.Variable) else v
            weights.append(self._variable(variable, f"{path}.{i}"))
        return {"kind": "keras", "config": config, "weights": weights}

    def _variable(self, variable: tf.Variable, path: str) -> dict[str, Any]:
        first = self._saved.setdefault(id(variable), path)
        if first != path:
            raise ValueError(
                f"The variable {variable.name!r} belongs to two parts of the distribution, {first} "
                f"and {path}, which would have separate variables after loading. {_REMEDY}"
            )
        return {**self._array(variable, path), "trainable": variable.trainable}

    def _array(self, value: Any, path: str) -> dict[str, Any]:
        dtype = tf.as_dtype(value.dtype) if hasattr(value, "dtype") else tf.float64
        if dtype == tf.bfloat16:  # NumPy cannot store it; its values are also values of float32
            value = tf.cast(value, tf.float32)
        self.arrays[path] = np.asarray(value)
        return {"array": path, "dtype": dtype.name}


def inlined(config: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Returns a description with the values of arrays in it, but not the weights of networks."""
    if isinstance(config, list):
        return [inlined(item, arrays) for item in config]
    if not isinstance(config, dict):
        return config
    new = {
        key: inlined(value, arrays)
        for key, value in config.items()
        if not (key == "weights" and "kind" in config)
    }
    if isinstance(config.get("array"), str) and config["array"] in arrays:
        new["array"] = arrays[config["array"]].tolist()
    return new


def _is_numpy_type(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, np.generic)


def _is_plain_tensor(value: Any) -> bool:
    return isinstance(value, tf.Tensor) and hasattr(value, "numpy")


def short_name(variable: tf.Variable) -> str:
    """Returns the name of a variable without its scopes."""
    return variable.name.split(":")[0].split("/")[-1]


def _text(value: Any) -> str:
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    return f"a {type(value).__name__}" + (f" ({name!r})" if isinstance(name, str) else "")


describable("Resampled")(Resampled)
describable("GaussianMixture")(GaussianMixture)  # of importance sampling for Z
