"""How the parts of a chat want their media sampled, as those of Qwen-VL and of the OpenAI API may say.

All media are sampled as the run's processors do it, so that nobody reads such wishes. They make no bad sample: what the
part shows is there. They are told once for a source.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from kosmos.data.sources.columns import Row
from kosmos.data.sources.layouts import CHATS, DefaultLayout
from kosmos.data.sources.messages import OPENAI, SHAREGPT, part_kind

WISHES: Final = frozenset(
    "fps sample_fps nframes num_frames min_frames max_frames total_pixels min_pixels max_pixels resized_height "
    "resized_width detail".split()
)
_NONE: Final = (None, "auto")
"""What such a key says that wants nothing."""
_CONTENTS: Final = (OPENAI[1], SHAREGPT[1])

Wish = tuple[str, str]
"""A modality and a key."""


class WishesOf:
    """Finds the wishes in the chats of rows, which are well-formed. It runs for every row at opening."""

    def __init__(self, layout: DefaultLayout) -> None:
        self.layout = layout
        self._columns = [layout.column(role) for role in CHATS]
        self._are_plain = all(column.isidentifier() for column in self._columns)

    def __call__(self, row: Row) -> Collection[Wish]:
        found: list[Wish] = []
        for turn in self._chat(row):
            for key in _CONTENTS:
                content = turn.get(key)
                if isinstance(content, list):
                    for part in content:
                        _look(part, found)
        return found

    def _chat(self, row: Row) -> Sequence[Mapping[str, Any]]:
        if not self._are_plain:
            return next((turns for role in CHATS if (turns := self.layout.value(row, role)) is not None), ())
        for column in self._columns:
            if (turns := row.get(column)) is not None:
                return turns  # type: ignore[no-any-return]
        return ()


def _look(part: Any, found: list[Wish]) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" or not isinstance(kind, str):
        return
    if not WISHES.isdisjoint(part):
        _add(part, part, found)
    if isinstance(held := part.get(kind), dict) and not WISHES.isdisjoint(held):
        _add(held, part, found)


def _add(held: Mapping[str, Any], part: Any, found: list[Wish]) -> None:
    found += ((part_kind(part, ""), key) for key in WISHES.intersection(held) if held[key] not in _NONE)
