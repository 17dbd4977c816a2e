"""Which steps PyTorch's profiler records, as a run file says it."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from kosmos.strict import Strict


def none_of_false(value: Any) -> Any:
    return None if value is False else value


class ProfileConfig(Strict):
    """Steps that PyTorch's profiler records: where their time goes, in ``profile/`` of the run's folder. ``true`` takes
    all defaults."""

    after_steps: int = Field(default=10, ge=0)
    """Steps of a session that come first, in which caches fill and blocks are compiled."""
    steps: int = Field(default=3, ge=1)
    """How many are recorded."""
    ranks: list[int] = Field(default_factory=lambda: [0], min_length=1)
    """Processes that record theirs."""

    @field_validator("ranks", mode="before")
    @classmethod
    def _of_one(cls, value: Any) -> Any:
        return [value] if isinstance(value, int | str) and not isinstance(value, bool) else value

    @model_validator(mode="before")
    @classmethod
    def _from_true(cls, value: Any) -> Any:
        return {} if value is True else value
