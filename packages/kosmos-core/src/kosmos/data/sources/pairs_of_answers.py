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
from pathlib import Path
from typing import Any

from kosmos.data.document import Mark, Segment, Text
from kosmos.data.marks import ASSISTANT
from kosmos.data.pair_plans import NAMES, OTHER_PROMPTS, SAME, TWO_TO_ONE
from kosmos.data.sources import forms, messages
from kosmos.data.sources.chat_turns import ROLE_MARKS, turns_of
from kosmos.data.sources.columns import Row, is_empty, kind_of, require_column, text_value
from kosmos.data.sources.layouts import CHATS, DefaultLayout
from kosmos.data.sources.preferences import CHOSEN, REJECTED, REJECTED_MESSAGES, WORSE, is_answer, is_rejected
from kosmos.data.sources.right_answers import ANSWERS
from kosmos.data.sources.splits import advice_on, field_of
from kosmos.data.sources.tools import CALLING
from kosmos.data.sources.well_known import WELL_KNOWN
from kosmos.errors import SampleError
from kosmos.names import listed

_LEARNED = frozenset(("text", "segments", *CHATS, forms.TEXTS, *forms.ASKS.values(), ANSWERS))
"""Roles of what is learned. Who names one of them says what is to be learned, and means no pair."""
_WORSE = frozenset(WORSE)
LAST_TURN = "\n\nAssistant:"
"""Opens the answers of Anthropic's hh-rlhf."""
Two = tuple[Row, Row]
"""The better row and the worse one."""
Turns = list[Mapping[str, Any]]


def may_hold_pairs(columns: Mapping[str, str], *, asked: bool) -> bool:
    """Whether rows of preferences are pairs: nobody has said what is learned.

    Args:
        columns: of the source, by role.
        asked: whether rows are there to be continued.
    """
    return not asked and _LEARNED.isdisjoint(columns)


