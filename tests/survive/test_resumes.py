"""A run that another process goes on with is to the bit the one that nobody stopped, on every fast path.

What a process finds out of a model, it may find out differently where weights come from a checkpoint. One kind of runs
here; ``nox -s resumes`` takes all.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kosmos.checkpoint.folder import committed, step_of
from support.command import kosmos
from support.runs import assert_same_tensors, rows_of

HALF, STEPS = 3, 6
PICTURES, SOUNDS, VIDEOS = ("--modalities", "image"), ("--modalities", "audio"), ("--modalities", "video")
BOTH = ("--modalities", "image,audio")
OUR_DECODER = ("backbone.width=256", "backbone.layers=4", "backbone.heads=4", "backbone.ffn_width=1024")
"""Large enough that it trains by kernels (``kosmos.runtime.native.WORTH``), as those of transformers."""


def transformers(kind: str, **fields: Any) -> str:
    sizes = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 5, "num_attention_heads": 4}
    config = {"model_type": kind, **sizes, **fields}
    return f"backbone={json.dumps({'name': 'hf', 'config': config})}"


LLAMA = transformers("llama", num_key_value_heads=2)
EXPERTS = {"num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def bf16_weights(optimizer: str, master: str) -> tuple[str, str]:
    return "train.weights=bf16", f"train.optimizer={{name: {optimizer}, master: {master}}}"


IN_THE_SUITE = "Llama"
RUNS = {
    "Llama": (*PICTURES, LLAMA),
    "data workers": (*BOTH, "data.workers=2"),
    "bf16 weights": (*BOTH, *bf16_weights("lion", "bits16")),
    "fp32": (*BOTH, "train.precision=fp32"),
    "every modality": ("--modalities", "image,audio,video"),
    "video": VIDEOS,
    "Qwen 3": (*PICTURES, transformers("qwen3", num_key_value_heads=2)),
    "Qwen 3 with experts": (*PICTURES, transformers("qwen3_moe", **EXPERTS)),
    "Gemma 3": (*PICTURES, transformers("gemma3_text", num_key_value_heads=2)),
    "OLMo 2": (*PICTURES, transformers("olmo2")),
    "Phi 3": (*PICTURES, transformers("phi3", pad_token_id=0)),
    "GPT-NeoX": (*PICTURES, transformers("gpt_neox")),
    "Llama in fp32": (*PICTURES, LLAMA, "train.precision=fp32"),
    "Llama with updates": (*PICTURES, LLAMA, "backbone.lora={rank: 4}"),
    "decoder with updates": (*PICTURES, "backbone.lora={rank: 4}"),
    "frozen decoder": (*BOTH, "backbone.freeze=true"),
    "AdamW": (*BOTH, "train.optimizer=adamw"),
    "Muon": (*BOTH, "train.optimizer=muon"),
    "8-bit Lion": (*BOTH, "train.optimizer=lion8bit"),
    "bf16 weights, AdamW": (*BOTH, *bf16_weights("adamw", "bits16")),
    "bf16 weights, rounded by chance": (*BOTH, *bf16_weights("lion", "stochastic")),
    "gradients released": (*BOTH, "train.release_gradients=true", "train.clip_norm=null"),
    "recomputed": (*BOTH, "train.gradient_checkpointing=true"),
    "recomputed in part": (*BOTH, "train.gradient_checkpointing=selective"),
    "rows at once": (*BOTH, "train.lanes_at_once=2", "data.lanes=2"),
    "z-loss": (*BOTH, "train.z_loss=1e-4"),
    "compiled": (*PICTURES, "train.compile=true"),
    "ViT": (*PICTURES, "streams.image.encoder={name: timm, model: vit_tiny_patch16_224, image_size: 64}"),
    "NaFlex": (*PICTURES, "streams.image.encoder={name: timm, model: naflexvit_base_patch16_gap, variable: true}"),
    "tiles": (*PICTURES, "modalities.image.processor={max_tiles: 4}"),
    "resampler": (*PICTURES, "streams.image.connector=resampler"),
    "Whisper": (*SOUNDS, "streams.audio.encoder=whisper"),
    "wav2vec 2.0": (*SOUNDS, "streams.audio.encoder=wav2vec2"),
    "Conformer": (*SOUNDS, "streams.audio.encoder=conformer"),
    "pytorchvideo": (*VIDEOS, "streams.video.encoder=pytorchvideo"),
}
long = pytest.mark.skipif("KOSMOS_TEST_RESUMES" not in os.environ, reason="minutes long: nox -s resumes")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [pytest.param(s, id=name, marks=() if name == IN_THE_SUITE else long) for name, s in RUNS.items()]
)
def test_another_process_goes_on_to_the_same_bits(settings: tuple[str, ...], tmp_path: Path) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    of_ours = () if any(s.startswith("backbone={") for s in settings) else OUR_DECODER
    train(
        "train.precision=bf16", *of_ours, *settings, "--output", whole, "data.tokens_per_pack=256",
        f"train.steps={STEPS}", f"checkpoint.every_steps={HALF}", "evaluate.max_documents=4",
    )  # fmt: skip
    shutil.copytree(whole, resumed)
    shutil.rmtree(committed(resumed / "checkpoints")[0])
    train("--resume", resumed)
    assert [step_of(checkpoint) for checkpoint in committed(resumed / "checkpoints")] == [STEPS, HALF]
    assert_same_tensors(resumed, whole)
    assert losses(resumed) == losses(whole)


def train(*arguments: str | Path) -> None:
    ended = kosmos("train", *arguments, timeout=300)
    assert ended.returncode == 0, ended.stderr


def losses(run: Path) -> dict[int, float]:
    """By step: what a resumed run writes again stands behind."""
    return {row["step"]: row["loss"] for row in rows_of(run / "metrics.jsonl")}
