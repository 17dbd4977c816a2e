"""The media that stand beside a chat, or beside the content of a turn, and their places in its texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kosmos.data.marks import USER
from kosmos.data.sources.chat_turns import Parts
from kosmos.data.sources.media import holds_medium
from kosmos.data.sources.times import RowTimes
from kosmos.data.sources.tools import ANSWER
from kosmos.data.sources.well_known import FOR_OTHERS, WELL_KNOWN
from kosmos.errors import SampleError

_WELL_KNOWN_PLACE = re.compile(f"<(?:{'|'.join(sorted({*WELL_KNOWN.values()}))})>")
"""In what is asked it means a medium, be it one that the row lacks."""


class RowMedia:
    """The media of a row's own columns: each is taken by the next part or placeholder that names its modality."""

    def __init__(self, held: Mapping[str, tuple[str, Any]], times: RowTimes, modalities: tuple[str, ...] = ()) -> None:
        """
        Args:
            held: modality to the column that holds its media, and what stands there. A text may say ``<image>`` for
                these modalities alone: in a chat about HTML it is what it is.
            times: which stretches of media the row means.
            modalities: of which media may stand in the turns themselves.
        """
        self.times, self.modalities = times, modalities
        self._columns = {modality: column for modality, (column, _) in held.items()}
        self._media = {modality: _listed(value) for modality, (_, value) in held.items()}
        self._taken = dict.fromkeys(held, 0)
        self._meant: dict[str, str] = {}
        """Name in a placeholder to the modality that is meant, where it is another."""
        self._placeholder = _placeholder_of(held) if held else None

    def split(self, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """A text as parts with their kinds: what stands between placeholders, and a part for each of them."""
        pieces = self._placeholder.split(text) if self._placeholder is not None else [text]
        for number, piece in enumerate(pieces):
            kind = self._meant.get(piece, piece) if number % 2 else "text"
            yield kind, {"type": kind} if number % 2 else {"text": piece}

    def is_said(self, text: str, written: Sequence[str] = ()) -> bool:
        """Whether a text says anything beside the places of media, those of modalities that are ``written`` aside."""
        return any(piece["text"].strip() if kind == "text" else kind in written for kind, piece in self.split(text))

    def column(self, modality: str) -> str | None:
        """That holds, or should hold, the row's media of a modality; None where the row has none."""
        return self._columns.get(modality)

    def holds(self, modality: str) -> bool:
        """Whether the row has a medium of a modality."""
        return bool(self._media.get(modality))

    def adopt(self, contents: Iterable[Any]) -> None:
        """Let ``<image>`` stand for the media of the row where it holds those of one other modality alone, as many as
        there are of it in all texts of the chat, and none of these has a place for them.

        Args:
            contents: of the turns. Where one is no text, its parts are the places.
        """
        if len(self._media) != 1 or FOR_OTHERS in self._media or self._placeholder is None:
            return
        [(modality, media)], texts = self._media.items(), list(contents)
        if not media or not all(isinstance(text, str) for text in texts) or any(map(self._placeholder.search, texts)):
            return
        if sum(text.count(f"<{FOR_OTHERS}>") for text in texts) == len(media):
            self._placeholder, self._meant = _placeholder_of([FOR_OTHERS]), {FOR_OTHERS: modality}

    def leading(self, chat: Iterable[tuple[str, Parts]]) -> list[str]:
        """Modalities of all media, in order, where nothing in a chat is the place of any: they begin what is asked.

        Args:
            chat: role and parts of each turn.
        """
        media, place = [modality for modality, found in self._media.items() for _ in found], self._placeholder
        if not media or place is None:
            return []
        for role, parts in chat:
            for kind, part in parts:
                text = str(part.get("text"))
                if kind != "text" or place.search(text) or (role == USER and _WELL_KNOWN_PLACE.search(text)):
                    return []
        return media

    def take(self, modality: str, what: str) -> Any:
        """The next medium. Raises SampleError, which says ``what`` asked, where there is none."""
        media, taken = self._media.get(modality, []), self._taken.get(modality, 0)
        if taken == len(media):
            column = self._columns.get(modality, f"{modality}s")
            if not taken:
                raise SampleError(f"{what} holds no medium, and the row has none in {column}")
            raise SampleError(
                f"{what} is place {taken + 1} for {modality}, and {column} holds {count_of(media)}; take it out, or "
                "add its medium"
            )
        self._taken[modality] = taken + 1
        return media[taken]

    def check_all_taken(self) -> None:
        """Raises SampleError where a medium is left: a model that never sees it would learn to answer without."""
        for modality, media in self._media.items():
            if (taken := self._taken[modality]) < len(media):
                raise SampleError(
                    f"{self._columns[modality]} holds {count_of(media)}, {taken} placed; "
                    f'put <{modality}> or {{"type": "{modality}"}} where each belongs'
                )


def count_of(media: Sequence[Any]) -> str:
    return "1 medium" if len(media) == 1 else f"{len(media)} media"


def _placeholder_of(names: Iterable[str]) -> re.Pattern[str]:
    """A line of its own is how it is written, so one line end beside it is no part of the text, unless that is of the
    frame around what a tool has answered."""
    begin, end = (re.escape(frame.strip()) for frame in ANSWER)
    places = "|".join(map(re.escape, names))
    return re.compile(rf"(?:(?<!\s)(?<!{begin})\n)?<({places})>(?:\n(?!\s|{end}))?")


def _listed(value: Any) -> list[Any]:
    return [item for item in (value if isinstance(value, list | tuple) else [value]) if holds_medium(item)]
