"""What a codec makes of a medium and of codes, checked; hostile media and codes for it. No torch here.

The functions that take ``arguments`` run in a child process.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
from numpy.typing import NDArray

from kosmos.data.codec import Encoded
from kosmos.data.document import Media
from kosmos.data.foreign import called
from kosmos.data.writer import SUFFIX
from kosmos.errors import SampleError, cause, own_line
from kosmos.testing.hostile import Broken, in_time, limit_memory, outlived, ran
from kosmos.testing.search import described, search

MOST_CODES = 600
"""Codes of a hostile sequence, but for one that is far longer."""
FAR_TOO_MANY = 1 << 14
EXAMPLES = 60


def no_codes(codec: Any, codes: Any) -> str | None:
    """What is wrong with what ``encode`` gave, or None."""
    name = called(codec, "encode")
    if not isinstance(codes, np.ndarray) or codes.ndim != 1 or codes.dtype.kind not in "iu":
        got = f"{codes.dtype} {list(codes.shape)}" if isinstance(codes, np.ndarray) else type(codes).__name__
        return f"{name}: expected an array of whole numbers [n], got {got}"
    if not len(codes):
        return f"{name}: no codes; expected one at least"
    if not 0 <= codes.min() <= codes.max() < codec.size:
        wrong = int(codes.min() if codes.min() < 0 else codes.max())
        return f"{name}: code {wrong}; its size says 0 to {codec.size - 1}"
    length = getattr(codec, "length", None)
    if length not in (None, len(codes)):
        return f"{name}: {len(codes)} codes; its length says {length!r:.40}"
    books = books_of(codec)
    if len(codes) % books:
        return f"{name}: {len(codes)} codes; expected {books} for each stretch, one of each book"
    if len(wrong_places := np.flatnonzero(codes != in_turn(codes, codec.size, books))):
        place = int(wrong_places[0])
        return f"{name}: code {codes[place]} at place {place}, where one of book {place % books} of {books} belongs"
    return None


def books_of(codec: Any) -> int:
    """Codes of each stretch of a medium."""
    books: int = getattr(codec, "books", 1)
    return books


def in_turn(codes: NDArray[Any], size: int, books: int) -> NDArray[np.int64]:
    """Codes as a model is let write them: whole stretches, each code of the book whose turn it is."""
    codes = codes[: len(codes) // books * books].astype(np.int64)
    return codes % (size // books) + np.arange(len(codes)) % books * (size // books)


def no_file(codec: Any, made: Any) -> str | None:
    """What is wrong with what ``decode`` gave, or None."""
    name = called(codec, "decode")
    if not isinstance(made, Encoded) or not isinstance(made.content, bytes):
        return f"{name}: expected Encoded(bytes, suffix), got {made!r:.60}"
    if not made.content:
        return f"{name}: an empty file"
    if not isinstance(made.suffix, str) or not SUFFIX.fullmatch(made.suffix):
        return f"{name}: suffix {made.suffix!r:.40}; expected one of a file with its dot, such as '.bin'"
    return None


def told(codes: NDArray[Any]) -> str:
    """Codes in a few words."""
    shown = ", ".join(map(str, codes[:8].tolist()))
    return f"{len(codes)} codes ({shown}{', ...' if len(codes) > 8 else ''})" if len(codes) else "no codes"


def encode(arguments: bytes) -> list[Any]:
    """What a codec that came by pickle makes of media; None of those that it refuses."""
    codec, media = pickle.loads(arguments)  # noqa: S301  of our own parent, here and below
    found: list[Any] = []
    for medium in media:
        try:
            found.append(np.asarray(codec.encode(medium)))
        except SampleError:
            found.append(None)
    return found


def survive(arguments: bytes) -> str | None:
    """Give a codec hostile media; what it did wrong with the smallest of them, or None.

    Args:
        arguments: pickled (codec, good media, MiB that a medium may take, seconds that it may take).
    """
    codec, media, memory_mib, seconds = pickle.loads(arguments)  # noqa: S301
    return outlived(partial(_give, codec), media, memory_mib, seconds)


def run_code(arguments: bytes) -> str | None:
    """Give a codec media that hold a pickle; which of them was unpickled, or None."""
    codec, media, *_ = pickle.loads(arguments)  # noqa: S301
    return ran(codec.encode, media[0].modality)


def write_anything(arguments: bytes) -> str | None:
    """Give a codec hostile codes; what it did wrong with the smallest of them, or None.

    Args:
        arguments: pickled (codec, codes of good media, MiB that decoding may take, seconds that it may take).
    """
    codec, known, memory_mib, seconds = pickle.loads(arguments)  # noqa: S301

    def check(codes: NDArray[np.int64]) -> None:
        codes = in_turn(codes, codec.size, books_of(codec))
        if not len(codes):  # which is no medium, and comes to no codec
            return
        with in_time(told(codes), seconds):
            _decode(codec, codes)

    try:
        for codes in known:  # imports and caches are not the codes' cost
            _decode(codec, codes)
        limit_memory(memory_mib)
        for codes in _usual(codec.size, books_of(codec), known):
            check(codes)
        search(_sequences(codec.size, known), check, most=EXAMPLES, seconds=30)
    except Broken as broken:
        return str(broken)
    return None


def files_of(made: Encoded, modality: str, folder: Path) -> tuple[Media, Media]:
    """What was decoded, as bytes and as a file of ``folder``."""
    file = folder / f"written{made.suffix}"
    file.write_bytes(made.content)
    return Media(modality, made.content), Media(modality, file)


def _usual(size: int, books: int, known: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """The simplest first: one stretch, two, far too many, and those of media in parts."""
    found = [(0, 1), (size - 1, 1), (0, 2), (0, 7), (size - 1, 999)]
    lists = [np.full(books * stretches, code, np.int64) for code, stretches in found]
    random = np.random.default_rng(0)
    for codes in known[:2]:
        lists += [codes[:-1], codes[1:], codes[: len(codes) // 2], np.concatenate([codes, codes]), codes[::-1].copy()]
        lists.append(random.permutation(codes))
    return [*lists, random.integers(0, size, FAR_TOO_MANY)]


def _sequences(size: int, known: Sequence[NDArray[np.int64]]) -> Any:
    """Random codes, and those of media with some of them changed."""
    code = st.integers(0, size - 1)
    found = [
        st.lists(code, min_size=1, max_size=40),
        st.tuples(code, st.integers(1, MOST_CODES)).map(lambda d: [d[0]] * d[1]),
    ]
    for codes in known[:2]:
        changes = st.dictionaries(st.integers(0, len(codes) - 1), code, max_size=8)
        found.append(changes.map(partial(_changed, codes)))
    return st.one_of(found).map(lambda values: np.array(values, np.int64))


def _changed(codes: NDArray[np.int64], changes: dict[int, int]) -> list[int]:
    return [changes.get(place, code) for place, code in enumerate(codes.tolist())]


def _give(codec: Any, medium: Media) -> None:
    try:
        codes: Any = codec.encode(medium)
    except SampleError:
        return
    except (Exception, SystemExit) as error:
        where = own_line(error, type(codec).__module__)
        raise Broken(f"{described(medium)} raised {cause(error)}{where}; expected codes or a SampleError") from error
    if wrong := no_codes(codec, codes):
        raise Broken(f"{described(medium)}: {wrong}")


def _decode(codec: Any, codes: NDArray[np.int64]) -> None:
    try:
        made: Any = codec.decode(codes)
    except SampleError:
        return
    except (Exception, SystemExit) as error:
        where = own_line(error, type(codec).__module__)
        raise Broken(f"{told(codes)} raised {cause(error)}{where}; expected a file or a SampleError") from error
    if wrong := no_file(codec, made):
        raise Broken(f"{told(codes)}: {wrong}")
