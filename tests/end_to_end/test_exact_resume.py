"""Every way to be fast goes on exactly: a run of all modalities, some rows without some, that was cut and resumed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kosmos import make_run
from kosmos.plugins import load_plugins
from kosmos.train.run import resume_run, train_model
from support.kernels import multiply_as_convolutions, small_models_train_by_kernels
from support.runs import assert_same_tensors, rows_of
from support.steps import threads_of_torch
from support.trainings import as_a_gpu_joins

pytestmark = pytest.mark.slow

RUN: dict[str, Any] = {
    "modalities": ["image", "audio", "video"],
    "data": {
        "sources": ["shapes", "tones", "moving-shapes", "sums"],
        "tokens_per_pack": 96, "lanes": 2, "look_ahead": 6, "workers": 0, "held_out": 0,
    },
    "streams": {
        "image": {"connector": {"name": "resampler", "latents": 3, "heads": 2}},
        "audio": {"encoder": {"name": "logmel", "width": 32, "layers": 1, "heads": 2}},
    },
    "backbone": {"name": "decoder", "width": 64, "layers": 2, "heads": 2, "ffn_width": 96, "dropout": 0.1},
    "train": {"steps": 4, "warmup_steps": 1, "precision": "fp32"},
    "evaluate": {"max_documents": 4},
    "checkpoint": {"every_steps": 2, "keep_last": 9},
    "trackers": [],
}  # fmt: skip
NO_VIDEO = {"modalities": ["image", "audio"], "data": {"sources": ["shapes", "tones", "sums"]}}
"""What computes activations again; the default encoder of films does not."""
VIT = {"streams": {"image": {"encoder": {"name": "timm", "model": "test_vit"}}}}
SMALL = {"path": "shapes", "name": "small", "options": {"picture_px": 32}}


def variable(model: str) -> dict[str, Any]:
    size = {"image_size": 64, "variable": True, "model_options": {"embed_dim": 32, "depth": 2, "num_heads": 2}}
    encoder = {"name": "timm", "model": model, **size}
    return {"data": {"sources": [SMALL, "shapes", "tones", "sums"]}, "streams": {"image": {"encoder": encoder}}}


def sounds(name: str, **options: Any) -> dict[str, Any]:
    tiny = {"width": 32, "layers": 1, "heads": 2, "feed_forward": 64}
    return {"streams": {"audio": {"encoder": {"name": name, **tiny, **options}}}}


def in_bf16(optimizer: dict[str, Any]) -> dict[str, Any]:
    return {"train": {"precision": "bf16", "weights": "bf16", "optimizer": optimizer}}


AT_ONCE, JOINED, KERNELS, CONVOLVES = "rows at once", "rows joined as on a GPU", "kernels in C++", "as convolutions"
"""What a way is called that has them."""
TWO_AT_ONCE = {"train": {"lanes_at_once": 2, "precision": "bf16"}, "backbone": {"dropout": 0.0}}
WAYS: dict[str, list[dict[str, Any]]] = {
    "buckets of documents": [],
    "recurring shapes in bf16": [{"train": {"precision": "bf16"}}],
    "Lion in C++": [{"train": {"optimizer": {"name": "lion", "compile": True}}}],
    "8-bit Lion in C++, rounded at random": [
        in_bf16({"name": "lion8bit", "compile": True, "master": "stochastic", "block": 64})
    ],
    "8-bit Lion in C++, 16 bits": [in_bf16({"name": "lion8bit", "compile": True, "master": "bits16", "block": 64})],
    "AdamW, 8 bits": [in_bf16({"name": "adamw", "master": "bits8", "compile": False})],
    "AdamW in C++, rounded at random": [in_bf16({"name": "adamw", "master": "stochastic", "compile": True})],
    "released gradients": [
        {"data": {"lanes": 1}, "train": {"release_gradients": True, "clip_norm": None, "optimizer": "lion8bit"}}
    ],
    "recomputed": [NO_VIDEO, VIT, {"train": {"gradient_checkpointing": True}}],
    "selective": [NO_VIDEO, VIT, {"train": {"gradient_checkpointing": "selective", "precision": "bf16"}}],
    "budgets of cells": [{"data": {"cells_per_pack": {"image": 20, "audio": 60}}}],
    AT_ONCE: [TWO_AT_ONCE],
    KERNELS: [],
    f"{KERNELS}, {CONVOLVES}": [],
    f"{KERNELS} in bf16": [{"train": {"precision": "bf16"}}],
    f"{KERNELS}, {AT_ONCE}": [TWO_AT_ONCE],
    JOINED: [{"train": {"lanes_at_once": 2}}],
    "Muon": [{"train": {"optimizer": "muon"}}],
    "pictures of several sizes, as one row": [NO_VIDEO, variable("naflexvit_base_patch16_gap")],
    f"{KERNELS} in bf16, layers of timm and transformers": [
        NO_VIDEO, variable("vit_base_patch16_224"), sounds("whisper"),
        {"data": {"tokens_per_pack": 72}, "train": {"precision": "bf16"}},
    ],
    "layers of torchaudio": [NO_VIDEO, sounds("wav2vec2", channels=16)],
    "workers that share a lane": [{"data": {"lanes": 1, "workers": 3}}],
}  # fmt: skip


@contextmanager
def machine_for(way: str) -> Iterator[None]:
    """Where a run goes that way."""
    with ExitStack() as held:
        held.enter_context(threads_of_torch(2 if AT_ONCE in way else 1))
        if KERNELS in way:
            held.enter_context(small_models_train_by_kernels())
        if CONVOLVES in way:
            multiply_as_convolutions(held.enter_context(pytest.MonkeyPatch.context()))
        if JOINED in way:
            held.enter_context(as_a_gpu_joins(2))
        yield


@pytest.mark.parametrize("way", WAYS)
def test_losses_weights_and_states_are_those_of_a_run_that_was_never_cut(tmp_path: Path, way: str) -> None:
    registry = load_plugins()
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    with machine_for(way):
        train_model(make_run(RUN, *WAYS[way], {"output": str(whole)}), registry=registry)
    shutil.copytree(whole, cut)
    shutil.rmtree(cut / "checkpoints" / "step-00000004")  # as killed after step 2
    with machine_for(way):
        resume_run(cut, {"data": {"workers": 1}} if "workers" in way else {}, registry=registry)
    rows = [rows_of(run / "metrics.jsonl") for run in (whole, cut)]
    assert [row["step"] for row in rows[1]] == [1, 2, 3, 4]
    assert [row["loss"] for row in rows[1]] == [row["loss"] for row in rows[0]]
    assert_same_tensors(whole, cut)
    lacking = [0 in row["cells_by_stream"].values() or 2.0 in row["imbalance_by_stream"].values() for row in rows[0]]
    assert any(lacking)  # of two rows or one, some have nothing of a stream