@dataclass(frozen=True)
class PairLayout(DefaultLayout):
    """The default forms, and rows of preferences among them."""

    def check(self, columns: Collection[str]) -> None:
        if CHOSEN not in columns or REJECTED not in columns:
            super().check(columns)
            return
        for role, path in self.columns.items():
            require_column(path, columns, field_of(role), advice_on(role, path))

    def used(self, columns: Collection[str]) -> set[str]:
        chosen = {CHOSEN}.intersection(columns) if REJECTED in columns else set()
        return super().used(columns) | chosen

    def scanned(self, columns: Collection[str], plain: Collection[str] = ()) -> tuple[list[str], list[str]]:
        light, media = super().scanned(columns, plain)
        return [*light, *(c for c in self._chats_in(columns) if c not in plain and c not in light)], media

    def nested(self, columns: Collection[str]) -> set[str]:
        return super().nested(columns) | {REJECTED_MESSAGES}.intersection(columns)

    def _chats_in(self, columns: Collection[str]) -> list[str]:
        """Columns that may hold chats of a pair."""
        if _WORSE.isdisjoint(columns):  # as of most rows
            return []
        return [name for name in (self.column(forms.GOES_ON), CHOSEN, *WORSE) if name in columns]

    def needs(self, row: Row) -> frozenset[str]:
        needed = super().needs(row)
        for name in () if self._has_text(row) else self._chats_in(row):
            if isinstance(row[name], list | tuple) and row[name] and isinstance(row[name][0], Mapping):
                with suppress(SampleError):  # what is wrong with it is told where the row is read, if it is a pair
                    needed |= messages.needs(row[name], name)
        return needed

    def references(self, row: Row) -> tuple[str, ...]:
        two = self._two(row)
        return super().references(row if two is None else two[0])

    def segments(self, row: Row, root: Path) -> tuple[Segment, ...]:
        return self.both(row, root)[0]

    def both(self, row: Row, root: Path) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
        """Those of the row, of a pair those of the better one; and those of the worse one, if it is a pair.

        Raises:
            SampleError: this row cannot be used.
        """
        two = self._two(row)
        if two is None:
            return super().segments(row, root), ()
        better, worse = (self._read(one, root, name) for one, name in zip(two, (CHOSEN, REJECTED), strict=True))
        return apart(better, worse)

    def _read(self, row: Row, root: Path, name: str) -> tuple[Segment, ...]:
        try:
            return super().segments(row, root)
        except SampleError as error:
            raise type(error)(f"{name}: {error}") from error

    def _two(self, row: Row) -> Two | None:
        """The better and the worse row of a pair; None of any other row."""
        if _WORSE.isdisjoint(row):  # as of most rows
            return None
        worse = [name for name in WORSE if name in row and is_answer(row[name])]
        if not worse or self.value(row, "segments") is not None:
            return None
        chat, form = self._chat(row), self.form(row, lambda column: row[column] is not None)
        if chat is None and (form == forms.TEXTS or (form is None and self._has_text(row))):
            return None  # a text beside such columns is what is learned
        if len(worse) > 1:
            raise SampleError(f"{listed(worse)} tell a worse answer each; keep one")
        [name] = worse
        if name == REJECTED and not is_answer(row.get(CHOSEN)):
            return None
        self._check_same_media(row)
        rest = {key: value for key, value in row.items() if not is_rejected(key) and key != CHOSEN}
        if name != REJECTED:
            return self._of_answered(rest, name, row[name], chat, form)
        chosen, rejected = (_said(row[one], one) for one in (CHOSEN, REJECTED))
        if chat is not None:
            turns, column = chat
            return _after(rest, column, _turns(turns, column), chosen, rejected)
        ask = next((ask for ask in forms.ASKS if not is_empty(self._held(row, ask))), None)
        if ask is None:
            return self._whole(rest, chosen, rejected)
        return self._asked(rest, ask, chosen, rejected)

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
        said = _said(value, name)
        if name == REJECTED_MESSAGES:
            if isinstance(said, str):
                raise SampleError(f"{name}: expected a list of turns, got {kind_of(value)}")
            if chat is None and form is None:
                raise SampleError(f"{name}: no chat beside it that would be the better one; write it as messages")
            return rest, {**rest, CHATS[0] if chat is None else chat[1]: said}
        if chat is not None:
            turns = _turns(*chat)
            if not _is_assistants(turns[-1]):
                raise SampleError(f"{name}: {chat[1]} ends with no answer that would be the better one")
            return rest, {**rest, chat[1]: [*turns[:-1], *_as_turns(said)]}
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
            return _after(rest, CHATS[0], _turns(asks, column), chosen, rejected, column)
        if ask != forms.GOES_ON:
            chosen, rejected = _plain(chosen), _plain(rejected)
        if isinstance(chosen, str) and isinstance(rejected, str):
            answer = self.column(forms.ASKS[ask])
            if not is_empty(rest.get(answer)) and rest[answer] != chosen:
                raise SampleError(f"{answer} is another answer than {CHOSEN}; leave it out")
            return {**rest, answer: chosen}, {**rest, answer: rejected}
        prompt = text_value(asks, column)
        turns = _as_turns(chosen)
        if not _is_assistants(turns[0]):
            if prompt not in [content for role, content in map(_told, turns) if role != ASSISTANT]:
                raise SampleError(f"{CHOSEN} is a whole chat, no turn of which says what {column} does; leave that out")
            return self._whole(rest, turns, _as_turns(rejected))
        if beside := [name for name in ("input", "history") if ask != forms.GOES_ON and not is_empty(rest.get(name))]:
            raise SampleError(f"{listed(beside)} beside answers of several turns: write all of it as messages")
        return _after(rest, CHATS[0], [{"role": "user", "content": prompt}], chosen, rejected, column)

    def _whole(self, rest: Row, chosen: str | Turns, rejected: str | Turns) -> Two:
        """Of no prompt but what both begin with."""
        if isinstance(chosen, str) != isinstance(rejected, str):
            raise SampleError(f"{CHOSEN} and {REJECTED}: expected two texts or two chats where there is no prompt")
        if not isinstance(chosen, str) or not isinstance(rejected, str):
            return {**rest, CHATS[0]: chosen}, {**rest, CHATS[0]: rejected}
        end = shared_prompt(chosen, rejected)
        if LAST_TURN in chosen and LAST_TURN in rejected and LAST_TURN not in chosen[:end]:
            raise SampleError(f"{OTHER_PROMPTS}: they differ before {LAST_TURN.strip()!r}; {TWO_TO_ONE}")
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
    first, second = ((*map(_not_learned, segments[:shared]), *segments[shared:]) for segments in (better, worse))
    return first, second


