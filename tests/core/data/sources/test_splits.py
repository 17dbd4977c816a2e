"""Which rows are held out."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kosmos import make_run, open_sources
from kosmos.data.sources.groups import Groups
from kosmos.data.sources.splits import (
    MAX_HELD_OUT,
    held_out_rows,
    num_held_out,
    of_folders,
    row_hash,
    split_of,
)
from kosmos.errors import DataError
from kosmos.plugins import load_core


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (["train", "held_out", None], ["train", "held_out", None]),
        (["train", "held_out"], ["train", "held_out"]),
        (["held_out", "held_out"], ["held_out", "held_out"]),
        (["held_out", None], [None, None]),  # a class of that name
        (["train", None], [None, None]),
        ([], []),
    ],
)
def test_names_of_folders_are_splits_where_they_say_so_of_all_or_of_both(said, meant):
    assert of_folders(said) == meant


@given(st.integers(0, 20_000), st.floats(0.001, 0.99))
def test_number_held_out(rows, share):
    count = num_held_out(rows, share)
    assert 0 <= count <= MAX_HELD_OUT
    assert count == 0 if rows < 2 else 1 <= count < rows
    if 1 <= round(rows * share) <= min(MAX_HELD_OUT, rows - 1):
        assert count == round(rows * share)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=200), st.floats(0.01, 0.9))
def test_rows_with_the_smallest_hashes_are_held_out(hashes, share):
    array = np.array(hashes, np.uint64)
    held = held_out_rows(array, share)
    assert held.sum() == num_held_out(len(hashes), share)
    if held.any():
        assert array[held].max() <= array[~held].min()


@given(st.lists(st.integers(0, 5), max_size=60), st.floats(0, 0.9))
def test_of_equal_hashes_the_first_are_held_out(hashes, share):
    order = sorted(range(len(hashes)), key=lambda row: (hashes[row], row))
    held = held_out_rows(np.array(hashes, np.uint64), share)
    assert np.flatnonzero(held).tolist() == sorted(order[: num_held_out(len(hashes), share)])


@given(st.lists(st.integers(0, 9), max_size=60), st.floats(0, 0.9))
@example([0] + [1] * 99, 0.05)
@example([0] * 99 + [1], 0.05)
@example([0, 0] + [1] * 90 + [2] * 8, 0.05)
def test_rows_of_one_group_are_held_out_together(hashes, share):
    array, sizes = np.array(hashes, np.uint64), Counter(hashes)
    held = held_out_rows(array, share, together=True)
    chosen = {*array[held].tolist()}
    assert not chosen & {*array[~held].tolist()}
    wanted = num_held_out(len(hashes), share)
    assert bool(chosen) == (len(sizes) > 1 and wanted > 0)
    if chosen:  # no more than is wanted, or the smallest that there is
        assert held.sum() <= wanted or (len(chosen) == 1 and held.sum() == min(sizes.values()))


@pytest.mark.parametrize(
    ("values", "number"),
    [(["a", "a", None, "", float("nan")], 4), ([1, 1.0, "1", 2], 2), ([{"a": 1, "b": 2}, {"b": 2, "a": 1}, [1]], 2)],
)
def test_a_row_that_names_no_group_is_one_by_itself(values, number):
    table = [{"text": "x", "of": value} for value in values]
    groups = Groups("of", len(table))
    hashes = [groups.hash(row, index) for index, row in enumerate(table)]
    assert len({hash for hash in hashes if hash is not None}) + hashes.count(None) == number
    assert Groups("of", 1).hash({"text": "x"}, 0) is None
    assert Groups("of.film", 1).hash({"of": {"film": 3}}, 0) == Groups("of", 1).hash({"of": "3"}, 0)


FORMS = {
    "jsonl": {"columns": {"group": "film"}},
    "parquet": {"columns": {"group": "film"}},
    "csv": {"columns": {"group": "film"}},
    "template": {"columns": {"group": "film"}, "template": "{text} → {answer}"},
    "parquet, template": {"columns": {"group": "film"}, "template": "{text} → {answer}"},
}


@pytest.mark.parametrize("form", FORMS)
def test_pieces_of_one_film_do_not_fall_on_both_sides(tmp_path, form):
    rows = [{"text": f"piece {n}", "answer": "yes", "film": f"film {n // 4}", "other": n} for n in range(80)]
    file = tmp_path / f"rows.{'jsonl' if form == 'template' else form.partition(',')[0]}"
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif form == "csv":
        file.write_text("".join(",".join(map(str, line)) + "\n" for line in ([*rows[0]], *(r.values() for r in rows))))
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    chosen = FORMS[form]

    def films(split, **entry):
        config = make_run({"modalities": [], "data": {"sources": [{"path": str(file), **entry}], "held_out": 0.1}})
        (source,) = open_sources(config, load_core(), split)
        said = (source.document(index).segments[0].text for index in range(len(source)))
        return Counter(int(text.split()[1]) // 4 for text in said)

    trained, held = films("train", **chosen), films("held_out", **chosen)
    assert {*trained.values(), *held.values()} == {4} and not trained.keys() & held.keys()
    assert 8 <= held.total() < 12 and trained.total() + held.total() == 80
    alone = {name: value for name, value in chosen.items() if name != "columns"}
    assert films("train", **alone).keys() & films("held_out", **alone).keys()  # which is what it is for
    with pytest.raises(DataError, match=r"columns\.group: no column 'fim'; did you mean film"):
        films("train", **alone, columns={"group": "fim"})


def test_a_group_that_costs_the_media_to_read_is_refused(tmp_path):
    rows = [{"text": f"piece {n}", "film": {"bytes": b"x" * 9, "path": f"{n // 4}.mp4"}} for n in range(40)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    for path in ("film", "film.path"):
        entry = {"path": str(tmp_path / "rows.parquet"), "columns": {"group": path}}
        config = make_run({"modalities": [], "data": {"sources": [entry]}})
        with pytest.raises(DataError, match=r"columns\.group: 'film' holds objects, lists or bytes, all of which"):
            open_sources(config, load_core(), "train")


def test_a_group_gives_its_column_no_meaning(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "x", "audio_path": "a.wav"}\n' * 4)
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    for columns in ({}, {"group": "audio_path"}):
        entry = {"path": str(tmp_path / "rows.jsonl"), "columns": columns}
        config = make_run({"modalities": [], "data": {"sources": [entry]}})
        with pytest.raises(DataError, match="no row is left"):
            open_sources(config, load_core(), "train")


def test_of_one_group_alone_nothing_can_be_held_out(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "x", "film": 1}\n' * 9)
    entry = {"path": str(tmp_path / "rows.jsonl"), "columns": {"group": "film"}}
    config = make_run({"modalities": [], "data": {"sources": [entry]}})
    with pytest.raises(
        DataError, match=r"columns\.group: all rows are of one group, of which none could be trained on"
    ):
        open_sources(config, load_core(), "train")


def test_hash_is_blake2b():
    assert row_hash("row 7") == int.from_bytes(blake2b(b"row 7", digest_size=8).digest(), "big")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("train", "train"),
        ("Training", "train"),
        ("train.clean.100", "train"),
        ("train-00000-of-00002", "train"),
        ("train_r1", "train"),
        ("test", "held_out"),
        ("validation", "held_out"),
        ("val", "held_out"),
        ("dev_seen", "held_out"),
        ("eval", "held_out"),
        ("held_out", "held_out"),
        ("held-out", "held_out"),
        ("testA", "held_out"),
        ("val2014", "held_out"),
        ("trainer", None),
        ("valley", None),
        ("restval", None),
        (3, None),
    ],
)
def test_names_of_splits(name, part):
    assert split_of(name) == part


def both(open_, path, **given):
    parts = [open_(path, split=split, **({"held_out": 0.1} | given)) for split in ("train", "held_out")]
    return [{part.document(i).segments[-1].text for i in range(len(part))} for part in parts]


def test_parts_are_disjoint_and_together_everything(open_, rows):
    path = rows(*({"text": f"t{i}"} for i in range(60)))
    train, held_out = both(open_, path)
    assert len(held_out) == 6
    assert not train & held_out
    assert train | held_out == {f"t{i}" for i in range(60)}
    assert both(open_, path) == [train, held_out]


def test_rows_with_ids_stay_held_out_when_their_order_changes(open_, rows):
    lines = [{"id": f"r{i}", "text": f"t{i}"} for i in range(40)]
    first = both(open_, rows(*lines))
    assert both(open_, rows(*reversed(lines))) == first


def test_split_of_train_alone_is_no_split(open_, rows):
    train, held_out = both(open_, rows(*({"text": f"t{i}", "split": "train"} for i in range(20))))
    assert (len(train), len(held_out)) == (18, 2)


def test_rows_that_say_nothing_beside_others_are_trained_on(open_, rows):
    nothing = [{"text": text, "split": said} for text, said in (("c", None), ("d", ""), ("e", " "))]
    train, held_out = both(open_, rows({"text": "a"}, {"text": "b", "split": "test"}, *nothing))
    assert (train, held_out) == ({"a", "c", "d", "e"}, {"b"})


@pytest.mark.parametrize(
    ("said", "told"),
    [(["x", "x"], r"'x' \(2 rows have it\)"), (["x", "", "y"], r"'x' \(2 rows have such a one: x, y\)")],
)
def test_rows_of_unknown_splits_are_counted_and_can_be_held_out_by_them(open_, rows, said, told):
    path = rows(*({"text": "a", "split": split} for split in ("train", *said)))
    with pytest.raises(
        DataError, match=rf"^{path}:2: unknown split {told}; .*\(held_out: {{split: x}}\), and all others"
    ):
        open_(path)
    run = make_run({"modalities": [], "data": {"sources": [{"path": str(path), "held_out": {"split": "x"}}]}})
    (held_out,) = open_sources(run, load_core(), "held_out")
    assert len(held_out) == said.count("x")


@pytest.mark.parametrize("split", ["trian", 4, ["test"]])
def test_unknown_split_is_one_error(open_, rows, split):
    with pytest.raises(DataError, match=r"rows.jsonl:2: unknown split .*; expected train, or test"):
        open_(rows({"text": "a", "split": "train"}, {"text": "b", "split": split}))


def test_part_without_rows_is_refused(open_, rows):
    with pytest.raises(DataError, match="its held_out part is empty: none of its 1 rows belong to it"):
        open_(rows({"text": "alone"}), split="held_out", held_out=0.5)
    with pytest.raises(DataError, match="its train part is empty"):
        open_(rows({"text": "a", "split": "test"}))


def test_share_of_one_or_more_is_refused(open_, rows):
    with pytest.raises(DataError, match="held_out: expected a share"):
        open_(rows({"text": "a"}, {"text": "b"}), held_out=1.0)


def test_splits_do_not_depend_on_the_machine(open_, rows):
    path = rows(*({"text": f"t{i}"} for i in range(30)))
    _, held_out = both(open_, path)
    assert sorted(held_out) == ["t18", "t4", "t9"]
