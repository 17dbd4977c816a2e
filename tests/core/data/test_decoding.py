"""What is decoded is held to what was planned, and to being numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kosmos import Document, Documents, Grid, Media, MediaPlan, Text, train_model
from kosmos.data.decoding import decode_cells, not_finite
from kosmos.data.plan import PlannedMedia
from kosmos.errors import SampleError
from support.runs import rows_of, small_run, ticks_registry
from support.ticks import TicksProcessor


def cells(value: float, dtype: Any = np.float32) -> np.ndarray:
    found = np.zeros((5, 4), dtype)
    found[3, 1:3] = value
    return found


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_cells_that_are_no_numbers_are_found(dtype: Any, value: float) -> None:
    assert not_finite(cells(value, dtype)) == f"1 of 5 cells are not finite (cell 3 holds {value})"


@pytest.mark.parametrize(
    "sound", [np.full((9, 4), 3e38, np.float32), np.full((9, 4), 60000, np.float16), np.ones((2, 3), np.uint8),
              np.zeros((0, 4), np.float32), np.zeros((4, 6), np.float32)[:, ::2]],
)  # fmt: skip
def test_cells_whose_sum_would_overflow_are_numbers(sound: np.ndarray) -> None:
    assert not not_finite(sound)


def test_a_medium_that_decodes_to_infinity_is_a_bad_sample() -> None:
    media = Media("ticks", np.array([1, 2, np.inf], np.float32))
    planned = PlannedMedia(media, MediaPlan(("<ticks>", Grid(1, 1, 1), "</ticks>")), "ticks")
    says = r"TicksProcessor\.decode: 1 of 1 cells are not finite \(cell 0 holds inf\); expected finite numbers"
    with pytest.raises(SampleError, match=says):
        decode_cells(planned, TicksProcessor(4))


def test_a_run_goes_on_without_it_and_names_one_that_is_held_out(tmp_path: Path) -> None:
    def document(index: int) -> Document:
        values = np.full(6, np.inf if index in (7, 22) else index % 2, np.float32)
        return Document(f"row {index}", (Media("ticks", values), Text("odd" if index % 2 else "even", train=True)))

    run = small_run(tmp_path / "run", data={"sources": []}, train={"steps": 3})
    parts = [Documents(name, list(map(document, of))) for name, of in (("rows", range(20)), ("others", range(20, 30)))]
    result = train_model(run, sources=parts[:1], held_out=parts[1:], registry=ticks_registry())
    assert result.step == 3 and result.after is not None and result.after.overall.documents == 9
    rows = rows_of(tmp_path / "run" / "quarantine.jsonl")
    assert sorted(row["origin"] for row in rows) == ["row 22", "row 7"]
    assert all("TicksProcessor.decode: 2 of 2 cells are not finite" in row["cause"] for row in rows)
