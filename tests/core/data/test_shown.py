"""What a person is told of sources."""

from __future__ import annotations

from dataclasses import dataclass, field

from kosmos import Document, Text
from kosmos.data.shown import source_lines
from kosmos.data.sources.folders import LINK


@dataclass
class Left:
    left_out: dict[str, int] = field(default_factory=dict)
    name: str = "photos"

    def __len__(self) -> int:
        return 3

    def document(self, index: int) -> Document:
        return Document(f"photos {index}", (Text("a photo", train=True),))


def test_files_that_were_passed_over_are_told_in_the_right_number() -> None:
    assert list(source_lines([Left({".csv": 1})], [])) == [
        "data      photos: 3 documents, 0 held out",
        "          1 file (.csv) was passed over",
    ]
    assert list(source_lines([Left({".csv": 1_200})], []))[1] == "          1,200 files (.csv) were passed over"
    assert list(source_lines([Left({LINK: 1})], []))[1] == f"          1 file ({LINK}) was passed over"


def test_rows_that_were_left_out_are_told_in_the_right_number() -> None:
    one, two = (list(source_lines([Left({"audio": count})], []))[1] for count in (1, 2))
    assert one == "          1 more left out: it holds audio, which is not among --modalities"
    assert two == "          2 more left out: they hold audio, which is not among --modalities"
