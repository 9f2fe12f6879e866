"""Ids of networks, variables and averages that several layers of a Keras model share.

Keras gives an object an id when it meets it again while it saves a model. While it loads the file,
it creates one object for each id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras

from tfp_lars import _compat

__all__ = ["add_id", "are_found", "build_once", "has_id", "with_ids"]

_ID = "shared_object_id"  # Keras reads this key in networks
_NAME = "tfp_lars>SharedPart"
_PROBE = keras.initializers.Zeros()


def are_found() -> bool:
    """Whether Keras is saving a model, in which it finds shared objects."""
    keras.saving.serialize_keras_object(_PROBE)
    return _ID in str(keras.saving.serialize_keras_object(_PROBE))


def with_ids(network: keras.Layer) -> Any:
    """Returns the configuration of a network, in which all its layers have ids.

    Keras copies a configuration, so that an id of a nested layer would be missing where Keras met
    this layer first.
    """
    keras.saving.serialize_keras_object(network)
    config = keras.saving.serialize_keras_object(network)
    return _only(config, {id(layer) for layer in _all_layers(network)})


def add_id(described: dict[str, Any], value: Any) -> None:
    """Adds an id to the description of a variable, or of what has variables of its own.

    Such a description does not contain others. That of a network has its ids in its configuration.
    """
    if _may_have_id(described):
        described[_ID] = id(value)


def has_id(described: Mapping[str, Any]) -> bool:
    """Whether `add_id` has added an id."""
    return _ID in described and _may_have_id(described)


def build_once(described: Mapping[str, Any], build: Callable[[str, dict[str, Any]], Any]) -> Any:
    """Returns the object with the id of a description.

    It is new unless Keras is loading a model and has created it before.

    Args:
      described: A description that has an id.
      build: Returns a new object from the kind of the description and the description.
    """

    class Part:
        """Its objects are parts of distributions."""

        @classmethod
        def from_config(cls, config):
            return build(config["kind"], config)

    config = {
        "module": None,
        "class_name": Part.__name__,
        "registered_name": _NAME,
        "config": described,
        _ID: described[_ID],
    }
    return keras.saving.deserialize_keras_object(config, custom_objects={_NAME: Part})


def _may_have_id(described: Mapping[str, Any]) -> bool:
    kind = described["kind"]
    return kind in ("variable", "moving_average") or ("config" in described and kind != "keras")


def _all_layers(layer: keras.Layer) -> Iterator[keras.Layer]:
    yield layer
    for part in _compat.sublayers(layer):
        yield from _all_layers(part)


def _only(config: Any, ids: set[int]) -> Any:
    """Returns a configuration without other ids.

    Objects such as initializers may exist only while Keras writes them. A later one can have the
    same id.
    """
    if isinstance(config, (list, tuple)):
        return [_only(item, ids) for item in config]
    if not isinstance(config, dict):
        return config
    return {k: _only(v, ids) for k, v in config.items() if k != _ID or v in ids}
