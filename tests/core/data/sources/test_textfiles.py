"""Text files cut into documents."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos.data.sources import textfiles, texts_of
from kosmos.data.sources.textfiles import cut_text
from kosmos.errors import ConfigError, DataError, SampleError

TEXT = st.text(st.sampled_from("ab é漢😀 \n\n\r\t"), max_size=400)


def pieces(text: str, most: int) -> list[str]:
    data = text.encode()
    return [data[p.begin : p.end].decode() for p in cut_text(BytesIO(data), most)]


@given(TEXT, st.integers(1, 60))
def test_every_character_is_in_exactly_one_piece_of_at_most_so_many(text, most):
    found = pieces(text, most)
    assert "".join(found) == text
    assert all(0 < len(piece) <= most for piece in found)


@given(TEXT, st.integers(1, 60))
def test_pieces_know_their_line(text, most):
    data = text.encode()
    for piece in cut_text(BytesIO(data), most):
        assert piece.line == data[: piece.begin].count(b"\n") + 1
        assert piece.blank == (not data[piece.begin : piece.end].strip())


@given(st.binary(max_size=300), st.integers(1, 40))
def test_broken_text_is_cut_without_loss_too(data, most):
    found = list(cut_text(BytesIO(data), most))
    assert b"".join(data[p.begin : p.end] for p in found) == data


def test_blank_lines_are_preferred_and_lines_are_kept_whole():
    text = "one\ntwo\n\nthree\nfour\nfive\n"
    assert pieces(text, 16) == ["one\ntwo\n\n", "three\nfour\nfive\n"]
    assert pieces("aaaa\nbbbb\ncccc\n", 10) == ["aaaa\nbbbb\n", "cccc\n"]


def test_long_line_is_cut_behind_a_space():
    assert pieces("alpha beta gamma", 8) == ["alpha ", "beta ", "gamma"]
    assert pieces("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]


def test_line_longer_than_a_read_is_never_cut_inside_a_character(monkeypatch):
    monkeypatch.setattr(textfiles, "_MAX_LINE", 10)
    text = "漢字é" * 50 + "\nend"
    found = pieces(text, 7)
    assert "".join(found) == text
    assert max(map(len, found)) == 7


def test_text_file_becomes_trained_documents_without_loss(open_, tmp_path):
    path = tmp_path / "book.txt"
    text = "\ufeff" + "".join(f"Line {i} of the book.\n" + "\n" * (i % 7 == 0) for i in range(500))
    path.write_text(text, encoding="utf-8")
    source = open_(path, options={"chunk_chars": 300})
    assert "".join(texts_of(source)) == text[1:]
    assert source.name == "book"
    line = int(source.document(5).origin.rsplit(":", 1)[1])
    assert source.document(5).segments[0].text.startswith(text[1:].splitlines()[line - 1])


def test_broken_utf8_and_nul_cost_their_piece_alone(open_, tmp_path):
    (tmp_path / "a.txt").write_bytes(
        b"good line\n" * 5 + b"bad \xff\xfe line\n" + b"n\0l byte here\n" + b"good line\n" * 5
    )
    source = open_(tmp_path, options={"chunk_chars": 14})
    bad = []
    for index in range(len(source)):
        try:
            source.document(index)
        except SampleError as error:
            bad.append(str(error))
    assert len(source) == 12
    assert ["a.txt:6: not UTF-8 at byte 54" in bad[0], "a.txt:7: text: holds a NUL" in bad[1], len(bad)] == [
        True,
        True,
        2,
    ]


def test_folder_of_text_files_with_splits_in_their_names(open_, tmp_path):
    (tmp_path / "train.txt").write_text("to learn")
    (tmp_path / "valid.txt").write_text("to test")
    (tmp_path / "README.txt").write_text("about")
    assert list(texts_of(open_(tmp_path))) == ["to learn"]
    assert list(texts_of(open_(tmp_path, split="held_out"))) == ["to test"]


def test_empty_and_blank_files_are_refused(open_, tmp_path):
    for content in ("", " \n\n "):
        (tmp_path / "a.txt").write_text(content)
        with pytest.raises(DataError, match="holds no rows"):
            open_(tmp_path / "a.txt")


@pytest.mark.parametrize("value", [0, -1, True, "many"])
def test_wrong_sizes_of_pieces_are_refused(open_, tmp_path, value):
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(ConfigError, match=r"options.chunk_chars: expected a whole number from 1"):
        open_(tmp_path / "a.txt", options={"chunk_chars": value})
