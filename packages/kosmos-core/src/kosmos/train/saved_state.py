"""What the state of a checkpoint may hold. Its hashes fit whatever somebody wrote there, and what has another type than
a run saves would show only where it is counted with, steps later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, ge=0, lt=2**63)]
Draw = tuple[Count, Count, Count]


class _Lane(BaseModel):
    draws: list[Count] = []
    tokens: list[Count] = []
    fruitless: list[Count] = []
    given: list[Count] = []
    pending: list[Draw] = []
    open: list[Draw] = []
    gave: list[Count] = []


class _Data(BaseModel):
    lanes: dict[str, _Lane] = {}
    deadly: list[list[Count | str]] = []


class _Budget(BaseModel):
    drawn: Count = 0
    bad: Share = 0
    useless: dict[str, list[str]] = {}
    useful: list[str] = []


class _Guard(BaseModel):
    losses: list[Number] = []
    norms: list[Number] = []
    in_turn: Count = 0


class _Early(BaseModel):
    best: Number | None = None
    best_step: Count = 0
    since: Count = 0
    looked: Count | None = None
    documents: Count | None = None
    by: str | None = None
    from_first: bool | None = None


class _Group(BaseModel):
    names: list[str] = []
    values: dict[str, Any] = {}


class _State(BaseModel):
    """Fields that are not there are missed by who reads them, or are those of a newer version."""

    step: Count = 0
    tokens: Count | None = None
    data: _Data = _Data()
    budget: _Budget = _Budget()
    guard: _Guard = _Guard()
    parts: Annotated[Count, Field(ge=1)] = 1
    minimized: dict[str, Any] | None = None
    optimizer: dict[str, Any] = {}
    optimizer_groups: list[_Group] = []
    made_with_options: dict[str, Any] = {}
    costs: list[dict[str, tuple[Number, Number]]] = []
    early: _Early = _Early()
    noted: dict[str, Annotated[int, Field(strict=True)]] = {}
    steps_of_epochs: Count = 0
    """Those that its epochs were counted to; 0 of a run whose length was given otherwise, and of older versions."""


def check_types(state: Mapping[str, Any]) -> None:
    """Raises ValueError, in one line, where something in it is not of the type that a run saves."""
    try:
        _State.model_validate(state)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where, what = ".".join(map(str, first["loc"])), first["msg"]
        raise ValueError(f"{where}: {what[:1].lower()}{what[1:]}, got {first['input']!r:.60}") from None
