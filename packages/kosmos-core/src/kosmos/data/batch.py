"""A packed row: first as numpy arrays made by data workers, then as tensors.

T = tokens in the row, N = encoder cells of a stream, M = slots that they fill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kosmos.data.decoding import decode_cells
from kosmos.data.foreign import calling
from kosmos.data.plan import DocumentPlan, Route
from kosmos.data.transfer import to_device
from kosmos.data.which_medium import naming
from kosmos.errors import PluginError, SampleError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

IGNORED = -100
"""Label of a position whose prediction the loss does not look at."""


class DocumentInfo(NamedTuple):
    """What metrics and messages have to know of a document in a row. (A tuple travels between processes fast.)"""

    origin: str
    source: str
    modalities: tuple[str, ...]
    start: int
    """Its first token's position in the row."""
    length: int
    answer_start: int | None = None
    """Position in the row where its last trained text begins."""
    is_torn: bool = False
    """See ``kosmos.data.plan.DocumentPlan``."""
    counts: bool = True
    """Likewise."""
    weight: float = 1.0
    """As of its ``Document``."""
    is_rejected: bool = False
    """Whether it is the worse one of a pair, whose better one is the document before it."""
    lost: tuple[str, ...] = ()
    """See ``kosmos.data.plan.DocumentPlan``."""
    share: float = 1.0
    """Of its document, of which a piece is a part."""


@dataclass(slots=True, repr=False)
class MediaArrays:
    """A stream's part of a row: values [N, *cell], grids int64 [items, 3], slots int64 [M]."""

    values: Any
    grids: Any
    slots: Any

    def __repr__(self) -> str:
        return f"MediaArrays({len(self.grids)} items, values {[*self.values.shape]}, {len(self.slots)} slots)"


@dataclass(slots=True, repr=False)
class PackedArrays:
    """A row as numpy arrays: int64 [T] each, and every configured stream, possibly of length 0."""

    token_ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    """The next token where the loss looks at it, else -100."""
    position_ids: NDArray[np.int64]
    """Beginning with 0 in each document."""
    documents: tuple[DocumentInfo, ...]
    media: dict[str, MediaArrays]

    def __repr__(self) -> str:
        return _told(self)


@dataclass(slots=True, repr=False)
class PackedBatch:
    """A row as tensors."""

    token_ids: Tensor
    """int64 [T]; slots hold the padding token."""
    labels: Tensor
    """int64 [T]: the next token where the loss looks at its prediction, else -100."""
    position_ids: Tensor
    """int64 [T], beginning with 0 in each document."""
    documents: tuple[DocumentInfo, ...]
    """In their order, each with its ``origin``, ``start`` and ``length``."""
    media: dict[str, MediaArrays]
    """Of every stream of the run: ``values`` [N, *cell], ``slots`` int64 [M], and ``grids`` int64 [items, 3], which
    stay on the CPU: shapes depend on them."""
    trained: Tensor
    """int64 [n]: the positions that the loss looks at, in order. Found on the CPU: a GPU would have to be asked."""
    host: PackedBatch | None = None
    """The row on the CPU, which may be asked for values at any time; None where this is it."""
    weights: Tensor | None = None
    """fp32 [n]: what the loss of each trained position is multiplied by; None where that is 1 for all."""
    reference: Tensor | None = None
    """[n]: losses of the model as the run began with it, where its objective compares with them."""

    def __repr__(self) -> str:
        return _told(self, f", {self.num_targets} learned, on {self.token_ids.device}")

    @property
    def num_targets(self) -> int:
        """n."""
        return len(self.trained)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of the documents; their sum is T."""
        return tuple(d.length for d in self.documents)

    def to(self, device: torch.device | str) -> PackedBatch:
        import torch

        there = torch.device(device)

        def move(t: Tensor) -> Tensor:
            return to_device(t, there)

        media = {n: MediaArrays(move(m.values), m.grids, move(m.slots)) for n, m in self.media.items()}
        ids, labels, positions, trained = map(move, (self.token_ids, self.labels, self.position_ids, self.trained))
        weights = None if self.weights is None else move(self.weights)
        return PackedBatch(ids, labels, positions, self.documents, media, trained, self.host or self, weights)


def _told(row: PackedArrays | PackedBatch, more: str = "") -> str:
    """A row in a line: its numbers would fill a screen."""
    tokens, documents = len(row.token_ids), len(row.documents)
    return f"{type(row).__name__}({tokens} tokens, {documents} documents{more}, media: {row.media or 'none'})"


def to_tensors(arrays: PackedArrays) -> PackedBatch:
    """The same row as tensors that share its memory."""
    import torch

    media = {
        name: MediaArrays(*(torch.from_numpy(a) for a in (m.values, m.grids, m.slots)))
        for name, m in arrays.media.items()
    }
    ids, labels, positions = (torch.from_numpy(a) for a in (arrays.token_ids, arrays.labels, arrays.position_ids))
    return packed(ids, labels, positions, arrays.documents, media)


def packed(
    token_ids: Tensor,
    labels: Tensor,
    position_ids: Tensor,
    documents: tuple[DocumentInfo, ...],
    media: dict[str, MediaArrays],
) -> PackedBatch:
    """A row on the CPU, with what follows from these."""
    trained = trained_in(labels)
    weights = _weights(documents, trained)
    return PackedBatch(token_ids, labels, position_ids, documents, media, trained, weights=weights)


def _weights(documents: Sequence[DocumentInfo], trained: Tensor) -> Tensor | None:
    if all(document.weight == 1.0 for document in documents):  # as nearly always
        return None
    import torch

    each = torch.tensor([document.weight for document in documents], dtype=torch.float32)
    return each.repeat_interleave(torch.tensor([document.length for document in documents]))[trained]


def owner_of(documents: Sequence[DocumentInfo], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of the document that each position of a row belongs to."""
    return np.searchsorted([document.start for document in documents], positions, side="right") - 1


