"""Texts that are longer than a row, cut into pieces that fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from kosmos.data.document_plan import DocumentPlan


def is_asked(plan: DocumentPlan) -> bool:
    """Whether something in it is not learned; of a plain text all but its first token is."""
    return len(plan) - int(plan.train.sum()) > 1


def pieces(plan: DocumentPlan, most: int) -> Iterator[DocumentPlan]:
    """Rows of a long text without media. Each begins with the last token of the one before, so that every token is
    predicted once. What was left out of the text is told of the first that something is learned of."""
    share = 1 / math.ceil((len(plan) - 1) / (most - 1))  # as pieces are counted where they wait to be given
    torn, begin, first = is_asked(plan), 0, True
    while begin < len(plan) - 1 or begin == 0:
        end = min(begin + most, len(plan))
        train = plan.train[begin:end].copy()
        train[0], learned = False, bool(train[1:].any())
        yield replace(
            plan, origin=f"{plan.origin} (tokens {begin}-{end})", token_ids=plan.token_ids[begin:end], train=train,
            answer_start=None, is_torn=torn, share=share, counts=first and learned,
            lost=plan.lost if first and learned else (),
        )  # fmt: skip
        begin, first = end - 1, first and not learned
