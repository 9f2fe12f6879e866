"""Distributions from the JSON values and arrays of `_description`.

Only classes of TFP, of Keras and of this package are built, so that a description from an unknown
source executes no code.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _network_config, _saved_estimate, _shared_parts
from tfp_lars._describable import named_class
from tfp_lars._description import short_name
from tfp_lars.normalizer import MovingAverage

__all__ = ["Rebuilder"]

tfd = tfp.distributions


class Rebuilder:
    """Builds the distribution of a description.

    Args:
      arrays: Values by path; `None` if the description has them, and networks keep their initial
        weights.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray] | None = None):
        self._arrays = arrays
        self._objects: dict[str, Any] = {}
        self._weights: list[tuple[Callable[[], list[Any]], list[Any]]] = []

    def __call__(self, config: Any) -> tfd.Distribution:
        """Returns the distribution, with its weights."""
        dist = self._build(config)
        if not isinstance(dist, tfd.Distribution):
            raise ValueError("The description is not that of a distribution.")
        # Networks have variables only after the constructor of the distribution has called them.
        for variables, configs in self._weights:
            for variable, stored in zip(variables(), configs, strict=True):
                variable.assign(self._array(stored))
        return dist

    def _build(self, config: Any) -> Any:
        if not isinstance(config, dict):
            return config
        kind = config["kind"]
        if kind == "float":
            return float(config["value"])
        if kind in ("list", "tuple"):
            items = [self._build(item) for item in config["items"]]
            return tuple(items) if kind == "tuple" else items
        if kind in ("dict", "ordered_dict"):
            items = {key: self._build(item) for key, item in config["items"].items()}
            return items if kind == "dict" else collections.OrderedDict(items)
        if kind == "dtype":
            return tf.as_dtype(config["name"])
        if kind == "shape":
            return tf.TensorShape(config["value"])
        if kind == "array":
            value = tf.constant(self._array(config))
            # TFP treats the types of tensors and arrays differently. Older files do not have it.
            return value.numpy() if config.get("numpy") else value
        if kind == "estimate":
            # Older files have arrays without a kind here.
            fields = {
                key: self._array(item) if key in ("log_z", "stderr") else self._build(item)
                for key, item in config.items()
                if key != "kind"
            }
            return _saved_estimate.from_fields(fields)
        if kind == "same":
            return self._objects[config["path"]]
        if self._arrays is None and _shared_parts.has_id(config):
            built = _shared_parts.build_once(config, self._build_object)
        else:
            built = self._build_object(kind, config)
        self._objects[config["path"]] = built
        return built

    def _build_object(self, kind: str, config: dict[str, Any]) -> Any:
        if kind == "variable":
            return tf.Variable(
                self._array(config), trainable=config["trainable"], name=config["name"]
            )
        if kind == "transformed_variable":
            return tfp.util.TransformedVariable(
                None,
                self._build(config["bijector"]),
                pretransformed_input=self._build(config["variable"]),
                name=config["name"],
            )
        if kind == "moving_average":
            average = MovingAverage(
                config["num_samples"],
                config["decay"],
                score_function=config["score_function"],
                same_draws=config.get("same_draws", False),  # older files do not have it
                name=config["name"],
            )
            stored = config.get("weights", {})
            names = sorted(stored)
            self._restore(
                lambda: sorted(average.variables, key=short_name), [stored[n] for n in names]
            )
            return average
        if kind == "keras":
            network_config = _network_config.without_compilation(config["config"])
            _network_config.check(network_config)
            network = keras.saving.deserialize_keras_object(network_config, safe_mode=True)
            if not isinstance(network, keras.Layer):
                raise ValueError(f"{config['path']} is not a Keras network.")
            self._restore(lambda: list(network.variables), config.get("weights", []))
            return network
        cls = named_class(kind, config["name"])
        if "config" in config:
            built = cls.from_config(config["config"])
            self._restore(lambda: list(built.variables), config.get("weights", []))
            return built
        return cls(**{key: self._build(item) for key, item in config["parameters"].items()})

    def _restore(self, variables: Callable[[], list[Any]], configs: list[Any]) -> None:
        if self._arrays is not None:
            self._weights.append((variables, configs))

    def _array(self, config: dict[str, Any]) -> tf.Tensor:
        value = config["array"]
        if isinstance(value, str):
            value = (self._arrays or {})[value]
        # TensorFlow makes no bfloat16 from other arrays.
        stored = "float32" if config["dtype"] == "bfloat16" else config["dtype"]
        return tf.cast(tf.constant(value, tf.as_dtype(stored)), config["dtype"])
