"""A JSON file that is one list gives its rows, whatever its layout, and one that is none says what is wrong."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos.data.chat import holds_chats
from kosmos.data.document import Media, Text
from kosmos.data.sources import json_list, json_pieces, scan_cache
from kosmos.data.sources.json_list import JsonListTable, index_json
from kosmos.errors import DataError, SampleError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(
    rows=st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=3), max_size=8),
    indent=st.sampled_from([None, 0, 2]),
    ascii_only=st.booleans(),
    before=st.sampled_from([b"", b"\xef\xbb\xbf", b" \n\t"]),
    piece=st.integers(1, 40),
)
def test_every_row_of_a_list_is_found_wherever_it_is_cut_into_pieces(rows, indent, ascii_only, before, piece):
    content = before + json.dumps(rows, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace") + b"\n"
    expected = json.loads(content.removeprefix(b"\xef\xbb\xbf"))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, "rows.json")
        path.write_bytes(content)
        whole = index_json(path)
        patch.setattr(json_pieces, "PIECE", max(piece, len(before) + 1))  # the bracket is looked for in the first
        table = index_json(path)
        assert isinstance(table, JsonListTable)
        assert [table.row(i) for i in range(len(table))] == list(table.scan(None)) == expected
    assert (table.offset.tolist(), table.end.tolist()) == (whole.offset.tolist(), whole.end.tolist())


def write(tmp_path, content, name="rows.json"):
    (tmp_path / "a.png").write_bytes(b"picture")
    (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return tmp_path / name


def test_chats_about_pictures_as_llava_has_them(open_, tmp_path):
    turns = [{"from": "human", "value": "<image>\nWhat is this?"}, {"from": "gpt", "value": "A cat."}]
    source = open_(write(tmp_path, [{"id": "1", "image": "a.png", "conversations": turns}] * 2, "llava_mix.json"))
    assert (source.name, len(source)) == ("llava_mix", 2)
    document = source.document(1)
    assert document.origin == f"{tmp_path / 'llava_mix.json'}:row 1"
    assert [s.source.name for s in document.segments if isinstance(s, Media)] == ["a.png"]
    assert Text("A cat.", train=True) in document.segments


def test_a_folder_of_rows_a_line_is_read_as_one_source_whatever_the_files_are_called(open_, tmp_path):
    folder = tmp_path / "c4"
    folder.mkdir()
    for number, rows in enumerate(("one two", "three", "")):
        lines = [json.dumps({"text": text, "url": "x"}) for text in rows.split()]
        (folder / f"c4-train.{number:05}-of-00003.json").write_text("\n".join(lines))
    (folder / "README.md").write_text("#")
    (folder / "notes.docx").write_text("x")
    source = open_(folder)
    assert [source.document(i).segments[0].text for i in range(len(source))] == ["one", "two", "three"]
    assert source.document(2).origin == f"{folder}/c4-train.00001-of-00003.json:1"
    assert source.left_out == {"0 bytes": 1, ".docx": 1}
    assert not holds_chats(folder)
    (folder / "c4-train.00000-of-00003.json").write_text(2 * '{"messages": []}\n')
    assert holds_chats(folder)


@pytest.mark.parametrize(
    "contents",
    [
        ['{"text": "a"}'],  # one object each, as what stands beside a medium
        ['{"text": "a"}\n', '{"text": "b"}\n'],
        ['{\n "images": [],\n "annotations": []\n}'],
        ['{"text": "a"}\n{"text": "b"}\n', '[{"text": "c"}]'],
        ['[{"text": "a"}]\n[{"text": "b"}]\n'],
    ],
)
def test_a_folder_of_other_json_files_is_refused(open_, tmp_path, contents):
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.json").write_text(content)
    with pytest.raises(DataError, match=r"a folder of .json files is not read as a whole; name each"):
        open_(tmp_path)
    assert not holds_chats(tmp_path)


def test_what_is_no_object_costs_itself_alone(open_, tmp_path):
    source = open_(write(tmp_path, '[{"text": "one"}, 12, {"text": "three"}]'))
    assert source.document(2).segments == (Text("three", train=True),)
    with pytest.raises(SampleError, match=r"rows.json:row 1: expected an object, got a number"):
        source.document(1)


@pytest.mark.parametrize("odd", ['{"text": 1' + "0" * 5000 + "}", '{"text": "a\tb"}'])
def test_what_only_a_strict_reader_minds_costs_its_row_alone(open_, tmp_path, odd):
    source = open_(write(tmp_path, f'[{odd}, {{"text": "two"}}]'))
    assert source.document(1).segments == (Text("two", train=True),)
    with pytest.raises(SampleError, match=r"rows.json:row 0: not JSON"):
        source.document(0)


def test_a_list_that_is_no_json_is_not_read_on(tmp_path, monkeypatch):
    path = write(tmp_path, '[{"text": "a" "b"}, ' + '{"text": "one"}, ' * 20_000)
    monkeypatch.setattr(json_pieces, "PIECE", 64)
    read, more = [], json_pieces.JsonText.more
    monkeypatch.setattr(json_pieces.JsonText, "more", lambda text: read.append(1) or more(text))
    with pytest.raises(DataError, match=r"Expecting ',' delimiter.* at byte 14"):
        index_json(path)
    assert len(read) == 1
    monkeypatch.setattr(json_pieces, "MOST_BYTES", 1000)
    with pytest.raises(DataError, match="Unterminated string starting at byte 10"):
        index_json(write(tmp_path, '[{"text": "' + "a" * 100_000))
    assert len(read) < 20


def test_lines_under_the_name_of_a_list_are_read_as_lines(open_, tmp_path):
    source = open_(write(tmp_path, '\n{"text": "one"}\n{"text": "two"}\n'))
    assert [source.document(i).origin for i in range(2)] == [f"{tmp_path / 'rows.json'}:{line}" for line in (2, 3)]


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (
            '[{"text": "one"}, {"text": "tw',
            r"not JSON: Unterminated string .* byte 27; without its rest nobody can say where rows end",
        ),
        ('[{"text": "one"}', r"no comma and no end of the list at byte 16"),
        ('[{"text": "one"} {"text": "two"}]', r"no comma and no end of the list at byte 17"),
        ('[{"text": "one"},]', r"Expecting value at byte 17"),
        ('[{"text": "one"}] and more', r"something behind the list at byte 18"),
        ("[" * 200_000, r"nested too deeply at byte 1"),
        ('[{"problem": "a", "solution": "b"}]', r"and its answer are columns: {query: problem, response: solution}$"),
        ('{"images": [], "annotations": []}', r"rows.json:1: text: no column 'text'; there are: annotations, images"),
        ('{\n  "images": []\n}', r"expected a list of rows .* or a row a line; its first line is neither \(not JSON"),
        (
            '{"data": [{"text": "a"}], "version": 1}',
            r"there are: data, version.*; the file is one object, and rows are expected as a list: if they are those "
            r"under 'data', name it \(options: {field: data}\)$",
        ),
        (
            '{\n  "data": [\n{"text": "a"}]\n}',
            r"its first line is neither .*; the file is one object.* under 'data', name it \(options: {field: data}\)$",
        ),
        (
            '{"data": [{"context": "a", "question": "b", "start": 3, "end": 9}], "version": 1}',
            r"name it \(options: {field: data}\); if they are pieces of one medium, write a row for each that names it",
        ),
        (
            '{"segments": [{"id": 0, "start": 3, "end": 9, "text": "a", "speaker": "b"}], "version": 1}',
            r"under 'segments' are pieces of one medium, which is named nowhere; write a row for each that names it",
        ),
        ('[{"conversation": [{"from": "human", "value": "x"}]}]', r"did you mean columns: .*: conversation}\?$"),
        ("", r"rows.json: is empty \(0 bytes\); expected a list of rows"),
        ("[]", r"holds no rows"),
    ],
)
def test_what_is_no_list_of_rows_is_one_line(open_, tmp_path, content, cause):
    with pytest.raises(DataError, match=cause):
        open_(write(tmp_path, content))


def test_the_places_of_rows_are_kept(open_, tmp_path, monkeypatch):
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scan_cache, "LEAST_BYTES", 0)
    path = write(tmp_path, [{"text": "one"}, {"text": "two"}])
    first = open_(path)
    monkeypatch.setattr(json_list, "_places", lambda *given: pytest.fail("they are looked for again"))
    assert [open_(path).document(i).segments for i in range(2)] == [first.document(i).segments for i in range(2)]


def test_a_glance_tells_a_chat(tmp_path):
    chat = [{"messages": [{"role": "user", "content": "Hello"}]}]
    assert holds_chats(write(tmp_path, chat))
    assert holds_chats(write(tmp_path, json.dumps(chat[0])))
    assert not holds_chats(write(tmp_path, [{"text": "one"}]))
    for content in ("[]", "[", "{", ""):
        assert not holds_chats(write(tmp_path, content))
