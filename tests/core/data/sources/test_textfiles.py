"""Text files cut into documents."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos import load_plugins, make_run, open_sources
from kosmos.data.bytes_tokenizer import ByteTokenizer
from kosmos.data.marks import EOS
from kosmos.data.plan import Planner
from kosmos.data.sources import textfiles, texts_of
from kosmos.data.sources.textfiles import cut_text
from kosmos.errors import ConfigError, DataError, SampleError
from kosmos.train.doubts import doubts

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


def test_the_last_document_of_a_file_alone_has_an_end(open_, tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("one\ntwo\n\nthree\nfour\n\n")
    source = open_(tmp_path, options={"chunk_chars": 12})
    planner = Planner(ByteTokenizer(), {}, max_tokens=64, max_cells={})
    documents = [source.document(n) for n in range(len(source))]
    assert [document.goes_on for document in documents] == [True, False, True, False]
    ends = planner.tokenizer.mark_id(EOS)
    for document in documents:
        (plan,) = planner.plan(document)
        assert (plan.token_ids[-1] == ends) == (not document.goes_on)
        assert plan.train[1:].all() and not plan.train[0]


@pytest.mark.parametrize(("tokens", "told"), [(4 * 12 - 1, False), (4 * 12 + 1, True)])
def test_rows_that_hold_many_documents_of_a_file_are_told(tmp_path, tokens, told):
    (tmp_path / "a.txt").write_text("one two six\n" * 50)
    config = make_run({
        "modalities": [], "data": {
            "tokens_per_pack": tokens, "held_out": 0,
            "sources": [{"path": str(tmp_path / "a.txt"), "name": "verses", "options": {"chunk_chars": 12}}],
        },
    })  # fmt: skip
    sources = open_sources(config, load_plugins(), "train")
    found = [line for line in doubts(config, sources, resumed=False, tokenizer=ByteTokenizer()) if "verses" in line]
    line = "verses: its texts are cut into documents of 12 characters, some 12 tokens, and a row holds 49: no longer "
    assert [each.startswith(line) and "{chunk_chars: 1000}" in each for each in found] == [True] * told
