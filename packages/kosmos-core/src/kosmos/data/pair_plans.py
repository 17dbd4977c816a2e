"""Pairs of a better and a worse document, by which preferences are learned: one plan, so that neither comes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Document
from kosmos.data.document_plan import DocumentPlan
from kosmos.errors import SampleError

CHOSEN_ALONE = (
    "columns: {messages: chosen} if they are chats, {completion: chosen} beside a prompt, {output: chosen} beside an "
    "instruction, {messages: messages} where they end the chat; one turn beside a chat belongs at its end"
)
"""How rows of preferences are read as answers to be learned."""
SAME = "chosen and rejected are the same: there is nothing to prefer; leave the row out"
OTHER_PROMPTS, TWO_TO_ONE = "chosen and rejected begin with other prompts", "a pair is two answers to one prompt"
NAMES = "chosen", "rejected"
"""What errors call the two."""


def check_pair(document: Document, *, learned: bool) -> None:
    """Raises SampleError where a run that learns from pairs gets none, or one that does not gets one.

    Args:
        learned: whether the run's objective learns from pairs.
    """
    if learned and not document.rejected:
        raise SampleError(
            "this run's objective learns from pairs, and here is no worse answer; give rows of preferences (a chosen "
            "and a rejected answer to one prompt), or leave train.objective out"
        )
    if document.rejected and not learned:
        raise SampleError(
            "tells a worse answer, too (rejected), of which this run learns nothing; to learn by preferences: "
            f"train.objective=dpo; to learn the chosen answers alone: {CHOSEN_ALONE}"
        )


def two_of(document: Document) -> tuple[Document, Document]:
    """The better and the worse one, each as a document of its own."""
    return replace(document, rejected=()), replace(document, segments=document.rejected, rejected=())


def as_one(plans: Sequence[DocumentPlan], document: Document) -> DocumentPlan:
    """The plan of a pair: that of the better one, and behind it that of the worse one.

    Raises:
        SampleError: nothing of one of them is learned, they do not answer the same, or they are the same.
    """
    for name, plan in zip(NAMES, plans, strict=True):
        if not np.count_nonzero(plan.train):
            raise SampleError(f"{name}: holds nothing to learn: no text that the loss looks at")
    better, worse = plans
    _check_same_prompt(better, worse)
    if not better.media and np.array_equal(better.token_ids, worse.token_ids):  # media may differ unseen
        raise SampleError(SAME)
    begin = np.int32(len(better))
    slots = {
        name: np.concatenate([*_there(name, better), *(at + begin for at in _there(name, worse))])
        for name in (*better.slots, *(name for name in worse.slots if name not in better.slots))
    }
    return replace(
        better,
        modalities=document.modalities,
        token_ids=np.concatenate([better.token_ids, worse.token_ids]),
        train=np.concatenate([better.train, worse.train]),
        media=(*better.media, *worse.media),
        slots=slots,
        chosen=len(better),
        chosen_media=len(better.media),
    )


def _check_same_prompt(better: DocumentPlan, worse: DocumentPlan) -> None:
    """Raises SampleError where what stands before the first learned token of each is not the same: how likely an answer
    is to one prompt says nothing of how likely another is to another. Of media the slots are compared."""
    ends = [int(np.argmax(plan.train)) for plan in (better, worse)]
    streams = sorted({*better.slots, *worse.slots})
    first, second = (_beginning(plan, end, streams) for plan, end in zip((better, worse), ends, strict=True))
    if first.shape == second.shape and np.array_equal(first, second):
        return
    least = min(ends)
    apart = np.flatnonzero((first[:, :least] != second[:, :least]).any(axis=0))
    place = int(apart[0]) if len(apart) else least
    raise SampleError(
        f"{OTHER_PROMPTS}: from token {place} on, before anything is learned (of {ends[0]} and {ends[1]} tokens); "
        f"{TWO_TO_ONE}"
    )


def _beginning(plan: DocumentPlan, end: int, streams: Sequence[str]) -> NDArray[np.int32]:
    """Its first tokens, and of each the number of the stream whose slot it is: [2, end]."""
    found = np.zeros((2, end), np.int32)
    found[0] = plan.token_ids[:end]
    for number, places in ((n, plan.slots[name]) for n, name in enumerate(streams) if name in plan.slots):
        found[1, places[places < end]] = number + 1
    return found


def _there(name: str, plan: DocumentPlan) -> list[NDArray[np.int32]]:
    return [plan.slots[name]] if name in plan.slots else []


def check_lengths(plan: DocumentPlan, max_tokens: int, longest: int | None) -> None:
    """Raises SampleError where a pair takes more tokens than a row, or one of the two than there are positions."""
    if len(plan) > max_tokens:
        lengths = " + ".join(map(str, plan.lengths))
        raise SampleError(
            f"takes {lengths} tokens and a row holds {max_tokens}; raise data.tokens_per_pack (a pair is never cut)"
        )
    for name, length in zip(NAMES, plan.lengths, strict=True):
        if longest is not None and length > longest:
            raise SampleError(
                f"{name}: takes {length} tokens and the backbone has positions for {longest}; shorten it (a pair is "
                "never cut)"
            )
