"""Media as tokens that a model writes: between a mark that begins them and one that ends them, each code a mark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos.data.codec import MOST_CODES, Codec, Encoded
from kosmos.data.document import Codes, Media, StoredMedia
from kosmos.data.foreign import called, calling
from kosmos.data.kept_codes import KeptCodes
from kosmos.data.tokenizer import Tokenizer
from kosmos.errors import PluginError, SampleError

SUFFIX = re.compile(r"(\.[A-Za-z0-9_-]{1,16}){1,2}")
"""Of files that codecs decode: it becomes part of a path."""


@dataclass(frozen=True)
class WrittenMedia:
    """A medium that a model wrote."""

    modality: str
    codes: NDArray[np.int64]
    """[n]"""
    fault: str = ""
    """Why it is none, where it is none."""
    content: bytes = field(default=b"", repr=False)
    """The file; empty where it is none."""
    suffix: str = ""
    """Of the file's name, with the dot."""


def code_marks(modality: str, size: int) -> list[str]:
    """Names of the special tokens by which media of a modality are written: the beginning, the end, and each code."""
    return [f"<{modality}:begin>", f"<{modality}:end>", *(f"<{modality}:{code}>" for code in range(size))]


def size_of(name: str, codec: Codec) -> int:
    """Codes of a codec. Raises PluginError where it has none, or too many."""
    size: Any = codec.size
    if type(size) is not int or not 0 < size <= MOST_CODES:
        raise PluginError(f"codec {name!r}: size: expected a whole number from 1 to {MOST_CODES:,}, got {size!r:.60}")
    return size


def books_of(name: str, codec: Codec) -> int:
    """Books of a codec. Raises PluginError where its codes are not of so many parts of one length."""
    books: Any = getattr(codec, "books", 1)
    if type(books) is not int or books < 1 or codec.size % books:
        raise PluginError(f"codec {name!r}: books: expected a whole number that divides its size, got {books!r:.60}")
    return books


def length_of(name: str, codec: Codec, books: int) -> int | None:
    """Codes of each medium of a codec. Raises PluginError where it is no number of them, or none of its books."""
    length: Any = getattr(codec, "length", None)
    if length is not None and (type(length) is not int or length < 1 or length % books):
        of = "" if books == 1 else f", a multiple of its {books} books"
        raise PluginError(f"codec {name!r}: length: expected a whole number from 1 on{of}, got {length!r:.60}")
    return length


