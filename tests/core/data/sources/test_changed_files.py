"""Archives and parquet files that are written anew while they are read: no row is taken for another."""

from __future__ import annotations

import io
import os
import pickle
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.errors import SampleError

TEXTS = [f"text {n}" for n in range(12)]


def pack(path, names, *, form=tarfile.PAX_FORMAT):
    with tarfile.open(path, "w", format=form) as archive:
        for name in names:
            content = f"text of {name}".encode()
            entry = tarfile.TarInfo(f"{name}.txt")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def told(source):
    """What is said of each document that cannot be read."""
    said = []
    for n in range(len(source)):
        with pytest.raises(SampleError) as refused:
            source.document(n)
        said.append(str(refused.value))
    return said


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("folder", ["", "x" * 70 + "/" + "y" * 40 + "/"])
@pytest.mark.parametrize("in_place", [True, False])
def test_samples_of_an_archive_in_another_order_are_not_taken_for_those_that_were_there(
    open_, tmp_path, form, folder, in_place
):
    names = [f"{folder}a{n}" for n in range(1, 6)]  # of an odd number the one in the middle would stay
    path = pack(tmp_path / "set.tar", [*names, f"{folder}a6"], form=form)
    source = pickle.loads(pickle.dumps(open_(path)))  # a worker's, which has not read anything
    assert source.document(0).segments[-1].text == f"text of {names[0]}"
    new = pack(tmp_path / "new.tar", [f"{folder}a{n}" for n in range(6, 0, -1)], form=form)
    if in_place:
        path.write_bytes(new.read_bytes())
    else:
        os.replace(new, path)
        source = pickle.loads(pickle.dumps(open_(path)))
        assert source.document(0).segments[-1].text == f"text of {folder}a6"
        return
    assert all("the file was changed after its rows were found" in line for line in told(source))


def test_an_archive_that_is_copied_over_itself_is_read_on(open_, tmp_path):
    path = pack(tmp_path / "set.tar", ["a", "b"])
    source = open_(path)
    path.write_bytes(path.read_bytes())
    os.utime(path, (1, 1))
    assert [source.document(n).segments[-1].text for n in range(2)] == ["text of a", "text of b"]


def test_links_in_an_archive_are_read_as_what_they_lead_to(open_, tmp_path):
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        first, link = tarfile.TarInfo("a.txt"), tarfile.TarInfo("b.txt")
        first.size, link.type, link.linkname = 4, tarfile.LNKTYPE, "a.txt"
        archive.addfile(first, io.BytesIO(b"text"))
        archive.addfile(link)
    source = open_(tmp_path / "set.tar")
    assert [source.document(n).segments[-1].text for n in range(2)] == ["text", "text"]


@pytest.mark.parametrize("size", [2, 3, 12])
def test_row_groups_of_another_file_are_not_taken_for_those_that_were_there(open_, tmp_path, size):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": TEXTS}), path, row_group_size=3)
    source = open_(path)
    pq.write_table(pa.table({"text": [f"another {text}" for text in TEXTS]}), tmp_path / "new", row_group_size=size)
    os.replace(tmp_path / "new", path)
    assert all("the file was changed after its rows were found" in line for line in told(source))


def test_the_same_parquet_file_is_read_on(open_, tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": TEXTS}), path, row_group_size=3)
    source = open_(path)
    path.write_bytes(path.read_bytes())
    os.utime(path, (1, 1))
    assert [source.document(n).segments[-1].text for n in range(12)] == TEXTS
