"""Formats tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table without a final line break."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
