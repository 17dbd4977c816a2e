"""Media that say before which text of a row they stand, as MMC4 has them.

``{"text_list": ["Intro.", "A cat sleeps."], "image_info": [{"image_name": "cat.png", "matched_text_index": 1}]}``
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from kosmos.data.sources.arrays import ARRAY
from kosmos.data.sources.columns import kind_of
from kosmos.data.sources.media import KEYS, holds_medium
from kosmos.errors import SampleError
from kosmos.names import listed

INDEX = "matched_text_index"
"""Key of a medium that says, from 0 on, before which text it stands."""
BETWEEN = " "
"""What begins a text behind another one: both are sentences of one page."""
_LISTS = ("text_list", "texts_list")
"""What others call a list of texts in turn with media."""


def is_matched(media: Mapping[str, tuple[str, Any]]) -> bool:
    """Whether the media of a row, modality to column and what that holds, say where they stand."""
    return any(map(_says_where, (held for _, held in media.values())))


def _says_where(held: Any) -> bool:
    """Whether one of a list of media names its text."""
    items = [item for item in held if item is not None] if isinstance(held, list | tuple) else []
    return all(isinstance(item, Mapping) for item in items) and any(item.get(INDEX) is not None for item in items)


def in_turn(
    texts: Sequence[str | None], name: str, media: Mapping[str, tuple[str, Any]]
) -> tuple[list[str | None], dict[str, tuple[str, Any]]]:
    """Texts and media with a place for each: media stand in front of the text that they name, in the order of their
    list. Null in a list is no medium.

    Args:
        texts: of the row.
        name: of that column.
        media: modality to its column and what that holds.

    Raises:
        SampleError: a medium names no text, or an object no medium.
    """
    before: dict[int, list[tuple[str, Any]]] = {}
    for modality, (column, held) in media.items():
        for number, item in enumerate(held if isinstance(held, list | tuple) else ()):
            if item is None:
                continue
            index = item.get(INDEX) if isinstance(item, Mapping) else None
            if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(texts):
                got = index if isinstance(index, int) else kind_of(index)
                raise SampleError(
                    f"{column}[{number}].{INDEX}: expected a number of one of the {len(texts)} {name}, from 0 on, got "
                    f"{got}"
                )
            before.setdefault(index, []).append((modality, _medium(modality, item, f"{column}[{number}]")))
    places: list[tuple[str | None, str, Any]] = []
    for index, text in enumerate(texts):
        places += [(None, modality, medium) for modality, medium in before.get(index, ())]
        places.append((text, "", None))
    found = {
        modality: (column, [medium if own == modality else None for _, own, medium in places])
        for modality, (column, _) in media.items()
    }
    return [text for text, _, _ in places], found


def _medium(modality: str, item: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What an object says of its medium, for ``read_media``: the name that MMC4 has is its path.

    Raises:
        SampleError: nothing in it names a medium.
    """
    said = {key: value for key, value in item.items() if key != INDEX and value is not None}
    name = said.pop(f"{modality}_name", None)
    if name is not None:
        return {**said, "path": name}
    if any(holds_medium(said.get(key)) for key in (*KEYS, ARRAY, modality)):
        return said
    if (address := said.get("raw_url")) is not None:  # which is refused as one
        return {**said, "path": address}
    named = ", ".join((f"{modality}_name", modality, *KEYS))
    raise SampleError(f"{where}: names no medium; expected one of {named}, got {listed(item, at_most=8)}")


def likely_in_turn(columns: Collection[str], modalities: Collection[str]) -> str:
    """``columns`` by which a table becomes texts and media in turn; empty where it does not look like any."""
    texts = next((name for name in _LISTS if name in columns), None)
    if texts is None:
        return ""
    names = ((modality, f"{modality}_{end}") for modality in modalities for end in ("info", "list"))
    beside = (f"{modality}: {name}" for modality, name in names if name in columns)
    return f"columns: {{{', '.join([f'texts: {texts}', *beside])}}}"


def sentences(value: Any) -> Iterator[str]:
    """The texts of a list that are sentences, and no tags."""
    for text in value if isinstance(value, list | tuple) else ():
        if isinstance(text, str) and (len(text) > 80 or text.rstrip().endswith((".", "!", "?", "\u3002"))):
            yield text
