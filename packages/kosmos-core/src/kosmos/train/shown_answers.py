"""Answers of a scoring as trackers show them: the first few, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kosmos.visible import visible

SHOWN = 8
"""Answers of each source."""
LONGEST = 1000
"""Characters of a text that are shown: of a prompt the last ones, which stand in front of the answer."""
COLUMNS = ("source", "document", "prompt", "expected", "answer")


def first_few(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[list[str]]]:
    """The cells of each answer as of ``COLUMNS``, by source.

    Args:
        rows: as of ``kosmos.evaluate.answer_rows``.
    """
    found: dict[str, list[list[str]]] = {}
    for row in rows:
        cells = found.setdefault(row["source"], [])
        if len(cells) < SHOWN:
            cells.append([_short(str(row.get(column, "")), column) for column in COLUMNS])
    return found


def _short(text: str, column: str) -> str:
    if len(text) <= LONGEST:
        return visible(text)
    return visible(f"… {text[-LONGEST:]}" if column == "prompt" else f"{text[:LONGEST]} …")


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, as TensorBoard shows texts, of cells that all stand there as they are: whatever a text of
    data holds, of HTML and Markdown, is letters, and no picture is fetched for it."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *([_as_letters(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _as_letters(text: str) -> str:
    """By the numbers of characters that could be marks."""
    marked = (c if c.isalnum() or c == " " or ord(c) > 0x7F else f"&#{ord(c)};" for c in text)
    return "".join(marked).replace(f"&#{ord(chr(10))};", "<br>")
