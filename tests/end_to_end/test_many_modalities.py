"""Twelve modalities of a plugin at once."""

from __future__ import annotations

from pathlib import Path

from kosmos import make_run, train_model
from support import dozen
from support.runs import SMALL, rows_of, ticks_registry


def test_twelve_modalities_are_trained_at_once_most_of_them_missing_in_a_row(tmp_path: Path) -> None:
    data = {**SMALL["data"], "tokens_per_pack": 64, "lanes": 1}
    run = {**SMALL, "modalities": list(dozen.MODALITIES), "data": data, "output": str(tmp_path / "run")}
    result = train_model(make_run(run, {"train": {"steps": 2}}), registry=ticks_registry(dozen=dozen))
    assert result.after is not None
    assert set(result.after.by_modality) == set(dozen.MODALITIES)
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        cells = row["cells_by_stream"]
        assert set(cells) == set(dozen.MODALITIES)
        assert 0 < sum(count > 0 for count in cells.values()) < 6  # a row has room for few documents
        assert row["fill"] == 1.0
