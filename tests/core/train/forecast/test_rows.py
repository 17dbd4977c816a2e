"""Rows that are planned by headers alone, and how often data come, against what training takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kosmos.compose import compose, make_feed
from kosmos.data.feeder import open_feeder
from kosmos.run_sources import open_sources
from kosmos.train.forecast.rows import plan_rows
from kosmos.train.forecast.whole import forecast
from kosmos.train.run import train_model
from support.runs import rows_of, small_run, ticks_registry


def test_planned_rows_are_those_that_are_trained_on() -> None:
    config, registry = small_run(None, data={"sources": ["ticks", "sums"]}), ticks_registry()
    feed = make_feed(compose(config, registry), open_sources(config, registry, "train"))
    planned = plan_rows(feed, lanes=2, steps=3, seconds=60).rows
    feeder = open_feeder(feed, [0, 1], workers=0)
    rows = [row for _ in range(3) for row in feeder.next_step()]
    for row, expected in zip(planned, rows, strict=True):
        ours, theirs = row.arrays, expected.arrays
        assert np.array_equal(ours.token_ids, theirs.token_ids)
        assert np.array_equal(ours.labels, theirs.labels)
        assert ours.documents == theirs.documents
        for name, media in ours.media.items():
            decoded = theirs.media[name]
            assert (media.values.shape, media.values.dtype) == (decoded.values.shape, decoded.values.dtype)
            assert np.array_equal(media.grids, decoded.grids)
            assert np.array_equal(media.slots, decoded.slots)


def test_one_row_is_planned_however_long_it_takes() -> None:
    config, registry = small_run(None), ticks_registry()
    feed = make_feed(compose(config, registry), open_sources(config, registry, "train"))
    planned = plan_rows(feed, lanes=2, seconds=0)
    assert (len(planned.rows), planned.steps) == (1, 0)
    assert planned.figures()["imbalance_by_stream"] == {}


def test_figures_of_rows_are_those_of_the_rows_of_metrics(tmp_path: Path) -> None:
    config = small_run(tmp_path / "run", data={"sources": ["ticks", "sums"]}, train={"steps": 3})
    train_model(config, registry=ticks_registry())
    metrics = rows_of(tmp_path / "run" / "metrics.jsonl")
    told = forecast(config, ticks_registry(), steps=3, seconds=60).as_row()
    rows, lanes = told["rows"], 2

    def mean(field: str) -> float:
        return sum(row[field] for row in metrics) / len(metrics)

    assert rows["fill"] == pytest.approx(mean("fill"))
    assert rows["media_tokens_per_row"] == pytest.approx(mean("media_tokens") / lanes)
    assert rows["documents_per_row"] == pytest.approx(mean("documents") / lanes)
    cells, uneven = ([row[field]["ticks"] for row in metrics] for field in ("cells_by_stream", "imbalance_by_stream"))
    assert rows["cells_by_stream"]["ticks"]["mean"] == pytest.approx(sum(cells) / len(cells) / lanes)
    assert rows["imbalance_by_stream"]["ticks"] == pytest.approx(sum(uneven) / len(uneven))
    assert told["work"]["flops_of_step"] == pytest.approx(mean("flops"), rel=1e-12)  # measured: no difference


def test_passes_are_the_tokens_of_the_run_over_those_of_the_source() -> None:
    sources = [{"path": "ticks", "weight": 3}, {"path": "sums", "weight": 1}]
    told = forecast(small_run(None, data={"sources": sources}, train={"steps": 50}), ticks_registry(), steps=2)
    assert {one.name: one.share for one in told.passes} == {"ticks": 0.75, "sums": 0.25}
    for one in told.passes:
        assert one.share is not None and one.tokens is not None
        assert one.passes == pytest.approx(told.tokens_of_step * 50 * one.share / one.tokens)


def test_without_weights_every_source_comes_equally_often() -> None:
    told = forecast(small_run(None, data={"sources": ["ticks", "sums"]}), ticks_registry(), steps=1)
    assert told.passes[0].passes == pytest.approx(told.passes[1].passes)
    assert sum(one.share or 0 for one in told.passes) == pytest.approx(1)


def test_of_a_source_with_bad_samples_the_good_ones_are_counted_and_that_training_would_stop_is_told(
    tmp_path: Path,
) -> None:
    good, bad = ['{"text": "a good row"}\n'] * 2, ['{"text": null}\n'] * 3
    (tmp_path / "few.jsonl").write_text("".join([*good, *bad]))
    config = small_run(None, data={"sources": [str(tmp_path / "few.jsonl")], "held_out": 0}, train={"steps": 3})
    found = forecast(config, ticks_registry())
    (one,) = found.passes
    of = found.figures["few"]
    assert of is not None and one.tokens == of.mean * 2 and one.documents == 5
    assert found.rows.figures()["incidents"] == 3
    assert any("training would stop: " in doubt and "data.quarantine allows" in doubt for doubt in found.doubts)
