"""What opening found is kept on disk: found again as long as nothing has changed, and made anew where anything has."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from kosmos.data.document import Text
from kosmos.data.sources import request, scan_cache, textfiles
from kosmos.data.sources.hub import HubTable
from kosmos.data.sources.jsonl import JsonlTable
from kosmos.data.sources.parquet import ParquetTable
from kosmos.errors import DataError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """Of the records, which are kept of small files too."""
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scan_cache, "LEAST_BYTES", 0)
    return tmp_path / "cache" / "scans"


@pytest.fixture
def scans(monkeypatch) -> list[str]:
    """A name for each time that the rows of a table are looked at."""
    seen: list[str] = []

    def watch(kind: type) -> None:
        real = kind.scan
        monkeypatch.setattr(kind, "scan", lambda table, layout: seen.append(kind.__name__) or real(table, layout))

    for kind in (JsonlTable, ParquetTable, HubTable):
        watch(kind)
    return seen


def texts(source):
    return [[s.text for s in source.document(i).segments if isinstance(s, Text)] for i in range(len(source))]


MIXED = [
    {"id": "a", "text": "one", "split": "train"},
    {"image": "a.png", "text": "two"},
    {"video": "c.mp4", "text": "of another modality"},
    b"no row",
    {"text": "three", "split": "test"},
]


def test_rows_are_looked_at_once_as_long_as_nothing_changes(open_, rows, scans):
    path = rows(*MIXED)
    first, again = open_(path), open_(path)
    held_out = open_(path, split="held_out", held_out=0.5)
    assert scans == ["JsonlTable"]
    assert again.rows.tolist() == first.rows.tolist() == [0, 1, 3]
    assert again.left_out == first.left_out == {"video": 1}
    assert texts(held_out) == [["three"]]


def test_parquet_and_saved_datasets_are_too(open_, tmp_path, scans):
    import datasets

    found = datasets.Dataset.from_list([{"text": str(n)} for n in range(5)])
    found.to_parquet(str(tmp_path / "rows.parquet"))
    found.save_to_disk(tmp_path / "saved")
    for name in ("rows.parquet", "saved"):
        assert texts(open_(tmp_path / name)) == texts(open_(tmp_path / name)) == [[str(n)] for n in range(5)]
    assert scans == ["ParquetTable", "HubTable"]


def test_text_files_are_cut_once(open_, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    first = texts(open_(tmp_path / "a.txt", options={"chunk_chars": 5}))
    assert texts(open_(tmp_path / "a.txt")) != first
    monkeypatch.setattr(textfiles, "cut_text", lambda *given: pytest.fail("it is cut again"))
    assert texts(open_(tmp_path / "a.txt", options={"chunk_chars": 5})) == first


def append(path):
    with path.open("a") as file:
        file.write('{"text": "more"}\n')


def rewrite_with_the_old_time(path):
    state, content = path.stat(), path.read_bytes()
    path.write_bytes(content.replace(b"one", b"uno"))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def replace_by_one_as_large(path):
    content = path.read_bytes()
    path.rename(path.with_name("old"))
    path.write_bytes(content.replace(b"one", b"uno"))


@pytest.mark.parametrize("change", [append, rewrite_with_the_old_time, replace_by_one_as_large])
def test_a_file_that_changed_is_looked_at_again(open_, rows, scans, change):
    path = rows({"text": "one"}, {"text": "two"})
    before = texts(open_(path))
    change(path)
    assert texts(open_(path)) != before
    assert len(scans) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"modalities": ("image",)},
        {"modalities": ("image", "audio", "video")},
        {"template": "{text}"},
        {"columns": {"text": "id"}},
        {"columns": {"split": "set"}},
    ],
)
def test_another_question_has_another_answer(open_, rows, scans, other):
    path = rows({"id": "a", "text": "one", "set": "train"}, {"id": "b", "text": "two", "set": "train"})
    open_(path)
    open_(path, **other)
    assert len(scans) == 2


def test_the_first_of_several_files_may_be_the_one_that_changes(open_, rows, scans):
    folder = rows({"text": "one"}, name="set/a.jsonl").parent
    rows({"text": "two"}, name="set/b.jsonl")
    open_(folder)
    append(folder / "a.jsonl")
    assert texts(open_(folder)) == [["one"], ["more"], ["two"]]
    assert len(scans) == 4


def test_a_file_that_changes_while_it_is_looked_at_leaves_no_record(open_, rows, folder, monkeypatch):
    path, real = rows({"text": "one"}), JsonlTable.scan

    def scan(table, layout):
        yield from real(table, layout)
        append(path)

    monkeypatch.setattr(JsonlTable, "scan", scan)
    open_(path)
    assert not list(folder.glob("*"))


def test_of_another_modality_less_or_more_other_rows_are_left_out(open_, rows):
    path = rows(*MIXED)
    counts = [len(open_(path, modalities=given)) for given in (("image",), ("image", "video"), ())]
    assert counts == [3, 4, 2]


def test_the_same_files_in_a_folder_that_says_their_split(open_, tmp_path, scans):
    folder = tmp_path / "set" / "test"
    folder.mkdir(parents=True)
    for name in "ab":
        (folder / f"{name}.jsonl").write_text('{"text": "one"}\n')
    assert len(open_(folder)) == 2
    assert len(open_(folder.parent, split="held_out", held_out=0.1)) == 2
    assert len(scans) == 4


def test_a_manifest_of_which_a_text_file_was_not_there_at_first(open_, rows):
    manifest = rows({"file": "a.txt"}, {"text": "one"}, name="set/manifest.jsonl")
    assert len(open_(manifest.parent)) == 2
    (manifest.parent / "a.txt").write_text("first\n\nsecond\n")
    assert texts(open_(manifest.parent, options={"chunk_chars": 8})) == [["one"], ["first\n\n"], ["second\n"]]


def test_names_of_classes_that_say_the_split_of_a_saved_dataset(open_, tmp_path):
    import datasets

    names = ["train", "test"]
    features = datasets.Features({"text": datasets.Value("string"), "split": datasets.ClassLabel(names=names)})
    rows = {"text": list("abc"), "split": [0, 0, 1]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "set")
    info = tmp_path / "set" / "dataset_info.json"
    assert len(open_(tmp_path / "set")) == 2
    said = info.read_text()
    info.write_text(said.replace('"train"', '"_"').replace('"test"', '"train"').replace('"_"', '"test"'))
    assert len(open_(tmp_path / "set")) == 1


def test_each_part_of_a_files_state_counts_and_so_do_the_versions(monkeypatch):
    class File:
        def __init__(self, **changed):
            state = {"st_size": 9, "st_ino": 8, "st_mtime_ns": 7, "st_ctime_ns": 6} | changed
            self.stat = lambda: SimpleNamespace(**state)
            self.name, self.absolute = "file", lambda: "/file"

    states = [{}, {"st_size": 1}, {"st_ino": 1}, {"st_mtime_ns": 1}, {"st_ctime_ns": 1}]
    names = [scan_cache.record_name("rows", [File(**changed)]) for changed in states]
    monkeypatch.setattr(scan_cache, "FORMAT", 0)
    names.append(scan_cache.record_name("rows", [File()]))
    monkeypatch.setattr("kosmos.__version__", "0")
    names.append(scan_cache.record_name("rows", [File()]))
    assert None not in names
    assert len(set(names)) == len(states) + 2


def test_a_record_of_which_any_byte_is_another_is_made_anew(open_, rows, folder, scans):
    path = rows(*MIXED)
    open_(path)
    [record] = folder.iterdir()
    content = record.read_bytes()
    damaged = [content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :] for place in range(len(content))]
    for damage in (b"", b"PK", content[:-1], content + b"0", *damaged):
        scans.clear()
        record.write_bytes(damage)
        assert [open_(path).rows.tolist() for _ in range(2)] == [[0, 1, 3]] * 2
        assert len(scans) == 1


def test_a_record_that_may_only_be_read_is_used(open_, rows, scans, monkeypatch):
    def refused(*given):
        raise PermissionError

    path = rows(*MIXED)
    open_(path)
    monkeypatch.setattr(os, "utime", refused)
    open_(path)
    assert len(scans) == 1


def test_nobody_else_may_read_a_record(open_, rows, folder):
    open_(rows(*MIXED))
    assert [stat.S_IMODE(file.stat().st_mode) for file in (folder, *folder.iterdir())] == [0o700, 0o600]


def test_where_files_beside_it_decide_they_are_looked_for_again(open_, rows, scans):
    path = rows({"text": "one", "depth": "map.png", "title": "St. Petersburg"}, {"text": "two"})
    assert [len(open_(path)) for _ in range(2)] == [2, 2]
    assert len(scans) == 1
    (path.parent / "map.png").write_bytes(b"a medium of a modality that nobody has installed")
    for _ in range(2):
        source = open_(path)
        assert (len(source), source.left_out) == (1, {"depth": 1})
    assert len(scans) == 2


def test_no_record_where_many_files_beside_it_decide(open_, rows, folder, monkeypatch):
    monkeypatch.setattr(request, "MOST_ASKED", 2)
    open_(rows(*({"text": "one", "depth": f"{n}.png"} for n in range(3))))
    assert not list(folder.glob("*"))


def test_small_files_and_an_empty_variable_leave_none(open_, rows, folder, monkeypatch):
    monkeypatch.setattr(scan_cache, "LEAST_BYTES", 8 << 20)
    open_(rows({"text": "one"}))
    monkeypatch.setattr(scan_cache, "LEAST_BYTES", 0)
    monkeypatch.setenv("KOSMOS_CACHE", "")
    open_(rows({"text": "one"}))
    assert not folder.exists()


def test_where_no_record_can_be_kept_it_is_done_without(open_, rows, tmp_path, scans):
    (tmp_path / "cache").write_text("a file, where a folder should be")
    path = rows({"text": "one"})
    assert texts(open_(path)) == texts(open_(path)) == [["one"]]
    assert len(scans) == 2


def test_the_home_of_records_is_the_folder_of_caches(open_, rows, tmp_path, monkeypatch):
    monkeypatch.delenv("KOSMOS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    open_(rows({"text": "one"}))
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    open_(rows({"text": "one"}))
    for folder in ("xdg/kosmos/scans", "home/.cache/kosmos/scans"):
        assert len(list((tmp_path / folder).iterdir())) == 1
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "relative")
    open_(rows({"text": "one"}))
    assert not (tmp_path / "relative").exists()


def test_the_records_that_were_not_used_for_longest_go_first(open_, rows, folder, monkeypatch, scans):
    first, second, third = (rows({"text": str(n)}, name=f"{n}.jsonl") for n in range(3))
    open_(first)
    [record] = folder.iterdir()
    monkeypatch.setattr(scan_cache, "MOST_BYTES", int(2.5 * record.stat().st_size))
    open_(second)
    for number, file in enumerate(sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)):
        os.utime(file, (number, number))
    open_(first)
    open_(third)
    assert len(list(folder.iterdir())) == 2
    scans.clear()
    open_(first)
    assert scans == []
    open_(second)
    assert scans == ["JsonlTable"]


def test_what_a_killed_process_left_behind_goes(open_, rows, folder):
    folder.mkdir(parents=True)
    old, new = folder / f".{'0a' * 20}.1.0000000a", folder / f".{'0b' * 20}.2.0000000b"
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (1, 1))
    open_(rows({"text": "one"}))
    assert new.exists()
    assert not old.exists()


def test_files_of_others_in_the_folder_are_left_alone(open_, rows, folder, monkeypatch):
    monkeypatch.setattr(scan_cache, "MOST_BYTES", 1)
    folder.mkdir(parents=True)
    mine = [folder / name for name in ("patient1.nii", ".gitignore", ".old.1.aa", "0a" * 19, f".{'0a' * 20}.mine")]
    for file in mine:
        file.write_bytes(bytes(100))
        os.utime(file, (1, 1))
    open_(rows({"text": "one"}))
    assert len(list(folder.iterdir())) == len(mine) + 1
    assert all(file.exists() for file in mine)


def test_a_source_of_which_no_row_can_be_used_says_so_each_time(open_, rows):
    path = rows(b"no row", b"none either")
    for _ in range(2):
        with pytest.raises(DataError, match=r"none of its 2 rows can be read; the first: .*rows.jsonl:1: not JSON"):
            open_(path)
