"""Tags that texts of others have in the places of media: ``<image_1>``, ``<ImageHere>``, ``[IMG]``. Here they are text.

The media stand elsewhere then, and a question that says which is which cannot be understood. Told, and not refused: a
text may be about such tags.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from kosmos.data.document import Document, Media, Source, StoredMedia, Text
from kosmos.data.foreign import calling
from kosmos.data.in_memory import Documents
from kosmos.data.placeless import Placeless, placeless_line
from kosmos.data.sources.source import RowSource
from kosmos.data.sources.well_known import WELL_KNOWN
from kosmos.errors import SampleError
from kosmos.names import listed

LOOKED_AT, SOURCES = 16, 32
"""Documents of a source whose texts are looked at, and sources: for thousands a start would wait."""
MOST_CHARS = 64 * 1024
"""Of a document's texts, from the beginning."""
_TAG = re.compile(
    r"<\|?(?P<angle>/?\s?[A-Za-z][\w .:#-]{0,38}?)\s?[|/]?>(?:</(?P=angle)>)?"
    r"|(?<![\w!\]])\[(?P<square>[A-Za-z][\w .:#-]{0,38})\](?![\w(\[])"
)
"""In square brackets none that is code (``x[image]``) or a link (``![image](a.png)``)."""
_EDGE = r"<[A-Za-z]\w{1,29}>"
_EDGES = re.compile(rf"(?<!\w)(?:{_EDGE}[^\S\n]*)+")
"""They count there, where a line begins or ends: elsewhere it may be code, or what is to be written."""
_EMPTY = re.compile(r"<([^<>\n]{1,40})></\1>")
_CLOSED = re.compile(r"</\s?([^<>\n]{1,40})>")
_VOID = frozenset("area base br col embed hr input link meta param source track wbr".split())
"""Elements of HTML that are never closed."""
_BESIDE = frozenset(["", *"s here file input tag feature features token soft_token pad placeholder context".split()])
"""What a tag may have beside what its media are called."""
_LEAST = 3
"""Letters of what media are called for short."""


class Tag(NamedTuple):
    """What stands in the places of media."""

    name: str
    """In small letters, without numbers."""
    spelled: tuple[str, ...]
    """As a document has it."""
    modality: str
    """Of the media."""
    is_numbered: bool


def doubtful_places(sources: Sequence[Source], modalities: Collection[str]) -> Iterator[str]:
    """Warnings of tags that at least half of the first documents with media spell, once for each of their media, and of
    documents that have a place and no medium (``kosmos.data.placeless``), of rows of files and what is in memory.

    Args:
        modalities: of the run.
    """
    known = {*modalities, *WELL_KNOWN}
    # Those of plugins may make their documents slowly, or hang: that is for data workers, which are waited for.
    plain = (source for source in sources if isinstance(source, RowSource | Documents))
    for source in islice(plain, SOURCES):
        found: list[list[Tag]] = []
        looked_at, placeless = min(LOOKED_AT, len(source)), Placeless(modalities)
        for index in range(looked_at):
            try:
                with calling(source, "document"):
                    document = source.document(index)
            except SampleError:  # which is a bad sample, and told as such
                continue
            placeless.look(document)
            if any(document.media):
                found.append([*tags_of(document, known)])
        counts = Counter(tag.name for tags in found for tag in tags)
        told = [name for name, count in counts.items() if 2 * count >= len(found)]
        first = {tag.name: tag for tags in reversed(found) for tag in tags}
        if told:
            yield _line(source.name, [first[name] for name in told])
        for modality, count in placeless.counts.items():
            yield placeless_line(source.name, modality, count, looked_at, placeless.first)


def tags_of(document: Document, known: Collection[str]) -> Iterator[Tag]:
    """The tags of a document that seem to stand for its media: what asks for an answer, or else the whole, spells each
    as often as there are media; tags that are equal but for capitals and a number count together.

    They are called as media are, or ask where a line begins or ends. None is closed anywhere, as what an answer is to
    stand in is. Numbers beside media that stand between the texts are what these are called.

    Args:
        known: what media are called.
    """
    modalities = [s.modality for s in document.segments if isinstance(s, Media | StoredMedia)]
    if not modalities:
        return
    said = [segment for segment in document.segments if isinstance(segment, Text)]
    asked = [segment for segment in said if not segment.train]
    text, every = ("\n".join(segment.text for segment in found)[:MOST_CHARS] for found in (asked or said, said))
    spelled: dict[str, list[str]] = {}
    for match in _TAG.finditer(text):
        if name := _name_of(match):
            spelled.setdefault(name, []).append(match[0])
    edges = Counter(_at_edges(text))
    closed = {_bare(name) for name in _CLOSED.findall(_EMPTY.sub("", every))}
    for name, tags in spelled.items():
        numbers = {int(number) for tag in tags for number in re.findall(r"\d+", tag)}
        is_medium = _is_medium(name, known)
        if name in closed or (numbers and _stand_apart(document)):
            continue
        if not is_medium and (not asked or name in _VOID or sum(edges[tag] for tag in {*tags}) < len(tags)):
            continue
        several = numbers and is_medium and max(numbers) <= len(modalities)  # each may be named again, or not at all
        if several or len(tags) == len(modalities):
            yield Tag(name, tuple(dict.fromkeys(tags)), modalities[0], bool(numbers))


def _at_edges(text: str) -> Iterator[str]:
    """Tags where a line begins or ends."""
    for line in text.split("\n"):
        for found in _EDGES.finditer(line):
            if found.end() == len(line) or not line[: found.start()].strip():
                yield from re.findall(_EDGE, found[0])


def _name_of(match: re.Match[str]) -> str:
    """Of a tag; empty where it is none that could stand for a medium."""
    body = match["angle"] or match["square"]
    if body.startswith("/"):
        return ""
    name = _bare(body)
    return name if len(name) > 1 and not re.search(r"[ .:#-]", name) else ""


def _bare(body: str) -> str:
    """A tag's name in small letters, without a number and what sets that apart."""
    return re.sub(r"[\s_.:#-]*\d+[\s_.:#-]*", "", body.strip()).lower()


def _is_medium(name: str, known: Collection[str]) -> bool:
    """Whether media are called so, or so for short."""
    for one in (word.lower() for word in known):
        if one in name and name.replace(one, "", 1).strip("_") in _BESIDE:
            return True
        if _LEAST <= len(name) < len(one) and name[0] == one[0]:
            letters = iter(one)
            if all(letter in letters for letter in name):
                return True
    return False


def _stand_apart(document: Document) -> bool:
    """Whether media stand between texts."""
    kinds = [isinstance(s, Text) for s in document.segments if isinstance(s, Text | Media | StoredMedia)]
    first, last = kinds.index(False), len(kinds) - kinds[::-1].index(False)
    return any(kinds[first:last])


def _line(name: str, tags: Sequence[Tag]) -> str:
    places = listed(sorted({f"<{tag.modality}>" for tag in tags}))
    order = ", with the files in the order of these places" if any(tag.is_numbered for tag in tags) else ""
    spelled = listed([one for tag in tags for one in tag.spelled], at_most=6)
    return (
        f"{name}: texts spell {spelled}, which stay plain text: no medium stands there; where one belongs write "
        f"{places} in a chat{order} (no option names another placeholder), and segments in other rows"
    )
