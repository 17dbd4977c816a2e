"""Rows of tables that have nothing in any column are counted, as nobody would see that they are gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kosmos.cli import main
from kosmos.data.sources.delimited import index_delimited
from kosmos.data.sources.empty_rows import empty_rows
from kosmos.data.sources.joined import join
from kosmos.data.sources.remarks import remarks_of
from kosmos.plugins import load_plugins
from kosmos.run_file import make_run
from kosmos.run_sources import open_sources


@pytest.mark.parametrize(
    ("name", "text", "count", "first"),
    [
        ("a.csv", "answer,expected\na,a\n,\nb,b\n", 1, 3),
        ("a.csv", 'answer;expected\r\n\r\n;\r\n"a\n;\n",a\r\n ; \r\n"";""\r\nb;b\r\n;', 4, 3),
        ("a.tsv", "answer\texpected\na\ta\n\t\n\nb\tb\n\t\n", 2, 3),
        ("a.csv", 'answer\n""\na\n', 1, 2),
        ("a.csv", 'answer,expected\na,a\n"\n\n",\nb,b\n,"\n"\n,\n', 3, 3),  # lines end in quotes
        ("a.csv", '\ufeff"answer\n",expected\n"\n",\n', 1, 3),
        ("a.csv", "answer,expected\n,\n", 1, 2),
        ("a.csv", "answer,expected\n\na,a\n \n\nb,b\n\n", 0, 0),
    ],
)
def test_rows_of_nothing_are_counted_and_blank_lines_are_not(
    tmp_path: Path, name: str, text: str, count: int, first: int
) -> None:
    (tmp_path / name).write_bytes(text.encode())
    table = index_delimited(tmp_path / name)
    told = [*empty_rows(join([table, table], [None, None]))]
    assert len(told) == 2 * bool(count)
    for line in told:
        assert line.startswith(f"{tmp_path / name}: {count} row") and line.endswith(f"the first is in line {first}")


def test_training_and_scoring_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.csv"
    file.write_text("answer,expected\na,a\n,\nb,a\n")
    assert main(["score", str(file), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["generated"]["a"]["documents"] == 2
    assert (
        said.err
        == f"warning: {file}: 1 row has nothing in any column, and no row is made of that; the first is in line 3\n"
    )
    file.write_text('text\na\nb\n""\n')
    (source,) = open_sources(
        make_run({"data": {"sources": [{"path": str(file), "held_out": 0.0}]}}), load_plugins(), "train"
    )
    assert [line for line in remarks_of(source) if "1 row has nothing" in line]
