"""Score held-out documents in packed rows: loss, perplexity, and whether greedy decoding gives the answer.

Exact match needs no generation: by induction over its tokens, greedy decoding from the prompt writes the
expected answer exactly when each token of the answer, end token included, is the most likely one after the
prompt and the expected tokens before it. ``tests`` hold it against real generation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kosmos.compose import Composition, check_composition, make_scoring_feed
from kosmos.data.batch import IGNORED, DocumentInfo, PackedArrays, PackedBatch, assemble, to_tensors
from kosmos.data.document import Source
from kosmos.data.feeder import Feeder, StopWaiting, open_feeder, sample_hang_s
from kosmos.data.lane import Row
from kosmos.data.quarantine import Incident
from kosmos.data.tokenizer import Tokenizer
from kosmos.data.transfer import on_its_way
from kosmos.errors import DataError
from kosmos.evaluate.given_sources import check_sources
from kosmos.evaluate.meters import perplexity, standard_error
from kosmos.evaluate.units import count_units
from kosmos.given import warn_caller, whole
from kosmos.model.kernels_in_use import by_kernels
from kosmos.model.loss import TokenLosses
from kosmos.model.objectives import Learning
from kosmos.runtime.devices import apart_from_autocast, autocast, check_dtype, device_of
from kosmos.runtime.parallel import Parallel

DOCUMENTS_A_WORKER = 128
"""To start a worker takes as long as to decode some hundred small files."""
FEW_TEXTS = 2048
"""Documents of text alone below which none is started."""


Told = Callable[[DocumentInfo, NDArray[np.float64]], None]
"""Told of a document, and of the losses of its target tokens in order."""


Value = Callable[[DocumentInfo], str | None]
"""By what scores of a document are told apart from others of its source; None where they are not."""
NONE_SCORED = "no document could be scored"


class ScoringStopped(Exception):
    """It was to stop; there are no scores."""


@dataclass(frozen=True)
class Score:
    """Of the documents of one source or modality."""

    documents: int
    """Those that were cut, as they are longer than a row, count once."""
    loss: float
    """Mean over target tokens, in nats, or over the units of the run's objective; not a number where there are none."""
    perplexity: float
    """Not a number where the loss is that of an objective."""
    exact_match: float | None
    """Share of the documents with an answer whose answer greedy decoding gives; None where none has an answer. Of an
    objective that says what the model is right about, such as pairs of answers, the share of these."""
    answers: int = 0
    """Documents with an answer."""
    torn: int = 0
    """Documents that ask something and were cut: their answers are not among these."""
    pieces: int = 0
    """Documents, those that were cut as often as they have pieces; 0 where that was not counted."""
    bits_per_byte: float | None = None
    """The sum of the losses in bits, over the bytes of the text that is learned, in UTF-8: it compares models of
    different tokenizers. None where there is none, or media are learned as tokens, which have no such bytes."""

    @property
    def compared(self) -> int:
        """As many have two scorings that compare: pieces, or documents of before those were told apart."""
        return self.pieces or self.documents

    @property
    def exact_match_standard_error(self) -> float | None:
        """Of ``exact_match``, as if the documents with an answer were drawn at random."""
        return standard_error(self.exact_match, self.answers)


NOTHING = Score(0, math.nan, math.nan, None)
"""Of no document."""


