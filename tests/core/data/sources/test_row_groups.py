"""Row groups: what they take of memory, and what is refused before it is taken."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data.free_memory import Memory
from kosmos.data.sources import arrow, parquet, row_groups
from kosmos.data.sources.layouts import DefaultLayout
from kosmos.errors import DataError, SampleError
from support.parquet_rows import pictures


def test_a_lack_of_memory_is_no_bad_row(open_, table, monkeypatch):
    def read(*_, **__):
        raise MemoryError

    source = open_(table({"text": ["a", "b"]}))
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", read)
    for look in (lambda: source.document(0), lambda: list(source.table.scan(source.layout))):
        with pytest.raises(
            DataError, match=r"part\.parquet: row group 0 of 0 MiB has no room in memory; write"
        ) as caught:
            look()
        assert not isinstance(caught.value, SampleError)


def test_a_small_file_of_which_a_dictionary_makes_gigabytes_takes_little_memory(tmp_path):
    path = tmp_path / "part.parquet"
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["a" * 1_000_000]))
    pq.write_table(
        pa.table({"text": repeated}).replace_schema_metadata(None), path, compression="zstd", store_schema=False
    )
    assert path.stat().st_size < 1000
    program = (
        "import re, sys\nfrom pathlib import Path\nfrom kosmos.data.sources.parquet import ParquetTable\n"
        "table = ParquetTable(Path(sys.argv[1]))\nassert table.row(3999) == {'text': 'a' * 1_000_000}\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    run = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    # KiB, measured 92,000, and 6,000,000 as texts. What getrusage tells of a child holds what its parent took.
    assert int(run.stdout) < 500_000


def test_a_dictionary_that_stays_one_gives_the_rows_of_texts(tmp_path, kept, monkeypatch):
    texts = ["same"] * 5 + [None, "", "other"]
    columns = {
        "text": texts,
        "image": pictures(8, empty=(2,)),
        "raw": [b"bytes"] * 8,
        "view": pa.array(texts, pa.string_view()),
        "messages": [
            [{"role": "user", "content": text or "hi"}, {"role": "assistant", "content": "ja"}] for text in texts
        ],
    }
    pq.write_table(pa.table(columns), tmp_path / "part.parquet", row_group_size=4)
    table = parquet.ParquetTable(tmp_path / "part.parquet")
    expected = [table.row(index) for index in range(8)], list(table.scan(DefaultLayout(("image",))))
    for most_whole in (row_groups.MOST_WHOLE_BYTES, 0):
        kept.clear()
        monkeypatch.setattr(row_groups, "SMALL_BYTES", 0)
        monkeypatch.setattr(row_groups, "MOST_WHOLE_BYTES", most_whole)
        monkeypatch.setattr(arrow, "MOST_WHOLE_BYTES", most_whole)
        assert ([table.row(index) for index in range(8)], list(table.scan(DefaultLayout(("image",))))) == expected
        (group, *_) = kept.values()
        assert pa.types.is_dictionary(group.table.schema.field("text").type) == (most_whole == 0)


def test_texts_that_are_too_large_by_what_the_file_states_are_not_read(open_, table, monkeypatch):
    source = open_(table({"text": ["a" * 2000] * 4}))
    monkeypatch.setattr(row_groups, "MOST_MEAN_BYTES", 100)
    monkeypatch.delattr(pq.ParquetFile, "read_row_group")
    with pytest.raises(SampleError, match=r"row 0: text: texts of [0-9,]+ bytes on average, over the limit of 100"):
        source.document(0)


def test_a_row_group_larger_than_the_free_memory_is_refused_by_name(open_, table, monkeypatch):
    source = open_(table({"text": ["a" * 2000] * 4}))
    monkeypatch.setattr(row_groups, "SMALL_BYTES", 1)
    monkeypatch.setattr(row_groups, "memory", lambda: Memory(1000, 1000))
    with pytest.raises(
        DataError, match=r"part\.parquet: row group 0 of 0 MiB has no room in memory; write smaller row"
    ):
        source.document(0)


def test_what_no_dictionary_has_room_for_is_read_as_it_is(table, kept, monkeypatch):
    """A dictionary holds 2 GiB, which would be too much for a test: pyarrow says so of any here."""

    class Full(pq.ParquetFile):
        def __init__(self, *arguments, read_dictionary=None, **more):
            super().__init__(*arguments, read_dictionary=read_dictionary, **more)
            self.is_coded = bool(read_dictionary)

        def read_row_group(self, *arguments, **more):
            if self.is_coded:
                asked.append(arguments)
                raise pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")
            return super().read_row_group(*arguments, **more)

    asked = []
    monkeypatch.setattr(pq, "ParquetFile", Full)
    monkeypatch.setattr(row_groups, "SMALL_BYTES", 0)
    assert parquet.ParquetTable(table({"text": ["same"] * 3 + ["other"]})).row(3) == {"text": "other"}
    assert asked
