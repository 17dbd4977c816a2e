"""Examples that stand in front of each question, as a run file says it: a part of ``kosmos.config``."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from kosmos.strict import Strict, at_home


class ShotsConfig(Strict):
    """Questions with their right answers in front of a question."""

    shots: int = Field(default=0, ge=0)
    """So many other questions with their right answers stand in front of each question (few-shot)."""
    shots_from: str | None = None
    """File of the questions from which these are drawn; None is the same. Of a file that states a split it is what is
    to be trained on."""

    _at_home = field_validator("shots_from", mode="before")(at_home)

    @model_validator(mode="after")
    def _file_is_for_shots(self) -> ShotsConfig:
        if self.shots_from is not None and not self.shots:
            raise ValueError("shots_from: says where examples are drawn from; say how many, such as shots: 5")
        return self
