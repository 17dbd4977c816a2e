"""Documents that are all in memory, as a source."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from numbers import Real
from typing import Any

import numpy as np

from kosmos.data.document import Document
from kosmos.data.fingerprint import digest_of
from kosmos.data.one_array import one_array_for_all
from kosmos.data.sources.splits import held_out_rows, row_hash
from kosmos.errors import ConfigError


class Documents:
    """A list of documents (a ``Source``). Each data worker has a copy of it.

    Example:
        >>> from kosmos import Document, Documents, Text
        >>> sums = [Document(f"sum {n}", (Text(f"{n} + 1 = "), Text(str(n + 1), train=True))) for n in range(40)]
        >>> Documents("sums", sums)
        Documents('sums', 40 documents)
    """

    name: str
    documents: tuple[Document, ...]

    def __init__(self, name: str, documents: Iterable[Document]) -> None:
        """
        Args:
            name: what metrics call it.
            documents: in their order, which counts where a run goes on. They are copied; a generator will do.

        Raises:
            ConfigError: the name is no text, or something else than documents is among them.
        """
        said: Any = name
        if not isinstance(said, str) or not said.strip():
            raise ConfigError(f"Documents: name: expected a text, such as 'answers', got {said!r:.60}")
        given: Any = documents
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise ConfigError(f"Documents {name!r}: documents: expected a list of Document, got {given!r:.60}")
        self.name, self.documents = name, tuple(given)
        for number, document in enumerate(self.documents):
            if not isinstance(document, Document):
                raise ConfigError(f"Documents {name!r}: documents[{number}]: expected a Document, got {document!r:.60}")

    def __repr__(self) -> str:
        return f"Documents({self.name!r}, {len(self):,} documents)"

    def __len__(self) -> int:
        return len(self.documents)

    def document(self, index: int) -> Document:
        """The document of row ``index``."""
        return self.documents[index]

    def split(self, share: float = 0.05) -> tuple[Documents, Documents]:
        """What to train on and what to hold out, as files are split by ``data.held_out``: by a fixed hash of origins.

        Documents of one origin stay together. Most documents stay where they are if more are added.

        Args:
            share: that is held out, of the documents; 512 at most, at least one.

        Returns:
            Two sources of this name, each in the order of this one: for ``sources`` and ``held_out``.

        Raises:
            ConfigError: ``share`` is not between 0 and 1, or there are no documents of two origins.

        Example:
            >>> from kosmos import Document, Documents, Text
            >>> Documents("sums", [Document(f"sum {n}", (Text(f"{n} + 1"),)) for n in range(40)]).split(0.1)
            (Documents('sums', 36 documents), Documents('sums', 4 documents))
        """
        said: Any = share
        if isinstance(said, bool) or not isinstance(said, Real) or not 0 < share < 1:
            raise ConfigError(f"Documents {self.name!r}: split: expected a share between 0 and 1, got {share!r:.60}")
        hashes = np.array([row_hash(str(document.origin)) for document in self.documents], np.uint64)
        held_out = held_out_rows(hashes, share, together=True)
        if not held_out.any():
            raise ConfigError(
                f"Documents {self.name!r}: split: documents of one origin stay together, and there are no two origins"
            )
        train = compress(self.documents, ~held_out)
        return Documents(self.name, train), Documents(self.name, compress(self.documents, held_out))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is hardly meant about them, a line each, which a run warns of when it begins."""
        return tuple(one_array_for_all(self.documents))

    def fingerprint(self) -> str:
        """Of all origins, texts and weights in their order; what media hold does not count."""
        return digest_of(self.documents)
