"""Rows that tell good answers from bad ones (DPO, KTO), by which nothing is trained: none is passed over in silence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kosmos.data.sources.messages import is_something
from kosmos.errors import SampleError

_REJECTED = "rejected"
"""Column of TRL's and LLaMA-Factory's rows that holds the worse of two answers (DPO)."""
_REJECTED_PARTS = f"{_REJECTED}_"
"""So begin those of ms-swift's: the worse answer or chat, or the media to which alone the answer would be a bad one."""
LABEL = "label"
"""Column that is false beside a bad answer (KTO)."""
CHOSEN = "chosen"
"""Column of the better of two answers."""
CHOOSE = (
    "there is no training by preferences (DPO); to learn the chosen answers alone: columns: {messages: chosen} if they "
    "are chats, {completion: chosen} beside a prompt, {output: chosen} beside an instruction"
)


def preferences_in(columns: Iterable[str]) -> set[str]:
    """Columns that a table has to be read with, to see them."""
    return {column for column in columns if column == LABEL or _is_rejected(column)}


def _is_rejected(column: str) -> bool:
    return column == _REJECTED or column.startswith(_REJECTED_PARTS)


def check_no_preference(row: Mapping[str, Any], column: str) -> None:
    """Raises SampleError where a row tells good answers from bad ones: which are learned would be passed over.

    Args:
        column: that holds its answers, by its usual name.
    """
    advice = (
        "there is no training by preferences (DPO, KTO); to learn the answers all the same, name what holds them: "
        f"columns: {{{column}: {column}}}"
    )
    if (key := next((key for key in row if _is_rejected(key) and _is_answer(row[key])), None)) is not None:
        raise SampleError(f"{key}: rejected answers are not read, as {advice}")
    if row.get(LABEL) is False:
        raise SampleError(f"{LABEL}: false says that the answer is a bad one, and {advice}")


def _is_answer(value: Any) -> bool:
    return isinstance(value, str | bytes | list | tuple | Mapping) and is_something(value)
