"""Checks that the content of a JSON file has the types that the code expects."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping


def check(content: Mapping, expected: Mapping[str, object]) -> None:
    """Checks the types of entries.

    Args:
      content: Entries by name. Others than the expected ones are ignored.
      expected: Type of each entry: `int`, `float`, `str`, `bool`, `None`, unions of these,
        `tuple[T, ...]` for lists, or `dict[K, V]`. Integers count as floats, and have 64 bits.
        Floats are finite.

    Raises:
      ValueError: An entry is missing or has another type.
    """
    for name, hint in expected.items():
        if name not in content:
            raise ValueError(f"{name} is missing")
        if not _fits(content[name], hint):
            raise ValueError(f"{name} is {_short(content[name])}, expected {_in_words(hint)}")


def _fits(value, hint) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, argument) for argument in arguments)
    if origin is tuple:
        return isinstance(value, list | tuple) and all(_fits(v, arguments[0]) for v in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            _fits(k, arguments[0]) and _fits(v, arguments[1]) for k, v in value.items()
        )
    if hint is None or isinstance(value, bool):
        return value is None or hint is bool
    if hint in (int, float) and isinstance(value, int):
        return abs(value) < 2**63
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, hint)


def _in_words(hint) -> str:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join(map(_in_words, typing.get_args(hint)))
    if typing.get_origin(hint) is tuple:
        return f"a list, each {_in_words(typing.get_args(hint)[0])}"
    words = {
        float: "a finite number",
        int: "an integer",
        str: "text",
        bool: "true or false",
        dict: "a map",
    }
    return words.get(typing.get_origin(hint) or hint, "null")


def _short(value) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "..."
