"""Documents that are the same as others."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from kosmos import Document, Documents, Media, Text
from kosmos.data.document import FileSpan, StoredMedia
from kosmos.data.duplicates import Duplicates, find_duplicates


def same(*documents: tuple[Text | Media | StoredMedia, ...], held_out: Documents | None = None) -> Duplicates:
    made = [Document(f"row {number}", segments) for number, segments in enumerate(documents)]
    return find_duplicates([Documents("rows", made)], [held_out] if held_out else [])


def test_media_are_compared_by_what_they_hold(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"content")
    (tmp_path / "shard").write_bytes(b"..content")
    span = StoredMedia("image", FileSpan(tmp_path / "shard", 2, 7))
    held = (Media("image", tmp_path / "a"), Media("image", tmp_path / "b"), Media("image", b"content"), span)
    assert same(*((medium, Text("x")) for medium in held)).repeated == 3
    assert same((held[0],), (Media("audio", tmp_path / "a"),), (Media("image", tmp_path / "a", (0, 1)),)).repeated == 0
    arrays = [np.zeros(4, np.float32), np.zeros(4, np.float32), np.zeros((2, 2), np.float32), np.zeros(4, np.int32)]
    assert same(*((Media("image", array),) for array in arrays)).repeated == 1


def test_what_is_learned_counts_and_what_a_document_is_called_does_not() -> None:
    assert same((Text("a"),), (Text("a"),), (Text("a", train=True),), (Text("b"),)).repeated == 1
    scored = Documents("scored", [Document("row 9", (Text("b"),)), Document("row 0", (Text("c"),))])
    found = same((Text("a"),), (Text("b"),), held_out=scored)
    assert found == Duplicates(documents=4, repeated=1, held_out=2, held_out_and_trained=1)
    assert found.told().endswith("; 1 of 2 held-out ones are also trained on")


def test_a_document_without_its_medium_is_not_compared(tmp_path: Path) -> None:
    gone = Media("image", tmp_path / "gone")
    assert same((gone,), (gone,), (Text("a"),)).documents == 1
    assert same((Text("a"),)).told() == "0 of 1 documents repeat others in text and media"


def test_a_document_that_was_refused_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.touch()
    os.truncate(file, 1 << 40)
    documents = [
        Document(name, (part,)) for name, part in (("a", Media("image", file)), ("b", Text("x")), ("c", Text("x")))
    ]
    found = find_duplicates([Documents("rows", documents)], [], refused={("rows", "a"), ("others", "b")})
    assert (found.documents, found.repeated) == (2, 1)


def test_held_out_documents_about_media_that_are_trained_on_are_counted_by_the_pieces(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"film" if name == "c" else name.encode())
    whole, piece = Media("film", tmp_path / "a"), Media("film", tmp_path / "c", (0.0, 1.0))
    held = [
        (whole, Text("said otherwise", train=True)),
        (Media("film", tmp_path / "c", (1.0, 2.0)), Text("another piece", train=True)),
        (piece, Text("said otherwise", train=True)),
        (whole, Text("one", train=True)),
        (Media("film", tmp_path / "b"), Text("one", train=True)),
        (Text("one", train=True),),
    ]
    scored = Documents("rows", [Document(str(number), segments) for number, segments in enumerate(held)])
    found = same((whole, Text("one", train=True)), (piece, Text("two", train=True)), held_out=scored)
    assert (found.held_out, found.held_out_and_trained, found.about_trained_media) == (6, 1, 2)
    assert found.told().endswith("are also trained on, and 2 are about media that are, under other texts")
