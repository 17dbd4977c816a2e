"""A JSON file that is one object gives the rows of a list in it, and one of rows by name says how to make it a list."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos.data.chat import holds_chats
from kosmos.data.document import Text
from kosmos.data.sources import json_pieces, scan_cache, texts_of
from kosmos.data.sources.json_list import index_json
from kosmos.errors import ConfigError, DataError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
ROWS = [{"text": "one"}, {"text": "two", "data": [1]}]


def write(tmp_path, content, name="rows.json"):
    (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return tmp_path / name


@given(
    rows=st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=3), max_size=4),
    others=st.lists(st.tuples(st.text(max_size=4), VALUES), max_size=4),
    place=st.integers(0, 4),
    field=st.text(min_size=1, max_size=4),
    indent=st.sampled_from([None, 0, 2]),
    ascii_only=st.booleans(),
    piece=st.integers(5, 40),
)
def test_every_row_under_a_key_is_found_wherever_it_is_cut_into_pieces(
    rows, others, place, field, indent, ascii_only, piece
):
    pairs = [(key, value) for key, value in others if key != field]
    content = dict([*pairs[:place], (field, rows), *pairs[place:]])
    data = b"\xef\xbb\xbf " + json.dumps(content, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")
    expected = json.loads(data.removeprefix(b"\xef\xbb\xbf"))
    name = next(key for key in expected if expected[key] is expected.get(field.encode("utf-8", "replace").decode()))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, "rows.json")
        path.write_bytes(data)
        patch.setattr(json_pieces, "PIECE", piece)
        table = index_json(path, name)
        assert [table.row(i) for i in range(len(table))] == list(table.scan(None)) == expected[name]


@pytest.mark.parametrize("indent", [None, 1])
def test_the_rows_of_docvqa(open_, tmp_path, indent):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "1.png").write_bytes(b"picture")
    row = {"question": "Who?", "image": "docs/1.png", "answers": ["Ann", "Ann B."]}
    whole = {"dataset_name": "docvqa", "data": [row, row], "dataset_split": "val", "more": [{"a": [{}]}]}
    path = write(tmp_path, json.dumps(whole, indent=indent))
    source = open_(path, options={"field": "data"})
    assert len(source) == 2 and source.origin(1) == f"{path}:row 1"
    assert Text("Ann", train=True) in source.document(1).segments
    assert source.document(1).references == ("Ann", "Ann B.")


def test_no_piece_of_a_file_is_held_longer_than_its_row(tmp_path, monkeypatch):
    """Neither the list that is asked for nor those in front of it and behind are in memory as a whole."""
    many = [{"text": "x" * 50}] * 2000
    path = write(tmp_path, {"before": many, "within": {"deep": many}, "data": many, "behind": many})
    monkeypatch.setattr(json_pieces, "PIECE", 256)
    held, more = [], json_pieces.JsonText.more
    monkeypatch.setattr(json_pieces.JsonText, "more", lambda text: held.append(len(text.text)) or more(text))
    assert len(index_json(path, "data")) == 2000
    assert max(held) < 1024


@pytest.mark.parametrize(
    ("content", "field", "cause"),
    [
        ({"data": ROWS}, "dta", r"options\.field: no 'dta' in the object of the file; did you mean data\?"),
        ({"data": ROWS, "n": 1}, "n", r"options\.field: expected a list of rows under 'n'; lists are under data$"),
        (ROWS, "data", r"options\.field names the list of an object, and it is a list itself; leave it out"),
        ("text", "data", r"options\.field names the list of an object, and it is no object"),
        ('{"data": [{"text": "a"}', "data", r"no comma and no end of the list at byte 23; without its rest"),
        ('{"data": [{"text": "a"}]', "data", r"no comma and no end of the object at byte 24"),
        ('{"data": [{"text": "a"}],}', "data", r"no name behind a comma at byte 25"),
        ('{"data": []}\n{"data": []}', "data", r"something behind the object at byte 13"),
        ('{"a": ' * 5000, "data", r"not JSON"),
    ],
)
def test_a_key_that_leads_to_no_rows_is_one_line(open_, tmp_path, content, field, cause):
    with pytest.raises(DataError, match=cause):
        open_(write(tmp_path, content), options={"field": field})


def test_the_key_is_of_json_files_alone(open_, tmp_path, rows):
    with pytest.raises(ConfigError, match=r"options\.field is of a \.json file alone"):
        open_(rows({"data": ROWS}), options={"field": "data"})
    with pytest.raises(ConfigError, match=r"options\.field: expected the key of a list of rows, got 3"):
        open_(rows({"data": ROWS}), options={"field": 3})


def test_one_list_in_a_file_is_asked_for_by_its_name_and_several_are_told(open_, tmp_path):
    path = write(tmp_path, {"info": {}, "data": ROWS, "turns": [{"from": "human", "value": "a"}]})
    with pytest.raises(DataError, match=r"if they are those under 'data', name it \(options: \{field: data\}\)$"):
        open_(path)
    assert list(texts_of(open_(path, options={"field": "data"}))) == ["one", "two"]
    with pytest.raises(DataError, match=r"those under one of 'a', 'b', name it \(options: \{field: a\}\)$"):
        open_(write(tmp_path, json.dumps({"a": ROWS, "b": ROWS}, indent=1)))
    with pytest.raises(DataError, match=r"call the file rows\.json, and name it \(options: \{field: data\}\)$"):
        open_(write(tmp_path, {"data": ROWS}, "rows.jsonl"))


def test_the_places_of_rows_are_kept_for_each_key(open_, tmp_path, monkeypatch):
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scan_cache, "LEAST_BYTES", 0)
    path = write(tmp_path, {"a": ROWS, "b": ROWS[:1]})
    for _ in range(2):
        assert [len(open_(path, options={"field": field})) for field in ("a", "b")] == [2, 1]


def test_a_glance_at_the_rows_of_an_object_tells_a_chat(tmp_path):
    path = write(tmp_path, {"n": [1], "data": [{"messages": [{"role": "user", "content": "Hello"}]}]})
    assert holds_chats(path, field="data") and not holds_chats(path) and not holds_chats(path, field="n")


@pytest.mark.parametrize("name", ["val 1.json", "val.jsonl"])
@pytest.mark.parametrize("indent", [None, 2])
def test_rows_by_name_are_told_with_what_makes_them_rows(open_, tmp_path, name, indent):
    films = {"v_a": {"name": "ä", "sentences": ["x"]}, "v_b": {"sentences": ["y"]}}
    path = write(tmp_path, json.dumps(films, indent=indent), name)
    with pytest.raises(DataError, match=r"one object of rows by name \(v_a, v_b\), and no list; write a row a") as told:
        open_(path)
    command = re.search(r"\((python .*)\)$", told.value.line())[1].replace("python", sys.executable, 1)
    command = re.sub(r" > (\S+|'[^']*')$", "", command)
    made = subprocess.run(["sh", "-c", command], capture_output=True, check=True, text=True).stdout
    assert [json.loads(line) for line in made.splitlines()] == [{"id": key, **row} for key, row in films.items()]


def test_what_is_neither_says_no_more(open_, tmp_path):
    for content in ('{"a": 1,\n "b": {}}', '{"a": {"b": 1}', "{\n}"):
        with pytest.raises(DataError, match=r"its first line is neither|none of its 1 rows can be read") as told:
            open_(write(tmp_path, content))
        assert "by name" not in told.value.line() and "options" not in told.value.line()


RECORDING = {"path": "a.wav", "segments": [{"begin_time": 0, "end_time": 1.5, "text_tn": "HELLO"}]}


def test_recordings_with_lists_of_their_pieces_are_told_to_need_a_row_for_each(open_, tmp_path):
    path = write(tmp_path, {"dataset": "x", "audios": [RECORDING, RECORDING]})
    each = r"write a row for each that names it, with clip: \[start, end\] \(docs: .*, Transcripts with times\)$"
    with pytest.raises(DataError, match=rf"under 'audios' are media, each with .* under 'segments'; {each}"):
        open_(path)
    with pytest.raises(DataError, match=rf"under 'segments' are pieces of a row's medium with their times; {each}"):
        open_(path, options={"field": "audios"})


def test_the_key_that_was_named_is_not_advised_again(open_, tmp_path):
    path = write(tmp_path, {"rows": [{"segments": [{"x": 1}]}]})
    with pytest.raises(DataError) as refused:
        open_(path, options={"field": "rows"})
    assert "options" not in str(refused.value)
