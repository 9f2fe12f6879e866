"""Classes of this package that a saved distribution may name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["class_of_name", "describable", "name_of_class"]

_CLASSES: dict[str, Any] = {}

T = TypeVar("T", bound=type)


def describable(name: str) -> Callable[[T], T]:
    """Returns a class decorator that lets `save` describe objects of the class by `name`.

    A TFP distribution is described by its `parameters`. Other classes have a method `get_config`
    with JSON values, and a class method `from_config`. The variables of their objects are saved in
    the order of `variables`.

    Args:
      name: Name in files. It must not change, so that old files can be loaded.
    """

    def register(cls: T) -> T:
        _CLASSES[name] = cls
        return cls

    return register


def class_of_name(name: Any) -> Any:
    """Returns the class with a name, or `None`."""
    return _CLASSES.get(name)


def name_of_class(cls: type) -> str | None:
    """Returns the name of a class, or `None`."""
    return next((name for name, known in _CLASSES.items() if known is cls), None)
