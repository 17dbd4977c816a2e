"""Long lists of short texts as arrays: in a list each would take 60 bytes more, in every process by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar, overload

import numpy as np

Value = TypeVar("Value")


class PackedTexts(Sequence[str]):
    """Texts, such as the names of a million files; what the system cannot decode in a name is kept."""

    def __init__(self, texts: Sequence[str]) -> None:
        encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
        self._bytes = np.frombuffer(b"".join(encoded), np.uint8)
        self._ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        begin = self._ends.item(index - 1) if index else 0
        return self._bytes[begin : self._ends.item(index)].tobytes().decode("utf-8", "surrogateescape")


class PackedKinds(Sequence[Value], Generic[Value]):
    """Values of which there are few kinds."""

    def __init__(self, values: Sequence[Value]) -> None:
        self.kinds = tuple(dict.fromkeys(values))
        """Each once."""
        numbers = {kind: number for number, kind in enumerate(self.kinds)}
        self._numbers = np.array([numbers[value] for value in values], np.min_scalar_type(len(self.kinds)))

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> list[Value]: ...
    def __getitem__(self, index: int | slice) -> Value | list[Value]:
        if isinstance(index, slice):
            return [self.kinds[number] for number in self._numbers[index].tolist()]
        number: int = self._numbers.item(index)
        return self.kinds[number]
