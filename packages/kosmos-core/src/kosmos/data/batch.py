"""A packed row: first as numpy arrays made by data workers, then as tensors.

T = tokens in the row, N = encoder cells of a stream, M = slots that they fill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kosmos.data.plan import DocumentPlan, Route
from kosmos.data.transfer import to_device

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


@dataclass(slots=True)
class MediaArrays:
    """A stream's part of a row: values [N, *cell], grids int64 [items, 3], slots int64 [M]."""

    values: Any
    grids: Any
    slots: Any


@dataclass(slots=True)
class PackedArrays:
    """A row as numpy arrays: int64 [T] each, and every configured stream, possibly of length 0."""

    token_ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    """The next token where the loss looks at it, else -100."""
    position_ids: NDArray[np.int64]
    """Beginning with 0 in each document."""
    documents: tuple[DocumentInfo, ...]
    media: dict[str, MediaArrays]


@dataclass(slots=True)
class PackedBatch:
    """A row as tensors; fields as in ``PackedArrays``. ``grids`` stay on the CPU: shapes depend on them."""

    token_ids: Tensor
    labels: Tensor
    position_ids: Tensor
    documents: tuple[DocumentInfo, ...]
    media: dict[str, MediaArrays]
    trained: Tensor
    """int64 [n]: the positions that the loss looks at, in order. Found on the CPU: a GPU would have to be asked."""
    host: PackedBatch | None = None
    """The row on the CPU, which may be asked for values at any time; None where this is it."""

    @property
    def num_targets(self) -> int:
        """n."""
        return len(self.trained)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of the documents; their sum is T."""
        return tuple(d.length for d in self.documents)

    @property
    def document_ids(self) -> NDArray[np.int64]:
        """Number of the document that each token belongs to: int64 [T]."""
        return np.repeat(np.arange(len(self.documents)), self.lengths)

    def to(self, device: torch.device) -> PackedBatch:
        def move(t: Tensor) -> Tensor:
            return to_device(t, device)

        media = {n: MediaArrays(move(m.values), m.grids, move(m.slots)) for n, m in self.media.items()}
        ids, labels, positions, trained = map(move, (self.token_ids, self.labels, self.position_ids, self.trained))
        return PackedBatch(ids, labels, positions, self.documents, media, trained, self.host or self)


def to_tensors(arrays: PackedArrays) -> PackedBatch:
    """The same row as tensors that share its memory."""
    import torch

    media = {
        name: MediaArrays(*(torch.from_numpy(a) for a in (m.values, m.grids, m.slots)))
        for name, m in arrays.media.items()
    }
    ids, labels, positions = (torch.from_numpy(a) for a in (arrays.token_ids, arrays.labels, arrays.position_ids))
    return PackedBatch(ids, labels, positions, arrays.documents, media, trained_in(labels))


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


def assemble(
    documents: Sequence[ReadyDocument], routes: Mapping[str, Route], streams: Sequence[str], room: Room = np.empty
) -> PackedArrays:
    """Lay documents one after another into a row; ``streams`` are those of the run, present or not.

    Args:
        room: where the values of media are put.
    """
    plans = [d.plan for d in documents]
    lengths = np.asarray([len(p) for p in plans], np.int64)
    starts = np.cumsum(lengths) - lengths
    token_ids = _joined([p.token_ids for p in plans])
    return PackedArrays(
        token_ids=token_ids,
        labels=_labels(token_ids, plans, starts),
        position_ids=np.arange(len(token_ids)) - np.repeat(starts, lengths),
        documents=tuple(_info(d, start) for d, start in zip(documents, starts.tolist(), strict=True)),
        media={name: _stream(name, documents, starts.tolist(), routes, room) for name in streams},
    )


def _info(document: ReadyDocument, start: int) -> DocumentInfo:
    plan = document.plan
    answer = None if plan.answer_start is None else start + plan.answer_start
    return DocumentInfo(plan.origin, document.source, plan.modalities, start, len(plan), answer)


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


def _stream(
    name: str, documents: Sequence[ReadyDocument], starts: Sequence[int], routes: Mapping[str, Route], room: Room
) -> MediaArrays:
    processor = next(r.processor for r in routes.values() if r.stream == name)
    cells = [c for d in documents for c in d.cells.get(name, ())]
    values = room((sum(map(len, cells)), *processor.cell_shape), processor.cell_dtype)
    if cells:
        np.concatenate(cells, out=values)
    grids = [g for d in documents for m in d.plan.media if m.stream == name for g in m.plan.grids]
    slots = [d.plan.slots[name] + start for d, start in zip(documents, starts, strict=True) if name in d.plan.slots]
    return MediaArrays(values, np.asarray(grids, np.int64).reshape(-1, 3), _joined(slots))
