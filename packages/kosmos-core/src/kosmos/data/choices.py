"""Questions that offer several answers as documents: one for each answer, to be told which is likeliest."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, islice, pairwise

from kosmos.data.chat import chat_prompt
from kosmos.data.document import Codes, Document, Mark, Media, Segment, StoredMedia, Text
from kosmos.data.example_media import ExampleMedia
from kosmos.data.marks import ASSISTANT, END, USER
from kosmos.data.quarantine import Incident
from kosmos.data.shots import BETWEEN, drawn, in_front, is_same, may_be_same
from kosmos.data.sources.choices import ChoiceLayout, Offer, read_with_ways
from kosmos.data.sources.right_of_file import MOST_LOOKED_AT, RightOfFile, Ways, refuse_doubtful, told_of_counted
from kosmos.data.sources.since import is_opened_before, lacks
from kosmos.data.sources.source import Names, RowSource
from kosmos.data.spread import spread
from kosmos.data.turns import is_chat
from kosmos.errors import SampleError

ANSWER = " answer "
"""In the name of a document, between that of its row and the answer's number."""
_GOES_ON = ",.;:!?)]}%'\u2019"
"""Stands behind a word without a space."""
_WITHOUT_SPACES = re.compile("[\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef]")
"""Of scripts that put none between words, or that put them elsewhere."""


