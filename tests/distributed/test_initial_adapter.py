"""A sharded run that begins with an adapter of PEFT has the model that it was written of, or says once why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kosmos import make_run, train_model
from kosmos.cli import main
from kosmos.train.saved import opened_run
from support.ranks import End, train_in_turn
from support.runs import SMALL
from support.torchrun import LLAMA

SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base whose embedding is tied and has to grow, a run of one process that began with it, and its adapter."""
    home = tmp_path_factory.mktemp("adapter")
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=200, tie_word_embeddings=True, **SHAPE)).save_pretrained(home / "base")
    backbone = {"name": "hf", "model": str(home / "base"), "lora": {"rank": 3, "whole": ["embed_tokens", "norm"]}}
    data = {**SMALL["data"], "sources": ["sums"]}
    train = {"steps": 2, "warmup_steps": 0, "precision": "fp32", "learning_rate": 0.02}
    train_model(make_run({"data": data, "backbone": backbone, "train": train, "output": str(home / "first")}))
    assert main(["export", str(home / "first"), str(home / "adapter"), "--for", "peft"]) == 0
    return home


@pytest.fixture(scope="module")
def ends(home: Path) -> dict[str, list[End]]:
    """How two ranks ended that took the runs in turn, by the names of these."""
    data = ("--data", "sums", "data.lanes=2", "data.tokens_per_pack=128", "data.workers=0", "trackers=none")
    backbone = ("backbone.name=hf", f"backbone.model={home / 'base'}", f"backbone.lora.adapter={home / 'adapter'}")
    still = ("--steps", 1, "train.learning_rate=1e-12", "train.weight_decay=0", "train.precision=fp32")
    more: dict[str, tuple[Any, ...]] = {"still": (), "another": ("backbone.lora.rank=2",)}
    cases = {
        name: [(*data, *backbone, *still, "parallel.strategy=fsdp", "--output", home / name, *options)] * 2
        for name, options in more.items()
    }
    return train_in_turn(home, cases, imports=LLAMA)


def test_two_ranks_begin_with_the_model_of_an_adapter(home: Path, ends: dict[str, list[End]]) -> None:
    assert [status for status, _ in ends["still"]] == [0, 0], ends
    assert sum(said.count("begins with updates of 14 layers of the adapter ") for _, said in ends["still"]) == 1
    one, other = (
        opened_run(home / name, device="cpu", merge=True).composition.model.state_dict() for name in ("first", "still")
    )
    assert one.keys() == other.keys()
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)


def test_another_rank_is_refused_once(home: Path, ends: dict[str, list[End]]) -> None:
    (line,) = [line for _, said in ends["another"] for line in said.splitlines() if line.startswith("error")]
    assert line.startswith("error[config]: backbone.lora: rank 2 and alpha 32, and the adapter ")
    assert [status for status, _ in ends["another"]] == [2, 2]
    assert not (home / "another").exists()
