"""A sample at which a data worker stands still costs itself, however short a time the run waits for progress."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import pytest

from kosmos import open_sources
from kosmos.commands.checked import Check, compared, decode_into
from kosmos.compose import compose
from kosmos.data.feeder import sample_hang_s
from kosmos.data.quarantine import Incident
from kosmos.train.run import train_model
from support.command import lines_in
from support.runs import rows_of, small_run, ticks_registry


@pytest.mark.parametrize(("run", "sample"), [(20.0, 10.0), (599.0, 299.5), (1800.0, 300.0), (1e9, 300.0)])
def test_a_worker_waits_less_long_than_the_run(run: float, sample: float) -> None:
    assert sample_hang_s(run) == sample


def test_a_run_that_waits_for_seconds_alone_goes_on_past_it(tmp_path: Path) -> None:
    sources = [{"path": "ticks", "options": {"stuck": [5]}}]
    config = small_run(tmp_path / "run", data={"workers": 1, "sources": sources}, train={"steps": 20, "hang_s": 12.0})
    train_model(config, registry=ticks_registry())
    assert {row["cause"] for row in rows_of(tmp_path / "run" / "quarantine.jsonl")} == {"its decoder hung for 6 s"}
    assert lines_in(tmp_path / "run" / "metrics.jsonl") == 20


def test_a_look_at_all_data_waits_no_longer_than_the_run_would(tmp_path: Path) -> None:
    sources = [{"path": "ticks", "options": {"stuck": [5]}}]
    config = small_run(data={"sources": sources, "held_out": 0}, train={"hang_s": 6.0})
    parts = compose(config, ticks_registry())
    sources = open_sources(config, parts.registry, "train")
    found = Check(len(sources[0]))
    decode_into(parts, sources, found, None, workers=1, advance=lambda more, of: None)
    assert [incident.cause for incident in found.incidents] == ["its decoder hung for 3 s"]
    begun = monotonic()
    same = compared(sources, [], found.incidents, hang_s=60.0)
    assert same.documents == len(sources[0]) - 1 and monotonic() - begun < 30  # it is not read again
    assert len(found.incidents) == 1


def test_documents_are_compared_for_as_long_as_they_may_be_decoded() -> None:
    config = small_run(data={"sources": [{"path": "ticks", "options": {"stuck": [5], "size": 20}}], "held_out": 0})
    sources = open_sources(config, ticks_registry(), "train")
    found: list[Incident] = []
    assert compared(sources, [], found, hang_s=0.3).documents == len(sources[0]) - 1
    (stood,) = found
    assert (stood.source, stood.cause) == ("ticks", "it stood still for 0.3 s as it was compared")
