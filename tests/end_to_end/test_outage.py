"""A folder of data that is gone for a while costs no sample: the run ends, saved, and goes on exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kosmos.errors import DataError
from kosmos.train.progress import Reporter
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of, small_run


class Outage(Reporter):
    """Takes a folder away behind a step."""

    def __init__(self, folder: Path, step: int) -> None:
        self.folder, self.at = folder, step

    def step(self, row, steps) -> None:
        if row["step"] == self.at:
            self.folder.rename(self.folder.with_name("gone"))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_whose_data_are_gone_for_a_while_goes_on_exactly(tmp_path: Path, workers: int) -> None:
    data = tmp_path / "pictures"
    for number in range(60):
        folder = data / ("red" if number % 2 else "blue")
        folder.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(number).integers(0, 256, (20, 16 + number % 7, 3), np.uint8)
        Image.fromarray(noise).save(folder / f"{number}.png")

    def run(name: str):
        return small_run(
            tmp_path / name,
            modalities=["image"],
            data={"sources": [str(data)], "workers": workers, "tokens_per_pack": 160, "look_ahead": 4},
            train={"steps": 24},
        )

    train_model(run("undisturbed"))
    with pytest.raises(DataError, match=r"pictures: .*pictures is no more there \("):
        train_model(run("disturbed"), reporter=Outage(data, 6))
    data.with_name("gone").rename(data)
    resume_run(tmp_path / "disturbed")
    rows, expected = (rows_of(tmp_path / name / "metrics.jsonl") for name in ("disturbed", "undisturbed"))
    assert [row["loss"] for row in rows] == [row["loss"] for row in expected]
    assert not (tmp_path / "disturbed" / "quarantine.jsonl").exists() or not rows_of(
        tmp_path / "disturbed" / "quarantine.jsonl"
    )
