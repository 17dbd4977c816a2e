"""Whether texts of a processor's layouts are what they seem to be: a mark that is misspelt is learned as letters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from kosmos.data.document import Media, Source, StoredMedia
from kosmos.data.foreign import calling
from kosmos.data.kept_plans import plan_of
from kosmos.data.plan import Route
from kosmos.errors import SampleError
from kosmos.names import did_you_mean, listed

LOOKED_AT = 4
"""Documents of a source whose layouts are looked at."""
_LIKE_A_MARK = re.compile(r"</?[^\W\d][^\s<>]*>")
"""``<name>`` and ``</name>``; what begins with a digit is a time."""


def misspelt_marks(routes: Mapping[str, Route], sources: Sequence[Source]) -> Iterator[str]:
    """Warnings of texts of layouts, in the first documents of each source, that look like marks and are none.

    Not refused, and not looked for in every document: a layout may have texts of the medium itself, as of subtitles.
    """
    told: set[tuple[str, str]] = set()
    for source in sources:
        for index in range(min(LOOKED_AT, len(source))):
            for modality, text in _doubtful(routes, source, index):
                if (modality, text) not in told:
                    told.add((modality, text))
                    yield _line(modality, text, routes[modality].marks)


def _doubtful(routes: Mapping[str, Route], source: Source, index: int) -> Iterator[tuple[str, str]]:
    try:
        with calling(source, "document"):
            media = [*source.document(index).media]
        for medium in media:
            if (route := routes.get(medium.modality)) is not None:
                yield from ((medium.modality, text) for text in _texts(medium, route))
    except SampleError:  # which is a bad sample, and told as such
        return


def _texts(medium: Media | StoredMedia, route: Route) -> list[str]:
    found = plan_of(route.processor, medium.load())
    texts = [part for part in found.layout if isinstance(part, str) and part not in route.marks]
    return [text for text in texts if _LIKE_A_MARK.fullmatch(text.strip())]


def _line(modality: str, text: str, marks: frozenset[str]) -> str:
    near = did_you_mean(text.strip(), marks)
    return (
        f"modality {modality}: its processor puts {text!r} into a layout, which is none of its marks "
        f"({listed(sorted(marks)) or 'there are none'}) and is learned as letters; "
        f"{near or 'where it is meant as a mark, add it to the marks of its ModalitySpec'}"
    )
