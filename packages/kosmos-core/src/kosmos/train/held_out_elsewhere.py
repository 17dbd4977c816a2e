"""Rows that one source of a run holds out, or that it is asked, and another, of the same files, trains on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kosmos.config import RunConfig
from kosmos.data.choices import ChoiceSource
from kosmos.data.document import Source
from kosmos.data.sources.places import Places
from kosmos.data.sources.source import RowSource, Table
from kosmos.run_overlap import asked_and_trained

MOST_LOOKED_AT = 100_000
"""Documents whose names are compared where nothing else tells whether they are the same."""


def held_out_elsewhere(config: RunConfig, sources: Sequence[Source], held_out: Sequence[Source]) -> Iterator[str]:
    """Warnings of two sources of a run, of which one trains on rows that the other holds out, and of questions
    (``evaluate.choices``) that are of what is trained on.

    Args:
        sources: what is trained on, in the order of ``data.sources``.
        held_out: what these hold out, by their names. There may be others among them, questions too.
    """
    paths, asked = [one.path for one in config.evaluate.choices], [s for s in held_out if isinstance(s, ChoiceSource)]
    yield from asked_and_trained(config, asked if len(asked) == len(paths) else (), paths, sources)
    entries, held = config.data.sources, {source.name: source for source in held_out}
    if len(entries) != len(sources):  # of sample sets none is named
        return
    named = [Path(entry.path) for entry in entries]
    for here, there in Places().pairs(named):
        scored, trained = sources[here], sources[there]
        one, other = named[here], named[there]
        of = held.get(scored.name)
        if not isinstance(of, RowSource) or not isinstance(trained, RowSource):
            continue
        is_same = one.resolve() == other.resolve()
        if (count := _trained_on(of, trained, is_same=is_same)) == 0:
            continue
        some = "some" if count is None else f"{count:,}"
        first = "give both the same held_out" if is_same else "name each file in one of them alone"
        yield (
            f"data.sources.{there} ({trained.name}) trains on {some} of the {len(of):,} documents that data.sources."
            f"{here} ({scored.name}) holds out of the same files; {first}, or state in the data what is held out (a "
            "column split)"
        )


def _trained_on(held_out: RowSource, trained: RowSource, *, is_same: bool) -> int | None:
    """How many documents of one source are among those of another, which has some of its files; None is not known.

    Args:
        is_same: whether both are of one file or folder.
    """
    table, other = held_out.table, trained.table
    if is_same and len(table) == len(other):
        return int(np.isin(held_out.rows, trained.rows).sum())
    if (numbers := _numbers(held_out.rows, table, other)) is not None:
        return int(np.isin(numbers, trained.rows).sum())
    if held_out.cuts_texts or max(len(trained), len(held_out)) > MOST_LOOKED_AT:
        return None
    known = {os.path.realpath(trained.origin(row)) for row in range(len(trained))}
    return sum(os.path.realpath(held_out.origin(row)) in known for row in range(len(held_out)))


def _numbers(rows: NDArray[np.int64], table: Table, other: Table) -> NDArray[np.int64] | None:
    """The numbers in another table of those of the rows whose files it has too; None where files do not tell rows."""
    files, others = _files(table), _files(other)
    if not files or not others:
        return None
    found = [np.empty(0, np.int64)]
    for file in files.keys() & others.keys():
        (begin, count), (other_begin, other_count) = files[file], others[file]
        if count != other_count:  # one of them reads it otherwise
            return None
        found.append(rows[(rows >= begin) & (rows < begin + count)] - begin + other_begin)
    return np.concatenate(found)


def _files(table: Table) -> dict[str, tuple[int, int]]:
    """Files of a table, with the number of the first row of each and how many it holds."""
    found, begin = {}, 0
    for name, rows in table.holds():
        found[os.path.realpath(name)] = begin, rows
        begin += rows
    return found if begin == len(table) else {}
