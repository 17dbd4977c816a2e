"""Rows of preferences: two answers to one prompt, of which one was chosen and the other rejected.

| columns beside the prompt | from | the prompt |
|---|---|---|
| ``chosen``, ``rejected``: texts | TRL, LLaMA-Factory | ``prompt``, ``instruction``, ``query`` or ``question`` |
| ``chosen``, ``rejected``: texts | hh-rlhf | what both begin with |
| ``chosen``, ``rejected``: chats, or their ends | TRL, UltraFeedback | ``prompt``, ``messages``, or what they share |
| ``chosen``, ``rejected``: a turn each | LLaMA-Factory | ``conversations`` or ``messages`` |
| ``rejected_response``, or ``rejected_messages`` | ms-swift | ``messages`` to the last answer, which was chosen |

Each becomes two rows of the usual forms, the better one and the worse one, which are read as any row. Of what both
begin with nothing is learned.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from kosmos.data.asked import not_learned
from kosmos.data.document import Mark, Segment, Text, is_written
from kosmos.data.marks import ASSISTANT
from kosmos.data.pair_plans import NAMES, OTHER_PROMPTS, SAME, TWO_TO_ONE
from kosmos.data.sources import forms, messages
from kosmos.data.sources.columns import (
    Row,
    is_empty,
    kind_of,
    look_up,
    parse_path,
    require_column,
    text_value,
    top_column,
)
from kosmos.data.sources.layouts import CHATS, LEARNED, DefaultLayout
from kosmos.data.sources.pair_turns import (
    Turns,
    Two,
    after,
    answer_in,
    as_turns,
    has_user,
    is_answered,
    is_assistants,
    plain_text,
    prompt_of,
    says,
    told_of,
    turns_in,
)
from kosmos.data.sources.preferences import CHOSEN, REJECTED, REJECTED_MESSAGES, WORSE, is_answer, is_rejected
from kosmos.data.sources.right_answers import ANSWERS
from kosmos.data.sources.splits import advice_on, field_of
from kosmos.data.sources.well_known import WELL_KNOWN
from kosmos.data.sources.written_media import is_same_written
from kosmos.errors import ConfigError, SampleError
from kosmos.names import listed, nearest

_LEARNED = frozenset(("text", "segments", *CHATS, forms.TEXTS, *forms.ASKS.values(), ANSWERS))
"""Roles of what is learned. Who names one of them says what is to be learned, and means no pair."""
_WORSE = frozenset(WORSE)
_PAIR = (CHOSEN, REJECTED)
"""Roles that ``columns`` may name: of such rows a chat is the prompt."""
LAST_TURN, NEXT_TURN = "\n\nAssistant:", "\n\nHuman:"
"""Open the answers of Anthropic's hh-rlhf, and what is said behind them."""


def may_hold_pairs(columns: Mapping[str, str], *, template: bool = False) -> bool:
    """Whether rows of preferences are pairs: nobody has said what is learned, or it is said which answers are meant.

    Args:
        columns: of the source, by role.
        template: whether one says what is learned.

    Raises:
        ConfigError: both is said.
    """
    if (named := next((role for role in _PAIR if role in columns), None)) is None:
        return not template and _LEARNED.isdisjoint(columns)
    beside = "template" if template else next((f"columns.{n}" for n in columns if n in _LEARNED and n not in CHATS), "")
    if beside:
        raise ConfigError(f"columns.{named}: {beside} says what is learned, too, and no pair; leave one of them out")
    return True