@dataclass(frozen=True)
class Scores:
    """Of a set of documents."""

    overall: Score
    by_modality: dict[str, Score]
    by_source: dict[str, Score]
    incidents: tuple[Incident, ...]
    """Documents that could not be read."""
    generated: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By source, metrics of the answers that were written for its documents, and how many those are; see
    ``evaluate.generate``."""
    by_value: Mapping[str, Mapping[str, Score]] = field(default_factory=dict)
    """By source, scores of its documents by what ``score`` was to tell them apart by."""


@dataclass
class Tally:
    """Sums over documents, or of one, or of a piece of one that is longer than a row."""

    pieces: int = 0
    documents: int = 0
    loss: float = 0.0
    targets: int = 0
    answers: int = 0
    right: int = 0
    torn: int = 0
    text_bytes: int = 0
    units: int = 0  # of an objective, whose losses are those of no tokens
    media: int = 0  # that are learned as tokens

    def add(self, other: Tally) -> None:
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))

    def score(self) -> Score:
        mean = self.loss / self.targets if self.targets else math.nan
        share = self.right / self.answers if self.answers else None
        of_text = self.text_bytes and not self.units and not self.media
        bits = self.loss / math.log(2) / self.text_bytes if of_text else None
        return Score(
            self.documents,
            mean,
            math.nan if self.units else perplexity(mean),
            share,
            self.answers,
            self.torn,
            self.pieces,
            bits,
        )


def _some(scores: Scores, sources: Sequence[Source]) -> Scores:
    """The scores. Raises DataError where no document was scored."""
    if scores.overall.documents:
        return scores
    if bad := scores.incidents:
        why = f"{len(bad):,} left out, the first {bad[0].origin}: {bad[0].cause}"
    else:
        why = f"{', '.join(source.name for source in sources)}: empty" if sources else "sources: there are none"
    raise DataError(f"{NONE_SCORED}; {why}")


Counts = Callable[[DocumentInfo, Tally], None]
"""Told of a document, and of what is counted of it; of one that was cut, of each piece."""


@apart_from_autocast()
def score(
    composition: Composition,
    sources: Sequence[Source],
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    max_documents: int = 512,
    workers: int = 1,
    parallel: Parallel | None = None,
    losses: Callable[[PackedBatch], TokenLosses] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    at: Callable[..., None] = lambda phase, **more: None,
    told: Told = lambda document, losses: None,
    counted: Counts = lambda document, tally: None,
    allow_none: bool = False,
    value: Value | None = None,
) -> Scores:
    """Score at most ``max_documents`` of each source. All ranks take part and get the same scores.

    Where the run learns from pairs, of a pair the better one alone is scored.

    Args:
        sources: such as ``open_sources`` and ``open_held_out`` give; documents of your own as ``Documents``.
        device: None and ``auto`` are where the model is.
        dtype: of matrix products.
        workers: processes that decode, fewer where there is little to decode; 0 decodes here.
        losses: the model's forward pass where it is spread over ranks; None is that of the composition's model. An
            objective that compares with a reference counts where this is given alone: else the cross entropy does.
        should_stop: asked before every row.
        at: told what begins, row by row.
        told: told of the documents of this rank.
        counted: likewise, of what is counted of each.
        allow_none: give scores of no documents too, where otherwise it is an error that none could be scored.
        value: by what documents of a source are told apart, for ``Scores.by_value``; None tells none apart.

    Raises:
        ConfigError: an argument is something else than its type says, two sources have one name, or a number is too
            small.
        DataError: no document could be scored.
        ScoringStopped: some rank was to stop.
    """
    check_composition(composition)
    check_dtype(dtype)
    check_sources(sources)
    max_documents = whole("max_documents", max_documents, least=1)
    workers = whole("workers", workers, least=0)
    device = device_of(device, composition.model)
    parallel = parallel or Parallel()
    feed = make_scoring_feed(composition, sources, lanes=parallel.data_world_size, max_documents=max_documents)
    documents = sum(feed.mixture.limit(source) for source in range(len(sources))) // parallel.data_world_size
    useful = useful_workers(workers, documents, decodes=bool(feed.streams))
    hang_s = sample_hang_s(composition.config.train.hang_s)
    feeder = open_feeder(feed, [parallel.data_rank], workers=useful, hang_s=hang_s, moved=lambda: at("scoring"))
    learning = composition.model.learning
    if learning is not None and learning.reference and losses is None:
        learning = None  # there is none here
    begins = [route.writer.begin for route in composition.planner.routes.values() if route.writer is not None]
    counter = _Counter(composition.tokenizer, told, counted, value, learning, begins)
    incidents: list[Incident] = []
    forward = losses or composition.model
    model = composition.model
    was_training = model.training
    model.eval()
    count: Callable[[], None] | None = None
    try:
        compiled = by_kernels(model, composition.config.train.compile, device, dtype, warn_caller)
        # Not inference mode: sharded parameters are gathered in here.
        with compiled, torch.no_grad(), autocast(device, dtype):
            for row in together(feeder, parallel, should_stop, at):
                batch = to_tensors(row.arrays if row and row.arrays.documents else _one_token(composition))
                at("scoring", document=batch.documents[0].origin)
                found = forward(batch.to(device))
                incidents += row.incidents if row else []
                if count is not None:  # the row before, while a GPU computes this one
                    count()
                count = _to_count(batch, found, counter) if row and row.arrays.documents else None
        if count is not None:
            count()
    finally:
        feeder.close()
        model.train(was_training)
    scores = _collect(counter.tallies, incidents, parallel)
    return scores if allow_none else _some(scores, sources)


def useful_workers(workers: int, documents: int, *, decodes: bool) -> int:
    """How many of so many workers are worth their start.

    Args:
        documents: of this rank.
        decodes: whether there are media among them. Of text alone nothing is decoded: to plan some hundred documents
            takes less than to start a process.
    """
    return min(workers, 1 + documents // DOCUMENTS_A_WORKER if decodes else documents // FEW_TEXTS)


def together(
    feeder: Feeder, parallel: Parallel, should_stop: Callable[[], bool], at: Callable[..., None]
) -> Iterator[Row | None]:
    """This rank's rows, and None while only others have some: a sharded model is run by all ranks or by none."""
    while True:
        at(f"reading held-out documents{feeder.alone}", document="")
        try:
            rows, stop = feeder.next_step(should_stop), should_stop()
        except StopWaiting:
            rows, stop = [], True
        state = parallel.gather((bool(rows), stop))
        if any(stop for _, stop in state):
            raise ScoringStopped
        if not any(more for more, _ in state):
            return
        yield rows[0] if rows else None


