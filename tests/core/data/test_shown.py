"""What a person is told of sources."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from kosmos import Document, Media, MediaPlan, SampleError, Text
from kosmos.data.plan import PlannedMedia
from kosmos.data.shown import described, source_lines
from kosmos.data.sources.folders import LINK
from support.ticks import TicksProcessor


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


class Telling(TicksProcessor):
    def described(self, media: Media, plan: MediaPlan) -> Any:
        if (kind := media.source[0]) > 1:
            raise SampleError("holds too much") if kind > 2 else ValueError("no such kind")
        return f"{len(media.source)} values" if kind else 5


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (1, "6 values"),
        (0, "cannot be used: Telling.described raised TypeError: expected a text, got int"),
        (2, "cannot be used: Telling.described raised ValueError: no such kind"),
        (3, "cannot be used: holds too much"),
    ],
)
def test_what_a_processor_says_of_a_medium_is_told_or_why_it_cannot(first: int, told: str) -> None:
    processor, media = Telling(4), Media("ticks", np.array([first, 1, 1, 1, 1, 1]))
    planned = PlannedMedia(media, processor.plan(media), "ticks")
    assert described(planned, processor).startswith(told)
    assert described(planned, TicksProcessor(4)) == ""