@dataclass(frozen=True)
class PairLayout(DefaultLayout):
    """The default forms, and rows of preferences among them."""

    def check(self, columns: Collection[str]) -> None:
        named = {role: self.column(role) for role in _PAIR} if self._names_answers else {}
        if self.asked and named and not self._named(columns):  # prompts alone
            paths = {role: path for role, path in self.columns.items() if role not in _PAIR}
            replace(self, columns=paths).check(columns)
        elif named or (CHOSEN in columns and REJECTED in columns):
            for role, path in {**named, **self.columns}.items():
                if not (self.asked and role in LEARNED):
                    require_column(path, columns, field_of(role), advice_on(role, path))
        else:
            super().check(columns)

    def _likely(self, columns: Collection[str]) -> str:
        return misspelt(columns) or super()._likely(columns)

    def used(self, columns: Collection[str]) -> set[str]:
        chosen = {CHOSEN}.intersection(columns) if REJECTED in columns else set()
        return super().used(columns) | chosen | self._named(columns)

    def scanned(self, columns: Collection[str], plain: Collection[str] = ()) -> tuple[list[str], list[str]]:
        light, media = super().scanned(columns, plain)
        return [*light, *(c for c in self._chats_in(columns) if c not in plain and c not in light)], media

    def nested(self, columns: Collection[str]) -> set[str]:
        return super().nested(columns) | {REJECTED_MESSAGES}.intersection(columns)

    @property
    def answers(self) -> set[str]:
        """The columns that may hold answers of a pair."""
        return {CHOSEN, *WORSE, *(str(parse_path(self.column(role))[0]) for role in _PAIR)}

    @cached_property
    def _names_answers(self) -> bool:
        """Whether ``columns`` names those of a pair."""
        return not self.columns.keys().isdisjoint(_PAIR)

    def _named(self, columns: Collection[str]) -> set[str]:
        """The columns that hold the answers, where they are named."""
        if not self._names_answers:  # as mostly
            return set()
        return {top_column(self.column(role), columns) for role in _PAIR}.intersection(columns)

    def _chats_in(self, columns: Collection[str]) -> list[str]:
        """Columns that may hold chats of a pair."""
        named = self._named(columns)
        if not named and _WORSE.isdisjoint(columns):  # as of most rows
            return []
        return [name for name in (self.column(forms.GOES_ON), CHOSEN, *WORSE, *sorted(named)) if name in columns]

    def _usual(self, row: Row, *, all_there: bool = True) -> Row:
        """The row with the answers of a pair under their usual names.

        Args:
            all_there: whether it has all columns.
        """
        if not self._names_answers:  # as mostly
            return row
        paths = {role: self.column(role) for role in _PAIR}
        others = {top_column(path, row) for role, path in self.columns.items() if role not in _PAIR}
        kept = {name: value for name, value in row.items() if name not in paths.values() or name in others}
        may_lack = self.asked or not all_there
        found = {r: look_up(row, path) for r, path in paths.items() if not may_lack or top_column(path, row) in row}
        return {**kept, **found}

    def needs(self, row: Row) -> frozenset[str]:
        row = self._usual(row, all_there=False)
        needed = super().needs(row)
        for name in () if self._has_text(row) else self._chats_in(row):
            if isinstance(row[name], list | tuple) and row[name] and isinstance(row[name][0], Mapping):
                with suppress(SampleError):  # what is wrong with it is told where the row is read, if it is a pair
                    needed |= messages.needs(row[name], name)
        return needed

    def references(self, row: Row) -> tuple[str, ...]:
        row = self._usual(row)
        two = self._two(row)
        return super().references(row if two is None else two[0])

    def segments(self, row: Row, root: Path) -> tuple[Segment, ...]:
        return self.both(row, root)[0]

    def both(self, row: Row, root: Path) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
        """Those of the row, of a pair those of the better one; and those of the worse one, if it is a pair and is not
        there to be continued.

        Raises:
            SampleError: this row cannot be used.
        """
        row = self._usual(row)
        two = self._two(row)
        if two is None:
            return self._of_no_pair(row, root), ()
        if self.asked:
            return self._read(two[0], root, CHOSEN), ()
        better, worse = (self._read(one, root, name) for one, name in zip(two, _PAIR, strict=True))
        return apart(better, worse)

    def _of_no_pair(self, row: Row, root: Path) -> tuple[Segment, ...]:
        try:
            return super().segments(row, root)
        except SampleError as error:
            if not (likely := misspelt(row)) or likely in str(error):
                raise
            raise type(error)(f"{error}{likely}") from error

    def is_chat(self, row: Row) -> bool:
        """Whether the row is a pair of chats."""
        try:
            two = self._two(self._usual(row))
        except SampleError:
            return False
        if two is None:
            return False
        form = None if "text" in two[0] else self.form(two[0], lambda column: two[0][column] is not None)
        return self.chat(two[0]) is not None or form not in (None, forms.GOES_ON)

    def _read(self, row: Row, root: Path, name: str) -> tuple[Segment, ...]:
        try:
            return super().segments(row, root)
        except SampleError as error:
            raise type(error)(f"{name}: {error}") from error

    def _two(self, row: Row) -> Two | None:
        """The better and the worse row of a pair; None of any other row."""
        if _WORSE.isdisjoint(row):  # as of most rows
            return None
        if self.value(row, "segments") is not None:
            return None
        chat, form = self.chat(row), self.form(row, lambda column: row[column] is not None)
        if chat is None and (form == forms.TEXTS or (form is None and self._has_text(row))):
            return None  # a text beside such columns is what is learned
        worse = [name for name in WORSE if name in row and is_answer(row[name])]
        if not worse or (worse == [REJECTED] and not is_answer(row.get(CHOSEN))):
            if not self.asked and form is None and (chat is None or not is_answered(*chat)):
                self._check_both(row)
            return None
        if len(worse) > 1:
            raise SampleError(f"{listed(worse)} tell a worse answer each; keep one")
        [name] = worse
        self._check_same_media(row)
        rest = {key: value for key, value in row.items() if not is_rejected(key) and key != CHOSEN}
        if name != REJECTED:
            return self._of_answered(rest, name, row[name], chat, form)
        chosen, rejected = (answer_in(row[one], self.column(one)) for one in _PAIR)
        if chat is not None:
            turns, column = chat
            return after(rest, column, turns_in(turns, column), chosen, rejected)
        ask = next((ask for ask in forms.ASKS if not is_empty(self._held(row, ask))), None)
        if ask is None:
            return self._whole(rest, chosen, rejected)
        return self._asked(rest, ask, chosen, rejected)

    def _check_both(self, row: Row) -> None:
        """Raises SampleError where one of two answers, beside which nothing else is to be learned, is none."""
        if CHOSEN not in row or REJECTED not in row:
            return
        wrong = {role: row[role] for role in _PAIR if not is_answer(row[role])}
        told = [f"{self.column(role)} {told_of(value)}" for role, value in wrong.items()]
        raise SampleError(f"{' and '.join(told)}; a pair has two answers")

    def _held(self, row: Row, role: str) -> Any:
        return self.value(row, role) if self._top(role, row) in row else None

    def _check_same_media(self, row: Row) -> None:
        """Raises SampleError where the worse answer is one to other media."""
        known = {*self.modalities, *(plural for _, plural in self._plurals), *WELL_KNOWN}
        for name in row:
            if is_rejected(name) and name.removeprefix(f"{REJECTED}_") in known and is_answer(row[name]):
                raise SampleError(f"{name}: media of the worse answer alone are not read; both have those of the row")

    def _of_answered(self, rest: Row, name: str, value: Any, chat: tuple[Any, str] | None, form: str | None) -> Two:
        """ms-swift's: what is answered was chosen, and another answer or chat stands beside it."""
        said = answer_in(value, name)
        if name == REJECTED_MESSAGES:
            if isinstance(said, str):
                raise SampleError(f"{name}: expected a list of turns, got {kind_of(value)}")
            if chat is None and form is None:
                raise SampleError(f"{name}: no chat beside it that would be the better one; write it as messages")
            if has_user(said):
                return rest, {**rest, CHATS[0] if chat is None else chat[1]: said}
            said = plain_text(said)
        if chat is not None:
            turns = turns_in(*chat)
            if not is_assistants(turns[-1]):
                raise SampleError(f"{name}: {chat[1]} ends with no answer that would be the better one")
            return rest, {**rest, chat[1]: [*prompt_of(turns, as_turns(said)), *as_turns(said)]}
        answer = self._answer_of(form, rest) if form in forms.ASKS else ""
        if not answer or not isinstance(said, str):
            raise SampleError(
                f"{name}: no answer beside it that would be the better one; write messages, or query and response"
            )
        return rest, {**rest, self.column(answer): said}

    def _asked(self, rest: dict[str, Any], ask: str, chosen: str | Turns, rejected: str | Turns) -> Two:
        """Of a prompt in a column of its own, which is a text or a chat."""
        asks, column = self.value(rest, ask), self.column(ask)
        if isinstance(asks, list | tuple) and asks and isinstance(asks[0], Mapping):
            return after(rest, CHATS[0], turns_in(asks, column), chosen, rejected, column)
        if ask != forms.GOES_ON:
            chosen, rejected = plain_text(chosen), plain_text(rejected)
        if isinstance(chosen, str) and isinstance(rejected, str):
            if ask == forms.GOES_ON:
                chosen, rejected = without_prompt(text_value(asks, column), chosen, rejected)
            answer = self.column(forms.ASKS[ask])
            if not is_empty(rest.get(answer)) and rest[answer] != chosen:
                raise SampleError(f"{answer} is another answer than {CHOSEN}; leave it out")
            return {**rest, answer: chosen}, {**rest, answer: rejected}
        prompt = text_value(asks, column)
        turns = as_turns(chosen)
        if not is_assistants(turns[0]):
            if prompt not in [content for role, content in map(says, turns) if role != ASSISTANT]:
                raise SampleError(f"{CHOSEN} is a whole chat, no turn of which says what {column} does; leave that out")
            return self._whole(rest, turns, as_turns(rejected))
        if beside := [name for name in ("input", "history") if ask != forms.GOES_ON and not is_empty(rest.get(name))]:
            raise SampleError(f"{listed(beside)} beside answers of several turns: write all of it as messages")
        return after(rest, CHATS[0], [{"role": "user", "content": prompt}], chosen, rejected, column)

    def _whole(self, rest: Row, chosen: str | Turns, rejected: str | Turns) -> Two:
        """Of no prompt but what both begin with."""
        if isinstance(chosen, str) != isinstance(rejected, str):
            raise SampleError(f"{CHOSEN} and {REJECTED}: expected two texts or two chats where there is no prompt")
        if not isinstance(chosen, str) or not isinstance(rejected, str):
            return {**rest, CHATS[0]: chosen}, {**rest, CHATS[0]: rejected}
        end = shared_prompt(chosen, rejected)
        if LAST_TURN in chosen and LAST_TURN in rejected and LAST_TURN not in chosen[:end]:
            raise SampleError(f"{OTHER_PROMPTS}: they differ before {LAST_TURN.strip()!r}; {TWO_TO_ONE}")
        if LAST_TURN in chosen[:end] and any(NEXT_TURN in text[end:] for text in (chosen, rejected)):
            raise SampleError(f"{OTHER_PROMPTS}: they differ before the last {LAST_TURN.strip()!r}; {TWO_TO_ONE}")
        if not end:
            return {**rest, "text": chosen}, {**rest, "text": rejected}
        asks, answers = self.column(forms.GOES_ON), self.column(forms.ASKS[forms.GOES_ON])
        better, worse = ({**rest, asks: text[:end], answers: text[end:]} for text in (chosen, rejected))
        return better, worse


