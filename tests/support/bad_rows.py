"""A plugin of datasets of which some rows cannot be used."""

from __future__ import annotations

from typing import Any

from kosmos import DatasetSpec, Document, SampleError, Text, hookimpl

KOSMOS_API = 1
READS = {"number": 0}


class Some:
    """Lines, of which some rows are bad."""

    name = "some"

    def __init__(self, split: str) -> None:
        self.split = split

    def __len__(self) -> int:
        return 7

    def is_bad(self, index: int) -> bool:
        return index % 3 == 0

    def document(self, index: int) -> Document:
        if self.is_bad(index):
            raise SampleError("no label")
        return Document(f"{self.split} {index}", (Text("say "), Text(f"{self.split} {index}", train=True)))


class AtTimes(Some):
    def is_bad(self, index: int) -> bool:
        READS["number"] += 1
        return READS["number"] % 3 == 0


class Never(Some):
    def is_bad(self, index: int) -> bool:
        return True


@hookimpl
def kosmos_datasets() -> Any:
    for name in ("Some", "AtTimes", "Never"):
        yield DatasetSpec(name=name.lower(), target=f"{__name__}:{name}", summary="Lines.")
