"""Media that are broken in every way that the kit knows, given to a processor in a process that may die of them.

No torch here. The process may take so much memory and time and no more; whatever it raises, but for a
``SampleError``, is made smaller and told.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import re
import resource
import signal
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis.strategies as st
import numpy as np

from kosmos.data.decoding import not_finite
from kosmos.data.document import Media
from kosmos.data.kept_plans import no_plan
from kosmos.errors import SampleError, cause, own_line
from kosmos.testing.child import tell
from kosmos.testing.search import as_array, described, search

HUGE = 2**33
"""Length that a medium claims: of one byte each, 8 GiB."""
EXAMPLES = 150


class Broken(Exception):
    """What a processor does with a hostile medium that it must not do."""


def survive(arguments: bytes) -> str | None:
    """Give a processor hostile media; what it did wrong with the smallest of them, or None. Runs in a child process.

    Args:
        arguments: pickled (processor, good media, MiB that a medium may take, seconds that it may take).
    """
    processor, media, memory_mib, seconds = pickle.loads(arguments)  # noqa: S301  of our own parent
    return outlived(partial(_give, processor), media, memory_mib, seconds)


def outlived(give: Callable[[Media], None], media: Sequence[Media], memory_mib: int, seconds: float) -> str | None:
    """What ``give`` does wrong with the smallest hostile medium, or None.

    Args:
        give: takes a medium, and raises ``Broken``.
        media, memory_mib, seconds: as of ``survive``.
    """

    def check(medium: Media) -> None:
        with in_time(described(medium), seconds):
            give(medium)

    with tempfile.TemporaryDirectory() as folder:
        try:
            for medium in media:  # imports and caches are not the medium's cost
                give(medium)
            limit_memory(memory_mib)
            for medium in (*usual(media, Path(folder)), *overlong(media, Path(folder))):
                check(medium)
            search(mutations(media), check, most=EXAMPLES, seconds=30)
        except Broken as broken:
            return str(broken)
    return None


@contextmanager
def in_time(what: str, seconds: float) -> Iterator[None]:
    """Raises Broken where it takes longer. ``what`` is told where the process dies of it."""
    tell(what)
    signal.signal(signal.SIGALRM, _too_slow)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _TooSlow:
        raise Broken(f"{what} took more than {seconds:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class _Payload:
    """Unpickled, it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.marker), "w")


def run_code(arguments: bytes) -> str | None:
    """Give a processor media that hold a pickle; which of them was unpickled, or None. Runs in a child process."""
    processor, media, *_ = pickle.loads(arguments)  # noqa: S301  of our own parent
    return ran(lambda medium: processor.decode(medium, processor.plan(medium)), media[0].modality)


def ran(take: Callable[[Media], object], modality: str) -> str | None:
    """Which medium that holds a pickle is unpickled by ``take``, or None."""
    with tempfile.TemporaryDirectory() as place:
        folder, marker = Path(place), Path(place) / "marker"
        for what, content in _carriers(marker).items():
            file = folder / f"medium{what}"
            file.write_bytes(content)
            for source in (content, file):
                with contextlib.suppress(
                    Exception, SystemExit
                ):  # whatever else it does with it is not the question here
                    take(Media(modality, source))
                if marker.exists():
                    return f"a {what} medium that holds a pickle ran its code"
    return None


def _carriers(marker: Path) -> dict[str, bytes]:
    """File suffix to content: a pickle, numpy's and torch's files around one."""
    payload = pickle.dumps(_Payload(marker))
    array, archive = io.BytesIO(), io.BytesIO()
    np.save(array, np.array([_Payload(marker)], object), allow_pickle=True)
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", payload)
        file.writestr("archive/version", "3\n")
        file.writestr("archive/byteorder", "little")
    arrays = io.BytesIO()
    with zipfile.ZipFile(arrays, "w") as file:
        file.writestr("arr_0.npy", array.getvalue())
    return {".pkl": payload, ".npy": array.getvalue(), ".npz": arrays.getvalue(), ".pt": archive.getvalue()}


def _give(processor: Any, medium: Media) -> None:
    try:
        plan = processor.plan(medium)
        wrong = no_plan(processor, plan)
        cells: Any = () if wrong else processor.decode(medium, plan)
    except SampleError:
        return
    except (Exception, SystemExit) as error:
        where = own_line(error, type(processor).__module__)
        raise Broken(f"{described(medium)} raised {cause(error)}{where}; expected a SampleError or cells") from error
    if wrong:
        raise Broken(f"{described(medium)}: {wrong}")
    if len(cells) != plan.cells:
        raise Broken(f"{described(medium)}: planned {plan.cells} cells, decoded {len(cells)}")
    if len(cells) and (wrong := not_finite(cells)):
        raise Broken(f"{described(medium)}: {wrong}; expected a SampleError")


class _TooSlow(BaseException):
    """Not an ``Exception``, so that no decoder takes it for one of its own."""


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise _TooSlow


def limit_memory(mib: int) -> None:
    """So much address space beyond what the process has."""
    if sys.platform != "linux":
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + mib * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def usual(media: Sequence[Media], folder: Path) -> Iterator[Media]:
    """The classics, the simplest first: nothing, the wrong thing, no file, no number, far too much."""
    name = media[0].modality
    for content in (b"", b"\0", b"not a medium\n", bytes(range(256)) * 16):
        yield Media(name, content)
    empty, text = folder / "empty", folder / "text"
    empty.touch()
    text.write_text("not a medium\n")
    for path in (folder / "missing", folder, empty, text, folder / "\udcff.bin"):
        yield Media(name, path)
    for array in (np.zeros(0, np.float32), np.float32(1.0), np.array(["a"]), np.array([None, {}], object)):
        yield Media(name, np.asarray(array))
    yield Media(name, np.broadcast_to(np.zeros(1, np.uint8), (HUGE,)))
    for medium in media[:1]:
        yield from _hurt(medium)
        yield from (replace(medium, clip=clip) for clip in ((0.0, 1e-9), (1e9, 1e9 + 1), (0.0, 1e18)))
        if isinstance(medium.source, np.ndarray):
            rates = (0.0, -1.0, float("nan"), float("inf"), 1e-9, 1e15)
            yield from (replace(medium, rate_hz=rate) for rate in rates)


