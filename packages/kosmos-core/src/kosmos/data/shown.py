"""Documents as a person reads them: what a plan holds, token by token, and what is learned of it. No torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from kosmos.data.document import Source
from kosmos.data.doubtful_media import doubt_of
from kosmos.data.foreign import calling
from kosmos.data.marks import CORE_MARKS
from kosmos.data.plan import DocumentPlan, PlannedMedia, Planner
from kosmos.data.processor import Processor
from kosmos.data.sources.chosen import OTHER_ROWS
from kosmos.data.sources.folders import counts_files
from kosmos.data.sources.well_known import is_medium
from kosmos.data.tokenizer import Tokenizer
from kosmos.errors import SampleError
from kosmos.visible import in_a_line

_TAGGED = re.compile(r"<(\w+)>([^<>\n]+)</\1>")
_SPECIAL = re.compile(
    r"<\|\w{1,40}\|>|<\w{1,30}_(?:soft_token|pad|token|placeholder|context)>|<(?:start|end)_of_\w{1,30}>", re.I
)
"""As tokenizers call what they put around turns and in the places of media. Some stand many times in turn."""
MOST_SPELLED = 8
"""Such names that are told."""


class Stretch(NamedTuple):
    """Tokens of one kind in turn."""

    kind: Literal["text", "mark", "media"]
    shown: str
    """The text, the mark's name, or what the item is."""
    tokens: int
    learned: bool
    """Whether the loss looks at them."""
    ids: tuple[int, ...]
    """Of the tokenizer; none of media."""


def stretches(plan: DocumentPlan, planner: Planner) -> list[Stretch]:
    """The whole plan in order; their tokens add up to its length. None is of both of a pair."""
    own = {i: name for name, i in planner.tokenizer.special_ids.items()}
    marks = {planner.tokenizer.mark_id(name): name for name in _marks(planner)}
    names = own | marks if planner.turns is None else marks | own
    item_at = np.full(len(plan), -1, np.int64)
    items = [*_items(plan, planner), *_written(plan, planner)]
    for number, (first, count, _) in enumerate(items):
        item_at[first : first + count] = number
    found: list[Stretch] = []
    first = plan.lengths[0]

    def key(place: int) -> tuple[bool, int, int, bool]:
        token = int(plan.token_ids[place])
        mark = token if token in names and item_at[place] < 0 else -1
        return place < first, int(item_at[place]), place if mark >= 0 else -1, bool(plan.train[place])

    for (_, item, mark_at, learned), run in groupby(range(len(plan)), key):
        places = list(run)
        ids = [int(plan.token_ids[place]) for place in places]
        if item >= 0:
            found.append(Stretch("media", items[item][2], len(places), learned, ()))
        elif mark_at >= 0:
            found.append(Stretch("mark", names[ids[0]], 1, learned, tuple(ids)))
        else:
            found.append(Stretch("text", planner.tokenizer.decode(ids), len(places), learned, tuple(ids)))
    return found


def told_apart(found: Sequence[Stretch], plan: DocumentPlan) -> tuple[list[Stretch], list[Stretch]]:
    """The stretches of a plan, and those of the worse one of a pair, if it is one."""
    ends = accumulate(stretch.tokens for stretch in found)
    count = sum(end <= plan.lengths[0] for end in ends)
    return list(found[:count]), list(found[count:])


def spelled(documents: Sequence[Sequence[DocumentPlan]], tokenizer: Tokenizer) -> list[str]:
    """Special tokens, of the tokenizer or called as those of others are, whose names stand in the text of half of the
    documents, at least; those of the tokenizer that are equal but for numbers count together. No more than a few.

    They stay plain text there, which hardly anybody means: such texts come of another library's chat template.
    """
    names = [name for name in tokenizer.special_ids if name != getattr(tokenizer, "unknown", None)]
    texts = _texts(documents, tokenizer)
    counts = Counter({name: sum(name in text for text in texts) for name in names})
    for text in texts:
        counts.update(sorted({found for found in _SPECIAL.findall(text) if found not in tokenizer.special_ids}))
    alike = Counter(kind for text in texts for kind in {_numberless(name) for name in names if name in text})
    least = max(1, len(texts)) / 2
    often = (name for name, count in counts.items() if count and max(count, alike[_numberless(name)]) >= least)
    return [*islice(often, MOST_SPELLED)]


