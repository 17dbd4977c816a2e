"""Figures of a step, and what a run that goes on takes over."""

from __future__ import annotations

import json
import time

import pytest
import torch

from kosmos.checkpoint.folder import committed, load_newest
from kosmos.checkpoint.tensors import MODEL, read_whole
from kosmos.compose import compose, make_feed
from kosmos.data.feeder import open_feeder
from kosmos.run_sources import open_sources
from kosmos.train.balance import balance_of
from kosmos.train.interval import RATES
from kosmos.train.progress import ConsoleReporter, Reporter, fitting
from kosmos.train.run import resume_run, train_model
from support import ticks, ticks_encoder
from support.runs import rows_of, small_run, ticks_registry


def state(output):
    (newest, *_) = committed(output / "checkpoints")
    return json.loads((newest / "state.json").read_text())


def test_guard_and_budget_go_on_after_a_resume(tmp_path):
    data = {"sources": [{"path": "ticks", "options": {"size": 200, "broken": list(range(0, 200, 9))}}]}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train_model(small_run(whole, data=data, train={"steps": 8, "schedule": "constant"}), registry=ticks_registry())
    train_model(small_run(cut, data=data, train={"steps": 4, "schedule": "constant"}), registry=ticks_registry())
    resume_run(cut, {"train": {"steps": 8}}, registry=ticks_registry())
    assert state(cut)["guard"] == state(whole)["guard"]
    assert state(cut)["budget"] == state(whole)["budget"]
    assert len(state(whole)["guard"]["losses"]) == 8
    for run in (whole, cut):
        rows = rows_of(run / "metrics.jsonl")
        assert [row["tokens_so_far"] for row in rows] == [sum(r["tokens"] for r in rows[: n + 1]) for n in range(8)]
    assert state(whole)["budget"]["bad"] > 0


def test_figures_of_a_row(tmp_path):
    config = small_run(
        tmp_path / "run", train={"steps": 6, "warmup_steps": 2, "schedule": "constant", "learning_rate": 3e-3}
    )
    train_model(config, registry=ticks_registry())
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")
    for row in rows:
        assert row["text_tokens"] + row["media_tokens"] == row["tokens"]
        assert row["media_tokens"] > 0
        assert row["tokens_by_source"] == {"ticks": row["tokens"]}
        assert row["fill"] == row["tokens"] / (2 * 128) <= 1
        apart = row["text_tokens_per_s"], row["media_tokens_per_s"]
        assert apart == pytest.approx([row[f"{kind}_tokens"] / row["step_s"] for kind in ("text", "media")])
        assert sum(apart) == pytest.approx(row["tokens_per_s"])
    assert [row["learning_rate"] for row in rows] == pytest.approx([1e-3, 2e-3, *[3e-3] * 4])


def test_a_step_says_how_many_tokens_of_each_source_were_drawn(tmp_path):
    sources = [{"path": "ticks", "name": name, "weight": weight} for name, weight in (("much", 3), ("few", 1))]
    train_model(small_run(tmp_path / "run", data={"sources": sources}, train={"steps": 12}), registry=ticks_registry())
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")
    assert all(sum(row["tokens_by_source"].values()) == row["tokens"] for row in rows)
    much = sum(row["tokens_by_source"]["much"] for row in rows)
    assert much / sum(row["tokens"] for row in rows) == pytest.approx(0.75, abs=0.02)  # measured: 0.003


def test_a_step_says_how_long_its_rows_were_waited_for(tmp_path, monkeypatch):
    def slowly(self, media, plan, decode=ticks.TicksProcessor.decode):
        time.sleep(0.01)
        return decode(self, media, plan)

    monkeypatch.setattr(ticks.TicksProcessor, "decode", slowly)
    train_model(small_run(tmp_path / "run", data={"held_out": 0}, train={"steps": 3}), registry=ticks_registry())
    for row in rows_of(tmp_path / "run" / "metrics.jsonl"):
        assert 0.01 * row["documents"] <= row["data_wait_s"] < row["step_s"]  # each holds one medium
        assert row["data_wait_share"] == row["data_wait_s"] / row["step_s"]


def test_rows_that_a_worker_has_ready_are_not_waited_for(tmp_path):
    pause_s = 0.3

    class Slow(Reporter):
        def step(self, row, steps):
            time.sleep(pause_s)

    config = small_run(tmp_path / "run", data={"workers": 1}, train={"steps": 4})
    train_model(config, registry=ticks_registry(), reporter=Slow())
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")
    # Measured: 0.0001 each. On a machine that others use a worker may be late for some, but not for all of them.
    assert min(row["data_wait_s"] for row in rows[1:]) < pause_s


def test_the_cells_of_a_step_and_how_uneven_its_rows_are():
    rows = [{"image": 40, "audio": 0, "video": 0}, {"image": 20, "audio": 9, "video": 0}]
    assert balance_of(rows) == {
        "cells_by_stream": {"image": 60, "audio": 9, "video": 0},
        "imbalance_by_stream": {"image": pytest.approx(4 / 3), "audio": 2.0},
    }
    assert balance_of(rows[:1])["imbalance_by_stream"] == {}
    assert balance_of([]) == {"cells_by_stream": {}, "imbalance_by_stream": {}}


