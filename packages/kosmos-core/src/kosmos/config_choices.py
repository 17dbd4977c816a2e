"""What all rows of a file of questions have in common, as a run file says it: a part of ``kosmos.config``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from kosmos.strict import Strict


class OfferingConfig(Strict):
    """What the rows of a file of questions do not say themselves."""

    answer_is: Literal["index", "letter", "text"] | None = None
    """How rows say which answer is right: by its number from 0 on, its letter from A on, or its text. None leaves it to
    the rows, and refuses those that may mean two answers."""
    choices: list[str] = Field(default_factory=list)
    """What is offered to every question, such as ``["yes", "no"]``, where rows have no column for it. In a run file
    ``yes`` and ``no`` want quotes."""

    base64: bool = False
    """Whether texts in columns of media are media in base64, as in the tables of MMBench, and no paths."""

    @field_validator("choices", mode="before")
    @classmethod
    def _as_words(cls, value: object) -> object:
        if isinstance(value, list) and any(isinstance(one, bool) for one in value):
            raise ValueError('YAML reads yes and no as true and false; write ["yes", "no"]')
        return (
            [str(one) if isinstance(one, int | float) else one for one in value] if isinstance(value, list) else value
        )

    @field_validator("choices")
    @classmethod
    def _are_several(cls, value: list[str]) -> list[str]:
        if value and (len({*value}) < 2 or not all(one.strip() for one in value)):
            raise ValueError("expected two different answers or more")
        return value


class OffersConfig(Strict):
    """A file of questions that offer several answers."""

    options: OfferingConfig = Field(default_factory=OfferingConfig)
    """What its rows do not say themselves."""