def trained_in(labels: Tensor) -> Tensor:
    """Positions that the loss looks at: int64 [n], of labels [T]."""
    return (labels != IGNORED).nonzero().squeeze(1)


@dataclass(frozen=True, slots=True, eq=False)
class ReadyDocument:
    """A plan with the cells of its media, by stream in the order of its slots."""

    plan: DocumentPlan
    source: str
    cells: Mapping[str, Sequence[NDArray[Any]]]


Room = Callable[[Sequence[int], DTypeLike], NDArray[Any]]
"""Shape and type to an array that is to be filled, such as ``numpy.empty``."""


def no_room(shape: Sequence[int], kind: DTypeLike) -> NDArray[Any]:
    """An array of a shape without memory for it: all of its places are the same one."""
    return np.ndarray(tuple(shape), kind, np.zeros(1, kind), strides=(0,) * len(shape))


class RowCells:
    """The values of a row's media, each put where it belongs as it is decoded, so that a row is in memory once.

    Args:
        plans: those of the row; room is made for all that they promise.
        streams: those of the run, present or not.
        room: where the values are.
    """

    def __init__(
        self, plans: Sequence[DocumentPlan], routes: Mapping[str, Route], streams: Sequence[str], room: Room = np.empty
    ) -> None:
        self._values = {}
        for name in streams:
            shape, kind = _cell_of(name, routes)
            self._values[name] = room((sum(p.cells(name) for p in plans), *shape), kind)
        self.filled = dict.fromkeys(streams, 0)
        """Cells of each stream that are there. Put back to what it was, what came since is forgotten."""

    def put(self, stream: str, cells: NDArray[Any]) -> None:
        """The next of a stream: [N, *cell]."""
        begin = self.filled[stream]
        self.filled[stream] = end = begin + len(cells)
        self._values[stream][begin:end] = cells

    def leave(self, plan: DocumentPlan) -> None:
        """The cells of a document count as put, and hold anything: for whoever looks at sizes alone."""
        for name in self.filled:
            self.filled[name] += plan.cells(name)

    def values(self) -> dict[str, NDArray[Any]]:
        """Of each stream, what was put there: [N, *cell]."""
        return {name: whole[: self.filled[name]] for name, whole in self._values.items()}


