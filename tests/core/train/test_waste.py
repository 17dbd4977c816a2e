"""What makes a run slow and is no matter of the model is told once, with what helps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kosmos.config import DataConfig
from kosmos.train.waste import Waste


def told(
    data: dict[str, Any],
    *rows: tuple[float, float, float],
    times: int = 40,
    workers: int = 1,
    lanes: int | None = None,
    ends: bool = False,
) -> list[str]:
    """What is said of rows of (step_s, data_wait_s, fill), each of which comes so often."""
    waste = Waste(DataConfig(**data), workers, torch.device("cpu"), lanes=lanes)
    row = {"cells_by_stream": {"ticks": 7}, "fill": 1.0}
    steps = [{**row, "step_s": s, "data_wait_s": w, "fill": f} for s, w, f in rows for _ in range(times)]
    first = [{**row, "step_s": 30.0, "data_wait_s": 30.0}] * 3
    looks = [waste.look(row, is_last=ends and row is steps[-1]) for row in (*first, *steps)]
    return [line for lines in looks for line in lines if line is not None]


def test_a_run_that_waits_for_rows_says_so_once() -> None:
    (line,) = told({}, (1.0, 0.1, 1.0), (1.0, 0.9, 1.0), (1.0, 0.95, 1.0))
    assert line.startswith("for 90 % of the last 20 s this run waited for rows to be decoded (data.workers 1; ")
    assert line.endswith("raise data.workers, or make the media smaller once, before training")


def test_the_first_row_alone_is_always_waited_for() -> None:
    assert told({}, (9.0, 9.0, 1.0), times=1) == []
    assert told({}, (0.1, 0.09, 1.0), times=100) == []  # of ten seconds nobody has to be told
    (line,) = told({}, (0.1, 0.09, 1.0), times=100, ends=True)  # unless that was all
    assert line.startswith("for 90 % of the last 10 s ")
    assert told({}, (0.1, 0.09, 1.0), times=10, ends=True) == []


@pytest.mark.parametrize(
    ("workers", "used", "more"),
    [
        (4, ", of which 2 work: without media one for each lane of a process", "data.lanes and data.workers"),
        (2, "", "data.lanes and data.workers"),
        (1, "", "data.workers"),
    ],
)
def test_without_media_a_lane_is_filled_by_one_process(workers: int, used: str, more: str) -> None:
    (line,) = told({}, (1.0, 0.9, 1.0), workers=workers, lanes=2)
    assert f" (data.workers {workers}{used}; " in line
    assert line.endswith(f": raise {more}, or have what reads the data give documents faster")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"cells_per_pack": {"ticks": 8}}, "data.cells_per_pack (ticks 8) lets no more media into them: raise it"),
        ({"look_ahead": 1}, "of data.look_ahead 1 documents too few fit together: raise it"),
    ],
)
def test_rows_that_are_half_empty_are_told_with_what_caps_them(data: dict[str, Any], why: str) -> None:
    (line,) = told(data, (1.0, 0.0, 0.24))
    assert line.startswith("76 % of the last 20 steps' rows was empty: ") and why in line
    assert told(data, (1.0, 0.0, 0.9)) == []
    assert told({}, (1.0, 0.0, 0.24)) == []  # documents are as long as they are
    assert told({"cells_per_pack": {"ticks": 4096}}, (1.0, 0.0, 0.24)) == []  # which caps nothing
