"""Long lists of short texts as arrays: in a list each would take 60 bytes more, in every process by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Value = TypeVar("Value")


class PackedTexts(Sequence[str]):
    """Texts, such as the names of a million files; what the system cannot decode in a name is kept."""

    def __init__(self, texts: Sequence[str]) -> None:
        encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
        self._bytes = np.frombuffer(b"".join(encoded), np.uint8)
        self._ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)

    @classmethod
    def of(cls, texts: NDArray[np.uint8], ends: NDArray[np.int64]) -> PackedTexts:
        """Of what ``arrays`` gave."""
        found = cls(())
        found._bytes, found._ends = texts, ends
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All texts as ``bytes`` one after another, and the ``ends`` of each."""
        return {"bytes": self._bytes, "ends": self._ends}

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
        self.numbers: NDArray[Any] = np.array([numbers[v] for v in values], np.min_scalar_type(len(self.kinds)))
        """Which kind each value is of."""

    @classmethod
    def of(cls, kinds: tuple[Value, ...], numbers: NDArray[Any]) -> PackedKinds[Value]:
        """Of kinds and numbers as they are here."""
        found = cls(())
        found.kinds, found.numbers = kinds, numbers
        return found

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> list[Value]: ...
    def __getitem__(self, index: int | slice) -> Value | list[Value]:
        if isinstance(index, slice):
            return [self.kinds[number] for number in self.numbers[index].tolist()]
        number: int = self.numbers.item(index)
        return self.kinds[number]
