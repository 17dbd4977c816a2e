"""Parameters in bf16, with an optimizer that keeps what they round away."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kosmos.checkpoint.folder import load_newest
from kosmos.checkpoint.tensors import MODEL, read_whole
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of, small_run, ticks_registry


@pytest.mark.parametrize("master", ["stochastic", "bits16"])
def test_bf16_weights_train_and_resume_bit_for_bit(tmp_path: Path, master: str) -> None:
    over = {"weights": "bf16", "optimizer": {"name": "lion", "master": master}, "precision": "bf16"}
    registry = ticks_registry()
    train_model(small_run(tmp_path / "whole", train=over), registry=registry)
    train_model(
        small_run(tmp_path / "cut", train=over, checkpoint={"every_steps": 3, "keep_last": 9}), registry=registry
    )
    (tmp_path / "cut" / "checkpoints" / "step-00000006").rename(tmp_path / "gone")
    resume_run(tmp_path / "cut", registry=registry)
    losses = [[row["loss"] for row in rows_of(tmp_path / run / "metrics.jsonl")] for run in ("whole", "cut")]
    assert losses[0] == losses[1]
    found = load_newest(tmp_path / "cut" / "checkpoints")
    assert found is not None
    assert {t.dtype for t in read_whole(found.tensors, MODEL).values()} == {torch.bfloat16}


def test_their_losses_are_near_those_of_fp32_weights(tmp_path: Path) -> None:
    registry = ticks_registry()
    bf16 = {"weights": "bf16", "precision": "bf16", "optimizer": {"name": "lion", "master": "bits16"}, "steps": 20}
    train_model(small_run(tmp_path / "bf16", train=bf16), registry=registry)
    train_model(small_run(tmp_path / "fp32", train={"steps": 20}), registry=registry)
    last = [rows_of(tmp_path / run / "metrics.jsonl")[-1]["loss"] for run in ("bf16", "fp32")]
    assert last[0] == pytest.approx(last[1], rel=0.02)  # measured: 0.3 %
