"""The tokens of one document, collected segment by segment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Codes, Document, Mark, Media, Segment, StoredMedia, Text, is_written
from kosmos.data.document_plan import DocumentPlan, PlannedMedia
from kosmos.data.foreign import calling
from kosmos.data.marks import ASSISTANT, END, PAD
from kosmos.data.processor import Grid, MediaPlan
from kosmos.data.route import Route
from kosmos.data.slots import count_slots
from kosmos.data.tokenizer import Tokenizer
from kosmos.data.turns import ROLES, Part, Turns
from kosmos.data.which_medium import naming
from kosmos.errors import ConfigError, SampleError


class Plans(Protocol):
    """What plans a document: a ``Planner``."""

    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def routes(self) -> Mapping[str, Route]: ...
    @property
    def turns(self) -> Turns | None: ...
    def plan_medium(self, media: Media | StoredMedia) -> tuple[Media | StoredMedia, MediaPlan] | None: ...


class Draft:
    """Collects the tokens of one document. Most of them are slots, which are written as stretches, not one by one."""

    def __init__(self, planner: Plans, document: Document) -> None:
        self.planner, self.document = planner, document
        self.length = 0
        self.ids: list[list[int]] = []
        """Stretches of tokens. What is in none is a slot."""
        self.ends: list[int] = []
        """Where they end."""
        self.trained: list[tuple[int, int]] = []
        """Where trained stretches begin and end."""
        self.media: list[PlannedMedia] = []
        self.seen = 0
        """Media so far, those that are written among them."""
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
                self.begin_said(train=train)
                self.text(text, train=train)
            case Codes() | Media() | StoredMedia() if is_written(segment):
                self.written(segment)
            case Mark(name, train):
                try:
                    self.mark(name, train=train)
                except ConfigError as error:
                    raise SampleError(f"mark {name!r}: {error}") from error
            case Media() | StoredMedia():
                self.answer_start = None
                self.medium(segment)
            case _:
                what = "a segment of the document: expected Text, Mark, Media or Codes"
                raise SampleError(f"{what}, got {segment!r:.60}")

    def begin_said(self, *, train: bool) -> None:
        """In front of a text, or of a medium that is written."""
        if self.pending:
            self.flush()  # an answer begins where its prompt ends
        if train and self.length > 1 and (self.opens or not self._ends_trained()):
            self.answer_start = self.length
        elif not train:
            self.answer_start = None
        self.opens = False

    def _is_spelled_later(self, text: str, *, train: bool) -> bool:
        """Whether it is said by a user or the system, and so goes with the plain text around it."""
        later = self.role != ASSISTANT and isinstance(text, str) and not train
        if later:
            self.answer_start = None
            self.pending += text
        return later

    def _ends_trained(self) -> bool:
        return bool(self.trained) and self.trained[-1][1] == self.length

    def written(self, medium: Media | StoredMedia | Codes) -> None:
        """A medium as tokens, which the model is to write or has written."""
        self.begin_said(train=medium.train)
        route = self.planner.routes.get(medium.modality)
        if route is None:
            raise self._no_modality(medium.modality)
        if route.writer is None:
            raise _no_codec(medium.modality, route)
        try:
            ids = route.writer.tokens(medium)
        except SampleError as error:
            raise error if isinstance(medium, Codes) else self._naming(error) from error
        self.seen += not isinstance(medium, Codes)
        self.tokens(ids, train=medium.train)

    def _naming(self, error: SampleError) -> SampleError:
        """Which medium it is about."""
        return naming(error, self.seen, list(self.document.media), self.document.origin)

    def _no_modality(self, modality: str) -> SampleError:
        return SampleError(f"holds {modality}, which is not among the modalities of this run")

    def medium(self, media: Media | StoredMedia) -> None:
        if self.pending:
            self.flush()
        try:
            planned = self.planner.plan_medium(media)
        except SampleError as error:
            raise self._naming(error) from error
        if planned is None:
            raise self._no_modality(media.modality)
        self.seen += 1
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
        if not self.media and not any(is_written(s) or (isinstance(s, Text) and s.text) for s in document.segments):
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


def _no_codec(modality: str, route: Route) -> SampleError:
    """What to say where a medium is to be written and nothing can make tokens of it."""
    what = f"holds {modality} that is to be written, for which"
    if route.no_codec:
        return SampleError(f"{what} the run's codec cannot be used ({route.no_codec})")
    return SampleError(f"{what} the run has no codec; state modalities.{modality}.codec")


def _no_unicode(text: str) -> SampleError | None:
    """What to say of a text that is in no encoding, as JSON with half of an escaped pair gives one."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"a lone surrogate, U+{ord(text[error.start]):04X}, is its character {error.start + 1:,}"
        return SampleError(f"text is not valid Unicode ({half}); write both halves of the pair, or leave it out")
    return None
