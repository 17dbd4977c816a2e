"""How rows, and the parts of their chats, want their media sampled, as those of Qwen-VL and of the OpenAI API may say.

All media are sampled as the run's processors do it, so that nobody reads such wishes. They make no bad sample: what the
row shows is there. They are told once for a source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kosmos.data.sources.arrays import ARRAY, NO_MORE, Taken
from kosmos.data.sources.chat_turns import OPENAI, SHAREGPT, part_kind
from kosmos.data.sources.columns import Row
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.layouts import CHATS, DefaultLayout
from kosmos.data.sources.media import KEYS
from kosmos.data.sources.wish_names import (
    CHANNELS,
    NO_RATE,
    OF_ROWS,
    OF_TIME,
    RATES,
    READ_RATES,
    is_like_rate,
    is_wish,
    may_wish,
    split_wish,
    within,
)
from kosmos.names import listed

_CONTENTS: Final = (OPENAI[1], SHAREGPT[1])
NO_ONE: Final = ""
"""In place of a modality, where nobody knows of several which is meant."""

Wish = tuple[str, str]
"""A modality and a key."""


class WishesOf:
    """Finds the wishes of rows, which are well-formed. It runs for every row with media at opening.

    Args:
        timed: modalities whose media have time.
        taken: those that read the rates of files, and of numbers, in their objects: these are no wishes there, and what
            is called almost as they are is one.
    """

    def __init__(self, layout: Layout, timed: Collection[str], taken: Taken = NO_MORE) -> None:
        self.layout, self.taken, self.timed = layout, taken, frozenset((*timed, *taken.rated))
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
                        self._look(part, found)
            for modality in needs:
                for key in turn.keys() & {modality, f"{modality}s"}:
                    self._look_in_objects(modality, turn[key], found)
        for column, value in row.items():
            if isinstance(value, dict | list):
                self._look_in_media(column, value, needs, found)
            elif may_wish(column) and _wants(column, value):
                self._add_of_row(column, value, needs, found)
        return [wish for wish in found if not _is_given(wish, needs) and not self._is_no_rate(*wish)]

    def _look_in_media(self, column: str, value: Any, needs: frozenset[str], found: list[Wish]) -> None:
        """Of the objects that are media."""
        if column == self.layout.columns.get("segments", "segments"):
            for part in value if isinstance(value, list) else ():
                for modality in needs & part.keys() if isinstance(part, dict) else ():
                    self._look_in_objects(modality, part[modality], found)
        elif modality := next((m for m in needs if column in (self.layout.columns.get(m, m), f"{m}s")), ""):
            self._look_in_objects(modality, value, found)

    def _look_in_objects(self, modality: str, value: Any, found: list[Wish]) -> None:
        for held in value if isinstance(value, list) else [value]:
            if isinstance(held, dict):
                found += ((modality, key) for key in self._keys_of(held, modality))

    def _keys_of(self, held: Mapping[str, Any], modality: str) -> Iterator[str]:
        """The wishes of an object: what is not read of those that it holds."""
        reads_rate = held.get(ARRAY) is not None or (
            self.taken.reads_rate(modality) and any(held.get(key) is not None for key in KEYS)
        )
        for key, said in held.items():
            is_meant = reads_rate and is_like_rate(key)
            if (is_meant or (is_wish(key) and not (reads_rate and key in READ_RATES))) and _wants(key, said):
                yield key

    def _look(self, part: Any, found: list[Wish]) -> None:
        """At a part of a chat."""
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" or not isinstance(kind, str):
            return
        modality = part_kind(part, "")
        for held in (part, part.get(kind)):
            if isinstance(held, dict):
                found += ((modality, key) for key in self._keys_of(held, modality))

    def _is_no_rate(self, modality: str, key: str) -> bool:
        """Whether it would be the rate of media that have no time."""
        return split_wish(key)[1] in RATES and modality != NO_ONE and modality not in self.timed

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
        of = sorted(needs & self.timed if key in OF_TIME or key in RATES else needs)
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


def warnings_of(name: str, wishes: Mapping[str, Iterable[str]], rated: Collection[str] = ()) -> Iterator[str]:
    """What is to be said of the wishes of a source, by modality.

    Args:
        rated: modalities that read the rates of files.
    """
    for modality, keys in wishes.items():
        others = {key: both[0] for key in keys if (both := within(key)) is not None}
        channels = [key for key in keys if split_wish(key)[1] in CHANNELS]
        if channels:
            of = modality and f" of {modality}"
            yield (
                f"{name}: its rows say {listed(channels)}{of}, which is not read: a file is "
                "taken with all its channels; where one is meant, write it into a file of its own and name that"
            )
        if rates := [key for key in keys if split_wish(key)[1] in RATES or is_like_rate(key)]:
            yield f"{name}: its rows say {listed(rates)}{_of_rates(modality, rated)}"
        if sampled := [key for key in keys if key not in others and key not in channels and key not in rates]:
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


def _of_rates(modality: str, rated: Collection[str]) -> str:
    """Behind the names of rates: why they are not read, and what to do."""
    if modality in rated:
        return (
            f" of {modality}, which is not read; the object of a file states its rate, as rate_hz or sampling_rate "
            f'({{"{modality}": {{"path": FILE, "rate_hz": N}}}})'
        )
    of, there = ("", "NAME") if modality == NO_ONE else (f" of {modality}", modality)
    more = "; a modality that takes the rates of files has it in the object of each" if modality == NO_ONE else ""
    return (
        f"{of}, which is not read; a file is read at the rate that it states, else as modalities.{there}.processor has "
        f"it (kosmos explain {there} tells its options){more}"
    )


def _wants(key: str, said: Any) -> bool:
    if said in NO_RATE or said != said:
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
