"""Files that are changed after their rows were found: nothing is read in the place of those rows."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import tarfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data import file_state, open_files
from kosmos.data.document import FileSpan, StoredMedia
from kosmos.errors import SampleError

SAID = "no row is here any more: the file was changed after its rows were found"


def tar_of(numbers):
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for number in numbers:
            for suffix, content in (("png", b"picture %d" % number), ("txt", b"text %d" % number)):
                member = tarfile.TarInfo(f"{number}.{suffix}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return written.getvalue()


def parquet_of(numbers):
    written = io.BytesIO()
    pq.write_table(pa.table({"text": [f"text {number}" for number in numbers]}), written, row_group_size=2)
    return written.getvalue()


FORMS = {
    "a.tar": tar_of,
    "a.parquet": parquet_of,
    "a.jsonl": lambda numbers: "".join(f'{{"text": "text {n}"}}\n' for n in numbers).encode(),
    "a.json": lambda numbers: json.dumps([{"text": f"text {n}"} for n in numbers]).encode(),
    "a.csv": lambda numbers: ("text\n" + "".join(f"text {n}\n" for n in numbers)).encode(),
    "a.txt": lambda numbers: "\n\n".join(f"text {n}" for n in numbers).encode(),
    "a.jsonl.gz": lambda numbers: gzip.compress(FORMS["a.jsonl"](numbers), mtime=0),
}


def later(path):
    """Its last change, so that no test hangs on how fine the clock of the file system is."""
    now = time.time_ns() + 10**9
    os.utime(path, ns=(now, now))
    time.sleep(2 * open_files.LOOK_S)


def overwrite(path, content):
    assert path.stat().st_size == len(content)
    with path.open("r+b") as file:
        file.write(content)
    later(path)


def replace(path, content):
    new = path.with_name("new")
    new.write_bytes(content)
    later(new)
    os.replace(new, path)


def assert_nothing_is_read(source):
    for index in range(len(source)):
        with pytest.raises(SampleError, match=SAID):
            source.document(index)


@pytest.mark.parametrize("name", [name for name in FORMS if name != "a.jsonl.gz"])
def test_rows_of_a_file_that_is_overwritten_are_bad(open_, tmp_path, kept, name):
    path, options = tmp_path / name, {"chunk_chars": 8} if name == "a.txt" else {}
    path.write_bytes(FORMS[name](range(8)))
    source = open_(path, options=options)
    kept.clear()
    overwrite(path, FORMS[name](reversed(range(8))))
    assert_nothing_is_read(source)
    assert open_(path, options=options).document(0).segments[-1].text.rstrip() == "text 7"


@pytest.mark.parametrize("name", FORMS)
def test_rows_of_a_file_that_is_replaced_are_bad_where_it_is_opened_anew(open_, tmp_path, kept, monkeypatch, name):
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / name
    path.write_bytes(FORMS[name](range(8)))
    source = pickle.loads(pickle.dumps(open_(path)))  # as a worker gets it
    kept.clear()
    open_files.forget_all()
    replace(path, FORMS[name](reversed(range(8))))
    assert_nothing_is_read(source)


def test_what_was_opened_before_its_file_was_replaced_stays_as_it_was(open_, tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of(range(3)))
    source = open_(path)
    assert source.document(0).segments[-1].text == "text 0"
    replace(path, tar_of(reversed(range(3))))
    assert [source.document(index).segments[-1].text for index in range(3)] == ["text 0", "text 1", "text 2"]


def test_a_medium_of_an_archive_that_was_changed_meanwhile_is_not_read(open_, tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of(range(2)))
    medium = open_(path).document(0).segments[0]
    assert isinstance(medium, StoredMedia) and medium.load().source == b"picture 0"
    overwrite(path, tar_of(reversed(range(2))))
    with pytest.raises(SampleError, match=SAID):
        medium.load()
    unchecked = FileSpan(medium.source.path, medium.source.begin, medium.source.nbytes)
    assert unchecked.read() == b"picture 1"


def test_modes_links_and_names_of_a_file_are_no_change_of_it(open_, tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of(range(3)))
    source = open_(path)
    path.chmod(0o400)
    Path(tmp_path / "linked").hardlink_to(path)
    copied = tmp_path / "copied"
    copied.write_bytes(path.read_bytes())
    os.utime(copied, ns=(0, path.stat().st_mtime_ns))
    os.replace(copied, path)  # of the same state, as a backup that is put back
    open_files.forget_all()
    assert source.document(2).segments[-1].text == "text 2"


def test_lines_that_are_added_change_nothing_and_texts_that_are_added_do(open_, tmp_path):
    for name in ("a.jsonl", "a.csv", "a.txt"):
        path = tmp_path / name
        path.write_bytes(FORMS[name](range(3)))
        source = open_(path)
        with path.open("ab") as file:
            file.write(FORMS["a.jsonl"]([9]) if name == "a.jsonl" else b"text 9\n")
        if name == "a.txt":
            assert_nothing_is_read(source)
        else:
            assert [source.document(index).segments[-1].text for index in range(3)] == ["text 0", "text 1", "text 2"]


def test_row_groups_that_are_kept_are_those_that_were_found(open_, tmp_path, kept):
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet_of(range(4)))
    source = open_(path)
    kept.clear()
    assert source.document(0).segments[-1].text == "text 0"
    replace(path, parquet_of(reversed(range(4))))
    assert source.document(1).segments[-1].text == "text 1"
    with pytest.raises(SampleError, match=SAID):
        source.document(2)
    assert open_(path).document(0).segments[-1].text == "text 3"


def test_rows_of_a_saved_data_set_that_is_overwritten_are_bad(open_, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(file_state, "LOOK_S", 0.0)
    for name, numbers in {"set": range(4), "new": reversed(range(4))}.items():
        datasets.Dataset.from_dict({"text": [f"text {n}" for n in numbers]}).save_to_disk(str(tmp_path / name))
    source, kept = open_(tmp_path / "set"), pickle.dumps(open_(tmp_path / "set"))
    assert source.document(0).segments[-1].text == "text 0"
    for new in (tmp_path / "new").glob("*.arrow"):
        overwrite(tmp_path / "set" / new.name, new.read_bytes())
    assert_nothing_is_read(source)
    assert_nothing_is_read(pickle.loads(kept))
    assert open_(tmp_path / "set").document(0).segments[-1].text == "text 3"
