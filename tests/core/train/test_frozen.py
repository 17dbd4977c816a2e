"""What is frozen is as it was, and what no row used is treated alike at any number of processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kosmos.checkpoint.folder import load_newest
from kosmos.checkpoint.tensors import MODEL, read_whole
from kosmos.compose import compose
from kosmos.errors import ConfigError
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
