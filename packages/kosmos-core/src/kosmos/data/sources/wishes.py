"""How rows, and the parts of their chats, want their media sampled, as those of Qwen-VL and of the OpenAI API may say.

All media are sampled as the run's processors do it, so that nobody reads such wishes. They make no bad sample: what the
row shows is there. They are told once for a source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kosmos.data.sources.chat_turns import OPENAI, SHAREGPT, part_kind
from kosmos.data.sources.columns import Row
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.layouts import CHATS, DefaultLayout
from kosmos.data.sources.wish_names import CHANNELS, OF_ROWS, OF_TIME, is_wish, may_wish, split_wish, within
from kosmos.names import listed

_NONE: Final = (None, "auto", "")
"""What such a key says that wants nothing."""
_CONTENTS: Final = (OPENAI[1], SHAREGPT[1])
NO_ONE: Final = ""
"""In place of a modality, where nobody knows of several which is meant."""

Wish = tuple[str, str]
"""A modality and a key."""


class WishesOf:
    """Finds the wishes of rows, which are well-formed. It runs for every row with media at opening.

    Args:
        timed: modalities whose media have time.
    """

    def __init__(self, layout: Layout, timed: Collection[str]) -> None:
        self.layout, self.timed = layout, frozenset(timed)
        self._used: dict[str, bool] = {}
        """Of columns that were looked at, whether documents are made of them: asked once, not for each row."""
        self._has_chats = isinstance(layout, DefaultLayout)
        self._columns = [layout.columns.get(role, role) for role in CHATS]
        self._are_plain = all(column.isidentifier() for column in self._columns)

    def __call__(self, row: Row, needs: frozenset[str]) -> Collection[Wish]:
        """
        Args:
            needs: modalities of the row's media.
        """
        found: list[Wish] = []
        for turn in self._chat(row) if self._has_chats else ():
            for key in _CONTENTS:
                content = turn.get(key)
                if isinstance(content, list):
                    for part in content:
                        _look(part, found)
        for column, value in row.items():
            if isinstance(value, dict | list):
                self._look_in_media(column, value, needs, found)
            elif may_wish(column) and _wants(column, value):
                self._add_of_row(column, value, needs, found)
        return [wish for wish in found if not _is_given(wish, needs)]

    def _look_in_media(self, column: str, value: Any, needs: frozenset[str], found: list[Wish]) -> None:
        """Of the objects that are media."""
        modality = next((m for m in needs if column in (self.layout.columns.get(m, m), f"{m}s")), None)
        if modality is None:
            return
        for held in value if isinstance(value, list) else [value]:
            if isinstance(held, dict):
                found += ((modality, key) for key in held if is_wish(key) and _wants(key, held[key]))

    def _add_of_row(self, column: str, value: Any, needs: frozenset[str], found: list[Wish]) -> None:
        if column not in self._used:
            self._used[column] = bool(self.layout.used([column]))
        if self._used[column]:
            return
        if (both := within(column)) is not None:
            found += [(both[1], column)] if both[1] in needs else []
            return
        before, key = split_wish(column)
        if key not in OF_ROWS or not (_is_number(value) or (key in CHANNELS and _is_side(value))):
            return  # a detail is a text of the row
        if before:
            found += [(before, column)] if before in needs else []
            return
        of = sorted(needs & self.timed if key in OF_TIME else needs)
        if of:
            found.append((of[0] if len(of) == 1 else NO_ONE, column))

    def _chat(self, row: Row) -> Sequence[Mapping[str, Any]]:
        if not self._are_plain:
            assert isinstance(self.layout, DefaultLayout)
            return next((turns for role in CHATS if (turns := self.layout.value(row, role)) is not None), ())
        for column in self._columns:
            if (turns := row.get(column)) is not None:
                return turns  # type: ignore[no-any-return]
        return ()


def warnings_of(name: str, wishes: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """What is to be said of the wishes of a source, by modality."""
    for modality, keys in wishes.items():
        others = {key: both[0] for key in keys if (both := within(key)) is not None}
        channels = [key for key in keys if split_wish(key)[1] in CHANNELS]
        if channels:
            of = modality and f" of {modality}"
            yield (
                f"{name}: its rows say {listed(channels)}{of}, which is not read: a file is "
                "taken with all its channels; where one is meant, write it into a file of its own and name that"
            )
        if sampled := [key for key in keys if key not in others and key not in channels]:
            of, media, there = ("", "media are", "NAME")
            if modality != NO_ONE:
                of, media, there = f" of {modality}", f"all {modality} is", modality
            yield (
                f"{name}: its rows say {listed(sampled)}{of}, which is not read; {media} sampled alike, by "
                f"modalities.{there}.processor (kosmos explain {there} tells its options)"
            )
        for key, other in others.items():
            yield (
                f"{name}: its rows say {key}, which is not read, so that nothing is learned of the {other}; name each "
                f'file of {modality} as {other} too ({{"{modality}": FILE, "{other}": FILE}}), in a run with both '
                "among its modalities"
            )


def _wants(key: str, said: Any) -> bool:
    if said in _NONE or said != said:
        return False
    return within(key) is None or (bool(said) and str(said).lower() not in ("false", "0"))


def _is_number(value: Any) -> bool:
    """Whether it is a number, or a text that spells one, as in rows of CSV."""
    if isinstance(value, str):
        return value.strip().replace(".", "", 1).isdecimal()
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_side(value: Any) -> bool:
    """Whether a text names one of two channels."""
    return str(value).strip().lower() in ("a", "b", "l", "r", "left", "right")


def _is_given(wish: Wish, needs: frozenset[str]) -> bool:
    """Whether what a row wants of another modality is among its media."""
    both = within(wish[1])
    return both is not None and both[0] in needs


def _look(part: Any, found: list[Wish]) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" or not isinstance(kind, str):
        return
    _add(part, part, found)
    if isinstance(held := part.get(kind), dict):
        _add(held, part, found)


def _add(held: Mapping[str, Any], part: Any, found: list[Wish]) -> None:
    found += ((part_kind(part, ""), key) for key in held if is_wish(key) and _wants(key, held[key]))
