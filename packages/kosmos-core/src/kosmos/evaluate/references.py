"""Right answers of a document, where there are several."""

from __future__ import annotations

from collections.abc import Sequence


def all_right(expected: str | None, references: Sequence[str]) -> tuple[str, ...]:
    """All right answers, the one that the document itself has among them; empty where there is one only.

    Args:
        expected: the document's answer, if it has one. It is one of the references but for the space at its ends.
        references: as of ``Document``.
    """
    is_there = expected is None or expected.strip() in map(str.strip, references)
    found = tuple(references) if is_there or expected is None else (expected, *references)
    return found if len(found) > 1 else ()
