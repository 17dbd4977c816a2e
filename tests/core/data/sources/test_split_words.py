"""A split that nobody goes by, of a column or of folders that are called nearly so, is told."""

from __future__ import annotations

import pytest

from kosmos.data.sources.remarks import remarks_of


@pytest.mark.parametrize("name", ["Split", "SPLIT", "set", "Partition", "part of"])
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
def test_a_column_of_splits_with_another_name_is_told(open_, rows, table, tmp_path, name, kind):
    several = [{"text": f"{n}", name: "test" if n > 7 else "Train"} for n in range(10)]
    if kind == "jsonl":
        file = rows(*several)
    elif kind == "parquet":
        file = table({"text": [row["text"] for row in several], name: [row[name] for row in several]})
    else:
        file = tmp_path / "rows.csv"
        file.write_text("\n".join([f"text,{name}", *(f"{row['text']},{row[name]}" for row in several)]))
    said = [*remarks_of(open_(file, held_out=0.1))]
    if kind == "parquet" and name == "part of":  # of these no column is read for what may be in it
        assert not said
        return
    assert len(said) == 1
    assert f"have {name}, which says Train and test" in said[0] and f"(columns: {{split: {name}}})" in said[0]
    assert len(open_(file, columns={"split": name})) == 8
    assert not [*remarks_of(open_(file, columns={"split": name}))]


@pytest.mark.parametrize(
    "several",
    [
        [{"text": "a", "set": "train"}, {"text": "b", "set": "train"}],
        [{"text": "a", "set": "train"}, {"text": "b", "set": "test"}, {"text": "c", "set": "other"}],
        [{"text": "train"}, {"text": "test"}],
        [{"text": "a", "set": "train", "split": "train"}, {"text": "b", "set": "test", "split": "test"}],
    ],
)
def test_a_column_that_parts_nothing_is_not(open_, rows, several):
    assert not [*remarks_of(open_(rows(*several)))]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *[("Trainset", "Testset"), ("train", "testset"), ("flowers_train", "flowers_val"), ("a/trn", "")],
        ("trainset_photos", "testset_photos"),
        ("trainset-2017", "evalset-clean"),
    ],
)
def test_folders_that_are_called_nearly_as_splits_are_told(open_, tmp_path, one, other):
    for folder in (one, other or one):
        for kind in ("roses", "lilies"):
            (place := tmp_path / folder / kind).mkdir(parents=True, exist_ok=True)
            (place / "a.png").write_bytes(b"picture")
    said = [*remarks_of(open_(tmp_path))]
    assert len(said) == (1 if other else 0)
    assert not said or f"{one} and {other} are no names of splits" in said[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [("trains", "devices"), ("trainers", "valves"), ("train_stations", "testimonials"), ("train_stations", "test")],
)
def test_words_that_begin_as_splits_are_not(open_, rows, one, other):
    for name in (one, other):
        folder = rows({"text": "a"}, name=f"{name}.jsonl").parent
    assert not [*remarks_of(open_(folder))]


def test_so_are_folders_of_pairs(open_, tmp_path):
    for folder in ("train_a", "a_testset/deep", "x"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "1.png").write_bytes(b"picture")
        (tmp_path / folder / "1.txt").write_text("A rose.")
    assert not [*remarks_of(open_(tmp_path))]
    (tmp_path / "x").rename(tmp_path / "testset")
    [line] = remarks_of(open_(tmp_path))
    assert "train_a and testset are no names" in line


def test_so_are_data_files(open_, rows):
    rows({"text": "a"}, name="trainset.jsonl")
    rows({"text": "b"}, name="testset.jsonl")
    folder = rows({"text": "c"}, name="more.jsonl").parent
    [line] = remarks_of(open_(folder))
    assert "trainset and testset" in line
