"""What was generated as rows of a file of answers, whose keys ``kosmos score`` reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kosmos.evaluate.answer import Generated


def answer_row(answer: Generated, source: str | None = None) -> dict[str, Any]:
    """What was generated as the columns of a line; without ``source`` it is of no data."""
    return {
        **asked_row(source, answer.origin, answer.id, answer.prompt, answer.media),
        **({} if answer.expected is None else {"expected": answer.expected}),
        **({"references": list(answer.references)} if answer.references else {}),
        "answer": answer.text,
        "prompt_tokens": answer.prompt_tokens,
        "tokens": answer.tokens,
        "ended": answer.ended,
        **({} if answer.seed is None else {"seed": answer.seed}),
    }


def asked_row(
    source: str | None, document: str, row: str | int | None, prompt: str, media: Sequence[str | None]
) -> dict[str, Any]:
    """The columns that tell of what the answer is."""
    return {
        **({} if source is None else {"source": source, "document": document}),
        **({} if row is None else {"id": row}),
        "prompt": prompt,
        "media": list(media),
    }