@dataclass(eq=False)
class ChoiceSource:
    """What the rows of a source offer, a document each (a ``Source``). Rows that offer nothing are in ``incidents``.

    Args:
        source: whose documents are the questions.
        chat: lay questions out as a user's turn, and what is offered as the assistant's.
        max_rows: of which the first are not taken but some, as ``spread`` chooses them.
        encode: tokens of a text, as the model takes them.
        even: as of ``spread``.
        shots: so many questions of ``pool`` stand with their right answers in front of each, drawn by its number.
        pool: those questions, of which one that is the same as that which is asked is passed over.
        is_other: whether the pool is of another file, in which a row of the same id and words is the same question
            unless its media are others.
    """

    source: RowSource
    chat: bool
    max_rows: int
    encode: Callable[[str], Sequence[int]]
    even: bool = False
    shots: int = 0
    pool: ChoiceSource | None = None
    is_other: bool = False
    name: str = field(init=False)
    incidents: list[Incident] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    """Numbers of the source's documents that are asked."""
    offers: list[Offer] = field(default_factory=list)
    """Of each of them."""
    broken: set[int] = field(default_factory=set)
    """Places of ``rows`` whose media cannot be decoded, so that they are no examples."""
    broken_drawn: dict[int, str] | None = None
    """Places of ``pool`` that were to be examples and cannot be shown, with why; None where nobody has looked."""
    remarks: tuple[str, ...] = ()
    """As of a ``RowSource``: those of its rows, and what is doubtful of its questions."""

    def __post_init__(self) -> None:
        self.name = self.source.name
        told = RightOfFile()
        asked = spread(len(self.source), self.max_rows, even=self.even).tolist()
        for row in asked:
            try:
                offer, ways = self._offer(row)
                told.look(len(self.offers), ways)
                self.offers.append(offer)
                self.rows.append(row)
            except SampleError as error:
                self.incidents.append(Incident(self.source.origin(row), self.name, error.code, str(error)))
        right, left = told.decided(lambda: self._ways_of_others({*asked}))
        for place, number in ({} if lacks("questions") else right).items():
            self.offers[place] = self.offers[place]._replace(right=number)
        self.remarks = tuple(getattr(self.source, "remarks", ()))
        if told.counted:
            first = min(told.counted)
            offered = ", ".join(map(repr, self.offers[first].answers[:5]))
            line = told_of_counted(told.rows, told.counted, self.source.origin(self.rows[first]), offered)
            self.remarks = (*self.remarks, line)
        if left and not is_opened_before():  # else texts go first, as they did when it was begun
            first = min(left)
            said = ", ".join(map(repr, self.offers[first].answers[:4]))
            refuse_doubtful(self.name, told.rows, left, self.source.origin(self.rows[first]), said)

    def _offer(self, row: int) -> tuple[Offer, Ways]:
        """What a row of the source offers. Raises SampleError where that cannot be told."""
        layout, said = self.source.layout, self.source.table.row(int(self.source.rows[row]))
        if not isinstance(layout, ChoiceLayout):
            return read_with_ways(said)
        found = read_with_ways(said, layout.own, layout.by)
        layout.check_answers(said, found[0].answers)
        return found

    def _ways_of_others(self, asked: Collection[int]) -> Iterator[Ways]:
        """How rows that are not asked say what is right."""
        others = (row for row in range(len(self.source)) if row not in asked)
        for row in islice(others, MOST_LOOKED_AT):
            with suppress(SampleError):
                yield self._offer(row)[1]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(len(offer.answers) for offer in self.offers))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def number(self, place: int, answer: int) -> int:
        """Of the document with one answer of the row at a place of ``rows``."""
        return self._ends[place] - len(self.offers[place].answers) + answer

    def origin(self, index: int) -> str:
        """The row, and the number of the answer from 1 on."""
        place, answer = self._at(index)
        return f"{self.source.origin(self.rows[place])}{ANSWER}{answer + 1}"

    def question(self, place: int) -> Document:
        """What stands before each answer of the row at a place of ``rows``. Raises SampleError as the source does."""
        asked = self._read(self.rows[place])
        return Document(asked.origin, self._before(place, asked, chat=self.chat or is_chat(asked)))

    def asked(self, place: int) -> Document:
        """As ``question``, without examples in front of it."""
        asked = self._read(self.rows[place])
        return Document(asked.origin, _opened(asked) if self.chat or is_chat(asked) else _content(asked))

    def document(self, index: int) -> Document:
        """The question and one of the answers, which is learned. Raises SampleError as the source does.

        What is behind the answer is not: not even the token for its end, which an answer does not choose. But where an
        answer goes on where another ends ("1" and "10"), it is the end alone that tells the two apart: there it is
        learned of all answers of the question.
        """
        place, answer = self._at(index)
        answers, asked = self.offers[place].answers, self._read(self.rows[place])
        chat = self.chat or is_chat(asked)
        before = self._before(place, asked, chat=chat)
        space = "" if chat else _space(before, answers)
        ends = _goes_on([self.encode(space + said) for said in answers])
        said = Text(space + answers[answer], train=True)
        if chat:  # the last text leaves the end of the document out
            return Document(self.origin(index), (*before, said, Mark(END, train=ends), Text("")))
        return Document(self.origin(index), (*before, said) if ends else (*before, said, Text("")))

    def _before(self, place: int, asked: Document, *, chat: bool) -> tuple[Segment, ...]:
        """The question with the examples in front of it."""
        own = _opened(asked) if chat else _content(asked)
        if self.pool is None or not self.shots:
            return own
        each = self._examples(self.pool, place, asked, chat=chat)
        examples = [example for _, example in islice(each, self.shots)]
        if len(examples) < self.shots:
            raise SampleError(f"{self.shots} examples are to stand in front of it, and there are {len(examples)}")
        return in_front(examples, own)

    def _examples(
        self, pool: ChoiceSource, place: int, asked: Document, *, chat: bool
    ) -> Iterator[tuple[int, tuple[Segment, ...]]]:
        """All that may stand in front of a question, in their order, each with its place in the pool."""
        twin = self._twin(place, asked)
        for number in drawn(len(pool.offers), self.rows[place]):
            example = None if number == twin else pool.example(number, asked, chat=chat)
            if example is not None:
                yield number, example

    def example_names(self, place: int) -> list[Names]:
        """What the data call the examples that stand in front of the question of a row. Raises SampleError as the
        source does."""
        if self.pool is None or not self.shots:
            return []
        asked, pool = self._read(self.rows[place]), self.pool
        each = self._examples(pool, place, asked, chat=self.chat or is_chat(asked))
        return [pool.source.names(pool.rows[number]) for number, _ in islice(each, self.shots)]

    def examples_shown(self, before_each: Callable[[str], None] = lambda origin: None) -> list[int]:
        """Places of the pool's rows that stand in front of any question, but for those that are known to be broken.

        Args:
            before_each: told of each question that is looked at.
        """
        pool, found = self.pool, dict[int, None]()
        if pool is None:
            return []
        for place, row in enumerate(self.rows):
            if len(found) == len(pool.offers) - len(pool.broken):
                break
            before_each(self.source.origin(row))
            with suppress(SampleError):  # is told where it is scored
                asked = self._read(row)
                each = self._examples(pool, place, asked, chat=self.chat or is_chat(asked))
                found |= dict.fromkeys(number for number, _ in islice(each, self.shots))
        return [*found]

    def example_media(self, places: Sequence[int]) -> ExampleMedia:
        """The media of these rows of the pool as a source, a document of each row, to be decoded."""
        if self.pool is None:
            raise ValueError("there are no examples")
        return ExampleMedia(self.name, self.pool.source, tuple(self.pool.rows[place] for place in places))

    def _twin(self, place: int, asked: Document) -> int | None:
        """Which row of the pool has the id and the words of a question, and media that may be the same saved anew."""
        if self.pool is None or not self.is_other or not self.pool.ids:
            return None
        twin = self.pool.ids.get(str(self.source.id_of(self.rows[place])))
        if twin is None:
            return None
        try:
            its = self.pool._read(self.pool.rows[twin])
        except SampleError:  # then it is no example at all
            return None
        return twin if may_be_same(its.segments, asked.segments) else None

    @cached_property
    def ids(self) -> dict[str, int]:
        """Places in ``rows`` by the ids that one row alone has."""
        found = [
            (str(own), place) for place, row in enumerate(self.rows) if (own := self.source.id_of(row)) is not None
        ]
        counts = Counter(own for own, _ in found)
        return {own: place for own, place in found if counts[own] == 1}

    def example(self, place: int, asked: Document, *, chat: bool) -> tuple[Segment, ...] | None:
        """The row at a place of ``rows`` with its right answer, to stand in front of another question. None where it
        is the same question, or cannot be read or shown, or is a chat and the other is none."""
        if place in self.broken:
            return None
        try:
            own = self._read(self.rows[place])
        except SampleError:
            return None
        if own.origin == asked.origin or is_same(own.segments, asked.segments) or (is_chat(own) and not chat):
            return None
        answers, right = self.offers[place]
        if chat:
            return (*_opened(own), Text(answers[right]), Mark(END))
        content = _content(own)
        return (*content, Text(f"{_space(content, answers)}{answers[right]}{BETWEEN}"))

    def _read(self, row: int) -> Document:
        try:
            return self.source.document(row)
        except SampleError as error:
            raise SampleError(str(error).removeprefix(f"{self.source.origin(row)}: ")) from error

    def _at(self, index: int) -> tuple[int, int]:
        place = bisect_right(self._ends, index)
        return place, index - self.number(place, 0)


