"""Rows as they were read when a run was begun, where that was before they came to be read otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from kosmos.data.choices import ChoiceSource
from kosmos.data.document import Source
from kosmos.data.sources.source import RowSource
from kosmos.train.order import ENDS, LATER, PIECES, READS


def keep_older(before: Mapping[str, Any], now: dict[str, Any], sources: Sequence[Source | ChoiceSource]) -> None:
    """As ``as_begun``, in a run that goes on and notes what it goes on with.

    Args:
        before: ``sample_order`` of its checkpoint.
        now: of the run, where it is changed.
        sources: of the run, what it scores among them.
    """
    as_begun(before, sources)
    for fact in (PIECES, READS):
        now[fact] = before.get(fact)
        if fact not in before:
            del now[fact]
    for old, new in zip(before["data"]["sources"], now["data"]["sources"], strict=True):
        for fact in (ENDS, PIECES):
            if fact not in old:
                new.pop(fact, None)


def as_begun(before: Mapping[str, Any], sources: Sequence[Source | ChoiceSource]) -> None:
    """Take an end for each document of a text file, and rows of pieces and rows that were bad samples as they were
    read, where a run was begun so.

    Args:
        before: ``sample_order`` of a checkpoint of the run.
        sources: of the run. Of what it only scores nothing is noted but what is of all of the run.
    """
    opened = {old["name"]: old for old in before["data"]["sources"]}
    has_rules = PIECES in before or any(PIECES in old for old in opened.values())
    for source in chain.from_iterable(map(_of_rows, sources)):
        old = opened.get(source.name)
        if old is not None and ENDS not in old:
            source.one_end = False
        if not has_rules or (old is not None and PIECES not in old):
            source.refuses_pieces = False
        if not reads_more(before):
            source.reads_more = False
        source.lacking = tuple(lacking(before))


def _of_rows(source: Source | ChoiceSource) -> Iterator[RowSource]:
    """The sources of rows that one is, or that one of questions reads: those that are asked, and its examples."""
    if isinstance(source, ChoiceSource):
        yield source.source
        if source.pool is not None:
            yield source.pool.source
    elif isinstance(source, RowSource):
        yield source


def rules_of(before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Those by which the data of a run were opened, as ``following`` takes them.

    Args:
        before: ``sample_order`` of a checkpoint of the run; None where it has none.
    """
    return {"reads_more": reads_more(before), "lacking": lacking(before)}


def lacking(before: Mapping[str, Any] | None) -> list[str]:
    """Of ``LATER`` what a run was begun before.

    Args:
        before: ``sample_order`` of a checkpoint of the run; None where it has none.
    """
    return [] if before is None else [rule for rule in LATER if rule not in before.get(READS, ())]


def reads_more(before: Mapping[str, Any] | None) -> bool:
    """Whether the data of a run are read by today's rules, which has to be known as they are opened: which rows are
    documents may hang on it.

    Args:
        before: ``sample_order`` of a checkpoint of the run; None where it has none.
    """
    return before is None or READS in before
