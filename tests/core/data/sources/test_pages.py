"""Rows that choose a page or a frame of a file: bad samples, as it would be another one that is read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from kosmos.data.sources.media import MediaRoot, read_media
from kosmos.errors import SampleError


@pytest.fixture
def root(tmp_path: Path) -> MediaRoot:
    (tmp_path / "m.tif").write_bytes(b"m")
    return MediaRoot(tmp_path)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"page": 2}, r"ticks: page 2: a row chooses no page of a file; write each page into a file of its own"),
        ({"page": "2"}, "page 2"),
        ({"page": 2.0}, "page 2.0"),
        ({"page": 0}, "page 0"),
        ({"frame": 3}, "frame 3: a row chooses no frame of a file"),
        ({"page": None}, None),
        ({"page": ""}, None),
        ({"page": "title page"}, None),
        ({"page": math.nan}, None),
        ({"page": True}, None),
    ],
)
@pytest.mark.parametrize("form", ["alone", "in a list", "within"])
def test_the_number_of_a_page_in_the_object_of_a_medium_is_refused(
    root: MediaRoot, said: dict[str, Any], line: str | None, form: str
) -> None:
    medium: Any = {"path": "m.tif", **said}
    medium = {"alone": medium, "in a list": [medium], "within": {"ticks": "m.tif", **said}}[form]
    if line is None:
        assert len(list(read_media("ticks", medium, root))) == 1
    else:
        with pytest.raises(SampleError, match=line):
            list(read_media("ticks", medium, root))


def test_of_a_file_that_holds_one_the_number_says_where_it_is_from(tmp_path: Path) -> None:
    (tmp_path / "scan_2.png").write_bytes(b"p")
    rendered = {"path": "scan_2.png", "page": 2}
    for medium in (
        rendered,
        {"bytes": b"\x89PNG", "page": 2},
        {**rendered, "source": "doc.pdf", "caption": "of a.pdf"},
    ):
        assert len(list(read_media("ticks", medium, MediaRoot(tmp_path)))) == 1
    with pytest.raises(SampleError, match="page 2"):
        list(read_media("ticks", {"bytes": b"II*\0of pages", "page": 2}, MediaRoot(tmp_path)))


def test_of_media_that_have_time_a_clip_is_advised(root: MediaRoot) -> None:
    with pytest.raises(SampleError, match=r"frame 3: .* \(clip: \[start, end\] in seconds\)$"):
        list(read_media("ticks", {"path": "m.tif", "frame": 3}, root, has_time=True))
