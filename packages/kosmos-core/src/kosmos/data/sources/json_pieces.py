"""JSON files, parsed piece by piece: where the elements of a list and the values of an object are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Protocol

from kosmos.data.sources.jsonl import MAX_ROW_BYTES

PIECE = 4 << 20
"""Bytes that are parsed at once; more where a row is longer."""
_BLANK = re.compile(r"[ \t\r\n]*")
_parse = json.JSONDecoder(parse_int=float, strict=False).raw_decode
"""Places are all that is asked of it; what a row holds is for ``parse_row`` to judge, row by row."""
_CUT = 16
"""Characters before the end of what was read in which an error may come of the cut: more than any word of JSON has."""
MOST_BYTES = 4 * MAX_ROW_BYTES
"""Most that one row may take before the file is held to be damaged in it."""


BEGIN = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*(?=([\[{]))")
"""What is in front of a list or an object, and its first character as a group."""


class Readable(Protocol):
    """The part of a binary stream that is needed."""

    def read(self, nbytes: int) -> bytes: ...

    def tell(self) -> int: ...


class JsonText:
    """What has been read of a file and not been parsed. A character is a byte: only places are of interest."""

    def __init__(self, stream: Readable) -> None:
        self.stream, self.base = stream, stream.tell()
        """Which byte of the file ``text`` begins with."""
        self.text, self.place = "", 0

    def more(self) -> bool:
        """Read on, twice as much as what is still waited for; False at the end of the file."""
        read = self.stream.read(max(PIECE, len(self.text) - self.place))
        self.text, self.base, self.place = self.text[self.place :] + read.decode("latin-1"), self.base + self.place, 0
        return bool(read)

    def skip(self) -> str:
        """Go to the next character that is no space, and tell it; "" at the end of the file."""
        while True:
            match = _BLANK.match(self.text, self.place)
            assert match is not None
            self.place = match.end()
            if self.place < len(self.text) or not self.more():
                return self.text[self.place : self.place + 1]

    def element(self) -> tuple[int, int]:
        """Parse a value, and tell where it is."""
        while True:
            try:
                _, end = _parse(self.text, self.place)
            except json.JSONDecodeError as error:
                said = error.msg.removesuffix(" at")
                end, reason = len(self.text), f"not JSON: {said} at byte {self.base + error.pos}"
                cut = error.msg.startswith("Unterminated string") or error.pos > end - _CUT
                if not cut or end - self.place > MOST_BYTES:
                    raise ValueError(reason) from None
            except RecursionError:
                raise ValueError(f"not JSON: nested too deeply at byte {self.base + self.place}") from None
            else:
                reason = ""
            # What ends with what was read may go on: a number may, and most errors are of a value that is cut.
            if not reason and end < len(self.text):
                break
            if not self.more():
                if reason:
                    raise ValueError(reason)
                break
        begin, self.place = self.place, end
        return self.base + begin, self.base + end

    def value(self) -> Any:
        """As ``element``, of a value that is wanted."""
        return self.parsed(*self.element())

    def parsed(self, begin: int, end: int) -> Any:
        """The value that ``element`` has just told the place of."""
        return json.loads(self.text[begin - self.base : end - self.base].encode("latin-1"))

    def pass_by(self) -> None:
        """Go behind a value, of which no list and no object is held as a whole."""
        begins = self.skip()
        if begins == "[":
            for _ in self.elements():
                pass
        elif begins == "{":
            for _ in self.keys():
                self.pass_by()
        else:
            self.element()

    def elements(self) -> Iterator[tuple[int, int]]:
        """First byte, and the one behind the last, of each element of a list whose bracket is next.

        Raises:
            ValueError: the list breaks off, or is no JSON.
        """
        self.skip()
        self.place += 1
        if self.skip() != "]":
            yield self.element()
            while (found := self.skip()) == ",":
                self.place += 1
                self.skip()
                yield self.element()
            if found != "]":
                raise ValueError(f"not JSON: no comma and no end of the list at byte {self.base + self.place}")
        self.place += 1

    def keys(self) -> Iterator[str]:
        """The keys of an object whose brace is next. Whoever takes one goes behind its value, which is next, before
        the following one is asked for.

        Raises:
            ValueError: the object breaks off, or is no JSON.
        """
        self.skip()
        self.place += 1
        found = self.skip()
        while found != "}":
            if found != '"':
                raise ValueError(f"not JSON: no name of a value at byte {self.base + self.place}")
            key = self.value()
            if self.skip() != ":":
                raise ValueError(f"not JSON: no colon behind a name at byte {self.base + self.place}")
            self.place += 1
            self.skip()
            yield key
            if (found := self.skip()) == ",":
                self.place += 1
                if (found := self.skip()) == "}":
                    raise ValueError(f"not JSON: no name behind a comma at byte {self.base + self.place}")
            elif found != "}":
                raise ValueError(f"not JSON: no comma and no end of the object at byte {self.base + self.place}")
        self.place += 1

    def finish(self, what: str) -> None:
        """Raises ValueError where something stands behind all that was parsed, which is a ``what``."""
        if self.skip():
            raise ValueError(f"not JSON: something behind the {what} at byte {self.base + self.place}")
