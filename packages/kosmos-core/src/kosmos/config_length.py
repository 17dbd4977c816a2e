"""How long a run is, as a run file says it: in steps, in tokens or in epochs."""

from __future__ import annotations

import re
from typing import Any, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from kosmos.durations import EXPECTED, seconds_of
from kosmos.strict import Strict

LENGTHS = ("steps", "tokens", "epochs")
"""Fields of ``train`` of which one says how long the run is."""
STEPS_OR_SHARE = "whole steps, or a share of them below 1, such as 0.1"
_NUMBER = re.compile(r"[+-]?[\d_]+(\.\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
WARMUP_STEPS = 60
"""Where nobody says how many."""


class LengthConfig(Strict):
    """Steps, or what comes to steps: tokens, which a run knows at once, or epochs, once it has looked at its data.

    Until then ``steps`` of a run of epochs means nothing.
    """

    steps: int = Field(default=1000, ge=1)
    """Optimizer steps."""
    tokens: int | None = Field(default=None, ge=1)
    """In place of ``steps``: tokens of all steps together, were their rows full."""
    epochs: float | None = Field(default=None, gt=0)
    """In place of ``steps``: how often every document comes, by what 4,096 of them take. For sources without weights.
    The run's own file has the steps."""
    warmup_steps: int | float | None = Field(default=None, ge=0)
    """Steps of linear warmup; below 1 a share of all steps. None takes 60, or a fifth of a run that is shorter than 300
    steps."""

    max_time: str | None = None
    """Most time of one start, such as ``90m``, ``11h30m``, ``3d`` or ``01:12:00:00`` (days, hours, minutes, seconds).
    Then the run saves, scores and ends with status 0 after the step under way; a resume has as much again. None trains
    all steps."""

    @property
    def is_counted(self) -> bool:
        """Whether ``steps`` says how long the run is."""
        return self.epochs is None

    @property
    def warmup(self) -> int:
        """Steps of linear warmup."""
        if self.warmup_steps is None:
            return min(WARMUP_STEPS, self.steps // 5)
        return round(self.warmup_steps * self.steps) if self.warmup_steps < 1 else int(self.warmup_steps)

    def in_steps(self, steps: int) -> Self:
        """The same, with ``steps`` as its length."""
        return self.model_copy(update={"steps": max(1, steps), "tokens": None, "epochs": None})

    @model_validator(mode="after")
    def _has_one_length(self) -> Self:
        said = [name for name in LENGTHS if name in self.model_fields_set and getattr(self, name) is not None]
        if len(said) > 1:
            raise ValueError(f"{' and '.join(said)} each say how long the run is; leave one of them")
        return self

    @field_validator("max_time", mode="before")
    @classmethod
    def _has_a_unit(cls, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, str):  # YAML also reads 1:12:00:00 without quotes as a number
            raise ValueError(f"{EXPECTED}, as text")
        seconds_of(value)
        return value

    @field_validator("tokens", "warmup_steps", mode="before")
    @classmethod
    def _number(cls, value: Any, field: ValidationInfo) -> Any:
        # pydantic would tell of each type that it tried.
        if isinstance(value, str) and not _NUMBER.fullmatch(value):
            such = "a whole number, such as 1e9" if field.field_name == "tokens" else STEPS_OR_SHARE
            raise ValueError(f"expected {such}")
        return value

    @field_validator("warmup_steps", mode="after")
    @classmethod
    def _whole_steps(cls, value: float | None) -> float | None:
        if value is None or value < 1:
            return value
        if value != int(value):
            raise ValueError(f"expected {STEPS_OR_SHARE}")
        return int(value)

    @model_serializer(mode="wrap")
    def _without_what_is_not_known(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Until they are counted there are no steps, and a file that said some would say two lengths.
        values: dict[str, Any] = dump(self)
        if self.tokens is not None or self.epochs is not None:
            values.pop("steps", None)
        return values
