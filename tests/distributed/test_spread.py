"""A model of transformers, made whole by the first rank alone and shared with the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kosmos.model.huggingface import HuggingFaceBackbone
from support import spread
from support.torchrun import done, torchrun

SHAPE = {"model_type": "llama", "hidden_size": 36, "num_hidden_layers": 3, "num_attention_heads": 2,
         "num_key_value_heads": 1, "intermediate_size": 50}  # fmt: skip
"""Sizes that four ranks do not divide."""


@pytest.mark.parametrize(
    ("nproc", "tied", "strategies"), [(2, True, ["fsdp", "ddp"]), (4, False, ["fsdp", "hsdp:2"])], ids=["tied", "not"]
)
def test_every_rank_has_its_share_of_the_weights_of_the_first(
    tmp_path: Path, nproc: int, tied: bool, strategies: list[str]
) -> None:
    HuggingFaceBackbone(200, config={**SHAPE, "tie_word_embeddings": tied}).model.save_pretrained(tmp_path)
    lines = done(torchrun(nproc, [spread.__file__, tmp_path, *strategies])).splitlines()
    assert len(lines) == len(strategies)
    for strategy, line in zip(strategies, lines, strict=True):
        ranks = json.loads(line)
        assert [rank["differ"] for rank in ranks] == [[]] * nproc
        shards = {"fsdp": nproc, "ddp": 1, "hsdp:2": 2}[strategy]
        assert all(rank["here"] < 1.1 * rank["parameters"] / shards for rank in ranks)
