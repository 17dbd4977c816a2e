"""Every optimizer's state goes through a checkpoint: a resumed run is the run that was never stopped."""

from __future__ import annotations

import pytest
import torch

from kosmos.checkpoint.folder import load_newest
from kosmos.checkpoint.tensors import MODEL, read_whole
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of, small_run, ticks_registry

WIDE = {"backbone": {"width": 64, "ffn_width": 96}}
"""Rows long enough for 8-bit momentum."""


@pytest.mark.parametrize(
    "optimizer", [{"name": "lion8bit", "block": 64}, {"name": "muon"}, {"name": "lion-pytorch"}], ids=str
)
def test_losses_and_weights_after_a_resume_are_bit_identical(tmp_path, optimizer):
    over = {**WIDE, "train": {"optimizer": optimizer}, "checkpoint": {"every_steps": 3, "keep_last": 9}}
    registry, whole, cut = ticks_registry(), tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        train_model(small_run(folder, **over), registry=registry)
    (cut / "checkpoints" / "step-00000006").rename(tmp_path / "gone")  # as a run that was killed after step 3
    resume_run(cut, registry=registry)
    losses = [[row["loss"] for row in rows_of(run / "metrics.jsonl")] for run in (whole, cut)]
    weights = [read_whole(load_newest(run / "checkpoints").tensors, MODEL) for run in (whole, cut)]
    assert losses[0] == losses[1]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_the_momentum_of_a_checkpoint_is_int8_codes(tmp_path):
    over = {**WIDE, "train": {"optimizer": {"name": "lion8bit", "block": 64}, "steps": 2}}
    train_model(small_run(tmp_path / "run", **over), registry=ticks_registry())
    states = read_whole(load_newest(tmp_path / "run" / "checkpoints").tensors, "optimizer.")
    codes = [name for name, tensor in states.items() if tensor.dtype is torch.int8]
    assert codes and all(name.endswith("/codes") for name in codes)
    assert all(states[name.replace("/codes", "/scales")].dtype is torch.float32 for name in codes)
