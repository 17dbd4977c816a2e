"""What a source says of CSV and TSV files: the delimiter, and the columns where no line names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kosmos.errors import ConfigError, SampleError


def test_a_source_may_name_the_delimiter_and_the_columns(tmp_path: Path, open_) -> None:
    (tmp_path / "a.csv").write_text('1|"One, he said|x\r\n\r\n2|"Two"|y\n3|Three\n')
    source = open_(tmp_path / "a.csv", options={"delimiter": "|", "header": ["id", "text", "more"]})
    assert [source.document(row).segments[0].text for row in range(2)] == ['"One, he said', "Two"]
    with pytest.raises(SampleError, match=r"a\.csv:4: expected 3 columns, as in options\.header, got 2"):
        source.document(2)


@pytest.mark.parametrize(("name", "between"), [("a.tsv", "\t"), ("a.csv", ",")])
def test_a_table_without_a_line_of_names_has_those_of_the_source(tmp_path: Path, open_, name, between) -> None:
    lines = [between.join((str(n), f"text {n}")) for n in range(3)]
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + "\n".join(lines).encode())
    source = open_(tmp_path / name, options={"header": ["id", "text"]})
    assert [source.document(row).segments[0].text for row in range(len(source))] == ["text 0", "text 1", "text 2"]
    assert [source.value(row, "id") for row in range(3)] == ["0", "1", "2"]
    assert source.origin(0) == f"{tmp_path / name}:1"


def test_a_delimiter_alone_leaves_the_names_in_the_first_line(tmp_path: Path, open_) -> None:
    (tmp_path / "a.csv").write_text("id^text\n1^a,b\n")
    assert open_(tmp_path / "a.csv", options={"delimiter": "^"}).document(0).segments[0].text == "a,b"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"delimiter": "||"}, "options.delimiter: expected one character"),
        ({"delimiter": '"'}, "options.delimiter: expected one character"),
        ({"header": "id"}, "options.header: expected the names of the columns"),
        ({"header": ["id", "id"]}, "options.header: names column 'id' twice"),
    ],
)
def test_wrong_options_of_tables_are_refused(tmp_path: Path, open_, options, told) -> None:
    (tmp_path / "a.csv").write_text("1,one\n")
    with pytest.raises(ConfigError, match=told):
        open_(tmp_path / "a.csv", options=options)


def test_options_of_tables_are_none_of_other_files(tmp_path: Path, open_) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    with pytest.raises(ConfigError, match=r"options\.header: it is of \.csv and \.tsv files alone"):
        open_(tmp_path / "a.jsonl", options={"header": ["id"]})