def test_a_run_says_how_uneven_its_rows_are(tmp_path):
    config = small_run(tmp_path / "run", data={"lanes": 3}, train={"steps": 2})
    train_model(config, registry=ticks_registry())
    parts = compose(config, ticks_registry())
    feeder = open_feeder(make_feed(parts, open_sources(config, ticks_registry(), "train")), range(3), workers=0)
    for row in rows_of(tmp_path / "run" / "metrics.jsonl"):
        cells = [len(lane.arrays.media["ticks"].values) for lane in feeder.next_step()]
        assert row["cells_by_stream"] == {"ticks": sum(cells)}
        assert row["imbalance_by_stream"] == {"ticks": pytest.approx(3 * max(cells) / sum(cells))}


def mean(rows, name):
    """Over the seconds of steps."""
    return sum(row[name] * row["step_s"] for row in rows) / sum(row["step_s"] for row in rows)


def test_a_line_of_the_console_says_what_steps_since_the_last_came_to_and_cost(tmp_path, capsys):
    train_model(small_run(tmp_path / "run"), registry=ticks_registry(), reporter=ConsoleReporter())
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")[1:]  # the first step has a line of its own
    last = {name: mean(rows, name) for name in (*RATES, "peak_flops")} | {
        "peak_memory_bytes": rows[-1]["peak_memory_bytes"]
    }
    cells = sum(row["cells_by_stream"]["ticks"] for row in rows)
    uneven = sum(row["imbalance_by_stream"]["ticks"] * row["cells_by_stream"]["ticks"] for row in rows) / cells
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step 6/6  ")]
    for said in (
        f"{last['tokens_per_s']:,.0f} tokens/s ({last['text_tokens_per_s']:,.0f} text, ",
        f"{last['media_tokens_per_s']:,.0f} media)  {last['samples_per_s']:,.1f} samples/s  fill ",
        f"  imbalance ticks {uneven:.2f}  MFU {100 * last['mfu']:.1f} % of ",
        f" {last['peak_flops'] / 1e12:,.3g} TFLOP/s (backbone ",
        f"; causal attention halved {100 * last['mfu_half_causal']:.1f})  data wait ",
        f"  peak {last['peak_memory_bytes'] / 2**30:,.1f} GiB  0:00 left",
    ):
        assert said in line, line


def test_a_log_gets_lines_and_no_bar_whatever_colours_are_forced(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    train_model(small_run(tmp_path / "run"), registry=ticks_registry(), reporter=ConsoleReporter())
    said = capsys.readouterr().err
    assert [line.split("  ")[0] for line in said.splitlines() if line.startswith("step ")] == ["step 1/6", "step 6/6"]
    assert "\x1b" not in said


def test_a_narrow_bar_says_what_is_most_wanted_whole():
    parts = ["loss 5.5899", "0:12 left", "1,614 tokens/s"]
    assert fitting(parts, 60) == "loss 5.5899  0:12 left  1,614 tokens/s"
    assert fitting(parts, 30) == "loss 5.5899  0:12 left"
    assert fitting(parts, 12) == "loss 5.5899"
    assert fitting(parts, 5) == ""


def test_a_bad_sample_is_noted_with_the_step_whose_rows_it_is_missed_in(tmp_path):
    data = {"sources": [{"path": "ticks", "options": {"size": 200, "broken": list(range(200))[::3]}}]}
    train_model(
        small_run(tmp_path / "run", data={**data, "held_out": 0}, train={"steps": 3}), registry=ticks_registry()
    )
    assert {row["step"] for row in rows_of(tmp_path / "run" / "quarantine.jsonl")} == {1, 2, 3}


def test_each_group_follows_its_own_peak(tmp_path):
    over = {
        "streams": {"ticks": {"learning_rate": 1e-9}},
        "train": {"steps": 2, "learning_rate": 1e-2, "weight_decay": 0.0},
    }
    train_model(small_run(tmp_path / "run", **over), registry=ticks_registry())
    before = compose(small_run(None, **over), ticks_registry()).model.state_dict()
    after = read_whole(load_newest(tmp_path / "run" / "checkpoints").tensors, MODEL)
    moved = {name.split(".")[0] for name, t in after.items() if (t - before[name]).abs().max() > 1e-6}
    assert moved == {"backbone"}


@pytest.mark.parametrize("optimizer", ["lion", "adamw"])
def test_an_encoder_that_takes_no_empty_row_is_decayed_too(tmp_path, monkeypatch, optimizer):
    monkeypatch.setattr(ticks_encoder.TicksEncoder, "takes_empty", False, raising=False)
    train = {"optimizer": optimizer, "steps": 2, "schedule": "constant", "warmup_steps": 0, "learning_rate": 0.1}
    config = small_run(tmp_path / "run", data={"sources": ["sums"], "tokens_per_pack": 128}, train=train)
    train_model(config, registry=ticks_registry())
    name = "streams.ticks.connector.layers.0.weight"
    before = compose(config, ticks_registry()).model.state_dict()[name]
    after = read_whole(load_newest(tmp_path / "run" / "checkpoints").tensors, MODEL)[name]
    assert torch.allclose(after, before * (1 - 0.1 * 0.1) ** 2, rtol=1e-5)


def test_z_loss_moves_weights_and_stands_in_no_loss(tmp_path):
    rows = {}
    for weight in (0.0, 0.1):
        output = tmp_path / str(weight)
        train_model(small_run(output, train={"steps": 1, "z_loss": weight}), registry=ticks_registry())
        rows[weight] = rows_of(output / "metrics.jsonl")[0], rows_of(output / "held_out.jsonl")[0]
    (plain, before), (pulled, before_too) = rows.values()
    assert pulled["loss"] == plain["loss"] and before == before_too
    assert pulled["grad_norm"] > 1.02 * plain["grad_norm"]  # measured: 1.04