def shared_prompt(chosen: str, rejected: str) -> int:
    """Characters of the prompt that two texts begin with: up to the last ``LAST_TURN``, else to the last whitespace.

    A space belongs to the answers, as tokenizers have it, and a line end to the prompt. Behind it both go on.
    """
    shared = os.path.commonprefix([chosen, rejected])  # noqa: RUF071  characters are meant
    if (turn := shared.rfind(LAST_TURN)) >= 0:
        return turn + len(LAST_TURN)
    for place in range(len(shared) - 1, -1, -1):
        if shared[place].isspace():
            end = place + (shared[place] != " ")
            if chosen[end:].strip() and rejected[end:].strip():
                return end
    return 0


def without_prompt(prompt: str, chosen: str, rejected: str) -> tuple[str, str]:
    """Two texts without the prompt, where both repeat it. It ends where a word does: in "a" and "all" it is none."""
    ends = [text[len(prompt) :] for text in (chosen, rejected) if text.startswith(prompt)]
    in_word = prompt[-1:].isalnum() and any(end[:1].isalnum() for end in ends)
    return (ends[0], ends[1]) if len(ends) == len(NAMES) and prompt.strip() and not in_word else (chosen, rejected)


def misspelt(columns: Collection[str]) -> str:
    """What may be meant by a column beside one of two answers, where the other is missing; else empty."""
    for there, role in (_PAIR, _PAIR[::-1]):
        if there in columns and role not in columns:
            others = (name for name in columns if name != there and not name.startswith(f"{role}_"))
            if near := nearest(role, others):
                return f"; did you mean {near} to be {role}, beside {there}? columns: {{{role}: {near}}}"
    return ""


