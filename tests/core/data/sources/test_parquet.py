"""Parquet files."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data import sources
from kosmos.data.document import Text
from kosmos.data.mixture import Cursor, Mixture
from kosmos.data.sources import parquet, texts_of
from kosmos.errors import DataError, SampleError


@pytest.fixture
def table(tmp_path):
    """Write columns to a parquet file of row groups of 4."""

    def write(columns, name="part.parquet", features=None):
        data = pa.table(columns)
        if features:
            data = data.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(data, tmp_path / name, row_group_size=4)
        return tmp_path / name

    return write


def pictures(count, empty=()):
    return [None if i in empty else {"bytes": b"picture %d" % i, "path": None} for i in range(count)]


def test_rows_of_a_parquet_file(open_, table):
    path = table({"text": [f"t{i}" for i in range(10)], "image": pictures(10), "unused": [b"x" * 100] * 10})
    source = open_(path)
    assert len(source) == 10
    document = source.document(9)
    assert document.origin == f"{path}:row 9"
    assert (document.segments[0].source, document.segments[1]) == (b"picture 9", Text("t9", train=True))
    assert source.table.columns == ("text", "image")


def test_split_and_id_columns_are_honoured(open_, table):
    path = table({"text": ["a", "b", "c"], "split": ["train", "test", "train"]})
    assert list(texts_of(open_(path))) == ["a", "c"]
    assert list(texts_of(open_(path, split="held_out"))) == ["b"]


def test_rows_with_other_media_are_left_out_without_reading_the_media(open_, table):
    videos = pictures(12, empty={0, 1, 2, 3, 5})
    source = open_(table({"text": [f"t{i}" for i in range(12)], "video": videos}))
    assert source.left_out == {"video": 7}
    assert list(texts_of(source)) == ["t0", "t1", "t2", "t3", "t5"]


def test_media_that_are_paths_stay_inside_the_folder(open_, table, tmp_path):
    (tmp_path / "a.png").write_bytes(b"a")
    source = open_(table({"text": ["a", "b"], "image": ["a.png", "/etc/passwd"]}))
    assert source.document(0).segments[0].source == (tmp_path / "a.png").resolve()
    with pytest.raises(SampleError, match=r"part.parquet:row 1: image: /etc/passwd: absolute paths are refused"):
        source.document(1)


def test_class_numbers_become_names_and_image_columns_are_found_by_type(open_, table):
    features = {
        "picture": {"_type": "Image"},
        "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
        "tags": {"feature": {"names": ["big", "small"], "_type": "ClassLabel"}, "_type": "List"},
    }
    path = table({"picture": pictures(3), "label": [1, 0, -1], "tags": [[0, 1], [], [1]]}, features=features)
    source = open_(path, template="[image] The photo of the → {label}")
    assert [s.source if hasattr(s, "source") else s.text for s in source.document(0).segments] == [
        b"picture 0",
        "The photo of the",
        " dog",
    ]
    with pytest.raises(SampleError, match="row 2: label: expected text, got null"):
        source.document(2)
    assert open_(path, columns={"text": "tags"}).document(0).segments[1].text == "big, small"


def test_nested_columns(open_, table):
    path = table({"answers": [{"text": ["a", "b"]}], "question": ["q"]})
    assert open_(path, template="{question} → {answers.text[1]}").document(0).segments[1].text == " b"
    with pytest.raises(DataError, match=r"part.parquet: template: no column 'awnsers'; did you mean answers"):
        open_(path, template="{question} → {awnsers.text[1]}")


def test_segments_and_messages_columns(open_, table):
    chats = [[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]]
    assert len(open_(table({"messages": chats})).document(0).segments) == 6
    parts = [[{"image": {"bytes": b"x"}, "text": None}, {"image": None, "text": "caption"}]]
    assert [type(s).__name__ for s in open_(table({"segments": parts})).document(0).segments] == ["Media", "Text"]


def test_folder_of_parquet_files_takes_splits_from_their_names(open_, table, tmp_path):
    for part in ("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"):
        table({"text": [f"{part} {i}" for i in range(3)]}, name=f"set/data/{part}.parquet")
    assert len(open_(tmp_path / "set")) == 6
    held_out = open_(tmp_path / "set", split="held_out")
    assert held_out.document(0).origin.endswith("validation-00000-of-00001.parquet:row 0")


def test_broken_file_is_one_line(open_, tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no parquet")
    with pytest.raises(DataError, match=r"a.parquet: no readable parquet file") as caught:
        open_(tmp_path / "a.parquet")
    assert "\n" not in caught.value.line()


def test_pickled_source_holds_no_rows_and_reads_in_another_process(open_, table, tmp_path):
    path = table({"text": ["x" * 1000 for _ in range(64)], "image": pictures(64)})
    source = open_(path)
    source.document(3)
    pickled = pickle.dumps(source)
    assert len(pickled) < 8000
    (tmp_path / "source.pickle").write_bytes(pickled)
    program = (
        f"import pickle, sys; source = pickle.load(open({str(tmp_path / 'source.pickle')!r}, 'rb'))\n"
        "print(source.document(5).origin, 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == f"{path}:row 5 False\n"


def kept(source):
    return source.table.tables[0].kept._groups


def test_few_row_groups_of_all_files_together_are_kept(open_, table, monkeypatch):
    for part in "ab":
        path = table({"text": [f"{part}{i}" for i in range(20)]}, f"files/{part}.parquet")
    source = open_(path.parent)
    assert [source.document(i).segments[0].text for i in (0, 39, 13, 0, 26)] == ["a0", "b19", "a13", "a0", "b6"]
    assert len(kept(source)) == 4
    monkeypatch.setattr(parquet, "MOST_KEPT_BYTES", 1)
    assert [source.document(i).segments[0].text for i in (5, 39)] == ["a5", "b19"]
    assert len(kept(source)) == 2


@pytest.mark.parametrize("at_once_bytes", [1, 1 << 20])
def test_an_epoch_reads_each_row_group_about_once(open_, table, monkeypatch, at_once_bytes):
    monkeypatch.setattr(sources.source, "AT_ONCE_BYTES", at_once_bytes)
    monkeypatch.setattr(parquet, "MOST_KEPT_BYTES", 1 if at_once_bytes == 1 else 1 << 20)
    for part in range(3):
        path = table({"text": [f"{part} {i}" for i in range(40)]}, f"files/{part}.parquet")
    source = open_(path.parent)
    read, reads = pq.ParquetFile.read_row_group, []
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", lambda self, n, **k: reads.append(n) or read(self, n, **k))
    mixture = Mixture((source,), (1.0,), True, 0, num_lanes=2)
    lanes = [Cursor(mixture, lane) for lane in range(2)]
    drawn = [mixture.row(*lane.next()) for _ in range(60) for lane in lanes]
    assert sorted(drawn) == list(range(120))
    assert drawn != sorted(drawn)
    for row in drawn:
        assert source.document(row).segments[0].text == f"{row // 40} {row % 40}"
    assert 30 <= len(reads) <= 31  # each of 30 groups, and one that both lanes draw from


def test_documents_are_shuffled_among_several_row_groups(open_, table):
    source = open_(table({"text": [f"t{i}" for i in range(400)]}))
    order = [Mixture((source,), (1.0,), True, 0).row(0, draw) for draw in range(400)]
    assert len({row // 4 for row in order[:20]}) > 10


def test_blocks_are_those_of_the_rows_that_a_split_keeps(open_, table):
    path = table({"text": list("abcdefghij"), "split": ["train"] * 4 + ["test"] * 4 + ["train"] * 2})
    assert open_(path).blocks().of.tolist() == [0, 0, 0, 0, 2, 2]
    assert open_(path, split="held_out").blocks().of.tolist() == [1, 1, 1, 1]
