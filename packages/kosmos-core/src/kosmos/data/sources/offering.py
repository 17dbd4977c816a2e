"""Options of files of questions that offer several answers."""

from __future__ import annotations

from dataclasses import dataclass

INDEX, LETTER, TEXT = "index", "letter", "text"
"""What says which answer is right: its number from 0 on, its letter from A on, or its text."""


@dataclass(frozen=True)
class Offering:
    """What all rows of a file have in common."""

    answer_is: str | None = None
    """``INDEX``, ``LETTER`` or ``TEXT``; None leaves it to the rows."""
    choices: tuple[str, ...] = ()
    """What every row offers; empty leaves it to the rows."""
