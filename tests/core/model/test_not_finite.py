"""Numbers that are not finite: a step that has some says which part gave them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kosmos.errors import TrainingError
from kosmos.model.connectors import MLPConnector
from kosmos.train.run import train_model
from support.runs import small_run, ticks_registry
from support.ticks_encoder import TicksEncoder

NAN = "loss nan, gradient norm nan: not finite"


@pytest.mark.parametrize("part", ["encoder", "connector"])
def test_the_part_that_gave_no_numbers_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    at_fault = {"encoder": TicksEncoder, "connector": MLPConnector}[part]
    forward = at_fault.forward
    monkeypatch.setattr(at_fault, "forward", lambda self, *given: forward(self, *given) * math.nan)
    run = small_run(tmp_path / "run", data={"held_out": 0}, train={"steps": 1, "warmup_steps": 0})
    with pytest.raises(
        TrainingError,
        match=rf"step 1: {NAN} \(streams\.ticks\.{part}: .* not finite\); parameters were not "
        r"changed\. Look at the documents",  # a lower rate helps no first step
    ):
        train_model(run, registry=ticks_registry())
