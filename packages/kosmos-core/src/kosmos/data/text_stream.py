"""Text of tokens as they come one by one."""

from __future__ import annotations

from collections.abc import Callable

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
        piece = self._piece()
        if piece and not piece.endswith(REPLACEMENT):
            self._told, self._new = self._new, []
            self._tell(piece)

    def end(self) -> None:
        """No more tokens come: tell what waits."""
        if self._new and (piece := self._piece()):
            self._tell(piece)

    def _piece(self) -> str:
        before = self._tokenizer.decode(self._told)
        return self._tokenizer.decode([*self._told, *self._new])[len(before) :]
