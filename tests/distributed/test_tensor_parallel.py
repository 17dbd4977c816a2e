"""Ranks that share matrices train as one process does, and their checkpoints are like any other."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from kosmos import make_run
from kosmos.errors import ConfigError, TrainingError
from kosmos.model.decoder import Decoder
from kosmos.model.omni import OmniModel
from kosmos.runtime.parallel import Parallel
from kosmos.train.sharding import check_strategy, layout
from kosmos.train.sharing import check_sharing


def model(**shape: Any) -> OmniModel:
    return OmniModel(Decoder(300, width=48, layers=1, **{"heads": 4, "kv_heads": 4, "ffn_width": 48, **shape}), {})


def settings(**values: Any) -> Any:
    return make_run({"parallel": values}).parallel


@pytest.mark.parametrize(
    ("shape", "parallel", "said"),
    [
        ({"heads": 3, "kv_heads": 3}, {"tensor": 2}, "parallel.tensor: 2 ranks cannot share 3 heads evenly"),
        ({"kv_heads": 1}, {"tensor": 2}, "parallel.tensor: 2 ranks cannot share 1 kv_heads evenly"),
        ({"ffn_width": 49}, {"tensor": 2}, "parallel.tensor: 2 ranks cannot share 49 ffn_width evenly"),
        ({"kv_heads": 2}, {"sequence": 4}, "parallel.sequence: 4 ranks cannot share 2 kv_heads evenly"),
        (
            {"kv_heads": 2},
            {"tensor": 2, "sequence": 2},
            "parallel.sequence: 2 ranks cannot share 1 kv_heads (the part of one of 2 ranks of parallel.tensor) evenly",
        ),
        ({}, {"tensor": 2, "strategy": "ddp"}, "parallel.tensor: goes with strategy fsdp, not with ddp"),
        ({}, {"tensor": 2, "strategy": "hsdp"}, "parallel.tensor: goes with strategy fsdp, not with hsdp"),
    ],
)
def test_degrees_that_do_not_divide_the_decoder_are_refused(
    shape: dict[str, Any], parallel: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_sharing(model(**shape).backbone, settings(**parallel), 8)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


def test_one_process_ignores_the_degrees() -> None:
    check_sharing(model(heads=3, kv_heads=3).backbone, settings(tensor=2), 1)
    assert Parallel().shared_by(2).lanes(3) == [0, 1, 2]


class Other(nn.Module):
    """A backbone of somebody else; nothing of it is called."""


@pytest.mark.parametrize("field", ["tensor", "sequence"])
def test_another_backbone_is_refused(field: str) -> None:
    omni = model()
    omni.backbone = Other()
    with pytest.raises(
        ConfigError, match=rf"^parallel.{field}: only the built-in decoder .* backbone is Other; set it to 1$"
    ):
        check_sharing(omni.backbone, settings(**{field: 2}), 2)


def test_ranks_that_cannot_form_groups_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^parallel: 6 processes cannot be split into groups of tensor x sequence = 4"
    ):
        Parallel(world_size=6).shared_by(4)


def test_ranks_of_a_group_have_the_same_lanes() -> None:
    lanes = [Parallel(rank, world_size=6).shared_by(2).lanes(6) for rank in range(6)]
    assert lanes == [[0, 3], [0, 3], [1, 4], [1, 4], [2, 5], [2, 5]]
    with pytest.raises(ConfigError, match=r"4 lanes cannot .* evenly to 3 groups of 2 processes; set data.lanes=6, "):
        Parallel(world_size=6).shared_by(2).lanes(4)


def test_ranks_of_a_group_that_read_different_rows_are_named() -> None:
    parallel = Parallel(world_size=4).shared_by(2)
    assert parallel.one_of_each_group([1, 1, 2, 2]) == [1, 2]
    with pytest.raises(TrainingError, match="ranks 2 and 3 train the same rows and have read different ones"):
        parallel.one_of_each_group([1, 1, 2, 3])


@pytest.mark.parametrize(
    ("parallel", "line"),
    [
        ({"shards": 3}, "parallel.shards: only strategy hsdp shards within groups of ranks"),
        ({"strategy": "hsdp", "shards": 4}, "parallel.shards: 6 ranks cannot be split into several groups of 4"),
        ({"strategy": "hsdp", "shards": 6}, "parallel.shards: 6 ranks cannot be split into several groups of 6"),
        ({"strategy": "ddp", "offload": True}, "parallel.offload: not with strategy ddp"),
    ],
)
def test_a_strategy_that_so_many_ranks_cannot_train_by_is_refused(parallel: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        check_strategy(settings(**parallel), Parallel(world_size=6))
    check_strategy(settings(strategy="hsdp", shards=3), Parallel(world_size=6))


@pytest.mark.parametrize(
    ("parallel", "line"),
    [
        ({}, "6: fsdp"),
        ({"strategy": "ddp"}, "6: ddp"),
        ({"strategy": "hsdp", "shards": 3, "sequence": 3}, "6: hsdp, 2 groups of 3, sequence 3"),
        ({"tensor": 2, "sequence": 3, "offload": True}, "6: fsdp, tensor 2, sequence 3, offload"),
    ],
)
def test_the_layout_is_told_in_a_few_words(parallel: dict[str, Any], line: str) -> None:
    assert layout(settings(**parallel), Parallel(world_size=6)) == line
    assert layout(settings(**parallel), Parallel()) == ""
