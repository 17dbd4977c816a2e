"""Plan documents: text to token ids, media to empty slots of a known number. No torch, no decoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from kosmos.data.document import Document, Media, Segment, StoredMedia, is_written
from kosmos.data.document_plan import DocumentPlan as DocumentPlan
from kosmos.data.document_plan import PlannedMedia as PlannedMedia
from kosmos.data.draft import Draft
from kosmos.data.kept_plans import KeptPlans, plan_of
from kosmos.data.long_pages import as_pieces, parts_of
from kosmos.data.lost_media import without_lost
from kosmos.data.marks import BOS, END, EOS
from kosmos.data.page_document import PageDocument
from kosmos.data.pair_plans import as_one, check_lengths, check_pair, two_of
from kosmos.data.pieces import is_asked, pieces
from kosmos.data.processor import MediaPlan
from kosmos.data.route import Route as Route
from kosmos.data.tokenizer import Tokenizer
from kosmos.data.turns import Turns, is_chat
from kosmos.errors import SampleError


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
    def codecs(self) -> dict[str, str]:
        """What tells the codecs of the run from others, by modality."""
        return {name: route.writer.identity for name, route in self.routes.items() if route.writer is not None}

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
        has_media = bool(plan.media) or any(map(is_written, document.segments))
        if len(plan) > self.most and not has_media:
            if self.long_chats == "leave_out" and is_asked(plan):
                raise SampleError(f"takes {len(plan)} tokens of {self.most}, and data.long_chats is leave_out")
            return list(pieces(plan, self.most))
        if is_cut and has_media and not self._fits(plan):
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

    def _draft(self, document: Document) -> Draft:
        draft = Draft(self, document)
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

    @property
    def _smaller(self) -> str:
        """What makes a document fit."""
        remedy = "make its media smaller (a document with media is cut by options.long_documents alone)"
        if self.codecs:
            remedy += ", or those that are learned shorter, by clip or a codec of fewer codes"
        return remedy

    def _check_fit(self, plan: DocumentPlan) -> None:
        if len(plan) > self.max_tokens:
            raise SampleError(
                f"takes {len(plan)} tokens and a row holds {self.max_tokens}; raise data.tokens_per_pack or "
                f"{self._smaller}"
            )
        if self.longest is not None and len(plan) > self.longest:
            raise SampleError(
                f"takes {len(plan)} tokens and the backbone has positions for {self.longest}; {self._smaller}"
            )
        self._check_cells(plan)

    def _check_cells(self, plan: DocumentPlan) -> None:
        for stream, most in self.max_cells.items():
            if plan.cells(stream) > most:
                raise SampleError(
                    f"takes {plan.cells(stream)} cells of stream {stream} and a row holds {most}; "
                    f"raise data.cells_per_pack.{stream}"
                )