def _one_token(composition: Composition) -> PackedArrays:
    """The least that a backbone runs on, with nothing to predict."""
    empty = assemble([], composition.planner.routes, composition.streams)
    one = np.zeros(1, np.int64)
    nothing = DocumentInfo("", "", (), 0, 1)
    return PackedArrays(one, one + IGNORED, one, (nothing,), empty.media)


def _to_count(batch: PackedBatch, losses: TokenLosses, counter: _Counter) -> Callable[[], None]:
    """Begin to copy what a row gave; what is returned waits for it and counts it."""
    own, beside = losses.per_token, losses.reference
    per_token = on_its_way(own if beside is None else torch.stack([own, beside]))
    predictions = on_its_way(losses.predictions)
    return lambda: counter.count(batch, per_token(), predictions())


_Key = tuple[str, ...]
"""Of a tally: ``all``, a source, a modality, or a source and a value."""


@dataclass(frozen=True)
class _Counter:
    tokenizer: Tokenizer
    told: Told
    counted: Counts
    value: Value | None
    learning: Learning | None
    begins: Sequence[int]
    """Tokens that begin media which are learned as tokens."""
    tallies: dict[_Key, Tally] = field(default_factory=lambda: defaultdict(Tally))

    def count(self, batch: PackedBatch, per_token: Tensor, predictions: Tensor) -> None:
        positions = batch.trained.numpy()
        own = per_token[0] if per_token.dim() == 2 else per_token
        losses, targets = own.double().numpy(), batch.labels.numpy()[positions]
        tallies = _by_document(batch.documents, positions, losses, predictions.numpy() == targets)
        spans = _spans(batch.documents, positions)
        if self.learning is not None:
            count_units(self.learning, batch, per_token, tallies)
        for document, tally, (low, high) in zip(batch.documents, tallies, spans, strict=True):
            if document.is_rejected:
                continue
            tally.text_bytes = _num_bytes(self.tokenizer.decode(targets[low:high].tolist()))
            tally.media = int(np.isin(targets[low:high], self.begins).sum()) if self.begins else 0
            for key in (("all", ""), ("source", document.source), *(("modality", m) for m in document.modalities)):
                self.tallies[key].add(tally)
            if self.value is not None and (value := self.value(document)) is not None:
                self.tallies["value", document.source, value].add(tally)
            self.told(document, losses[low:high])
            self.counted(document, tally)


def _num_bytes(text: str) -> int:
    """Bytes of a text, of which the end of a row may have cut the first and the last character: U+FFFD is told then."""
    whole = text.strip("\ufffd")
    return len(whole.encode()) + len(text) - len(whole)


def _by_document(
    documents: Sequence[DocumentInfo],
    positions: NDArray[np.int64],
    losses: NDArray[np.float64],
    right: NDArray[np.bool_],
) -> list[Tally]:
    tallies = [Tally(pieces=1, documents=int(one.counts), torn=int(one.counts and one.is_torn)) for one in documents]
    for document, tally, (low, high) in zip(documents, tallies, _spans(documents, positions), strict=True):
        tally.loss, tally.targets = float(losses[low:high].sum()), high - low
        if document.answer_start is not None:
            # The label at position p is the token at p + 1.
            answer = positions[low:high] + 1 >= document.answer_start
            tally.answers, tally.right = 1, int(right[low:high][answer].all())
    return tallies


def _spans(documents: Sequence[DocumentInfo], positions: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Which of the positions are each document's."""
    ends = [document.start + document.length for document in documents]
    # Positions stand in order: a slice is a document's, where a look at all of them for each would take the square.
    return list(pairwise([0, *np.searchsorted(positions, ends).tolist()]))


def _collect(tallies: dict[_Key, Tally], incidents: list[Incident], parallel: Parallel) -> Scores:
    merged: dict[_Key, Tally] = defaultdict(Tally)
    bad: list[Incident] = []
    for theirs, their_incidents in parallel.gather_groups((dict(tallies), incidents)):
        bad += their_incidents
        for key, tally in theirs.items():
            merged[key].add(tally)
    by: dict[str, dict[str, Score]] = {"modality": {}, "source": {}}
    by_value: dict[str, dict[str, Score]] = {}
    for (kind, *names), tally in sorted(merged.items()):
        if kind == "value":
            by_value.setdefault(names[0], {})[names[1]] = tally.score()
        elif kind in by:
            by[kind][names[0]] = tally.score()
    return Scores(merged["all", ""].score(), by["modality"], by["source"], tuple(bad), by_value=by_value)
