"""Rows that are held out by what a column says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos import make_run, open_held_out, open_sources
from kosmos.errors import CheckpointError, ConfigError, DataError
from kosmos.plugins import load_core
from kosmos.run_file import parse_overrides
from kosmos.train.run import resume_run, train_model
from support.runs import small_run, ticks_registry

ROWS = [
    {"text": f"row {n}", "fold": n % 5, "speaker": ("anna", "ben", "carl")[n % 3], "ok": n % 2 > 0} for n in range(30)
]


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif file.suffix == ".csv":
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        file.write_text("\n".join(lines) + "\n")
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def parts(file: Path, held_out: Any, **more: Any) -> tuple[set[int], set[int]]:
    """Numbers of the rows that are trained on, and of those held out."""
    run = make_run({"modalities": [], "data": {"sources": [{"path": str(file), "held_out": held_out, **more}]}})
    opened = [*open_sources(run, load_core(), "train"), *open_held_out(run, load_core())]
    texts = [[source.document(n).segments[0].text for n in range(len(source))] for source in opened]
    return {int(t.split()[1]) for t in texts[0]}, {int(t.split()[1]) for t in texts[1]}


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize(
    ("held_out", "is_held"),
    [
        ({"fold": 4}, lambda row: row["fold"] == 4),
        ({"fold": ["4", 1.0]}, lambda row: row["fold"] in (4, 1)),
        ({"speaker": ["anna", "ben"]}, lambda row: row["speaker"] != "carl"),
        ({"ok": True}, lambda row: row["ok"]),
    ],
)
def test_the_rows_of_the_values_are_held_out_and_all_others_trained_on(tmp_path, suffix, held_out, is_held) -> None:
    expected = {number for number, row in enumerate(ROWS) if is_held(row)}
    trained, held = parts(write(tmp_path / f"rows.{suffix}", ROWS), held_out)
    assert (trained, held) == ({*range(30)} - expected, expected)


def test_whole_numbers_of_a_column_with_gaps_are_the_same(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.csv", [{"text": f"row {n}", "fold": ("", "1.0", "2.0")[n % 3]} for n in range(9)])
    assert parts(file, {"fold": 2})[1] == {2, 5, 8}
    assert parts(file, {"fold": 2}, template="{text}")[1] == {2, 5, 8}


def test_a_nested_value_and_that_of_the_split_may_say_it(tmp_path: Path) -> None:
    rows = [{"text": f"row {n}", "meta": {"film": n % 3}, "split": ("train", "dev", "test")[n % 3]} for n in range(9)]
    file = write(tmp_path / "rows.jsonl", rows)
    assert parts(file, {"split": "test"})[1] == {2, 5, 8}
    with pytest.raises(
        DataError, match=r"data\.sources\.0\.held_out: the data state themselves .*rows\.jsonl:2\).*leave it out"
    ):
        parts(file, {"meta.film": 2})
    assert parts(write(file, [{**row, "split": "train"} for row in rows]), {"meta.film": 2})[1] == {2, 5, 8}


@pytest.mark.parametrize(
    ("held_out", "said"),
    [
        ({"fold": 9}, r"data\.sources\.0\.held_out: no row has fold 9; there are: 0, 1, 2, 3, 4"),
        ({"fodl": 4}, r"held_out: no column 'fodl'; did you mean fold\?"),
        ({"fold": [0, 1, 2, 3, 4]}, "every row has fold 0, 1, 2, 3, 4, so that none could be trained on"),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_what_no_row_has_or_all_have_is_refused(tmp_path: Path, suffix, held_out, said) -> None:
    with pytest.raises(DataError, match=said):
        parts(write(tmp_path / f"rows.{suffix}", ROWS), held_out)


def test_a_column_that_costs_much_to_read_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.parquet", [{"text": f"row {n}", "meta": {"film": n % 3}} for n in range(9)])
    with pytest.raises(DataError, match="held_out: 'meta' holds objects, lists or bytes"):
        parts(file, {"meta.film": 1})


@pytest.mark.parametrize(
    "held_out", [{}, {"fold": 1, "speaker": "anna"}, {"fold": []}, {"fold": None}, {"fold": {"a": 1}}, [4], 1.0, -0.1]
)
def test_what_is_no_share_and_no_column_with_values_is_refused(held_out) -> None:
    with pytest.raises(ConfigError, match=r"held_out: expected .*fold: 4"):
        make_run({"data": {"sources": [{"path": "a", "held_out": held_out}]}})


def test_another_column_takes_the_place_of_the_one_that_was_there() -> None:
    run = {"data": {"sources": [{"path": "a", "held_out": {"fold": 4}, "columns": {"group": "speaker"}}]}}
    for given in (["data.sources.0.held_out={speaker: anna}"], ["data.sources.0.held_out.speaker=anna"]):
        [source] = make_run(run, parse_overrides(given)).data.sources
        assert (source.held_out, source.columns) == ({"speaker": ["anna"]}, {"group": "speaker"})
    several = parse_overrides([f"data.sources.0.held_out.{column}=1" for column in ("fold", "speaker")])
    with pytest.raises(ConfigError, match=r"expected one column .*, got fold, speaker"):
        make_run(run, several)


def test_a_run_does_not_go_on_with_other_values(tmp_path: Path) -> None:
    source = {"path": str(write(tmp_path / "rows.jsonl", ROWS)), "held_out": {"fold": 4}}
    run = small_run(tmp_path / "run", modalities=[], data={"sources": [source]}, train={"steps": 1})
    train_model(run, registry=(registry := ticks_registry()))
    with pytest.raises(CheckpointError, match=r"data\.sources\.0\.held_out\.fold\.0 4, the run now has 3"):
        resume_run(tmp_path / "run", {"data": {"sources": [{**source, "held_out": {"fold": 3}}]}}, registry=registry)
    assert resume_run(tmp_path / "run", {"train": {"steps": 2}}, registry=registry).step == 2
