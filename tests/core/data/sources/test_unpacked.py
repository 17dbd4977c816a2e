"""Compressed files of rows are read as those that they were made of, and are unpacked once."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import multiprocessing
import os
import shutil

import pyarrow as pa
import pytest

from kosmos.data import unpacked
from kosmos.data.sources.since import opened_before
from kosmos.errors import DataError, SampleError


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACKED = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd, ".zstd": zstd}
TEXTS = [f"line {number} of the file" for number in range(50)]
FORMS = {
    "rows.jsonl": "".join(json.dumps({"text": text}) + "\n" for text in TEXTS),
    "rows.ndjson": json.dumps({"text": TEXTS[0]}) + "\n",
    "rows.json": json.dumps([{"text": text} for text in TEXTS]),
    "rows.csv": "text\n" + "\n".join(TEXTS) + "\n",
    "rows.tsv": "id\ttext\n" + "".join(f"{number}\t{text}\n" for number, text in enumerate(TEXTS)),
    "rows.txt": "\n\n".join(TEXTS),
}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "unpacked"


def documents(source):
    return [source.document(index) for index in range(len(source))]


def in_place(found, of, to):
    """Documents as they are, but for the name of their file."""
    return [(document.origin.replace(of, to), document.segments) for document in found]


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("name", FORMS)
def test_compressed_rows_are_those_of_the_file_within(open_, tmp_path, name, suffix):
    (tmp_path / name).write_text(FORMS[name])
    plain = open_(tmp_path / name)
    packed = tmp_path / (name + suffix)
    packed.write_bytes(PACKED[suffix](FORMS[name].encode()))
    source = open_(packed)
    assert source.name == plain.name
    assert in_place(documents(source), packed.name, name) == in_place(documents(plain), name, name)
    assert packed.name in source.origin(0)


def test_two_files_that_were_compressed_and_joined_are_read_to_the_end(open_, tmp_path):
    for suffix in (".gz", ".bz2", ".xz", ".zst"):
        parts = [PACKED[suffix](json.dumps({"text": text}).encode() + b"\n") for text in TEXTS]
        (tmp_path / f"a.jsonl{suffix}").write_bytes(b"".join(parts))
        assert len(open_(tmp_path / f"a.jsonl{suffix}")) == len(TEXTS), suffix


def test_a_folder_of_compressed_files_has_the_splits_of_their_names(open_, tmp_path):
    (tmp_path / "set").mkdir()
    for part, rows in {"train-0": TEXTS[:30], "train-1": TEXTS[30:40], "test-0": TEXTS[40:]}.items():
        lines = "".join(json.dumps({"text": text}) + "\n" for text in rows)
        (tmp_path / "set" / f"{part}.json.gz").write_bytes(gzip.compress(lines.encode()))
    train, held_out = (open_(tmp_path / "set", split=split) for split in ("train", "held_out"))
    assert [document.segments[0].text for document in documents(train)] == TEXTS[:40]
    assert [document.segments[0].text for document in documents(held_out)] == TEXTS[40:]


def test_what_was_unpacked_by_hand_is_not_read_twice(open_, tmp_path, cache):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.jsonl").write_text(FORMS["rows.jsonl"])
    (tmp_path / "set" / "a.jsonl.gz").write_bytes(gzip.compress(FORMS["rows.jsonl"].encode()))
    source = open_(tmp_path / "set")
    assert len(source) == len(TEXTS)
    assert source.left_out == {".jsonl.gz": 1}
    assert not cache.exists()


def test_media_are_looked_for_beside_the_compressed_file(open_, tmp_path, rows):
    rows({"image": "a.png", "text": "x"})
    content = (tmp_path / "rows.jsonl").read_bytes()
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(content))
    (document,) = documents(open_(tmp_path / "rows.jsonl.gz"))
    assert document.segments[0].source == tmp_path / "a.png"


def test_a_file_is_unpacked_once_and_again_when_it_has_changed(open_, tmp_path, cache):
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"text": "first"}\n'))
    assert len(open_(packed)) == 1
    (first,) = cache.iterdir()
    state = first.stat()
    assert state.st_mode & 0o777 == 0o600
    assert len(open_(packed)) == 1
    assert [(file.name, file.stat().st_ino) for file in cache.iterdir()] == [(first.name, state.st_ino)]
    packed.write_bytes(gzip.compress(b'{"text": "first"}\n{"text": "second"}\n'))
    assert [document.segments[0].text for document in documents(open_(packed))] == ["first", "second"]
    assert len(list(cache.iterdir())) == 2  # a machine that shares the folder may still know the first
    for file in cache.iterdir():
        os.utime(file, (0, 0))
    packed.write_bytes(gzip.compress(b'{"text": "third"}\n'))
    assert len(open_(packed)) == 1
    assert len(list(cache.iterdir())) == 1


def test_what_a_killed_process_has_left_is_removed(open_, tmp_path, cache):
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(FORMS["rows.jsonl"].encode()))
    open_(packed)
    (whole,) = cache.iterdir()
    whole.rename(cache / f".{whole.stem}.1234.0123abcd")
    (cache / ".of-another-file.1234.0123abcd").write_bytes(b"x")
    open_(packed)
    assert sorted(file.name for file in cache.iterdir()) == [".of-another-file.1234.0123abcd", whole.name]


@pytest.mark.parametrize("at", ["a-file", "a-file/below"])
def test_a_folder_that_cannot_be_used_is_not_taken_for_the_data(open_, tmp_path, monkeypatch, at):
    (tmp_path / "a-file").write_bytes(b"")
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / at))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(FORMS["rows.jsonl"].encode()))
    with pytest.raises(DataError, match=r"where it is unpacked, cannot be written \(Not a directory\); name another"):
        open_(tmp_path / "a.jsonl.gz")


def test_rows_are_read_when_the_cache_was_deleted_meanwhile(open_, tmp_path, cache):
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(FORMS["rows.jsonl"].encode()))
    source = open_(packed)
    for file in cache.iterdir():
        file.unlink()
    with multiprocessing.get_context("fork").Pool(2) as pool:  # which have nothing open
        pieces = pool.map(source.document, range(len(TEXTS)))
    assert [document.segments[0].text for document in pieces] == TEXTS


DAMAGED = {
    "cut off": lambda suffix: PACKED[suffix](os.urandom(4_000) * 9)[:-9],
    "something else": lambda suffix: b"no such file at all, by its content",
}


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("how", DAMAGED)
def test_damaged_files_are_named_and_leave_nothing_behind(open_, tmp_path, cache, suffix, how):
    (tmp_path / f"a.jsonl{suffix}").write_bytes(DAMAGED[how](suffix))
    said = rf"a\.jsonl{suffix}: cannot be read \(it breaks off, is damaged, or is no {suffix} file \(.*\); copy it"
    with pytest.raises(DataError, match=said):
        open_(tmp_path / f"a.jsonl{suffix}")
    assert list(cache.iterdir()) == []


def test_without_room_or_a_cache_the_line_says_what_to_do(open_, tmp_path, cache, monkeypatch):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(FORMS["rows.jsonl"].encode()))
    monkeypatch.setattr(unpacked, "LEAST_FREE_BYTES", 1 << 60)
    with pytest.raises(DataError, match=r"unpacked, has .* GiB left; make room, or name another folder in"):
        open_(tmp_path / "a.jsonl.gz")
    assert list(cache.iterdir()) == []
    monkeypatch.setenv("KOSMOS_CACHE", "")
    with pytest.raises(DataError, match=r"a\.jsonl\.gz: cannot be read \(it is compressed, and .* into: \$KOSMOS_CA"):
        open_(tmp_path / "a.jsonl.gz")


def test_a_file_that_would_fill_the_disk_is_refused_but_to_a_run_that_was_begun_with_it(
    open_, tmp_path, cache, monkeypatch
):
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"text": "%s"}\n' % (b"x" * 100_000) * 20))
    assert len(open_(packed)) == 20  # small enough, whatever it was made of
    shutil.rmtree(cache)
    monkeypatch.setattr(unpacked, "LEAST_REFUSED_BYTES", 1 << 20)
    with pytest.raises(
        DataError, match=r"a.jsonl.gz: cannot be read \(unpacked it has over 0.0 GiB, more than 250 times"
    ):
        open_(packed)
    assert list(cache.iterdir()) == []
    with opened_before():
        unpacked.unpack_each([packed])
    assert len(open_(packed)) == 20


def test_a_row_whose_file_is_gone_is_a_bad_sample(open_, tmp_path, cache):
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(FORMS["rows.jsonl"].encode()))
    source = open_(packed)
    packed.unlink()
    with multiprocessing.get_context("fork").Pool(1) as pool, pytest.raises(SampleError, match="cannot be read"):
        pool.apply(source.document, (0,))


def test_who_waits_long_is_told_once(tmp_path, capsys, monkeypatch, cache):
    monkeypatch.setattr(unpacked, "TOLD_AFTER_S", 0.0)
    files = [tmp_path / name for name in ("\x1b[2J\n0.jsonl.xz", "1.jsonl.xz", "2.jsonl.xz")]
    for file in files:
        file.write_bytes(lzma.compress(os.urandom(1 << 20)))
    unpacked.unpack_each([*files, tmp_path / "plain.jsonl"])
    first = r"\x1b[2J\x0a0.jsonl.xz"
    line = f"unpacking 3 compressed files, such as {first}, into {cache}, once; the next start finds them there\n"
    assert capsys.readouterr().err == line
    assert len(list(cache.iterdir())) == 3


@pytest.mark.parametrize("left", [0, 500])
def test_a_copy_that_is_not_whole_is_not_taken_for_the_file(open_, tmp_path, cache, left):
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(FORMS["rows.jsonl"].encode()))
    assert len(open_(packed)) == len(TEXTS)
    (copy,) = cache.iterdir()
    os.truncate(copy, left)
    assert len(open_(packed)) == len(TEXTS)
    assert [file.stat().st_size for file in cache.iterdir()] == [len(FORMS["rows.jsonl"])]


def test_shards_that_are_named_by_their_split_behind_another_name_are_held_out(open_, tmp_path):
    (tmp_path / "set").mkdir()
    for part, rows in {"train.00000": TEXTS[:30], "train.00001": TEXTS[30:40], "validation.00000": TEXTS[40:]}.items():
        lines = "".join(json.dumps({"text": text}) + "\n" for text in rows)
        (tmp_path / "set" / f"c4-{part}-of-00002.json.gz").write_bytes(gzip.compress(lines.encode()))
    assert [d.segments[0].text for d in documents(open_(tmp_path / "set", split="held_out"))] == TEXTS[40:]


def test_a_compressed_file_of_nothing_is_told_of_as_an_empty_one(open_, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.jsonl.gz").write_bytes(gzip.compress(FORMS["rows.jsonl"].encode()))
    (tmp_path / "set" / "b.jsonl.gz").write_bytes(gzip.compress(b""))
    assert open_(tmp_path / "set").left_out == {"0 bytes": 1}
