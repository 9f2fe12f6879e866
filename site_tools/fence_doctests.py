"""An extension of griffe: fences the doctests in docstrings.

Markdown would read `>>>` as a quotation.
"""

from __future__ import annotations

import re

import griffe

__all__ = ["FenceDoctests", "fenced"]

# A prompt and all lines up to the next blank one.
_BLOCK = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)


class FenceDoctests(griffe.Extension):
    """Fences the doctests of all objects."""

    def on_object(self, *, obj: griffe.Object, **kwargs) -> None:
        """Called by griffe for each object that it has loaded."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Returns a docstring with a fence around each of its doctests."""
    return _BLOCK.sub(r"\g<indent>```pycon\n\g<0>\n\g<indent>```", text)