def _cell_of(stream: str, routes: Mapping[str, Route]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape of a stream's cells, and the type that holds those of all its modalities.

    Raises:
        PluginError: its modalities make cells of different shapes.
    """
    found = {modality: route.processor for modality, route in routes.items() if route.stream == stream}
    shapes = {modality: tuple(processor.cell_shape) for modality, processor in found.items()}
    if len(set(shapes.values())) > 1:
        said = ", ".join(f"{modality} {shape}" for modality, shape in shapes.items())
        raise PluginError(f"stream {stream}: its modalities make cells of different shapes ({said}); give each its own")
    return next(iter(shapes.values())), np.result_type(*(processor.cell_dtype for processor in found.values()))


def ready_document(plan: DocumentPlan, routes: Mapping[str, Route], source: str) -> ReadyDocument:
    """A planned document with its media decoded, as they are: nothing is augmented.

    Args:
        source: what metrics call where it is from.

    Raises:
        SampleError: a medium is unusable.
    """
    cells: dict[str, list[Any]] = {}
    for number, media in enumerate(plan.media):
        processor = routes[media.media.modality].processor
        try:
            with calling(processor, "decode"):
                cells.setdefault(media.stream, []).append(decode_cells(media, processor))
        except SampleError as error:
            raise naming(error, number, [m.media for m in plan.media], plan.origin) from error
    return ReadyDocument(plan, source, cells)


def assemble(documents: Sequence[ReadyDocument], routes: Mapping[str, Route], streams: Sequence[str]) -> PackedArrays:
    """Lay documents one after another into a row; ``streams`` are those of the run, present or not."""
    plans = [d.plan for d in documents]
    cells = RowCells(plans, routes, streams)
    for document in documents:
        for name, parts in document.cells.items():
            for part in parts:
                cells.put(name, part)
    return lay_out(plans, [d.source for d in documents], cells.values())


def lay_out(plans: Sequence[DocumentPlan], sources: Sequence[str], values: Mapping[str, NDArray[Any]]) -> PackedArrays:
    """A row of documents one after another; of a pair the better one and the worse one, which do not see each other.

    Args:
        sources: name of each document's source.
        values: of each stream of the run, the cells of all documents [N, *cell].
    """
    lengths = np.asarray([length for p in plans for length in p.lengths], np.int64)
    starts = np.cumsum(lengths) - lengths
    begins = list(accumulate(map(len, plans), initial=0))[:-1]
    token_ids = _joined([p.token_ids for p in plans])
    return PackedArrays(
        token_ids=token_ids,
        labels=_labels(token_ids, plans, starts),
        position_ids=np.arange(len(token_ids)) - np.repeat(starts, lengths),
        documents=tuple(chain.from_iterable(map(_infos, plans, sources, begins))),
        media={name: _media(name, plans, begins, found) for name, found in values.items()},
    )


def _infos(plan: DocumentPlan, source: str, start: int) -> tuple[DocumentInfo, ...]:
    answer = None if plan.answer_start is None else start + plan.answer_start
    length = len(plan) if plan.chosen is None else plan.chosen
    first = DocumentInfo(
        plan.origin, source, plan.modalities, start, length, answer, plan.is_torn, plan.counts, plan.weight
    )
    if plan.lost or plan.share != 1.0:  # seldom
        first = first._replace(lost=plan.lost, share=plan.share)
    if plan.chosen is None:
        return (first,)
    begin, left = start + length, len(plan) - length
    return first, first._replace(start=begin, length=left, answer_start=None, counts=False, is_rejected=True)


def _labels(
    token_ids: NDArray[np.int64], plans: Sequence[DocumentPlan], starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The next token where it is trained; nothing is next to the last of a document."""
    labels = np.full(len(token_ids), IGNORED, np.int64)
    trained = np.flatnonzero(np.concatenate([np.zeros(0, np.bool_), *(p.train for p in plans)]))
    labels[trained - 1] = token_ids[trained]  # the first of a row would be written behind its end, and is wiped
    labels[starts - 1] = IGNORED
    return labels


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)


def _media(name: str, plans: Sequence[DocumentPlan], starts: Sequence[int], values: NDArray[Any]) -> MediaArrays:
    grids = [g for p in plans for m in p.media if m.stream == name for g in m.plan.grids]
    slots = [p.slots[name] + start for p, start in zip(plans, starts, strict=True) if name in p.slots]
    return MediaArrays(values, np.asarray(grids, np.int64).reshape(-1, 3), _joined(slots))
