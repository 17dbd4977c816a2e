"""Rows that tell good answers from bad ones otherwise than as pairs (KTO), or as no pair that is read: none is passed
over in silence. Pairs are read by ``pairs_of_answers``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kosmos.data.pair_plans import CHOSEN_ALONE
from kosmos.data.sources.chat_turns import is_something
from kosmos.data.sources.forms import ASKS, QUESTION
from kosmos.data.sources.right_answers import ANSWERS
from kosmos.errors import SampleError

REJECTED = "rejected"
"""Column of TRL's and LLaMA-Factory's rows that holds the worse of two answers (DPO)."""
_REJECTED_PARTS = f"{REJECTED}_"
"""So begin those of ms-swift's: the worse answer or chat, or the media to which alone the answer would be a bad one."""
REJECTED_RESPONSE, REJECTED_MESSAGES = f"{_REJECTED_PARTS}response", f"{_REJECTED_PARTS}messages"
WORSE = (REJECTED, REJECTED_RESPONSE, REJECTED_MESSAGES)
"""Columns that hold the worse of two answers."""
LABELS = ("label", "kto_tag")
"""Columns that are false beside a bad answer (KTO): TRL's and ms-swift's, and LLaMA-Factory's."""
CHOSEN = "chosen"
"""Column of the better of two answers."""
CHOOSE = f"preferences are read of chosen beside rejected; to learn the chosen answers alone: {CHOSEN_ALONE}"


def preferences_in(columns: Iterable[str]) -> set[str]:
    """Columns that a table has to be read with, to see them."""
    return {column for column in columns if column in LABELS or is_rejected(column)}


def is_rejected(column: str) -> bool:
    """Whether it is called as one that belongs to the worse of two answers."""
    return column == REJECTED or column.startswith(_REJECTED_PARTS)


def check_no_preference(row: Mapping[str, Any], column: str) -> None:
    """Raises SampleError where a row tells good answers from bad ones: which are learned would be passed over.

    Args:
        column: that holds its answers, by its usual name.
    """
    advice = f"to learn the answers all the same, name what holds them: columns: {{{column}: {column}}}"
    if (key := next((key for key in row if is_rejected(key) and is_answer(row[key])), None)) is not None:
        pairs = f"a pair is chosen and rejected, or messages and {REJECTED_RESPONSE} or {REJECTED_MESSAGES}"
        raise SampleError(f"{key}: is not read here: {pairs}; {advice}")
    if (label := next((label for label in LABELS if row.get(label) is False), None)) is not None:
        raise SampleError(
            f"{label}: false says that the answer is a bad one, and there is no training by such labels (KTO), but by "
            f"pairs (DPO); {advice}"
        )
    of_a_pair = column in ASKS.values() and column != ASKS[QUESTION]  # of benchmarks a list says what is right
    if of_a_pair and isinstance(said := row.get(column), list | tuple) and len(set(map(str, said))) > 1:
        raise SampleError(
            f"{column}: a list of {len(said)} answers, of which one may be the better; write that one, or all right "
            f"ones under {ANSWERS!r}; to learn them as one text, joined by commas: columns: {{{column}: {column}}}"
        )


def is_answer(value: Any) -> bool:
    """Whether what stands in such a column says anything."""
    return isinstance(value, str | bytes | list | tuple | Mapping) and is_something(value)
