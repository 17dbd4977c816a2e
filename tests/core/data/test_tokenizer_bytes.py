"""The byte tokenizer."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos.data.bytes_tokenizer import FILE, ByteTokenizer
from kosmos.data.marks import CORE_MARKS
from kosmos.data.text_stream import REPLACEMENT, TextStream
from kosmos.data.tokenizer import load_tokenizer
from kosmos.errors import ConfigError

MARKS = ("<image>", "</image>")
TOKENIZER = load_tokenizer("bytes", MARKS)


@given(st.text())
def test_text_comes_back(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.text(), st.text())
def test_texts_may_be_joined_before_or_after(one, two):
    assert TOKENIZER.encode(one) + TOKENIZER.encode(two) == TOKENIZER.encode(one + two)


@given(st.lists(st.integers(-5, 400)))
def test_any_ids_decode(ids):
    assert isinstance(TOKENIZER.decode(ids), str)


@given(st.lists(st.integers(0, 259)))
def test_any_ids_come_in_pieces(ids):
    pieces = []
    stream = TextStream(TOKENIZER, pieces.append)
    for token in ids:
        stream.add(token)
    assert not any(piece.endswith(REPLACEMENT) for piece in pieces)
    stream.end()
    assert "".join(pieces) == TOKENIZER.decode(ids)


def test_a_character_comes_as_soon_as_it_is_whole():
    pieces = []
    stream = TextStream(TOKENIZER, pieces.append)
    for token in [*"aé€".encode(), TOKENIZER.mark_id("<image>"), 66, 0xC3]:
        stream.add(token)
        pieces.append(None)
    stream.end()
    assert pieces == ["a", None, None, "é", None, None, None, "€", None, None, "B", None, None, REPLACEMENT]


def test_marks_follow_the_bytes_in_order():
    assert [TOKENIZER.mark_id(mark) for mark in (*CORE_MARKS, *MARKS)] == list(range(256, 265))
    assert TOKENIZER.vocab_size == 265


def test_broken_bytes_become_replacement_characters_and_marks_are_left_out():
    assert TOKENIZER.decode([0xC3, TOKENIZER.mark_id("<s>"), 65, 0xFF]) == "\ufffdA\ufffd"


def test_forged_marks_stay_text():
    for mark in (*CORE_MARKS, *MARKS):
        ids = TOKENIZER.encode(f"a {mark} b")
        assert max(ids) < 256
        assert TOKENIZER.decode(ids) == f"a {mark} b"


def test_unknown_mark_is_an_error():
    with pytest.raises(ConfigError, match="no mark '<video>'; it has <pad> <s>"):
        TOKENIZER.mark_id("<video>")


def test_saved_tokenizer_gives_the_same_ids_and_takes_new_marks_at_the_end(tmp_path):
    TOKENIZER.save(tmp_path / "saved")
    again = load_tokenizer(str(tmp_path / "saved"), ["<audio>", "<image>"])
    assert [again.mark_id(mark) for mark in (*CORE_MARKS, *MARKS)] == list(range(256, 265))
    assert again.mark_id("<audio>") == 265
    assert again.vocab_size == 266


def test_damaged_file_is_an_error(tmp_path):
    for content in ("{", "[]", '{"kind": "bytes"}', '{"kind": "bytes", "marks": [1]}'):
        (tmp_path / FILE).write_text(content)
        with pytest.raises(ConfigError, match=FILE):
            load_tokenizer(str(tmp_path), [])


def test_pickled_tokenizer_is_the_same():
    assert pickle.loads(pickle.dumps(TOKENIZER)) == TOKENIZER == ByteTokenizer(MARKS)
