"""What may come next where a model writes media: within one its codes, elsewhere none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# B = documents that are continued, V = tokens of the tokenizer


@dataclass(frozen=True)
class Tokens:
    """Those by which media of a modality are written."""

    begin: int
    end: int
    codes: Sequence[int]
    books: int = 1
    """The codes come in turn of so many stretches of ``codes``, which are of one length; it ends behind the last."""
    length: int | None = None
    """Codes of each medium, where all have as many."""


class Allowed:
    """Follows documents token by token.

    Args:
        media: of all modalities that the model writes; with none anything may come.
        vocab_size: V.
        documents: that are continued.
    """

    def __init__(self, media: Sequence[Tokens], vocab_size: int, documents: int, device: torch.device) -> None:
        self.media, self.documents = tuple(media), documents
        self._begins = {of.begin: number for number, of in enumerate(self.media)}
        self._open: list[int | None] = [None] * documents
        """Which medium each document writes."""
        self._codes = [0] * documents
        """That it has so far."""
        self._first: list[int] = []
        self._forbidden = self._masks(vocab_size).to(device) if self.media else None

    def _masks(self, vocab_size: int) -> Tensor:
        """bool [states, V]: outside of media, and of each its beginning, where nothing is there yet that could end, its
        books, of which the first allows its end where it may be of any length, and its end."""
        outside = torch.zeros(vocab_size, dtype=torch.bool)
        masks = [outside]
        for of in self.media:
            outside[[of.end, *of.codes]] = True
            self._first.append(len(masks))
            stretch = len(of.codes) // of.books
            books = [torch.tensor(of.codes[book * stretch : (book + 1) * stretch]) for book in range(of.books)]
            for codes in (books[0], *books):
                masks.append(torch.ones(vocab_size, dtype=torch.bool).index_fill_(0, codes, value=False))
            masks[self._first[-1] + 1][of.end] = of.length is not None
            masks.append(torch.ones(vocab_size, dtype=torch.bool))
            masks[-1][of.end] = False
        return torch.stack(masks)

    def __call__(self, logits: Tensor, documents: Sequence[int]) -> Tensor:
        """The logits [B, V] of these documents, minus infinity where a token may not come."""
        if self._forbidden is None:
            return logits
        return logits.masked_fill(self._forbidden[[self._state(document) for document in documents]], -torch.inf)

    def add(self, document: int, token: int) -> None:
        """A document has got a token."""
        if self._forbidden is None:
            return
        number = self._open[document]
        if number is None:
            self._open[document], self._codes[document] = self._begins.get(token), 0
        elif token == self.media[number].end:
            self._open[document] = None
        else:
            self._codes[document] += 1

    def _state(self, document: int) -> int:
        number, codes = self._open[document], self._codes[document]
        if number is None:
            return 0
        of, first = self.media[number], self._first[number]
        if codes and codes == of.length:
            return first + 1 + of.books
        return first + (1 + codes % of.books if codes else 0)
