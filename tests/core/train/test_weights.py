"""Parameters in bf16, with an optimizer that keeps what they round away."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kosmos.checkpoint.folder import load_newest
from kosmos.checkpoint.tensors import MODEL, read_whole
from kosmos.errors import ConfigError
from kosmos.plugins import load_plugins
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


def test_on_a_cpu_that_multiplies_no_bf16_they_are_multiplied_in_it_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoders of sound are given fp32 samples, which nothing but autocast brings to their weights' type."""
    for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False, raising=False)
    train = {"weights": "bf16", "precision": "auto", "optimizer": {"master": "bits16"}, "steps": 1}
    train_model(small_run(tmp_path / "run", modalities=["audio"], train=train), registry=load_plugins())
    assert rows_of(tmp_path / "run" / "metrics.jsonl")[0]["cells_by_stream"]["audio"] > 0


def test_fp32_products_of_bf16_weights_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^train\.precision: fp32 .* bf16; leave .* or set train\.weights=fp32$"):
        train_model(small_run(tmp_path / "run", train={"weights": "bf16"}), registry=ticks_registry())
    assert not (tmp_path / "run").exists()
