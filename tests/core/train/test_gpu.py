"""Whole runs on a real GPU: in bf16 and compiled, gone on with, short of memory, with every way to keep weights."""

from __future__ import annotations

import pytest
import torch

from kosmos import make_run
from kosmos.checkpoint.folder import load_newest
from kosmos.checkpoint.staging import Staging
from kosmos.train import backward
from kosmos.train.passes import joined
from kosmos.train.run import resume_run, train_model
from support.pairs import pairs_of
from support.runs import rows_of

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),  # PyTorch's compiler warns of its own code
]

BASE = {
    "modalities": ["image", "audio"],
    "streams": {
        "image": {"encoder": {"name": "timm", "model": "test_vit"}, "connector": "mlp"},
        "audio": {"encoder": {"name": "logmel", "width": 64, "layers": 1, "heads": 2}, "connector": "pool"},
    },
    "backbone": {"name": "decoder", "width": 128, "layers": 2, "heads": 4, "ffn_width": 256},
    "data": {"sources": ["shapes", "tones"], "tokens_per_pack": 512, "lanes": 2, "workers": 2},
    "train": {"steps": 8, "warmup_steps": 1, "device": "cuda"},
    "evaluate": {"max_documents": 4},
    "trackers": [],
}


def run(output, *overs):
    return make_run(BASE, {"output": str(output)}, *overs)


def losses(output):
    return [row["loss"] for row in rows_of(output / "metrics.jsonl")]


WITH_BF16 = {"device": "cuda", "precision": "bf16"}
UPDATES = {"lora": {"rank": 8, "whole": ["head", "embedding"]}}
LAYERS_OF_OTHERS = {
    "streams": {
        "image": {
            "encoder": {
                "name": "timm", "model": "vit_small_patch16_dinov3", "image_size": 64, "variable": True,
                "model_options": {"embed_dim": 64, "depth": 2, "num_heads": 2},
            },
        },
        "audio": {"encoder": {"name": "whisper", "width": 64, "layers": 2, "heads": 2, "feed_forward": 128}},
    },
    "backbone": {"name": "hf", "config": {
        "model_type": "qwen3", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 10, "head_dim": 32,
        "num_attention_heads": 4, "num_key_value_heads": 2,
    }},
}  # fmt: skip
WAYS = {
    "as it comes": {},
    "layers of others": LAYERS_OF_OTHERS,
    "uncompiled": {"train": {"compile": False}},
    "fp32": {"train": {"precision": "fp32"}},
    "8-bit momentum": {"train": {"optimizer": "lion8bit"}},
    "bf16 weights": {"train": {"weights": "bf16", "optimizer": {"name": "lion", "master": "bits16"}}},
    "released": {
        "train": {
            "weights": "bf16", "optimizer": {"name": "lion8bit", "master": "stochastic"}, "release_gradients": True,
            "clip_norm": None,
        },
        "data": {"lanes": 1},
    },
    "recomputed": {"train": {"gradient_checkpointing": True}},
    "recomputed in part": {"train": {"gradient_checkpointing": "selective", "compile": False}},
    "adamw": {"train": {"optimizer": "adamw"}},
    "rows as one": {"train": {"lanes_at_once": 2}},
    "8 bits, tensorwise": {"train": {"fp8": "tensorwise"}},
    "8 bits, rowwise": {"train": {"fp8": "rowwise"}},
    "8 bits, gradients of weights in bf16": {"train": {"fp8": "rowwise_with_gw_hp"}},
    "8 bits, uncompiled": {"train": {"fp8": "rowwise", "compile": False}},
    "8 bits, updates beside fixed weights": {"backbone": UPDATES, "train": {"fp8": "rowwise"}},
    "updates beside fixed weights": {"backbone": UPDATES},
    "updates beside fixed weights, recomputed": {"backbone": UPDATES, "train": {"gradient_checkpointing": True}},
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_losses_fall_and_nothing_is_compiled_late(tmp_path, way):
    train_model(run(tmp_path / "run", WAYS[way], {"train": {"steps": 24}}))
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")
    assert sum(losses(tmp_path / "run")[-4:]) < 0.8 * sum(losses(tmp_path / "run")[:4])
    assert all(row["mfu"] > 0 for row in rows)
    if "compilations" in rows[-1]:
        assert rows[-1]["compilations"] == rows[len(rows) // 2]["compilations"] > 0


@pytest.mark.parametrize(
    "way", ["as it comes", "layers of others", "uncompiled", "bf16 weights", "updates beside fixed weights"]
)
def test_a_run_that_goes_on_takes_the_same_steps(tmp_path, way):
    train_model(run(tmp_path / "whole", WAYS[way]))
    train_model(run(tmp_path / "cut", WAYS[way], {"checkpoint": {"every_steps": 1, "keep_last": 9}}))
    for step in range(5, 9):  # what is fixed is linked from the third checkpoint on
        (tmp_path / "cut" / "checkpoints" / f"step-0000000{step}").rename(tmp_path / f"gone-{step}")
    resume_run(tmp_path / "cut")
    assert losses(tmp_path / "cut") == pytest.approx(losses(tmp_path / "whole"), rel=2e-2)


@pytest.mark.parametrize("objective", ["dpo", "orpo"])
@pytest.mark.parametrize("over", [{}, {"backbone": {"lora": {"rank": 4}}}], ids=["whole", "lora"])
def test_preferences_are_learned_as_on_a_cpu(tmp_path, objective, over):
    alone = {"backbone": BASE["backbone"], "data": {"tokens_per_pack": 256, "lanes": 2, "workers": 0}, "trackers": []}
    exact = {"steps": 6, "warmup_steps": 0, "precision": "fp32", "optimizer": "adamw", "objective": objective}
    for name, there in (("cpu", {"device": "cpu"}), ("gpu", {"device": "cuda"}), ("bf16", WITH_BF16)):
        settings = make_run(alone, over, {"train": {**exact, **there}, "output": str(tmp_path / name)})
        train_model(settings, sources=[pairs_of("pairs", 60)])
    assert losses(tmp_path / "gpu") == pytest.approx(losses(tmp_path / "cpu"), rel=2e-3)
    assert losses(tmp_path / "bf16") == pytest.approx(losses(tmp_path / "cpu"), rel=0.05)
    first = rows_of(tmp_path / "bf16" / "metrics.jsonl")[0]
    assert objective == "orpo" or first["loss"] == pytest.approx(0.6931, abs=2e-3)  # of a model and itself


def test_rows_that_are_computed_as_one_have_the_losses_of_each(tmp_path, monkeypatch):
    sizes = []

    def noted(batches):
        sizes.append(len(batches))
        return joined(batches)

    monkeypatch.setattr(backward, "joined", noted)
    exact = {"train": {"precision": "fp32", "compile": False, "optimizer": "adamw"}}
    for at_once in (1, 2):
        train_model(run(tmp_path / str(at_once), exact, {"train": {"lanes_at_once": at_once}}))
    assert sizes == [1] * 16 + [2] * 8
    assert losses(tmp_path / "2") == pytest.approx(losses(tmp_path / "1"), rel=1e-3)


def test_rows_that_memory_does_not_hold_are_computed_in_parts(tmp_path):
    # Uncompiled attention and products of a row of 16,384 tokens take some 2 GB.
    large = {
        "data": {"tokens_per_pack": 16_384, "lanes": 1},
        "backbone": {"name": "decoder", "width": 256, "layers": 8, "heads": 4, "ffn_width": 1024},
        "train": {"compile": False, "steps": 3},
    }
    train_model(run(tmp_path / "whole", large))
    peak = max(row["peak_memory_bytes"] for row in rows_of(tmp_path / "whole" / "metrics.jsonl"))
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    try:
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 0.7 * peak) / total)
        train_model(run(tmp_path / "parts", large))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert load_newest(tmp_path / "parts" / "checkpoints").state["parts"] > 1
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "whole"), rel=2e-2)


