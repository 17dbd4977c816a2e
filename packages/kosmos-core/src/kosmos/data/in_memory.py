"""Documents that are all in memory, as a source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kosmos.data.document import Document
from kosmos.data.fingerprint import digest_of
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

    def fingerprint(self) -> str:
        """Of all origins, texts and weights in their order; what media hold does not count."""
        return digest_of(self.documents)
