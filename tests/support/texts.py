"""Sources of texts, of which only the lengths matter."""

from __future__ import annotations

from dataclasses import dataclass

from kosmos.data.document import Document, Text


@dataclass
class Texts:
    """Texts of given lengths."""

    name: str
    lengths: list[int]

    def __len__(self) -> int:
        return len(self.lengths)

    def document(self, index: int) -> Document:
        return Document(f"{self.name} {index}", (Text("x" * self.lengths[index], train=True),))