def _last_learned(segments: Sequence[Segment]) -> int:
    return max((n for n, part in enumerate(segments) if isinstance(part, Text) and part.train), default=0)


def _alike(one: Segment, other: Segment) -> bool:
    """Whether they say the same, learned or not; media, which are those of one row, by their kinds."""
    if isinstance(one, Text | Mark):
        return type(one) is type(other) and _not_learned(one) == _not_learned(other)
    return not isinstance(other, Text | Mark) and one.modality == other.modality


def _not_learned(segment: Segment) -> Segment:
    return replace(segment, train=False) if isinstance(segment, Text | Mark) and segment.train else segment


def _after(rest: Row, column: str, prompt: Turns, chosen: str | Turns, rejected: str | Turns, name: str = "") -> Two:
    """The rows of a prompt that is a chat.

    Args:
        column: of the chats that are made.
        name: what errors call the prompt, where not as ``column``.
    """
    better, worse = _as_turns(chosen), _as_turns(rejected)
    if _is_assistants(better[0]) and _is_assistants(worse[0]):
        if _is_assistants(prompt[-1]):
            if _told(prompt[-1]) != _told(better[0]):
                raise SampleError(f"{name or column} ends with an answer, and {CHOSEN} is another; leave one out")
            prompt = prompt[:-1]
        return {**rest, column: [*prompt, *better]}, {**rest, column: [*prompt, *worse]}
    asked, told, others = ([*map(_told, turns)] for turns in (prompt, better, worse))
    if asked != told and (told[: len(asked)] != asked or others[: len(asked)] != asked):
        raise SampleError(
            f"{CHOSEN} and {REJECTED} are neither answers nor chats that begin with {name or column}; give the turns "
            "behind it alone"
        )
    return {**rest, column: better}, {**rest, column: worse}


def _said(value: Any, name: str) -> str | Turns:
    """An answer as a text, or as turns of a chat. Raises SampleError where it is several, or something else."""
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, list | tuple) and isinstance(value[0], Mapping):
        return _turns(value, name)
    if isinstance(value, list | tuple) and len(value) > 1:
        raise SampleError(f"{name}: a list of {len(value)} answers; a pair has one, so write the one that is meant")
    return text_value(value[0] if isinstance(value, list | tuple) else value, name)


def _turns(turns: Any, name: str) -> Turns:
    return [turn for _, turn, _ in turns_of(turns, name)]


def _as_turns(said: str | Turns) -> Turns:
    return [{"role": "assistant", "content": said}] if isinstance(said, str) else said


def _plain(said: str | Turns) -> str | Turns:
    """The text of a turn that is all, and says nothing else."""
    if isinstance(said, str) or len(said) > 1:
        return said
    role, content = _told(said[0])
    keys = {key for key, value in said[0].items() if value is not None}
    return content if role == ASSISTANT and isinstance(content, str) and len(keys) == len(("role", "content")) else said


def _told(turn: Mapping[str, Any]) -> tuple[Any, Any]:
    """Whose turn it is, and what it says."""
    [(_, _, (role, content))] = turns_of([turn], "")
    return ROLE_MARKS.get(str(turn.get(role)), turn.get(role)), turn.get(content)


def _is_assistants(turn: Mapping[str, Any]) -> bool:
    role, _ = _told(turn)
    return role == ASSISTANT or role in CALLING