def apart(better: Sequence[Segment], worse: Sequence[Segment]) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """Both, of whose common beginning nothing is learned; the last text of each that is, stays so.

    Raises:
        SampleError: they are the same, or nothing is learned of what one of them says otherwise.
    """
    least = min(len(better), len(worse))
    alike = next((n for n in range(least) if not _alike(better[n], worse[n])), least)
    if alike == len(better) == len(worse):
        raise SampleError(SAME)
    ends = [_last_learned(segments) for segments in (better, worse)]
    for name, end in zip(NAMES, ends, strict=True) if alike < least else ():
        if end < alike:
            raise SampleError(f'{name}: nothing is learned of what it says otherwise; "loss": false leaves it out')
    shared = min(alike, *ends)
    first, second = ((*map(not_learned, segments[:shared]), *segments[shared:]) for segments in (better, worse))
    return first, second


def _last_learned(segments: Sequence[Segment]) -> int:
    learned = (n for n, part in enumerate(segments) if not isinstance(part, Mark) and getattr(part, "train", False))
    return max(learned, default=0)


def _alike(one: Segment, other: Segment) -> bool:
    """Whether they say the same, learned or not; media that are read, which are those of one row, by their kinds."""
    if isinstance(one, Text | Mark):
        return type(one) is type(other) and not_learned(one) == not_learned(other)
    if isinstance(other, Text | Mark) or one.modality != other.modality:
        return False
    return is_same_written(one, other) if is_written(one) or is_written(other) else True
