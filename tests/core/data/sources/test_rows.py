"""Of a table some rows alone may be read: by what a column says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos import make_run, open_held_out, open_sources
from kosmos.commands.continued import passed_over
from kosmos.config import RunConfig
from kosmos.data.document import Source
from kosmos.data.shown import source_lines
from kosmos.data.sources.blind import blind_of
from kosmos.errors import CheckpointError, ConfigError, DataError
from kosmos.plugins import load_core, load_plugins
from kosmos.run_sources import open_named
from kosmos.train.doubts import doubts
from kosmos.train.run import resume_run, train_model
from support.runs import small_run, ticks_registry

ROWS = [{"text": f"row {n}", "split": ("train", "train", "val", "test ")[n % 4], "site": n % 3} for n in range(24)]


def write(folder: Path, suffix: str = "jsonl", rows: list[dict[str, Any]] = ROWS) -> str:
    file = folder / f"all.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif suffix == "csv":
        file.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]) + "\n")
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def run_of(*sources: dict[str, Any], scored: tuple[dict[str, Any], ...] = ()) -> RunConfig:
    return make_run({"modalities": [], "data": {"sources": [*sources]}, "evaluate": {"sources": [*scored]}})


def numbers(source: Source) -> set[int]:
    return {int(source.document(n).segments[0].text.split()[1]) for n in range(len(source))}


def in_split(*values: str) -> set[int]:
    return {n for n, row in enumerate(ROWS) if row["split"].strip() in values}


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("more", [{}, {"template": "{text}"}])
def test_all_three_parts_of_one_table_have_their_use(tmp_path: Path, suffix: str, more: dict[str, Any]) -> None:
    path = write(tmp_path, suffix)
    run = run_of(
        {"path": path, "rows": {"split": ["train", "val"]}, **more},
        scored=({"path": path, "rows": {"split": "test"}, "name": "test", **more},),
    )
    [trained] = open_sources(run, load_core(), "train")
    held, test = open_held_out(run, load_core())
    assert (numbers(trained), numbers(held), numbers(test)) == (in_split("train"), in_split("val"), in_split("test"))
    assert trained.left_out == {"another split": 6}
    assert "          6 left out by rows: they have another split" in source_lines([trained], [held])
    told = "\n".join(doubts(run, [trained], resumed=False, scored=[held, test]))
    assert "shares files" not in told
    assert "scored together" not in told


def test_a_share_is_held_out_of_the_rows_that_are_read(tmp_path: Path) -> None:
    run = run_of({"path": write(tmp_path), "rows": {"site": [1, 2]}, "held_out": {"split": ["val", "test"]}})
    [trained], [held] = open_sources(run, load_core(), "train"), open_held_out(run, load_core())
    assert numbers(trained) == {n for n in in_split("train") if n % 3}
    assert numbers(held) == {n for n in in_split("val", "test") if n % 3}
    run = run_of({"path": write(tmp_path), "rows": {"split": "train"}, "held_out": 0.25})
    [trained], [held] = open_sources(run, load_core(), "train"), open_held_out(run, load_core())
    assert (len(trained), len(held)) == (9, 3)
    assert numbers(trained) | numbers(held) == in_split("train")


def test_what_names_no_row_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    for rows, said in (
        ({"split": "tset"}, r"data\.sources\.0\.rows: no row has split 'tset'; there are: test, train, val"),
        ({"spilt": "test"}, r"rows: no column 'spilt'; did you mean split\?"),
    ):
        with pytest.raises(DataError, match=said):
            open_sources(run_of({"path": path, "rows": rows}), load_core(), "train")
    with pytest.raises(ConfigError, match=r"makes its own documents: .*rows do not apply"):
        open_sources(run_of({"path": "sums", "rows": {"split": "test"}}), load_core(), "train")
    for rows in ("test", ["test"], {}, {"a": 1, "b": 2}, {"split": []}):
        with pytest.raises(ConfigError, match=r"rows: expected .*split: test"):
            run_of({"path": path, "rows": rows})


def test_rows_that_seem_to_be_meant_are_told(tmp_path: Path) -> None:
    rows = [{"text": f"row {n}", "site": ("North", "north", "South")[n % 3]} for n in range(9)]
    [trained] = open_sources(
        run_of({"path": write(tmp_path, rows=rows), "rows": {"site": "north"}}), load_core(), "train"
    )
    assert trained.remarks == (
        "rows: 3 rows are left out, whose site is 'North', beside those of 'north'; if they are the same, write both "
        "alike, or name both",
    )


def test_a_run_goes_on_with_the_rows_that_it_was_begun_with(tmp_path: Path) -> None:
    source = {"path": write(tmp_path), "rows": {"split": ["train", "val"]}}
    run = small_run(tmp_path / "run", modalities=[], data={"sources": [source]}, train={"steps": 1})
    train_model(run, registry=(registry := ticks_registry()))
    with pytest.raises(CheckpointError, match=r"data\.sources\.0\.rows"):
        resume_run(tmp_path / "run", {"data": {"sources": [{**source, "rows": None}]}}, registry=registry)
    assert resume_run(tmp_path / "run", {"train": {"steps": 2}}, registry=registry).step == 2


def test_a_table_that_is_trained_on_and_scored_is_told_of_with_what_to_write(tmp_path: Path) -> None:
    run = run_of({"path": (path := write(tmp_path))}, scored=({"path": path, "name": "test"},))
    told = [
        *doubts(run, open_sources(run, load_core(), "train"), resumed=False, scored=open_held_out(run, load_core()))
    ]
    [line] = [line for line in told if line.startswith("evaluate.sources: ")]
    assert line.endswith(
        "which is trained on; name the rows that are meant of each (such as rows: {split: [train, val]} "
        "and rows: {split: test})"
    )
    assert (
        sum("its held-out rows are of val (6 rows), test (6 rows) and are scored together" in line for line in told)
        == 2
    )


def test_rows_that_cannot_be_read_are_of_no_source_that_reads_some(tmp_path: Path) -> None:
    path = Path(write(tmp_path))
    path.write_text("{broken\n" * 3 + path.read_text())
    [trained] = open_sources(
        run_of({"path": str(path), "rows": {"split": "train"}, "held_out": 0.0}), load_core(), "train"
    )
    assert numbers(trained) == in_split("train")
    assert trained.remarks == (
        "rows: 3 rows are left out, since they cannot be read, so that nobody knows their split",
    )


def test_the_rows_to_name_are_all_but_those_of_tests(tmp_path: Path) -> None:
    rows = [{**row, "split": (row["split"], "unlabeled")[n % 6 == 5]} for n, row in enumerate(ROWS)]
    run = run_of({"path": write(tmp_path, rows=rows), "held_out": {"split": "val"}})
    [line] = open_sources(run, load_core(), "train")[0].remarks
    assert line.endswith("leave them out (rows: {split: [train, val, unlabeled]})")


def test_rows_that_are_left_out_as_asked_hide_nothing(tmp_path: Path) -> None:
    rows = [{"text": f"row {n}", "video_id": f"{n:03}", "split": ("train", "test")[n % 2]} for n in range(8)]
    path = write(tmp_path, rows=rows)
    run = make_run({"modalities": ["video"], "data": {"sources": ["others.jsonl"]}})
    for more in ({}, {"rows": {"split": "test"}}):
        entry = make_run({"evaluate": {"sources": [{"path": path, **more}]}}, {"data": {"sources": [path]}}).evaluate
        [source] = open_named(run, load_plugins(), entry.sources, lambda line: None)
        assert len([*blind_of(source, ["video"])]) == 1
        assert [*passed_over(source, ["video"])] == []