def _numberless(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def named_file(documents: Sequence[Sequence[DocumentPlan]], tokenizer: Tokenizer) -> str:
    """The first file of a medium between tags (``<x>a.png</x>``), where at least half of the documents have one in
    their text; empty where not.

    The first Qwen-VL had its media so: here they are letters.
    """
    found = [
        next((tagged[0] for tagged in _TAGGED.finditer(text) if is_medium(tagged[2])), "")
        for text in _texts(documents, tokenizer)
    ]
    return next(filter(None, found), "") if 2 * sum(map(bool, found)) >= len(found) else ""


def _texts(documents: Sequence[Sequence[DocumentPlan]], tokenizer: Tokenizer) -> list[str]:
    return ["".join(tokenizer.decode(piece.token_ids.tolist()) for piece in pieces) for pieces in documents]


def _marks(planner: Planner) -> Iterator[str]:
    yield from CORE_MARKS
    for route in planner.routes.values():
        yield from sorted(route.marks)


def _items(plan: DocumentPlan, planner: Planner) -> Iterator[tuple[int, int, str]]:
    """First slot, number of slots and description of every grid."""
    taken = dict.fromkeys(plan.slots, 0)
    for medium in plan.media:
        route = planner.routes[medium.media.modality]
        told = described(medium, route.processor)
        for grid in medium.plan.grids:
            count, begin = route.slots(grid), taken[medium.stream]
            taken[medium.stream] += count
            if count:
                size = " x ".join(str(side) for side in grid if side != 1) or "1"
                where = int(plan.slots[medium.stream][begin])
                yield where, count, f"{_called(medium)}{told and f' ({told})'}: {size} cells in {count} slots"
                told = ""  # it is of the medium, and said once


def _written(plan: DocumentPlan, planner: Planner) -> Iterator[tuple[int, int, str]]:
    """The first token, number of tokens and description of every medium that is written."""
    writers = {route.writer.begin: route.writer for route in planner.routes.values() if route.writer is not None}
    if not writers:
        return
    for place in np.flatnonzero(np.isin(plan.token_ids, list(writers))).tolist():
        writer = writers[int(plan.token_ids[place])]
        ends = np.flatnonzero(plan.token_ids[place:] == writer.end)
        count = int(ends[0]) + 1 if len(ends) else len(plan) - place
        yield place, count, f"{writer.modality} as {count - 2:,} codes"


def described(planned: PlannedMedia, processor: Processor) -> str:
    """What a processor says that it makes of a medium, and against it; nothing where it does not say, the reason where
    it cannot."""
    if (describe := getattr(processor, "described", None)) is None:
        return ""
    try:
        with calling(processor, "described"):
            told = describe(planned.media.load(), planned.plan)
            if not isinstance(told, str):
                raise TypeError(f"expected a text, got {type(told).__name__}")
        doubt = doubt_of(processor, planned.media.load())
    except SampleError as error:
        return f"cannot be used: {error}"
    return f"{told}; {doubt}" if doubt else told


def _called(medium: PlannedMedia) -> str:
    source, clip = medium.media.source, medium.media.clip
    name = f" {source.name}" if isinstance(source, Path) else ""
    return f"{medium.media.modality}{name}" + (f" from {clip[0]:g} to {clip[1]:g} s" if clip else "")


def source_lines(sources: Sequence[Source], held_out: Sequence[Source]) -> Iterator[str]:
    """What is trained on, held out and left out."""
    held = {source.name: len(source) for source in held_out}
    for source in sources:
        yield f"data      {in_a_line(source.name)}: {len(source):,} documents, {held.get(source.name, 0):,} held out"
        yield from _left_out_lines(source)
    for source in scored_only(sources, held_out):
        yield f"scored    {in_a_line(source.name)}: {len(source):,} documents"
        yield from _left_out_lines(source)


def scored_only(sources: Sequence[Source], held_out: Sequence[Source]) -> list[Source]:
    """Of what is held out the sources of which nothing is trained on."""
    trained = {source.name for source in sources}
    return [source for source in held_out if source.name not in trained]


def _left_out_lines(source: Source) -> Iterator[str]:
    for modality, count in getattr(source, "left_out", {}).items():
        if modality.startswith(OTHER_ROWS):
            yield f"          {count:,} left out by rows: {'it has' if count == 1 else 'they have'} {modality}"
        elif counts_files(modality):
            were = "file ({}) was" if count == 1 else "files ({}) were"
            yield f"          {count:,} {were.format(modality)} passed over"
        else:
            hold = "it holds" if count == 1 else "they hold"
            yield f"          {count:,} more left out: {hold} {modality}, which is not among --modalities"
