"""Run by torchrun: a model of transformers over several ranks, each of which prints what its part of it is like.

    torchrun --nproc-per-node N spread.py PROCESSES,FOLDER,STRATEGY ...

FOLDER holds the model, which is spread over so many of the N processes; a strategy is that of ``parallel``, with
``:SHARDS`` behind it where it has some. Those of as many processes stand in a row.
"""

from __future__ import annotations

import itertools
import json
import sys
from functools import partial
from typing import Any

import torch

from kosmos.compose import compose
from kosmos.runtime.parallel import Parallel
from kosmos.train.sharding import distribute
from support.runs import small_run, ticks_registry
from support.same import whole
from support.turns import in_turn


def spread(parallel: Parallel, folder: str, strategy: str, shards: str) -> dict[str, Any]:
    over = {"strategy": strategy, **({"shards": int(shards)} if shards else {})}
    config = small_run(backbone={"name": "hf", "model": folder}, parallel=over)
    registry = ticks_registry()
    expected, model = (compose(config, registry, draw=draw).model for draw in (True, False))
    distribute(model, parallel, config.parallel, torch.device("cpu"), torch.float32)
    found = dict([*model.named_parameters(), *model.named_buffers()])
    names = [name for name, tensor in [*expected.named_parameters(), *expected.named_buffers()]
             if not torch.equal(whole(found[name]), tensor)]  # fmt: skip
    here = [getattr(p, "to_local", lambda p=p: p)() for p in model.backbone.parameters()]
    return {
        "strategy": strategy, "differ": names, "parameters": sum(p.numel() for p in expected.backbone.parameters()),
        "here": sum(p.numel() for p in here),
    }  # fmt: skip


def tell(ways: list[tuple[str, str]]) -> None:
    parallel = Parallel.from_environment("cpu")
    for folder, wanted in ways:
        strategy, _, shards = wanted.partition(":")
        everyone = parallel.gather(spread(parallel, folder, strategy, shards))
        if parallel.is_main:
            print(json.dumps(everyone), flush=True)
    parallel.close()


def main(ways: list[str]) -> None:
    jobs = itertools.groupby((way.split(",") for way in ways), key=lambda way: int(way[0]))
    in_turn((processes, partial(tell, [(folder, s) for _, folder, s in of])) for processes, of in jobs)


if __name__ == "__main__":
    main(sys.argv[1:])
