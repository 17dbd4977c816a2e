"""Which answers a run writes each time it scores what is held out: a part of ``kosmos.config``."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from kosmos.strict import Strict


class WrittenConfig(Strict):
    """Answers that the model writes at each scoring, for ``evaluate.metrics``. A bare number is ``documents``."""

    documents: int = Field(ge=1)
    """Most of each held-out source that are answered, as ``spread`` chooses them; no more than are scored."""
    max_new_tokens: int = Field(default=256, ge=1)
    """Longest answer, in tokens."""
    stop: list[str] = Field(default_factory=list)
    """Texts that end an answer in front of them."""
    kept: int = Field(default=32, ge=0)
    """Answers to each source, the first ones, that are kept in the run folder at each scoring (`answers/`); 0 keeps
    none."""

    @property
    def how(self) -> dict[str, Any]:
        """As plain values what answers depend on: those that were written alike compare."""
        return self.model_dump(mode="json", exclude={"kept"})

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: Any) -> Any:
        return {"documents": value} if isinstance(value, int | str) and not isinstance(value, bool) else value

    @field_validator("stop", mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("stop")
    @classmethod
    def _are_texts(cls, value: list[str]) -> list[str]:
        if "" in value:
            raise ValueError("an empty text would end every answer before it begins; leave it out")
        return value
