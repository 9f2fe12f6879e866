"""The classes that a saved distribution may name: those of TFP and of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow_probability as tfp

__all__ = ["describable", "kind_and_name", "named_class"]

tfb = tfp.bijectors
tfd = tfp.distributions

_PUBLIC = {"tfd": (tfd, tfd.Distribution), "tfb": (tfb, tfb.Bijector)}
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


def kind_and_name(cls: type) -> tuple[str, str | None]:
    """Returns the kind and the name of a class, `None` for one that has no name."""
    own = next((name for name, known in _CLASSES.items() if known is cls), None)
    if own is not None:
        return "tfp_lars", own
    # TFP returns a private base class for what is not a composite tensor.
    name = cls.__name__.removeprefix("_")
    for kind, (module, base) in _PUBLIC.items():
        public = getattr(module, name, None)
        if isinstance(public, type) and issubclass(public, base):
            return kind, name if cls in (public, public.__mro__[1]) else None
    return "", None


def named_class(kind: str, name: Any) -> Any:
    """Returns a class that a description names, or raises."""
    cls = None
    if kind == "tfp_lars":
        cls = _CLASSES.get(name)
    elif kind in _PUBLIC and isinstance(name, str) and not name.startswith("_"):
        module, base = _PUBLIC[kind]
        found = getattr(module, name, None)
        cls = found if isinstance(found, type) and issubclass(found, base) else None
    if cls is None:
        raise ValueError(f"The description names {name!r} of kind {kind!r}, which is not known.")
    return cls
