"""Media that can be used, and of which a processor says that they hardly come out as they were meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kosmos.data.document import Media, Source
from kosmos.data.foreign import called, calling
from kosmos.data.plan import Route
from kosmos.data.processor import Processor
from kosmos.data.spread import spread
from kosmos.errors import SampleError

LOOKED_AT = 8
"""Documents of a source, from all over it, that are looked at: a processor may decode their media for it."""


def doubt_of(processor: Processor, media: Media) -> str:
    """What the processor has to say against a medium that can be used; empty where nothing, or where it never does.

    Raises:
        SampleError: the medium cannot be used, or the processor fails at it.
    """
    asked: Any = getattr(processor, "doubt", None)
    if asked is None:
        return ""
    with calling(processor, "doubt"):
        told = asked(media)
    if not isinstance(told, str):
        raise SampleError(f"{called(processor, 'doubt')}: expected a text, got {type(told).__name__}")
    return told


def doubted_media(routes: Mapping[str, Route], sources: Sequence[Source]) -> Iterator[str]:
    """A warning of each source and modality of which at least half of the media looked at are doubted.

    Args:
        routes: where the media of a run's modalities go.
    """
    asked = {name: route for name, route in routes.items() if getattr(route.processor, "doubt", None) is not None}
    for source in sources if asked else ():
        looked_at, doubted, first = Counter[str](), Counter[str](), dict[str, str]()
        for index in spread(len(source), LOOKED_AT).tolist():
            for name, told in _told(asked, source, index):
                looked_at[name] += 1
                doubted[name] += bool(told)
                if told:
                    first.setdefault(name, f"{source.origin(index)}: {told}" if hasattr(source, "origin") else told)
        for name, told in first.items():
            if 2 * doubted[name] >= looked_at[name]:
                yield (
                    f"{source.name}: {doubted[name]} of {looked_at[name]} {name} items looked at are hardly read as "
                    f"meant, such as {told}"
                )


def _told(routes: Mapping[str, Route], source: Source, index: int) -> Iterator[tuple[str, str]]:
    """The modality of each medium of a document that can be asked for, and what is said against it."""
    try:
        with calling(source, "document"):
            media = [*source.document(index).media]
        for medium in media:
            if (route := routes.get(medium.modality)) is not None:
                yield medium.modality, doubt_of(route.processor, medium.load())
    except SampleError:  # which is a bad sample, and told as such
        return
