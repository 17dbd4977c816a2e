"""What a sample is: text and media in any order and number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kosmos.data.file_state import State
from kosmos.data.open_files import read_bytes
from kosmos.errors import NoSuchPart, SampleError

MediaSource = bytes | Path | NDArray[Any]
"""An encoded file as bytes, a path to one, or decoded values in the modality's own form."""
_SOURCES = (bytes, bytearray, memoryview, Path, np.ndarray)


MOST_WEIGHT = 1_000_000
"""Beyond it one row would be all that is learned, and gradients of some would be too large for fp32."""


@dataclass(frozen=True, slots=True)
class Text:
    """A stretch of text; ``train`` says whether the loss looks at it."""

    text: str
    train: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """One special token by its name, such as ``<|user|>``. Text from data can never become a mark."""

    name: str
    train: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Media:
    """A medium that is still encoded (or an array in its modality's form)."""

    modality: str
    source: MediaSource
    clip: tuple[float, float] | None = None
    """Start and end in seconds, for media that have time. None takes the whole."""
    rate_hz: float | None = None
    """Samples or frames a second, where ``source`` is an array, or a file of a modality that reads it
    (``ModalitySpec.reads_rate``)."""
    written: bool = False
    """Whether it comes as tokens of the run's codec of its modality, as what the model itself has said before does; by
    default it is read by an encoder."""
    train: bool = False
    """Whether the loss looks at it, as at a ``Text``: it then comes as tokens of the codec, too."""

    def __post_init__(self) -> None:
        source: Any = self.source
        if not isinstance(source, _SOURCES):
            if isinstance(source, str):
                raise NoSuchPart(f"Media: the source is a string; write a file as Path({repr(source)[:80]})")
            raise NoSuchPart(
                f"Media: the source is a {type(source).__name__}; expected a Path, the bytes of an encoded file or an "
                "array of numpy in the form of its modality; give the file itself, or save what was decoded of it into "
                "an io.BytesIO and give getvalue(), since numpy.asarray alone may show it otherwise than the file"
            )
        rate_hz: Any = self.rate_hz
        if self.written is not True and self.written is not False:
            raise NoSuchPart(f"Media: written is {self.written!r:.60}; expected True or False")
        if rate_hz is not None and (isinstance(rate_hz, bool) or not isinstance(rate_hz, Real)):
            raise NoSuchPart(f"Media: rate_hz is {rate_hz!r:.60}; expected a number of samples or frames a second")

    def load(self) -> Media:
        """Itself; there is nothing left to be read."""
        return self


@dataclass(frozen=True, slots=True)
class FileSpan:
    """A stretch of a file, such as a file in an archive."""

    path: Path
    begin: int
    """In bytes."""
    nbytes: int
    state: State | None = None
    """Bytes of the whole file, and the time of its last change in nanoseconds (``st_mtime_ns``), when it was found what
    lies in it: of a file that is another by now nothing is read. None reads it whatever it is."""

    def __str__(self) -> str:
        return f"{self.path} from byte {self.begin:,} on"

    def read(self) -> bytes:
        """What it holds.

        Raises:
            SampleError: the file ends within it, was changed, or cannot be read.
        """
        try:
            content = read_bytes(self.path, self.begin, self.begin + self.nbytes, self.state)
        except OSError as error:
            raise SampleError(f"{self.path.name} cannot be read ({error})") from error
        if len(content) < self.nbytes:
            raise SampleError(f"{self.path.name} breaks off in it: {len(content):,} of {self.nbytes:,} bytes are there")
        return content


@dataclass(frozen=True, slots=True, eq=False)
class StoredMedia:
    """An encoded medium that lies in a file beside others, read when a processor needs it, which gets a ``Media``."""

    modality: str
    source: FileSpan
    clip: tuple[float, float] | None = None
    rate_hz: ClassVar[None] = None

    written: bool = False
    """As of ``Media``, and so is ``train``."""
    train: bool = False

    def unread(self) -> Media:
        """The medium with no bytes, for a plan that hangs on none."""
        return Media(self.modality, b"", self.clip)

    def load(self) -> Media:
        """The medium with its bytes.

        Raises:
            SampleError: see ``FileSpan.read``.
        """
        return Media(self.modality, self.source.read(), self.clip, written=self.written, train=self.train)


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """A medium as the numbers of the run's codec, which need not be encoded any more.

    Raises:
        NoSuchPart: they are no whole numbers, or none.
    """

    modality: str
    codes: NDArray[np.integer[Any]]
    """[n], each from 0 up to the codec's size."""
    train: bool = False
    """Whether the loss looks at them."""

    def __post_init__(self) -> None:
        codes: Any = self.codes
        if not isinstance(codes, np.ndarray) or codes.ndim != 1 or codes.dtype.kind not in "iu" or not len(codes):
            told = f"{codes.dtype} {list(codes.shape)}" if isinstance(codes, np.ndarray) else repr(codes)
            raise NoSuchPart(f"Codes: expected an array of whole numbers of one dimension, got {told:.60}")


