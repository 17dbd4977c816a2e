"""Parquet files."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos import make_run
from kosmos.data import sources
from kosmos.data.document import Text
from kosmos.data.mixture import Cursor, Mixture
from kosmos.data.sources import parquet, texts_of
from kosmos.data.sources.joined import JoinedTable
from kosmos.data.sources.layouts import DefaultLayout
from kosmos.data.sources.renamed import Renamed
from kosmos.errors import CheckpointError, DataError, SampleError
from kosmos.train.order import check_same_order, sample_order
from support.parquet_rows import pictures


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
    with pytest.raises(
        SampleError, match=r"part.parquet:row 1: image: /etc/passwd: absolute paths out of .* are refused"
    ):
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


YEAR_10000_S = 253402300800
NOT_UTF8 = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
BAD_VALUES = {
    "id": NOT_UTF8,
    "split": pa.array([0, YEAR_10000_S, None]).view(pa.timestamp("s")),
    "messages": NOT_UTF8,
    "segments": pa.array([[0], [YEAR_10000_S], []], pa.list_(pa.timestamp("s"))),
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_value_that_cannot_be_read_costs_its_row_alone(tmp_path, name):
    columns = pa.table({"text": ["one", "two", "three"], name: BAD_VALUES[name]})
    pq.write_table(columns, tmp_path / "part.parquet")
    rows = parquet.ParquetTable(tmp_path / "part.parquet").scan(DefaultLayout(()))
    assert [isinstance(row, SampleError) for row in rows] == [False, True, False]


def test_rows_beside_one_that_cannot_be_read_are_documents(open_, tmp_path):
    path = tmp_path / "part.parquet"
    pq.write_table(pa.table({"text": ["one", "two", "three"], "id": NOT_UTF8}), path)
    source = open_(path)
    assert list(texts_of(source)) == ["one", "three"]
    with pytest.raises(SampleError, match=r"part.parquet:row 1: column 'id' cannot be read \(UnicodeDecodeError: "):
        source.document(1)


def test_two_columns_of_one_name_are_refused_where_they_are_used(open_, tmp_path):
    columns = [pa.array(["a", "b"]), pa.array(["c", "d"]), pa.array(["e", "f"])]
    path = tmp_path / "part.parquet"
    pq.write_table(pa.Table.from_arrays(columns, ["text", "note", "note"]), path)
    assert list(texts_of(open_(path))) == ["a", "b"]
    pq.write_table(pa.Table.from_arrays(columns, ["text", "split", "split"]), path)
    with pytest.raises(DataError, match=r"part.parquet: more than one column is called 'split'; rename all but one"):
        open_(path)


def test_a_split_of_class_numbers_is_read_by_its_names(open_, table):
    features = {"split": {"names": ["train", "test"], "_type": "ClassLabel"}}
    path = table({"text": ["a", "b", "c", "d"], "split": [0, 1, 0, -1]}, features=features)
    assert list(texts_of(open_(path))) == ["a", "c", "d"]
    assert list(texts_of(open_(path, split="held_out"))) == ["b"]


NO_MEDIA = {
    "structs of nulls": pa.array([{"bytes": b"p", "path": None}, {"bytes": None, "path": None}, None]),
    "empty lists": pa.array([["a.png"], [], None]),
    "lists of nulls": pa.array([["a.png"], [None], None]),
    "lists of structs": pa.array([[{"bytes": b"p", "path": None}], [{"bytes": None, "path": None}], []]),
}


@pytest.mark.parametrize("kind", NO_MEDIA)
def test_opening_and_reading_agree_on_what_is_no_medium(open_, tmp_path, kind):
    (tmp_path / "a.png").write_bytes(b"picture")
    pq.write_table(pa.table({"text": list("abc"), "image": NO_MEDIA[kind]}), tmp_path / "part.parquet")
    without = open_(tmp_path / "part.parquet", modalities=())
    assert (list(texts_of(without)), without.left_out) == (["b", "c"], {"image": 1})
    with_pictures = open_(tmp_path / "part.parquet")
    assert [len(list(with_pictures.document(i).media)) for i in range(3)] == [1, 0, 0]
    asked = open_(tmp_path / "part.parquet", template="[image] → {text}")
    with pytest.raises(SampleError, match="row 1: image: holds no image"):
        asked.document(1)


def test_a_segment_whose_medium_is_a_struct_of_nulls_is_text(open_, table):
    nothing = {"bytes": None, "path": None}
    parts = [{"image": {"bytes": b"x", "path": None}, "text": None}, {"image": nothing, "text": "caption"}]
    assert open_(table({"segments": [parts]})).document(0).segments[1] == Text("caption", train=True)


def test_what_is_missing_from_a_column_of_numbers_is_no_text(open_, table):
    source = open_(table({"question": ["one", "two"], "answer": [1.0, math.nan]}), template="{question} → {answer}")
    assert source.document(0).segments[-1] == Text(" 1.0", train=True)
    with pytest.raises(SampleError, match="row 1: answer: expected text, got NaN"):
        source.document(1)


def test_chats_take_their_media_from_columns_in_the_plural(open_, table):
    chat = [{"role": "user", "content": "<image>\nWhat?"}, {"role": "assistant", "content": "A cat."}]
    columns = {"chat": [chat] * 3, "images": [[{"bytes": b"x", "path": None}], [], None]}
    source = open_(table(columns), columns={"messages": "chat"})
    assert [m.source for m in source.document(0).media] == [b"x"]
    for missing in (1, 2):
        with pytest.raises(SampleError, match=r"chat\[0\]: image part holds no medium, and the row has none"):
            source.document(missing)
    assert open_(table(columns), columns={"messages": "chat"}, modalities=()).left_out == {"image": 1}


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


def test_few_row_groups_of_all_files_together_are_kept(open_, table, kept, monkeypatch):
    for part in "ab":
        path = table({"text": [f"{part}{i}" for i in range(20)]}, f"files/{part}.parquet")
    other = open_(table({"text": ["o"] * 8}))
    source = open_(path.parent)
    assert [source.document(i).segments[0].text for i in (0, 39, 13, 0, 26)] == ["a0", "b19", "a13", "a0", "b6"]
    assert other.document(7).segments[0].text == "o"
    assert len(kept) == 5
    monkeypatch.setattr(parquet, "MOST_KEPT_BYTES", 1)
    assert [source.document(i).segments[0].text for i in (5, 39)] == ["a5", "b19"]
    assert len(kept) == 2


@pytest.mark.parametrize(("left_free", "reads_again"), [(0.0, False), (1.0, True)])
def test_more_row_groups_are_kept_where_sources_and_lanes_need_them_and_memory_is_free(
    open_, table, kept, monkeypatch, left_free, reads_again
):
    opened = [open_(table({"text": [f"{part} {i}" for i in range(80)]}, f"{part}.parquet")) for part in range(6)]
    group = opened[0].table.row_blocks().nbytes.max()
    monkeypatch.setattr(sources.source, "AT_ONCE_BYTES", group)
    monkeypatch.setattr(parquet, "MOST_KEPT_BYTES", 2 * group)
    monkeypatch.setattr(parquet, "SURE_BYTES", 4 * group)  # of the 12 that two lanes draw from
    monkeypatch.setattr(parquet, "LEFT_FREE", left_free)
    read, reads = pq.ParquetFile.read_row_group, []
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", lambda self, n, **k: reads.append(n) or read(self, n, **k))
    mixture = Mixture(tuple(opened), (1.0,) * 6, True, 0, num_lanes=2)
    cursors = [Cursor(mixture, lane) for lane in range(2)]
    for _ in range(40 * 6):
        for cursor in cursors:
            source, draw = cursor.next()
            row = mixture.row(source, draw)
            assert opened[source].document(row).segments[0].text == f"{source} {row}"
    assert (len(reads) > 2 * 120) == reads_again  # of 120 groups


def test_a_file_that_is_written_anew_is_read_anew(open_, table):
    path = table({"text": ["old"] * 4})
    assert open_(path).document(0).segments[0].text == "old"
    later = path.stat().st_mtime_ns + 10**9
    os.utime(table({"text": ["new"] * 4}), ns=(later, later))
    assert open_(path).document(0).segments[0].text == "new"


def test_a_footer_is_parsed_once_while_its_file_stays(open_, table, kept, monkeypatch):
    first, second = (open_(table({"text": [f"{part}{i}" for i in range(20)]}, f"{part}.parquet")) for part in "ab")
    monkeypatch.setattr(parquet, "FOOTERS", parquet.KeptFooters())
    monkeypatch.setattr(parquet, "MOST_KEPT_BYTES", 1)
    opened, parsed = pq.ParquetFile.__init__, []

    def noted(self, path, metadata=None, **more):
        parsed.extend([path.name] * (metadata is None))
        opened(self, path, metadata=metadata, **more)

    monkeypatch.setattr(pq.ParquetFile, "__init__", noted)
    for index in (0, 19, 7, 12, 0):
        assert [s.document(index).segments[0].text for s in (first, second)] == [f"a{index}", f"b{index}"]
    assert parsed == ["a.parquet", "b.parquet"]
    monkeypatch.setattr(parquet, "MOST_FOOTER_BYTES", 1)  # one, however large, is kept
    assert [s.document(5).segments[0].text for s in (first, first, second)] == ["a5", "a5", "b5"]
    assert len(parquet.FOOTERS.footers) == 2
    os.utime(first.table.path, ns=(0, 0))
    with pytest.raises(SampleError, match="the file was changed"):
        first.document(13)
    again = open_(first.table.path)
    parsed.clear()
    assert again.document(13).segments[0].text == "a13"
    assert (parsed, len(parquet.FOOTERS.footers)) == (["a.parquet"], 1)


@pytest.mark.parametrize(("at_once", "lanes"), [(1, 1), (1, 2), (3, 4), (1000, 3)])
def test_an_epoch_reads_each_row_group_about_once(open_, table, kept, monkeypatch, at_once, lanes):
    for part in range(3):
        path = table({"text": [f"{part} {i}" for i in range(40)]}, f"files/{part}.parquet")
    source = open_(path.parent)
    monkeypatch.setattr(sources.source, "AT_ONCE_BYTES", at_once * source.table.row_blocks().nbytes.mean())
    monkeypatch.setattr(parquet, "LEAST_KEPT", at_once * lanes)
    monkeypatch.setattr(parquet, "MOST_KEPT_BYTES", 1)
    read, reads = pq.ParquetFile.read_row_group, []
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", lambda self, n, **k: reads.append(n) or read(self, n, **k))
    mixture = Mixture((source,), (1.0,), True, 0, num_lanes=lanes)
    cursors = [Cursor(mixture, lane) for lane in range(lanes)]
    drawn = [mixture.row(*cursor.next()) for _ in range(120 // lanes) for cursor in cursors]
    assert sorted(drawn) == list(range(120))
    assert drawn != sorted(drawn)
    for row in drawn:
        assert source.document(row).segments[0].text == f"{row // 40} {row % 40}"
    assert 30 <= len(reads) < 30 + lanes  # each of 30 groups, and again where two lanes share one


def test_names_with_dots_and_nested_columns_have_their_sizes(open_, table):
    nested = [{"bytes": b"p" * 900 + b"%d" % i, "path": None} for i in range(8)]
    path = table({"meta.text": [f"{i}" * 50 for i in range(8)], "image": nested, "unused": ["u" * 999] * 8})
    source = open_(path, columns={"text": "meta.text"})
    nbytes = source.table.row_blocks().nbytes
    assert nbytes.shape == (2,)
    assert (nbytes > 4 * 950).all()
    assert (nbytes < 6500).all()  # without the column that is not used


def test_documents_are_shuffled_among_several_row_groups(open_, table):
    source = open_(table({"text": [f"t{i}" for i in range(400)]}))
    order = [Mixture((source,), (1.0,), True, 0).row(0, draw) for draw in range(400)]
    assert len({row // 4 for row in order[:20]}) > 10


def test_blocks_are_those_of_the_rows_that_a_split_keeps(open_, table):
    path = table({"text": list("abcdefghij"), "split": ["train"] * 4 + ["test"] * 4 + ["train"] * 2})
    assert open_(path).blocks().of.tolist() == [0, 0, 0, 0, 2, 2]
    assert open_(path, split="held_out").blocks().of.tolist() == [1, 1, 1, 1]


def test_a_run_goes_on_only_among_the_same_row_groups(open_, table):
    config = make_run({})
    path = table({"text": list("abcdefgh")})
    before = sample_order(config, [open_(path)])
    assert sample_order(config, [open_(path)]) == before
    pq.write_table(pq.read_table(path), path, row_group_size=2)
    with pytest.raises(CheckpointError, match=r"was made with data.sources.0.blocks '\w+', the run now has '\w+'"):
        check_same_order(before, sample_order(config, [open_(path)]), path)


def test_a_source_under_another_name_keeps_its_blocks(open_, table):
    source = open_(table({"text": list("abcdefgh")}))
    assert Renamed("other", source).blocks().of.tolist() == [0] * 4 + [1] * 4


def test_tables_of_which_one_has_no_blocks_have_none(open_, table, rows):
    blocked, plain = open_(table({"text": ["a"]})).table, open_(rows({"text": "b"})).table
    assert JoinedTable([blocked, blocked]).row_blocks().ends.tolist() == [1, 2]
    assert JoinedTable([blocked, plain]).row_blocks() is None


@pytest.mark.parametrize("rooted", [False, True])
def test_a_column_that_is_not_learned_from_is_read_for_who_asks_for_it(open_, table, tmp_path, rooted):
    for part in ("train", "test"):
        table({"text": ["a", "b"], "hidden": [1, 2]}, f"parts/{part}.parquet")
    datasets.Dataset.from_dict({"text": ["a", "b"], "hidden": [1, 2]}).save_to_disk(tmp_path / "saved")
    for path in ("parts/train.parquet", "parts", "saved"):
        source = open_(tmp_path / path, **({"root": tmp_path} if rooted else {}))
        assert [source.value(index, "hidden") for index in (0, 1)] == [1, 2]
        with pytest.raises(SampleError, match="no column 'hiden'; did you mean hidden"):
            source.value(0, "hiden")
