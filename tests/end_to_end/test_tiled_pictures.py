"""Pictures in tiles, from files to losses: their tokens, packed rows, a run that goes on, and what a user is told."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from kosmos import CheckpointError, make_run
from kosmos.cli import main
from kosmos.compose import Composition, compose
from kosmos.data.batch import PackedBatch, ReadyDocument, assemble, to_tensors
from kosmos.data.decoding import decode_cells
from kosmos.data.plan import DocumentPlan
from kosmos.plugins import Registry
from kosmos.run_sources import open_sources
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of

SIZES = [(32, 32), (64, 64), (40, 100), (100, 70), (300, 20)]
"""(height, width) of pictures."""
TILES = [0, 4, 3, 6, 8]
"""Of 32 pixels, of each."""
LINES = [0, 2, 1, 3, 8]
CELLS = 4
"""Of a tile, in as many slots."""
RUN: dict[str, Any] = {
    "modalities": {"image": {"processor": {"max_tiles": 8, "flip": 0.5}}},
    "data": {"tokens_per_pack": 96, "lanes": 2, "look_ahead": 4, "workers": 0, "held_out": 0},
    "streams": {
        "image": {"encoder": {"name": "timm", "model": "test_vit", "image_size": 32, "model_options": {"depth": 2}}}
    },
    "backbone": {"name": "decoder", "width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
    "train": {"steps": 4, "warmup_steps": 1, "precision": "fp32"},
    "checkpoint": {"every_steps": 2, "keep_last": 9},
    "trackers": [],
}


@pytest.fixture
def registry() -> Registry:
    return Registry.from_modules({"vision": "kosmos_vision.plugin"})


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Any]:
    """Pictures of ``SIZES`` with a caption, in files."""
    random, rows = np.random.default_rng(0), []
    for number, size in enumerate(SIZES):
        Image.fromarray(random.integers(0, 256, (*size, 3), np.uint8)).save(tmp_path / f"{number}.png")
        rows.append({"image": f"{number}.png", "text": f"number {number}"})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"data": {"sources": [str(tmp_path / "rows.jsonl")]}}


def planned(made: Composition, registry: Registry) -> list[DocumentPlan]:
    [source] = open_sources(made.config, registry, "train")
    plans = [made.planner.plan(source.document(index)) for index in range(len(source))]
    return [plan for [plan] in plans]


def packed(made: Composition, plans: list[DocumentPlan]) -> PackedBatch:
    ready = []
    for plan in plans:
        [medium] = plan.media
        cells = {"image": [decode_cells(medium, made.planner.routes["image"].processor)]}
        ready.append(ReadyDocument(plan, "s", cells))
    return to_tensors(assemble(ready, made.planner.routes, made.streams))


def test_a_document_takes_a_token_for_each_slot_of_each_tile_and_one_for_each_row(registry, data) -> None:
    plain, tiled = (
        planned(compose(make_run(RUN, data, more), registry), registry)
        for more in ({"modalities": {"image": {"processor": {"max_tiles": 1}}}}, {})
    )
    assert [plan.cells("image") for plan in tiled] == [CELLS * (1 + tiles) for tiles in TILES]
    more = [len(plan) - len(without) for plan, without in zip(tiled, plain, strict=True)]
    assert more == [CELLS * tiles + lines for tiles, lines in zip(TILES, LINES, strict=True)]
    assert tiled[0].token_ids.tolist() == plain[0].token_ids.tolist()


def test_packed_loss_and_gradients_equal_those_of_each_document_alone(registry, data) -> None:
    made = compose(make_run(RUN, data), registry)
    plans, found = planned(made, registry), []
    for rows in ([plans], [[plan] for plan in plans]):
        made.model.zero_grad()
        total = 0.0
        for row in rows:
            loss = made.model(packed(made, row)).total
            loss.backward()
            total += float(loss.detach())
        found.append((total, {n: p.grad.clone() for n, p in made.model.named_parameters() if p.grad is not None}))
    (together, slopes), (alone, expected) = found
    assert together == pytest.approx(alone, rel=1e-6)
    assert slopes.keys() == expected.keys() and any("encoder" in name for name in slopes)
    for name, slope in expected.items():  # measured 6e-7 of the largest
        torch.testing.assert_close(slopes[name], slope, rtol=0, atol=1e-5 * max(1e-2, float(slope.abs().max())))


def test_a_run_goes_on_exactly_with_its_tiles_and_not_with_others(registry, data, tmp_path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train_model(make_run(RUN, data, {"output": str(whole)}), registry=registry)
    shutil.copytree(whole, cut)
    shutil.rmtree(cut / "checkpoints" / "step-00000004")  # as killed after step 2
    with pytest.raises(CheckpointError, match=r"max_tiles 8, the run now has 4; what the model is shown would be"):
        resume_run(cut, {"modalities": {"image": {"processor": {"max_tiles": 4}}}}, registry=registry)
    resume_run(cut, {}, registry=registry)
    rows = [rows_of(run / "metrics.jsonl") for run in (whole, cut)]
    assert [row["step"] for row in rows[1]] == [1, 2, 3, 4]
    assert [row["loss"] for row in rows[1]] == [row["loss"] for row in rows[0]]
    assert (whole / "quarantine.jsonl").read_text() == ""


def test_a_trained_run_is_scored_with_other_tiles_and_says_so(registry, data, tmp_path, capsys, monkeypatch) -> None:
    run = str(tmp_path / "run")
    train_model(make_run(RUN, data, {"output": run, "train": {"steps": 1}}), registry=registry)
    shutil.copy(tmp_path / "rows.jsonl", tmp_path / "others.jsonl")
    losses, scored = [], ["eval", run, "--data", str(tmp_path / "others.jsonl"), "--workers", "0", "--json"]
    one = "modalities.image.processor.max_tiles=1"
    told = "modalities.image.processor.max_tiles: 8 in the run, 1 here: the model is shown something else than it was "
    for more in ([], [one], ["modalities.image.processor.max_tiles=8"]):
        capsys.readouterr()
        assert main([*scored, *more]) == 0
        said = capsys.readouterr()
        losses.append(json.loads(said.out)["overall"]["loss"])
        assert (f"warning: {told}trained on" in said.err.splitlines()) == (
            more == ["modalities.image.processor.max_tiles=1"]
        )
    assert losses[0] == losses[2] != losses[1]
    assert main([*scored, "modalities.image.processor.size_px=16"]) == 2
    assert "modalities.image.processor: size_px 16 x 16: the encoder takes 32 x 32 px" in capsys.readouterr().err
    few = ["generate", run, "--image", str(tmp_path / "1.png"), "--max-new-tokens", "1"]
    assert main([*few, one]) == 0
    assert told in capsys.readouterr().err
    chat = ["chat", run, "--max-new-tokens", "1", one]
    monkeypatch.setattr("sys.stdin", io.StringIO("/exit\n"))
    assert main(chat) == 0
    assert told in capsys.readouterr().err


def test_a_picture_with_more_tiles_than_a_row_holds_is_left_out_and_named(registry, data, tmp_path) -> None:
    short = {"data": {"tokens_per_pack": 50, "quarantine": 0.9}, "train": {"steps": 1}, "output": str(tmp_path / "run")}
    train_model(make_run(RUN, data, short), registry=registry)
    causes = {row["origin"].rpartition(":")[2]: row["cause"] for row in rows_of(tmp_path / "run" / "quarantine.jsonl")}
    assert causes.keys() == {"5"}
    assert causes["5"].startswith("takes 56 tokens and a row holds 50; raise data.tokens_per_pack or make its media")
