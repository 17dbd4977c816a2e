"""Run by torchrun: a program that has a process group of its own trains twice, and goes on with its group.

torchrun --nproc-per-node 2 own_group.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from kosmos import ConfigError, train_model
from support.runs import small_run, ticks_registry


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    groups = dist.distributed_c10d._world.pg_map
    of_old, before = dist.new_group(backend="gloo"), 2
    for name in ("first", "second"):
        train_model(small_run(folder / name, train={"steps": 2, "warmup_steps": 1}), registry=ticks_registry())
    with pytest.raises(ConfigError, match="holds a run already"):
        train_model(small_run(folder / "first"), registry=ticks_registry())
    for group in (None, of_old):
        total = torch.ones(())
        dist.all_reduce(total, group=group)
        assert total == 2, total
    assert len(groups) == before, groups
    print("both groups are there")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
