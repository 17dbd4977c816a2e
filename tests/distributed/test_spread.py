"""A model of transformers, made whole by the first rank alone and shared with the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kosmos.model.huggingface import HuggingFaceBackbone
from support import spread
from support.torchrun import LLAMA, done, forked

SHAPE = {"model_type": "llama", "hidden_size": 36, "num_hidden_layers": 3, "num_attention_heads": 2,
         "num_key_value_heads": 1, "intermediate_size": 50}  # fmt: skip
"""Sizes that four ranks do not divide."""


WAYS = [(2, "tied", "fsdp"), (2, "tied", "ddp"), (4, "not", "fsdp"), (4, "not", "hsdp:2")]
"""Processes, whether the embedding is the output layer too, and strategy."""


@pytest.fixture(scope="module")
def spread_out(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """What the ranks have of the model, for each way. One launch makes all."""
    folder = tmp_path_factory.mktemp("spread")
    for name in ("tied", "not"):
        model = HuggingFaceBackbone(200, config={**SHAPE, "tie_word_embeddings": name == "tied"}).model
        model.save_pretrained(folder / name)
    ways = [f"{nproc},{folder / name},{strategy}" for nproc, name, strategy in WAYS]
    return [json.loads(line) for line in done(forked(4, [spread.__file__, *ways], imports=LLAMA)).splitlines()]


@pytest.mark.parametrize("number", range(len(WAYS)), ids=[" ".join(map(str, way)) for way in WAYS])
def test_every_rank_has_its_share_of_the_weights_of_the_first(
    spread_out: list[list[dict[str, Any]]], number: int
) -> None:
    assert len(spread_out) == len(WAYS)
    (nproc, _, strategy), ranks = WAYS[number], spread_out[number]
    assert {rank["strategy"] for rank in ranks} == {strategy.partition(":")[0]}
    assert [rank["differ"] for rank in ranks] == [[]] * nproc
    shards = {"fsdp": nproc, "ddp": 1, "hsdp:2": 2}[strategy]
    assert all(rank["here"] < 1.1 * rank["parameters"] / shards for rank in ranks)