def _goes_on(answers: Sequence[Sequence[int]]) -> bool:
    """Whether an answer begins with all of another; in order, it then stands right behind one with which it does."""
    ordered = sorted(map(tuple, answers))
    return any(one != other and other[: len(one)] == one for one, other in pairwise(ordered))


def _content(document: Document) -> tuple[Text | Media | StoredMedia | Codes, ...]:
    """Of no chat: nothing of it is learned."""
    parts = (part for part in document.segments if not isinstance(part, Mark))
    return tuple(Text(part.text) if isinstance(part, Text) else part for part in parts)


def _opened(asked: Document) -> tuple[Segment, ...]:
    """A chat up to the assistant's turn."""
    if not is_chat(asked):
        return chat_prompt(_content(asked)).segments
    turns = [segment.name for segment in asked.segments if isinstance(segment, Mark) and segment.name != END]
    if turns[-1] != USER:
        raise SampleError("its chat ends with no turn of the user, so nothing is asked")
    return (*asked.segments, Mark(ASSISTANT))


def _space(content: Sequence[Segment], answers: Sequence[str]) -> str:
    """Between a text and each of its answers, as a text would have it: alike for all of them."""
    before = content[-1].text if content and isinstance(content[-1], Text) else ""
    if not before or before[-1].isspace() or any(answer[0].isspace() for answer in answers):
        return ""
    if _WITHOUT_SPACES.match(before[-1]) or any(_WITHOUT_SPACES.match(answer) for answer in answers):
        return ""
    return "" if all(answer[0] in _GOES_ON for answer in answers) else " "
