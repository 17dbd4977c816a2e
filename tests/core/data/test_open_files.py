"""Files of rows stay open, and what is read is of the file that was asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kosmos.data import open_files
from kosmos.data.open_files import MOST_OPEN, forget, read_bytes
from kosmos.data.sources.jsonl import index_jsonl
from kosmos.data.sources.textfiles import index_text


def test_any_part_of_any_of_many_files_is_read_and_few_stay_open(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.txt" for number in range(MOST_OPEN + 5)]
    for number, path in enumerate(paths):
        path.write_text(f"file {number:3} ends")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        for number, path in enumerate(paths):
            assert read_bytes(path, 5, 8) == b"%3d" % number
            assert read_bytes(path, 9, 1000) == b"ends"
    assert len(open_files._open) == MOST_OPEN
    assert len(os.listdir("/proc/self/fd")) <= before + MOST_OPEN
    for path in paths:
        forget(path)
    assert not {str(path) for path in paths} & set(open_files._open)


def test_a_long_read_is_made_of_parts_that_every_system_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, asked = os.pread, []

    def pread(descriptor: int, length: int, begin: int) -> bytes:
        asked.append(length)
        return read(descriptor, length, begin)

    monkeypatch.setattr(os, "pread", pread)
    path = tmp_path / "few.txt"
    path.write_text("few")
    assert read_bytes(path, 1, 5 << 30) == b"ew"
    assert max(asked) <= open_files.MOST_AT_ONCE < 2 << 30
    monkeypatch.setattr(open_files, "MOST_AT_ONCE", 4)
    path = tmp_path / "many.txt"
    path.write_text("of several parts")
    assert read_bytes(path, 1, 12) == b"f several p"


def test_a_file_that_is_opened_anew_is_read_anew(tmp_path: Path) -> None:
    path, new = tmp_path / "rows.jsonl", tmp_path / "new"
    for text in ("old", "of another length", "new"):
        new.write_text(f'{{"text": "{text}"}}\n')
        os.replace(new, path)
        assert index_jsonl([path]).row(0) == {"text": text}
    for text in ("one", "two and more"):
        new.write_text(text)
        os.replace(new, path)
        assert index_text([path], [None]).row(0) == {"text": text}


def test_a_relative_path_is_one_of_the_folder_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "xy":
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.jsonl").write_text(f'{{"text": "{name}"}}')
    for name in "xyx":
        monkeypatch.chdir(tmp_path / name)
        assert index_jsonl([Path("rows.jsonl")]).row(0) == {"text": name}
        assert read_bytes(Path("rows.jsonl"), 10, 11) == name.encode()


def test_a_file_that_is_not_there_is_an_error_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            read_bytes(tmp_path / "none", 0, 1)
