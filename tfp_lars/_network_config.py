"""What the configuration of a Keras network in a file may name.

Keras imports modules that a configuration names, as far as they belong to a Keras package, and
returns any function of its API. Its safe mode can be switched off for the whole process. A file
from an unknown source may use all of this, so its configurations are checked before Keras reads
them. Nothing is imported for the check.
"""

from __future__ import annotations

import sys
from typing import Any

import keras

__all__ = ["check", "without_compilation"]

_KINDS = (
    keras.Operation,  # layers, models and operations
    keras.initializers.Initializer,
    keras.regularizers.Regularizer,
    keras.constraints.Constraint,
    keras.dtype_policies.DTypePolicy,
    keras.random.SeedGenerator,
)
# Layers that run stored code or open files that their configuration names.
_REFUSED = tuple(
    getattr(keras.layers, name)
    for name in (
        "FlaxLayer",
        "IntegerLookup",
        "JaxLayer",
        "Lambda",
        "StringLookup",
        "TFSMLayer",
        "TextVectorization",
        "TorchModuleWrapper",
    )
    if hasattr(keras.layers, name)
)
_VALUES = ("__keras_tensor__", "__tensor__", "__numpy__", "__bytes__", "__ellipsis__", "__slice__")
_WITHOUT_PUBLIC_NAME = ("keras.src.ops.", "keras.src.models.")


def without_compilation(config: Any) -> Any:
    """Returns a configuration without optimizers, losses and metrics, also of nested models."""
    if isinstance(config, dict):
        return {k: without_compilation(v) for k, v in config.items() if k != "compile_config"}
    if isinstance(config, (list, tuple)):
        return [without_compilation(item) for item in config]
    return config


def check(config: Any) -> None:
    """Raises a `ValueError` if Keras might run code, open a file or import a module.

    Classes and functions that this process has registered with
    `keras.saving.register_keras_serializable` are allowed, except subclasses of layers that run
    stored code or open files.

    Args:
      config: Result of `keras.saving.serialize_keras_object`, from any source.
    """
    if isinstance(config, dict):
        if "class_name" in config and not _is_allowed(config):
            module, name = config.get("module"), config["class_name"]
            name = config.get("config") if name == "function" else name
            raise ValueError(
                f"The network names {f'{module}.{name}' if module else name!r}. Layers of Keras "
                "can be loaded unless they run stored code or open files, and so can classes with "
                "the decorator `@keras.saving.register_keras_serializable()` that are not derived "
                "from such layers."
            )
        for value in config.values():
            check(value)
    elif isinstance(config, (list, tuple)):
        for item in config:
            check(item)


def _is_allowed(config: dict[str, Any]) -> bool:
    name = config["class_name"]
    if name in _VALUES:
        return True
    # Keras reads its special names, such as `__lambda__`, before it looks for registered classes.
    if not isinstance(name, str) or name.startswith("__"):
        return False
    # Keras 3 writes a module for every object. A model reads a layer without this key as Keras 2
    # did: it ignores `registered_name` and takes any class of `keras.layers`.
    if "module" not in config:
        return False
    if name == "function":
        return _is_allowed_function(config)
    registered = _registered(config.get("registered_name", name))
    if registered is not None:  # Keras takes it whatever the module is
        is_named = isinstance(registered, type) and registered.__name__ == name
        return is_named and not issubclass(registered, _REFUSED)
    found = _find(config["module"], name)
    return isinstance(found, type) and issubclass(found, _KINDS) and not issubclass(found, _REFUSED)


def _is_allowed_function(config: dict[str, Any]) -> bool:
    name, module = config.get("config"), config["module"]
    # For activations and the like Keras may look for this name instead.
    if config.get("registered_name") not in (None, "function", name):
        return False
    registered = _registered(name)
    if registered is not None:
        return callable(registered) and not isinstance(registered, type)
    # Keras writes "builtins" for its own functions.
    known = module in ("builtins", "keras.activations")
    helpers = ("deserialize", "get", "serialize")
    return known and name not in helpers and callable(_find("keras.activations", name))


def _registered(name: Any) -> Any:
    """Returns what Keras finds for a registered name, or `None`."""
    return keras.saving.get_registered_object(name) if isinstance(name, str) else None


def _find(module: Any, name: Any) -> Any:
    """Returns an object of Keras by the name of its module, `None` if there is none."""
    if not (isinstance(module, str) and isinstance(name, str)):
        return None
    if module.startswith(_WITHOUT_PUBLIC_NAME):
        return getattr(sys.modules.get(module), name, None)
    package, *parts = [*module.split("."), name]
    found: Any = keras if package == "keras" else None
    for part in parts:
        found = None if part.startswith("_") or part == "src" else getattr(found, part, None)
    return found