Segment = Text | Mark | Media | StoredMedia | Codes


def is_written(segment: Segment) -> bool:
    """Whether it is a medium that comes as tokens of a codec."""
    if isinstance(segment, Media | StoredMedia):
        return segment.written or segment.train
    return isinstance(segment, Codes)


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """One sample: text and media in order. ``weight`` multiplies its loss, and no end of it is learned where its text
    ``goes_on`` elsewhere."""

    origin: str
    """Names it for humans: file and line, shard and row. Each document should have one of its own, because bad samples
    are counted by it: those of one origin count once."""
    segments: tuple[Segment, ...]
    references: tuple[str, ...] = ()
    """All right answers to what it asks, where there are several, for metrics of generated answers. Training never sees
    them."""
    weight: float = 1.0
    """What the loss of each of its tokens is multiplied by in training; below 0, it is unlearned. Scores and the losses
    that are told leave it out."""
    goes_on: bool = False
    """Whether its text goes on elsewhere, as that of a piece of a file does: it has no end that could be learned."""
    rejected: tuple[Segment, ...] = ()
    """Segments of a whole second document, what was asked included, that is the worse one of a pair; for objectives
    that learn by preferences. Empty where there is none."""

    def __post_init__(self) -> None:
        _check_segments(self.segments, "segments")
        if self.rejected:
            _check_segments(self.rejected, "rejected segments")
        if self.references:
            _check_references(self.references)
        if self.weight is True or self.weight != 1.0:
            _check_weight(self.weight)

    @property
    def media(self) -> Iterator[Media | StoredMedia]:
        """Those of its segments, and behind them those of ``rejected``."""
        return (s for s in chain(self.segments, self.rejected) if isinstance(s, Media | StoredMedia))

    @property
    def modalities(self) -> tuple[str, ...]:
        """The modalities that it holds, sorted; ``("text",)`` where it holds no media."""
        held = (s.modality for s in chain(self.segments, self.rejected) if not isinstance(s, Text | Mark))
        return tuple(sorted(set(held))) or ("text",)


def _check_segments(segments: Any, what: str) -> None:
    """Raises NoSuchPart where they are one, or one of them is none, or whether that is learned is no bool."""
    if isinstance(segments, Segment | str):  # a comma that is easily forgotten
        raise NoSuchPart(f"the {what} of a Document are one {type(segments).__name__}; write (segment,)")
    for segment in segments if isinstance(segments, tuple | list) else ():
        if not isinstance(segment, Segment):
            it = f"Text({segment!r:.40})" if isinstance(segment, str) else "Text, Mark, Media or Codes"
            raise NoSuchPart(f"the {what} of a Document hold {segment!r:.60}; write {it}")
        train = getattr(segment, "train", False)
        if train is not True and train is not False:
            _check_train(segment)


def _check_train(segment: Any) -> None:
    """Raises NoSuchPart where it says otherwise than by a bool, of numpy too, whether it is learned."""
    train: Any = getattr(segment, "train", None)
    if not isinstance(train, np.bool_):
        raise NoSuchPart(f"{type(segment).__name__}: train is {train!r:.60}; expected True or False")


def _check_references(references: Any) -> None:
    """Raises NoSuchPart where they are not several texts."""
    if isinstance(references, str) or not all(isinstance(reference, str) for reference in references):
        raise NoSuchPart(f"the references of a Document are {references!r:.60}; write a tuple of texts")


def _check_weight(weight: Any) -> None:
    """Raises NoSuchPart where it is no number, or not finite."""
    is_number = isinstance(weight, Real) and not isinstance(weight, bool)
    if not is_number or not -MOST_WEIGHT <= weight <= MOST_WEIGHT:
        raise NoSuchPart(
            f"the weight of a Document is {weight!r:.60}; expected a number from {-MOST_WEIGHT:,} to {MOST_WEIGHT:,}"
        )


class Blocks(NamedTuple):
    """Which documents of a source are read together, as those of a row group of a parquet file are."""

    of: NDArray[np.int64]
    """Number of the block that each document is in: [documents]."""
    at_once: int
    """Blocks that may be kept while documents are drawn from them in turn: documents are shuffled among so many."""


class Source(Protocol):
    """Documents by number. Picklable, cheap to open, torch-free: data workers hold one each.

    Documents are drawn in random order. A source that reads many to get one has a method ``blocks() -> Blocks | None``
    beside these: each lane then draws from few blocks at a time, and comes to each block once in an epoch. A source
    whose documents may be others tomorrow, though they are as many, has a method ``fingerprint() -> str | None``, which
    tells these in this order from others: a run does not go on among others. A source that ``train_model`` is given and
    that has no such method is told by the origins and texts of up to 64 of its documents, from the first to the last,
    which are read twice for it; None compares nothing.
    """

    name: str
    """What metrics call it."""

    def __len__(self) -> int: ...

    def document(self, index: int) -> Document:
        """The document of row ``index``.

        Raises:
            SampleError: this row cannot be used; the others may.
        """
        ...