def identity_of(name: str, codec: Codec, options: Mapping[str, Any]) -> str:
    """What tells the numbers of a codec, and of which media it has some, from those of others: its name, its options
    and what it says of itself.

    Args:
        options: in effect, those that are not stated among them. Where weights lie does not count beside an
            ``identity``, which tells what they are.
    """
    own = str(getattr(codec, "identity", "") or "")
    kept = {key: value for key, value in options.items() if not own or key != "weights"}
    told = json.dumps([name, codec.size, own, kept], sort_keys=True, default=str)
    return blake2b(told.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _no_file(made: object) -> str:
    """What is wrong with what a codec has decoded; empty where it is a file."""
    if not isinstance(made, Encoded) or not isinstance(made.content, bytes):
        return f"expected Encoded, got {type(made).__name__}"
    if not made.content:
        return "expected a file, got no bytes"
    suffix: object = made.suffix
    if not isinstance(suffix, str) or not SUFFIX.fullmatch(suffix):
        return f"suffix: expected one such as .wav, got {suffix!r:.40}"
    return ""


class Writer:
    """The tokens of one modality's media. Picklable.

    Args:
        modality: whose media it writes.
        codec: what encodes and decodes them.
        identity: see ``identity_of``.
        tokenizer: that has ``code_marks``.
    """

    def __init__(self, modality: str, codec: Codec, identity: str, tokenizer: Tokenizer) -> None:
        self.modality, self.codec, self.identity = modality, codec, identity
        begin, end, *codes = [tokenizer.mark_id(name) for name in code_marks(modality, codec.size)]
        self.begin, self.end = begin, end
        self._ids = np.asarray(codes, np.int32)
        self.books = books_of(type(codec).__name__, codec)
        """Parts of its codes that come in turn; see ``Codec``."""
        self.length = length_of(type(codec).__name__, codec, self.books)
        """Codes of each medium, where all have as many; see ``Codec``."""
        self._kept = KeptCodes(identity, keeps=getattr(codec, "keeps", True) is not False)

    @property
    def code_ids(self) -> list[int]:
        """Ids of the tokens of its codes, from 0 on."""
        return list(map(int, self._ids))

    @cached_property
    def _numbers(self) -> dict[int, int]:
        """Token to code; made where something is read of what a model wrote."""
        return {token: code for code, token in enumerate(self._ids.tolist())}

    def tokens(self, medium: Media | StoredMedia | Codes) -> list[int]:
        """Ids of the tokens of a medium, its beginning and its end among them.

        Raises:
            SampleError: it is broken, over a limit, or its codes are none of the codec's.
        """
        if isinstance(medium, Codes):
            codes = medium.codes.astype(np.int64)
            self._check_codes(codes)
        else:
            codes = self._kept.codes(medium, self._encode)
        return [self.begin, *self._ids[codes].tolist(), self.end]

    def codes_at(self, token_ids: Sequence[int], place: int) -> NDArray[np.int64] | None:
        """The codes of the medium that begins at a place; None where it is not whole, or none begins there."""
        if token_ids[place] != self.begin:
            return None
        codes: list[int] = []
        for token in token_ids[place + 1 :]:
            if token == self.end:
                return np.asarray(codes, np.int64) if codes else None
            if (code := self._numbers.get(token)) is None:
                return None
            codes.append(code)
        return None

    def written(self, token_ids: Sequence[int]) -> list[WrittenMedia]:
        """The media among tokens that a model wrote, in order, and what is wrong with those that are none."""
        found: list[WrittenMedia] = []
        open_codes: list[int] | None = None
        for token in token_ids:
            if token == self.begin:
                found += self._unfinished(open_codes)
                open_codes = []
            elif open_codes is None:
                continue
            elif token == self.end:
                found.append(self._decoded(open_codes))
                open_codes = None
            elif (code := self._numbers.get(token)) is not None:
                open_codes.append(code)
            else:
                found.append(self._none(open_codes, f"token {token} stands within it, which is none of its codes"))
                open_codes = None
        return found + self._unfinished(open_codes)

    def _unfinished(self, codes: list[int] | None) -> list[WrittenMedia]:
        return [] if codes is None else [self._none(codes, f"it has no end behind {len(codes)} codes")]

    def _none(self, codes: list[int], fault: str) -> WrittenMedia:
        return WrittenMedia(self.modality, np.asarray(codes, np.int64), fault)

    def _decoded(self, codes: list[int]) -> WrittenMedia:
        values = np.asarray(codes, np.int64)
        try:
            if not codes:
                raise SampleError("it has no codes")
            self._check_codes(values)
            with calling(self.codec, "decode"):
                made: Any = self.codec.decode(values)
            if wrong := _no_file(made):
                raise SampleError(f"{called(self.codec, 'decode')}: {wrong}")
        except SampleError as error:
            return WrittenMedia(self.modality, values, str(error))
        return WrittenMedia(self.modality, values, "", made.content, made.suffix)

    def _check_codes(self, codes: NDArray[np.int64]) -> None:
        """Raises SampleError where they are none of the codec's, not as many as of all media, or do not come in turn of
        the books."""
        if len(codes) and not 0 <= codes.min() <= codes.max() < len(self._ids):
            strange = int(codes.min() if codes.min() < 0 else codes.max())
            raise SampleError(f"{self.modality}: code {strange}: its codec has 0 to {len(self._ids) - 1}")
        if self.length not in (None, len(codes)):
            raise SampleError(f"it has {len(codes)} codes, expected {self.length}")
        if len(codes) % self.books:
            raise SampleError(f"it has {len(codes)} codes, expected {self.books} for each stretch")
        wrong = np.flatnonzero(codes // (len(self._ids) // self.books) != np.arange(len(codes)) % self.books)
        if len(wrong):
            raise SampleError(f"code {codes[wrong[0]]} stands at place {wrong[0]}, where one of another book belongs")

    def _encode(self, media: Media) -> NDArray[np.int64]:
        with calling(self.codec, "encode"):
            codes: Any = self.codec.encode(media)
        try:
            checked = Codes(self.modality, np.asarray(codes)).codes
        except Exception as error:  # what a codec of a plugin returns is not checked by a type checker
            raise SampleError(f"{called(self.codec, 'encode')}: {error}") from error
        found: NDArray[np.int64] = checked.astype(np.int64)
        self._check_codes(found)  # before they are kept
        return found
