"""Rows that tell good answers from bad ones (DPO, KTO), by which nothing is trained: none is passed over in silence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kosmos.data.sources.chat_turns import is_something
from kosmos.data.sources.forms import ASKS, QUESTION
from kosmos.data.sources.right_answers import ANSWERS
from kosmos.errors import SampleError

_REJECTED = "rejected"
"""Column of TRL's and LLaMA-Factory's rows that holds the worse of two answers (DPO)."""
_REJECTED_PARTS = f"{_REJECTED}_"
"""So begin those of ms-swift's: the worse answer or chat, or the media to which alone the answer would be a bad one."""
LABELS = ("label", "kto_tag")
"""Columns that are false beside a bad answer (KTO): TRL's and ms-swift's, and LLaMA-Factory's."""
CHOSEN = "chosen"
"""Column of the better of two answers."""
CHOOSE = (
    "there is no training by preferences (DPO); to learn the chosen answers alone: columns: {messages: chosen} if they "
    "are chats, {completion: chosen} beside a prompt, {output: chosen} beside an instruction"
)


def preferences_in(columns: Iterable[str]) -> set[str]:
    """Columns that a table has to be read with, to see them."""
    return {column for column in columns if column in LABELS or _is_rejected(column)}


def _is_rejected(column: str) -> bool:
    return column == _REJECTED or column.startswith(_REJECTED_PARTS)


def check_no_preference(row: Mapping[str, Any], column: str) -> None:
    """Raises SampleError where a row tells good answers from bad ones: which are learned would be passed over.

    Args:
        column: that holds its answers, by its usual name.
    """
    is_turn = isinstance(row.get(CHOSEN), Mapping) and is_something(row[CHOSEN])
    advice = "there is no training by preferences (DPO, KTO); to learn the " + (
        f"better answers, put {CHOSEN} at the end of {column} as its last turn"  # as LLaMA-Factory has them
        if is_turn
        else f"answers all the same, name what holds them: columns: {{{column}: {column}}}"
    )
    if (key := next((key for key in row if _is_rejected(key) and _is_answer(row[key])), None)) is not None:
        raise SampleError(f"{key}: rejected answers are not read, as {advice}")
    if (label := next((label for label in LABELS if row.get(label) is False), None)) is not None:
        raise SampleError(f"{label}: false says that the answer is a bad one, and {advice}")
    of_a_pair = column in ASKS.values() and column != ASKS[QUESTION]  # of benchmarks a list says what is right
    if of_a_pair and isinstance(said := row.get(column), list | tuple) and len(set(map(str, said))) > 1:
        raise SampleError(
            f"{column}: a list of {len(said)} answers, of which one may be the better; write that one, or all right "
            f"ones under {ANSWERS!r}; to learn them as one text, joined by commas: columns: {{{column}: {column}}}"
        )


def _is_answer(value: Any) -> bool:
    return isinstance(value, str | bytes | list | tuple | Mapping) and is_something(value)
