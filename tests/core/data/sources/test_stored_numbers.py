"""Numbers of tables that are stored with fewer digits than Python has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data.sources.chosen import Chosen
from kosmos.data.sources.stored_numbers import values_of

F32 = np.array([0.1, -1.5, 1e-5, 3.4e38, 16777216.0], np.float32)


def text(source: Any) -> str:
    return "".join(segment.text for segment in source.document(0).segments)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float16()])
def test_they_are_learned_with_the_digits_that_mean_them(open_, table, kind):
    values = np.array([0.1, 0.25], kind.to_pandas_dtype())
    columns = {"action": pa.array([values], pa.list_(kind)), "gain": pa.array(values[:1], kind)}
    assert text(open_(table(columns), columns={"text": "action"})) == "0.1, 0.25"
    assert text(open_(table(columns), template="{gain}: {action}")) == "0.1: 0.1, 0.25"
    nested = {"said": pa.array([{"at": [values]}], pa.struct([("at", pa.list_(pa.list_(kind)))]))}
    assert text(open_(table(nested), template="{said}")) == '{"at": [[0.1, 0.25]]}'


def test_a_run_begun_before_reads_them_as_then(open_, table):
    source = open_(table({"text": pa.array(F32[:1])}))
    source.lacking = ("numbers as stored",)
    assert text(source) == "0.10000000149011612"


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.large_list(pa.float32()),
        pa.list_(pa.float32(), len(F32)),
        pa.list_(pa.field("element", pa.float32(), nullable=True)),
    ],
)
def test_they_are_the_same_numbers(kind):
    column = pa.chunked_array([pa.array([None, F32.tolist(), [None] * len(F32)], kind)])
    (found,) = values_of(column.slice(1, 1))
    assert np.array_equal(np.array(found, np.float32), F32) and str(found[0]) == "0.1"
    assert values_of(column)[::2] == [None, [None] * len(F32)]


def test_what_is_no_number_and_doubles_stay():
    special = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    assert list(map(str, values_of(pa.array(special)))) == ["nan", "inf", "-inf", "-0.0"]
    assert values_of(pa.array([0.1 + 0.2])) == [0.1 + 0.2]
    assert values_of(pa.array(F32[:2]).dictionary_encode())[0] == 0.1
    kind = pa.struct([("a", pa.float32()), ("b", pa.binary()), ("c", pa.float64()), ("d", pa.float16())])
    row = {"a": 0.1, "b": b"\xff", "c": 1 / 3, "d": np.float16(0.1)}
    assert values_of(pa.array([row, None], kind)) == [{**row, "d": 0.1}, None]


def test_whole_numbers_stay_as_they_are_stored():
    column = pa.chunked_array([pa.array([np.float32(123456792), np.float32(0.1), None], pa.float32())])
    assert values_of(column) == [123456792.0, 0.1, None]
    halves = pa.chunked_array([pa.array([np.float16(10008), np.float16(0.1)], pa.float16())])
    assert values_of(halves) == [10008.0, 0.1]
    lists = pa.chunked_array([pa.array([np.array([123456792, 0.3], np.float32)], pa.list_(pa.float32()))])
    assert values_of(lists) == [[123456792.0, 0.3]]


def test_all_rows_are_looked_at_as_each_is_read(open_, tmp_path):
    values = pa.array([n / 10 for n in range(40)], pa.float32())
    pq.write_table(pa.table({"text": [f"row {n}" for n in range(40)], "g": values}), tmp_path / "rows.parquet")
    held = open_(tmp_path / "rows.parquet", split="held_out", chosen=Chosen.of({"g": [0.1]}, ""))
    assert [held.document(n).segments[-1].text for n in range(len(held))] == ["row 1"]
