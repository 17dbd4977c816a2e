"""Text of tokens as they come one by one, up to a text that ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kosmos.data.tokenizer import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What stands for a character of which the last bytes are still to come."""


class TextStream:
    """Tells the text of tokens in pieces, each as soon as no later token can change it.

    A token may end within a character, and may be written differently behind others (``##ing``). So each is decoded
    behind the tokens of the piece before it, and what ends within a character waits.
    """

    def __init__(self, tokenizer: Tokenizer, tell: Callable[[str], object]) -> None:
        self._tokenizer, self._tell = tokenizer, tell
        self._told: list[int] = []
        """Tokens of the last piece."""
        self._new: list[int] = []
        """Tokens behind it."""

    def add(self, token: int) -> None:
        """One more token."""
        self._new.append(token)
        piece = self._piece(self._tokenizer.decode)
        if piece and not piece.endswith(REPLACEMENT):
            self._told, self._new = self._new, []
            self._tell(piece)

    def end(self, *, cut: bool = False) -> None:
        """No more tokens come: tell what waits, where they were ``cut`` off without the beginning of a character."""
        if self._new and (piece := self._piece(self._tokenizer.decode_cut if cut else self._tokenizer.decode)):
            self._tell(piece)

    def _piece(self, decode: Callable[[Sequence[int]], str]) -> str:
        before = self._tokenizer.decode(self._told)
        return decode([*self._told, *self._new])[len(before) :]


class StoppedText:
    """A ``TextStream`` that tells what stands before the first of some texts, and nothing that may be part of one."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str], tell: Callable[[str], object]) -> None:
        self._stream = TextStream(tokenizer, self._take)
        self._stop, self._tell = stop, tell
        self._waiting = ""
        self.is_over = False
        """Whether one of the texts has come."""

    def add(self, token: int) -> bool:
        """One more token. Returns whether the text is over."""
        self._stream.add(token)
        return self.is_over

    def end(self, *, cut: bool = False) -> None:
        """No more tokens come: tell what waits, as ``TextStream.end``."""
        self._stream.end(cut=cut)
        if self._waiting and not self.is_over:
            self._tell(self._waiting)

    def _take(self, piece: str) -> None:
        if self.is_over:
            return
        text = self._waiting + piece
        before = before_stop(text, self._stop)
        self.is_over = len(before) < len(text)
        safe = before if self.is_over else before[: len(text) - _begun(text, self._stop)]
        self._waiting = text[len(safe) :]
        if safe:
            self._tell(safe)


def before_stop(text: str, stop: Sequence[str]) -> str:
    """What stands in front of the first of some texts; all of it where none comes."""
    places = [place for one in stop if (place := text.find(one)) >= 0]
    return text[: min(places)] if places else text


def _begun(text: str, stop: Sequence[str]) -> int:
    """Characters at the end that may be the beginning of a text that stops."""
    longest = max(map(len, stop), default=1) - 1
    sizes = range(min(longest, len(text)), 0, -1)
    return next((size for size in sizes if any(one.startswith(text[-size:]) for one in stop)), 0)
