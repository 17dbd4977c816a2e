"""Rows that tell good answers from bad ones (DPO, KTO), by which nothing is trained: none is passed over in silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kosmos.data.sources.messages import is_something
from kosmos.errors import SampleError

REJECTED = ("rejected", "rejected_response", "rejected_messages")
"""Columns of TRL's, LLaMA-Factory's and ms-swift's rows that hold the worse of two answers (DPO)."""
LABEL = "label"
"""Column that is false beside a bad answer (KTO)."""
CHOSEN = "chosen"
"""Column of the better of two answers."""
CHOOSE = (
    "there is no training by preferences (DPO); to learn the chosen answers alone: columns: {messages: chosen} if they "
    "are chats, {completion: chosen} beside a prompt, {output: chosen} beside an instruction"
)

PREFERENCES = (*REJECTED, LABEL)
"""Columns that a table has to be read with, to see them."""


def check_no_preference(row: Mapping[str, Any], column: str) -> None:
    """Raises SampleError where a row tells good answers from bad ones: which are learned would be passed over.

    Args:
        column: that holds its answers, by its usual name.
    """
    advice = (
        "there is no training by preferences (DPO, KTO); to learn the answers all the same, name what holds them: "
        f"columns: {{{column}: {column}}}"
    )
    if (key := next((key for key in REJECTED if _is_answer(row.get(key))), None)) is not None:
        raise SampleError(f"{key}: rejected answers are not read, as {advice}")
    if row.get(LABEL) is False:
        raise SampleError(f"{LABEL}: false says that the answer is a bad one, and {advice}")


def _is_answer(value: Any) -> bool:
    return isinstance(value, str | list | tuple | Mapping) and is_something(value)
