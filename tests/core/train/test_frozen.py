"""What is frozen is as it was, and what no row used is treated alike at any number of processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kosmos.checkpoint.folder import load_newest
from kosmos.checkpoint.tensors import MODEL, read_whole
from kosmos.compose import compose
from kosmos.errors import ConfigError
from kosmos.train.doubts import doubts
from kosmos.train.run import train_model
from support.runs import rows_of, small_run, ticks_registry


def test_a_frozen_backbone_keeps_its_weights_and_drops_nothing_out(tmp_path: Path) -> None:
    losses = {}
    for dropout in (0.0, 0.5):
        config = small_run(tmp_path / str(dropout), backbone={"freeze": True, "dropout": dropout})
        train_model(config, registry=ticks_registry())
        losses[dropout] = [row["loss"] for row in rows_of(tmp_path / str(dropout) / "metrics.jsonl")]
    assert losses[0.0] == losses[0.5]
    fresh = compose(config, ticks_registry()).model.state_dict()
    found = load_newest(tmp_path / "0.5" / "checkpoints")
    assert found is not None
    trained = read_whole(found.tensors, MODEL)
    moved = {name for name, tensor in trained.items() if not torch.equal(tensor, fresh[name])}
    assert moved and all(name.startswith("streams.") for name in moved)


def test_nothing_left_to_train_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"backbone\.freeze: nothing is left to train"):
        compose(small_run(None, modalities=[], backbone={"freeze": True}), ticks_registry())
    every = {"freeze": True, "freeze_connector": True}
    with pytest.raises(ConfigError, match=r"nothing is left to train; a frozen backbone needs a stream that is"):
        compose(small_run(None, backbone={"freeze": True}, streams={"ticks": every}), ticks_registry())


def test_what_is_frozen_as_it_was_drawn_is_said_where_init_does_not_hold_it(tmp_path: Path) -> None:
    registry, texts, ticks = ticks_registry(), tmp_path / "texts", tmp_path / "ticks"
    for folder, over in ((texts, {"modalities": [], "data": {"sources": ["sums"]}}), (ticks, {})):
        train_model(small_run(folder, train={"steps": 1}, **over), registry=registry)

    def said(init: Path | None, **stream: Any) -> list[str]:
        run = small_run(init=init and str(init), streams={"ticks": stream})
        model = compose(run, registry).model
        model.streams["ticks"].encoder.without_files = {}
        found = doubts(run, (), resumed=False, streams=model.streams.items(), backbone=model.backbone)
        return [line for line in found if "drawn at random" in line]

    both = {"freeze": True, "freeze_connector": True}
    assert said(ticks, **both) == said(texts) == []
    assert said(texts, **both) == [
        f"streams.ticks.freeze: the encoder's weights are drawn at random ({texts}, which the run begins with, has "
        "none), and it never learns; leave freeze out, or give it weights (another init)",
        f"streams.ticks.freeze_connector: the connector's weights are drawn at random ({texts}, which the run begins "
        "with, has none), and it never learns; leave freeze_connector out, or give it weights (another init)",
    ]
    (line,) = said(texts / "checkpoints" / "step-00000001", lora=2)
    assert line.startswith("streams.ticks.lora: ") and "only updates to them are learned" in line
    assert len(said(None, freeze=True)) == 1
    assert said(texts / "checkpoints" / "step-00000009", **both) == said(tmp_path, **both) == []  # which are refused


def test_a_stream_without_documents_may_be_kept_for_a_later_stage() -> None:
    def said(**stream: Any) -> list[str]:
        run, texts = small_run(streams={"ticks": stream}), SimpleNamespace(name="texts", modalities=())
        return [line for line in doubts(run, [texts], resumed=True) if "no document holds" in line]

    assert said(freeze=True, freeze_connector=True) == []
    (line,) = said(freeze=True)
    assert "to keep it for a later stage set streams.ticks: {freeze: true, freeze_connector: true}; else leave" in line


@pytest.mark.parametrize("optimizer", ["lion", "adamw"])
def test_a_stream_that_no_row_used_is_decayed_like_everything_else(tmp_path: Path, optimizer: str) -> None:
    """As it is where another process has rows with it, which then sends zeros."""
    train = {"optimizer": optimizer, "steps": 2, "schedule": "constant", "warmup_steps": 0, "learning_rate": 0.1}
    config = small_run(tmp_path / "run", data={"sources": ["sums"], "tokens_per_pack": 128}, train=train)
    train_model(config, registry=ticks_registry())
    found = load_newest(tmp_path / "run" / "checkpoints")
    assert found is not None
    name = "streams.ticks.connector.layers.0.weight"
    before = compose(config, ticks_registry()).model.state_dict()[name]
    after = read_whole(found.tensors, MODEL)[name]
    assert torch.allclose(after, before * (1 - 0.1 * 0.1) ** 2, rtol=1e-5)
