"""What a trainer holds after a step, and what was told of it: bytes of weights, gradients and optimizer state.

Run by torchrun: torchrun --nproc-per-node N held.py RUNS.json FOLDER

Each of the runs is trained for a step by all processes; for each the first rank prints what every one held.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kosmos import RunConfig, make_run
from kosmos.compose import compose
from kosmos.data.feeder import open_feeder
from kosmos.plugins import Registry
from kosmos.runtime.parallel import Parallel
from kosmos.train.forecast.memory import memory_of
from kosmos.train.loop import Trainer
from kosmos.train.opening import open_run
from kosmos.train.optim.operands import local
from kosmos.train.output import RunFolder
from support.runs import small_run, ticks_registry


def stepped(config: RunConfig, folder: Path, registry: Registry, parallel: Parallel) -> tuple[Trainer, dict[str, Any]]:
    """A trainer after one step, and the step's row of metrics."""
    opened = open_run(config, None, registry, parallel)
    feeder = open_feeder(opened.feed, opened.lanes, workers=0)
    folder.mkdir(exist_ok=True)
    trainer = Trainer(
        opened.composition, feeder, RunFolder(folder), device=opened.device, dtype=opened.dtype,
        parallel=opened.parallel, order=opened.order,
    )  # fmt: skip
    return trainer, trainer.train_step()


def size(tensor: Tensor) -> int:
    own = local(tensor)
    return own.numel() * own.element_size()


def held(trainer: Trainer) -> dict[str, int]:
    gradients = [p.grad for p in trainer.parameters if p.grad is not None]
    values = [value for state in trainer.optimizer.state.values() for value in state.values()]
    return {
        "weights": sum(size(p) for p in trainer.model.parameters()),
        "gradients": sum(map(size, gradients)),
        "optimizer": sum(size(value) for value in values if isinstance(value, torch.Tensor)),
    }


def told(over: dict[str, Any], processes: int = 1) -> dict[str, int]:
    """What a forecast says of the process that holds most, of ``small_run`` with ``over``."""
    composition = compose(small_run(None, **over), ticks_registry(), draw=False)
    parallel = Parallel(world_size=processes, local_world_size=processes)
    found = memory_of(composition, parallel, torch.float32)
    assert not found.state.unknown
    return {"weights": found.weights_bytes, "gradients": found.gradients_bytes, "optimizer": found.state.total}


def main(runs: str, folder: str) -> None:
    parallel = Parallel.from_environment("cpu")
    for number, run in enumerate(json.loads(Path(runs).read_text())):
        trainer, _ = stepped(make_run(run), Path(folder) / str(number), ticks_registry(), parallel)
        everyone = parallel.gather(held(trainer))
        if parallel.is_main:
            print(json.dumps(everyone), flush=True)
    parallel.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
