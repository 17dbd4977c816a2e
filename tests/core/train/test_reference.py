"""A sharded model that only ever goes forward, as the one that objectives compare with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard

from kosmos import Composition, ConfigError, compose_run, make_run, save_run
from kosmos.train.sharding import forget_forward
from support.pairs import pairs_of


@pytest.fixture
def sharded() -> Iterator[Composition]:
    """Over a group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    composition = compose_run(make_run({"backbone": {"width": 32, "layers": 2, "heads": 2, "ffn_width": 48}}))
    model: Any = composition.model
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    for block in (*model.backbone.blocks, model):
        fully_shard(block, mesh=mesh)
    yield composition
    dist.destroy_process_group()


def noted(model: Any) -> list[int]:
    states = [module._get_fsdp_state() for module in model.modules() if isinstance(module, FSDPModule)]
    return [
        len(states[0]._comm_ctx.post_forward_order),
        *(len(s._fsdp_param_group._post_forward_indices) for s in states),
    ]


def test_what_is_noted_of_passes_forward_does_not_grow(sharded: Composition) -> None:
    row = sharded.pack([pairs_of("pairs", 1).document(0)])
    for _ in range(3):
        with torch.no_grad():
            sharded.model(row)
        assert sum(noted(sharded.model)) > 0
        forget_forward(sharded.model)
        assert sum(noted(sharded.model)) == 0
    assert all(parameter.to_local().numel() for parameter in sharded.model.parameters())  # shards, as they were


def test_shards_are_not_saved_as_a_model(sharded: Composition, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is sharded over ranks"):
        save_run(sharded, tmp_path / "run")
    assert not (tmp_path / "run").exists()