def overlong(media: Sequence[Media], folder: Path) -> Iterator[Media]:
    """A file that begins as a good one, where any is known, and goes on for ``HUGE`` bytes of zeros, which take no room
    on a disk of Linux."""
    known = [medium.source for medium in media if isinstance(medium.source, bytes | Path)]
    for source in (known or [b""])[:1] if sys.platform == "linux" else ():
        file = folder / f"large{source.suffix if isinstance(source, Path) else ''}"
        file.write_bytes(source.read_bytes() if isinstance(source, Path) else source)
        with contextlib.suppress(OSError):  # a limit on the size of files
            os.truncate(file, HUGE)
            yield Media(media[0].modality, file)


def _hurt(medium: Media) -> Iterator[Media]:
    source = medium.source
    if isinstance(source, np.ndarray):
        yield from (replace(medium, source=array) for array in _hurt_arrays(source))
    elif isinstance(source, bytes):
        yield from (replace(medium, source=source[: len(source) * part // 8]) for part in range(1, 8))
        yield replace(medium, source=source + b"\0" * 1000)


def _hurt_arrays(array: Any) -> Iterator[Any]:
    """Wrong in shape, type or value."""
    yield array[:0]
    yield array[None]
    yield array.ravel()[:7]
    yield np.zeros((*array.shape, 2), array.dtype)
    for axis in range(array.ndim):
        yield np.take(array, [], axis=axis)
        yield np.take(array, [0], axis=axis)
        claimed = list(array.shape)
        claimed[axis] = HUGE // max(1, array[:1].nbytes)
        yield np.broadcast_to(np.zeros((1,) * array.ndim, array.dtype), claimed)
    for dtype in (np.bool_, np.int64, np.uint64, np.float16, np.complex64, object, "U3", "M8[s]"):
        with np.errstate(all="ignore"):
            yield np.zeros(array.shape, dtype) if dtype in ("U3", "M8[s]") else array.astype(dtype)
    for value in (np.nan, np.inf, -np.inf, 3e38, 1e-45):
        spoilt = array.astype(np.float32)
        spoilt.flat[spoilt.size // 2] = value
        yield spoilt
    yield np.full(array.shape, 1e300)


def mutations(media: Sequence[Media]) -> Any:
    """Truncated, flipped, overwritten and repeated pieces of encoded media; other values in arrays."""
    encoded = sorted({m.source for m in media if isinstance(m.source, bytes)}, key=len)[:4]
    arrays = [m for m in media if isinstance(m.source, np.ndarray) and m.source.size]
    name = media[0].modality
    found = [st.binary(max_size=200).map(lambda content: Media(name, content))]
    if encoded:
        found.append(st.sampled_from(encoded).flatmap(_mutated).map(lambda content: Media(name, content)))
    if arrays:
        found.append(st.sampled_from(arrays).flatmap(_respelt))
    return st.one_of(found)


def _mutated(content: bytes) -> Any:
    place = st.integers(0, max(0, len(content) - 1))
    head = st.integers(0, min(255, max(0, len(content) - 1)))  # where sizes are declared
    cut = place.map(lambda end: content[:end])
    flipped = st.lists(st.tuples(st.one_of(head, place), st.integers(0, 7)), min_size=1, max_size=8).map(
        lambda flips: _flip(content, flips)
    )
    word = st.sampled_from([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\0\0\0\1"])
    written = st.tuples(st.one_of(head, place), word).map(
        lambda change: content[: change[0]] + change[1] + content[change[0] + 4 :]
    )
    repeated = st.tuples(place, place).map(lambda span: content[: max(span)] + content[min(span) :])
    found = [cut, flipped, written, repeated]
    if numbers := [match.span() for match in re.finditer(rb"[0-9]+", content[:256])]:
        found.append(st.sampled_from(numbers).map(lambda span: _claim(content, *span)))
    return st.one_of(found)


def _claim(content: bytes, begin: int, end: int) -> bytes:
    """A far larger number in a header that is text, taking the room of blanks behind it where there are any."""
    blanks = content.find(b" " * 10, end)
    rest = content[end:] if blanks < 0 else content[end:blanks] + content[blanks + 9 - (end - begin) :]
    return content[:begin] + b"9" * 9 + rest


def _flip(content: bytes, flips: Sequence[tuple[int, int]]) -> bytes:
    changed = bytearray(content)
    for place, bit in flips:
        changed[place] ^= 1 << bit
    return bytes(changed)


def _respelt(medium: Media) -> Any:
    """The array with another number of axes, another first length or a value that does not belong."""
    array = as_array(medium)
    values = st.sampled_from([0.0, -1.0, 1e30, -1e30, float("nan"), float("inf")])
    shapes = st.lists(st.integers(0, 6), min_size=0, max_size=4)
    other = st.tuples(shapes, values).map(lambda pair: np.full(pair[0], pair[1], np.float32))
    spoilt = st.tuples(st.integers(0, array.size - 1), values).map(lambda change: _put(array, *change))
    return st.one_of(other, spoilt).map(lambda source: replace(medium, source=source))


def _put(array: Any, place: int, value: float) -> Any:
    changed = np.array(array, np.float32 if array.dtype.kind != "f" else array.dtype)
    changed.flat[place] = value
    return changed
