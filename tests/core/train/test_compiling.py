"""Compiled blocks give what uncompiled ones give, and nothing is compiled again after the warm-up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kosmos.train.run import train_model
from support.runs import rows_of, small_run, ticks_registry


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # torch's compiler warns of its own parts
@pytest.mark.parametrize("recompute", [False, "selective"])
def test_compiled_blocks_train_as_uncompiled_ones_and_are_compiled_once(tmp_path: Path, recompute: Any) -> None:
    rows = {}
    for wanted in (False, True):
        train = {"compile": wanted, "steps": 8, "gradient_checkpointing": recompute}
        over = {"train": train, "backbone": {"layers": 2}, "modalities": ["text"] if recompute else ["ticks"]}
        config = small_run(tmp_path / str(wanted), **over)
        train_model(config, registry=ticks_registry())
        rows[wanted] = rows_of(tmp_path / str(wanted) / "metrics.jsonl")
    for row, one in zip(rows[True], rows[False], strict=True):
        assert row["loss"] == pytest.approx(one["loss"], rel=1e-5)  # measured: 0
    assert "compilations" not in rows[False][-1]
    counts = [row["compilations"] for row in rows[True]]
    assert counts[0] > 0
    assert counts[3:] == [counts[3]] * len(counts[3:])
