"""Sources of many files of which several are damaged."""

from __future__ import annotations

import re

import pytest

from kosmos.cli import main
from kosmos.errors import DataError
from support.command import SMALL

WIDE = '{"text": "one"}\n'.encode("utf-16")
"""Of a file of rows what makes it no such file."""


@pytest.mark.parametrize("suffix", [".tar", ".parquet", ".jsonl", ".csv"])
def test_all_damaged_files_of_a_source_are_named_at_once(open_, tmp_path, suffix):
    for number in range(9):
        (tmp_path / f"{number}{suffix}").write_bytes(WIDE)
    with pytest.raises(DataError) as told:
        open_(tmp_path)
    first, others = str(told.value).split("; 9 of 9 files cannot be used, the others are ")
    assert first.startswith(f"{tmp_path}/0{suffix}: ")
    assert others == ", ".join(f"{tmp_path}/{number}{suffix}" for number in range(1, 6)) + " and 3 more"


def test_sound_files_are_not_named(open_, tmp_path):
    for name, content in {"a": b'{"text": "one"}\n', "b": WIDE, "c": WIDE}.items():
        (tmp_path / f"{name}.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=r"b.jsonl: expected UTF-8.*; 2 of 3 files .* the other is \S*c.jsonl$"):
        open_(tmp_path)
    (tmp_path / "c.jsonl").unlink()
    with pytest.raises(DataError, match=r"b.jsonl: expected UTF-8, got UTF-16; [^;]*$"):
        open_(tmp_path)


@pytest.mark.parametrize("command", [["data", "--check"], ["data", "--check", "--json"], ["train"]])
def test_commands_end_with_the_line_that_names_them(tmp_path, capsys, command):
    (tmp_path / "rows").mkdir()
    for name in ("a", "b"):
        (tmp_path / "rows" / f"{name}.tar").write_bytes(b"half of one")
    output = [] if command[0] == "data" else [f"output={tmp_path / 'run'}"]
    assert main([*command, "--data", str(tmp_path / "rows"), *SMALL, *output]) == 3
    assert re.search(r"error\[data\]: .*a\.tar: .*the other is .*b\.tar$", capsys.readouterr().err.strip())