def test_copies_for_a_checkpoint_are_pinned_and_hold_what_was_there(monkeypatch):
    monkeypatch.setattr("kosmos.checkpoint.staging.SLAB_BYTES", 2**20)
    staging = Staging()
    for seed in range(2):  # the second time over the first
        torch.manual_seed(seed)
        given = {f"{n}": torch.randn(n, 300, device="cuda", dtype=torch.bfloat16) for n in range(900)}
        given |= {"turned": torch.randn(700, 500, device="cuda").T, "count": torch.tensor(seed, device="cuda")}
        expected = {name: tensor.cpu() for name, tensor in given.items()}
        copies = staging.copies(given)
        for tensor in given.values():  # training goes on
            tensor.zero_()
        assert staging.problem is None
        assert all(torch.equal(copies[name], tensor) for name, tensor in expected.items())
        assert all(copy.is_pinned() for copy in copies.values() if copy.numel())


def test_pinned_memory_that_the_last_copies_did_not_need_is_given_back(monkeypatch):
    monkeypatch.setattr("kosmos.checkpoint.staging.SLAB_BYTES", 2**20)
    staging = Staging()
    given = {f"{n}": torch.randn(2**18, device="cuda") for n in range(8)}  # a slab each
    staging.copies(given)
    before = torch.cuda.host_memory_stats()["allocated_bytes.current"]
    copies = staging.copies({"0": given["0"]})
    assert torch.cuda.host_memory_stats()["allocated_bytes.current"] <= before - 7 * 2**20
    assert torch.equal(copies["0"], given["0"].cpu())
    again = staging.copies(given)
    assert staging.problem is None
    assert all(torch.equal(again[name], tensor.cpu()) for name, tensor in given.items())
