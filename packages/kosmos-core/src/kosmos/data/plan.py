"""Plan documents: text to token ids, media to empty slots of a known number. No torch, no decoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Document, Mark, Media, Segment, StoredMedia, Text
from kosmos.data.document_plan import DocumentPlan as DocumentPlan
from kosmos.data.document_plan import PlannedMedia as PlannedMedia
from kosmos.data.foreign import calling
from kosmos.data.kept_plans import KeptPlans, plan_of
from kosmos.data.long_pages import as_pieces, parts_of
from kosmos.data.lost_media import without_lost
from kosmos.data.marks import ASSISTANT, BOS, END, EOS, PAD
from kosmos.data.page_document import PageDocument
from kosmos.data.pair_plans import as_one, check_lengths, check_pair, two_of
from kosmos.data.pieces import is_asked, pieces
from kosmos.data.processor import Grid, MediaPlan, Processor
from kosmos.data.slots import SlotCount, count_slots
from kosmos.data.tokenizer import Tokenizer
from kosmos.data.turns import ROLES, Part, Turns, is_chat
from kosmos.data.which_medium import naming
from kosmos.errors import ConfigError, SampleError


@dataclass(frozen=True, slots=True)
class Route:
    """Where a modality's media go: its processor, its stream, and how the stream's connector counts slots."""

    processor: Processor
    stream: str
    slots: SlotCount
    marks: frozenset[str]
    """The modality's special tokens; whatever else its layouts spell is plain text."""
    reads_headers: bool = field(init=False)
    """Whether a plan hangs on the file, by what the processor says."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads_headers", bool(getattr(self.processor, "reads_headers", True)))


@dataclass(frozen=True)
class Planner:
    """Makes plans. Picklable; data workers hold one each."""

    tokenizer: Tokenizer
    routes: Mapping[str, Route]
    """By modality."""
    max_tokens: int
    """Longest plan: the tokens of a row."""
    max_cells: Mapping[str, int]
    """Most cells of a stream in a row, for streams that have a limit."""
    longest: int | None = None
    """Most tokens of a document that the backbone has positions for; None where it has no limit."""
    turns: Turns | None = None
    """How turns of a chat are spelled, where not by the marks."""
    long_chats: Literal["cut", "leave_out"] = "cut"
    """What is done with a text longer than a row of which only a part is learned."""
    pairs: bool | None = False
    """Whether the run's objective learns from pairs: documents of the other kind are refused. None refuses none, and
    takes the better one of a pair alone."""
    kept: KeptPlans = field(default_factory=KeptPlans, init=False, repr=False, compare=False)

    @property
    def augments(self) -> bool:
        """Whether a processor changes at random what is trained on."""
        return any(getattr(route.processor, "augments", False) for route in self.routes.values())

    @property
    def most(self) -> int:
        """Tokens of the longest plan that is no piece."""
        return min(self.max_tokens, self.longest or self.max_tokens)

    @property
    def stops(self) -> frozenset[int]:
        """Tokens at which generation ends."""
        own = {self.tokenizer.mark_id(EOS), self.tokenizer.mark_id(END)}
        return frozenset(own if self.turns is None else {*own, self.turns.stop})

    def plan(self, document: Document) -> list[DocumentPlan]:
        """One plan, of a pair too, or several where a document of text alone, or one that is cut, is longer than a row.

        Raises:
            SampleError: it does not fit a row and has media, is a pair, or is a chat to be left out; of a piece in
                front of what is learned nothing is; it is empty, or a medium is unusable; it is a pair in a run that
                learns from none, or none in one that does.
        """
        if (self.pairs or document.rejected) and self.pairs is not None:
            return [self._pair(document)]
        is_cut = isinstance(document, PageDocument) and document.is_cut
        document, lost = self.usable(document)
        plan = self._whole(document)
        if lost:
            plan = replace(plan, lost=lost)
        if len(plan) > self.most and not plan.media:
            if self.long_chats == "leave_out" and is_asked(plan):
                raise SampleError(f"takes {len(plan)} tokens of {self.most}, and data.long_chats is leave_out")
            return list(pieces(plan, self.most))
        if is_cut and plan.media and not self._fits(plan):
            return self._parts(document, plan)
        self._check_fit(plan)
        return [plan]

    def usable(self, document: Document) -> tuple[Document, tuple[str, ...]]:
        """The document without media that are to be left out where they cannot be used, and why each was. By headers:
        one that breaks when it is decoded is none of them.

        Raises:
            SampleError: none of the media of such a document can be used.
        """
        if not isinstance(document, PageDocument) or document.between is None:
            return document, ()
        return without_lost(document, partial(self.plan_medium, looks=True))

    def plan_medium(
        self, media: Media | StoredMedia, *, looks: bool = False
    ) -> tuple[Media | StoredMedia, MediaPlan] | None:
        """The medium, with its bytes where they were needed, and its plan; None where the run has no such modality.
        Raises SampleError where it is unusable.

        Args:
            looks: whether it is looked at even where its plan hangs on no file.
        """
        if (route := self.routes.get(media.modality)) is None:
            return None
        if looks or route.reads_headers:
            return self.kept.plan(media, route.processor, looks=not route.reads_headers)
        return media, plan_of(route.processor, media.unread() if isinstance(media, StoredMedia) else media)

    def for_scores(self) -> Planner:
        """The planner of documents that are scored: of a run that learns from pairs, one that takes others, too, and of
        a pair the better one alone."""
        return replace(self, pairs=None) if self.pairs else self

    def prompt(self, document: Document) -> DocumentPlan:
        """The document as the beginning of a text to be continued: no end token, nothing trained."""
        return self._draft(self.usable(document)[0]).finish()

    def _whole(self, document: Document) -> DocumentPlan:
        """Of the segments, however long."""
        draft = self._draft(document)
        if not document.goes_on and (self.turns is None or not is_chat(document)):  # a turn has an end of its own
            draft.mark(EOS, train=bool(document.segments) and getattr(document.segments[-1], "train", False))
        return draft.finish()

    def _parts(self, document: Document, plan: DocumentPlan) -> list[DocumentPlan]:
        """Of a document with media that is longer than a row. Raises as ``as_pieces``, and where a part fits no row."""
        ends, plans = self._draft(document).segment_ends, list[DocumentPlan]()
        parts = list(parts_of(document, plan, ends, self.most, self.max_cells))
        for part in parts:
            own = self._whole(part)
            if len(own) > self.most and not own.media:
                plans += pieces(own, self.most)
            else:
                self._check_fit(own)
                plans.append(own)
        return as_pieces(document.origin, parts, plans, plan.lost)

    def _fits(self, plan: DocumentPlan) -> bool:
        return len(plan) <= self.most and all(plan.cells(name) <= most for name, most in self.max_cells.items())

    def _pair(self, document: Document) -> DocumentPlan:
        check_pair(document, learned=bool(self.pairs))
        better, worse = two_of(document)
        first = self._whole(better)
        try:
            second = self._whole(worse)
        except SampleError as error:
            raise type(error)(f"rejected: {error}") from error
        plan = as_one((first, second), document)
        check_lengths(plan, self.max_tokens, self.longest)
        self._check_cells(plan)
        return plan

    def _draft(self, document: Document) -> _Draft:
        draft = _Draft(self, document)
        segments: Iterable[Segment] = document.segments
        if self.turns is not None and is_chat(document):
            draft.spell(self.turns.begin)
            segments = self.turns.segments(document)
        else:
            draft.mark(BOS, train=False)
        for segment in segments:
            draft.add(segment)
            draft.segment_ends.append(draft.length)
        return draft

    def _check_fit(self, plan: DocumentPlan) -> None:
        if len(plan) > self.max_tokens:
            raise SampleError(
                f"takes {len(plan)} tokens and a row holds {self.max_tokens}; raise data.tokens_per_pack "
                "or make its media smaller (a document with media is cut by options.long_documents alone)"
            )
        if self.longest is not None and len(plan) > self.longest:
            raise SampleError(
                f"takes {len(plan)} tokens and the backbone has positions for {self.longest}; make its media smaller "
                "(a document with media is cut by options.long_documents alone)"
            )
        self._check_cells(plan)

    def _check_cells(self, plan: DocumentPlan) -> None:
        for stream, most in self.max_cells.items():
            if plan.cells(stream) > most:
                raise SampleError(
                    f"takes {plan.cells(stream)} cells of stream {stream} and a row holds {most}; "
                    f"raise data.cells_per_pack.{stream}"
                )


class _Draft:
    """Collects the tokens of one document. Most of them are slots, which are written as stretches, not one by one."""

    def __init__(self, planner: Planner, document: Document) -> None:
        self.planner, self.document = planner, document
        self.length = 0
        self.ids: list[list[int]] = []
        """Stretches of tokens. What is in none is a slot."""
        self.ends: list[int] = []
        """Where they end."""
        self.trained: list[tuple[int, int]] = []
        """Where trained stretches begin and end."""
        self.media: list[PlannedMedia] = []
        self.segment_ends: list[int] = []
        """Tokens up to the end of each segment, of a document that is no chat."""
        self.slots: dict[str, list[NDArray[np.int32]]] = {}
        self.answer_start: int | None = None
        self.role = ""
        """The mark of the turn that is open, where turns are spelled."""
        self.opens = False
        """Nothing was said in that turn yet."""
        self.pending = ""
        """Plain text around what users and the system say, and that itself: spelled as one, as in a template."""

    def tokens(self, ids: list[int], *, train: bool) -> None:
        begin, self.length = self.length, self.length + len(ids)
        if self.ids and self.ends[-1] == begin:
            self.ids[-1].extend(ids)
            self.ends[-1] = self.length
        else:
            self.ids.append([*ids])
            self.ends.append(self.length)
        if train and ids:
            self.trained.append((begin, self.length))

    def mark(self, name: str, *, train: bool) -> None:
        turns = self.planner.turns
        if turns is not None and name in ROLES:
            self.role, self.opens = name, True
            self.spell(turns.of(name)[0])
        elif turns is not None and name == END and self.role:
            self.close_turn(turns.of(self.role)[1], train=train)
        else:
            if self.pending:
                self.flush()
            self.tokens([self.planner.tokenizer.mark_id(name)], train=train)

    def close_turn(self, parts: Sequence[Part], *, train: bool) -> None:
        if self.role == ASSISTANT:
            self.flush()
            self.tokens([self.planner.turns.stop], train=train)  # type: ignore[union-attr]
            parts = parts[1:]  # nothing is learned of what follows
        self.spell(parts)
        self.role = ""

    def spell(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if isinstance(part, str):
                self.pending += part
            else:
                self.flush()
                self.tokens([part], train=False)

    def flush(self) -> None:
        pending, self.pending = self.pending, ""
        if pending:
            self.text(pending, train=False)

    def text(self, text: str, *, train: bool) -> None:
        if not isinstance(text, str):  # sources and processors of plugins are not checked by a type checker
            raise SampleError(f"a text of the document: expected a string, got {type(text).__name__}")
        try:
            with calling(self.planner.tokenizer, "encode"):
                ids = self.planner.tokenizer.encode(text)
        except SampleError as error:
            raise _no_unicode(text) or error from error
        self.tokens(ids, train=train)

    def add(self, segment: Segment) -> None:
        match segment:
            case Text(text, train):
                if self.role and self._is_spelled_later(text, train=train):
                    return
                if self.pending:
                    self.flush()  # an answer begins where its prompt ends
                if train and self.length > 1 and (self.opens or not self._ends_trained()):
                    self.answer_start = self.length
                elif not train:
                    self.answer_start = None
                self.opens = False
                self.text(text, train=train)
            case Mark(name, train):
                try:
                    self.mark(name, train=train)
                except ConfigError as error:
                    raise SampleError(f"mark {name!r}: {error}") from error
            case Media() | StoredMedia():
                self.answer_start = None
                self.medium(segment)
            case _:
                raise SampleError(f"a segment of the document: expected Text, Mark or Media, got {segment!r:.60}")

    def _is_spelled_later(self, text: str, *, train: bool) -> bool:
        """Whether it is said by a user or the system, and so goes with the plain text around it."""
        later = self.role != ASSISTANT and isinstance(text, str) and not train
        if later:
            self.answer_start = None
            self.pending += text
        return later

    def _ends_trained(self) -> bool:
        return bool(self.trained) and self.trained[-1][1] == self.length

    def medium(self, media: Media | StoredMedia) -> None:
        if self.pending:
            self.flush()
        try:
            planned = self.planner.plan_medium(media)
        except SampleError as error:
            raise naming(error, len(self.media), list(self.document.media), self.document.origin) from error
        if planned is None:
            raise SampleError(f"holds {media.modality}, which is not among the modalities of this run")
        (media, plan), route = planned, self.planner.routes[media.modality]
        for part in plan.layout:
            if isinstance(part, Grid):
                self.grid(part, route)
            elif isinstance(part, str) and part in route.marks:
                self.mark(part, train=False)
            else:
                self.text(part, train=False)
        self.media.append(PlannedMedia(media, plan, route.stream))

    def grid(self, grid: Grid, route: Route) -> None:
        end = self.length + count_slots(route.slots, grid, route.stream)
        self.slots.setdefault(route.stream, []).append(np.arange(self.length, end, dtype=np.int32))
        self.length = end

    def finish(self) -> DocumentPlan:
        document = self.document
        if not self.media and not any(isinstance(s, Text) and s.text for s in document.segments):
            raise SampleError("is empty: neither text nor media")
        self.flush()
        token_ids = np.empty(self.length, np.int32)
        token_ids.fill(self.planner.tokenizer.mark_id(PAD))
        for ids, end in zip(self.ids, self.ends, strict=True):
            token_ids[end - len(ids) : end] = ids
        train = np.zeros(self.length, np.bool_)
        for begin, end in self.trained:
            train[begin:end] = True
        if self.trained and not self.trained[0][0]:
            train[0] = False  # nothing is in front of it
        return DocumentPlan(
            origin=document.origin,
            modalities=document.modalities,
            token_ids=token_ids,
            train=train,
            media=tuple(self.media),
            slots={name: s[0] if len(s) == 1 else np.concatenate(s) for name, s in self.slots.items()},
            answer_start=self.answer_start,
            weight=float(document.weight),
        )


def _no_unicode(text: str) -> SampleError | None:
    """What to say of a text that is in no encoding, as JSON with half of an escaped pair gives one."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"a lone surrogate, U+{ord(text[error.start]):04X}, is its character {error.start + 1:,}"
        return SampleError(f"text is not valid Unicode ({half}); write both halves of the pair, or leave it out")
    return None
