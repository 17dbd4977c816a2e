"""How long it takes until a model of 1.2 B parameters stands, and the memory it takes: alone, and shared by two ranks.

    python benchmarks/making.py                      # some 6 GB of memory for each of two processes, a minute or two

Limit: memory that the process has never touched, filled once by one thread. Peer: transformers' ``from_config`` of a
Llama of as many parameters; where ranks share it, made by each and cut by ``fully_shard``, as its users do. Every model
is made in a process of its own, all in turn; medians.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from statistics import median
from time import perf_counter

import torch

from kosmos import make_run
from kosmos.compose import compose
from kosmos.plugins import load_plugins
from kosmos.runtime.parallel import Parallel
from kosmos.train.memory import peak_bytes
from kosmos.train.sharding import distribute

CPU, FP32 = torch.device("cpu"), torch.float32
LLAMA = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32,
         "intermediate_size": 5461, "vocab_size": 512}  # fmt: skip
"""As many parameters as the preset kosmos-1 with bytes as tokens, without its vocabulary."""


def fresh_memory(parallel: Parallel) -> int:
    """The limit. Returns the number of parameters, as the others."""
    numbers = torch.empty(1_209_632_768)
    numbers.fill_(1.0)
    return numbers.numel()


def kosmos(parallel: Parallel) -> int:
    return composed(parallel, {"name": "decoder", "preset": "kosmos-1"})


def kosmos_of_transformers(parallel: Parallel) -> int:
    return composed(parallel, {"name": "hf", "config": LLAMA})


def composed(parallel: Parallel, backbone: dict[str, object]) -> int:
    """As a run does it."""
    config = make_run({"modalities": [], "data": {"sources": ["sums"]}, "backbone": backbone})
    model = compose(config, load_plugins(), draw=parallel.world_size == 1).model
    distribute(model, parallel, config.parallel, CPU, FP32)
    return sum(p.numel() for p in model.parameters())


def transformers(parallel: Parallel) -> int:
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoConfig, AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**LLAMA))
    if parallel.world_size > 1:
        for block in model.model.layers:
            fully_shard(block)
        fully_shard(model)
    return sum(p.numel() for p in model.parameters())


ARMS = {
    "memory never touched": fresh_memory,
    "Kosmos, its decoder": kosmos,
    "Kosmos, a model of transformers": kosmos_of_transformers,
    "transformers": transformers,
}


def measure(arm: str) -> None:
    """Print seconds, parameters and the bytes of each rank. Run in a process of its own, or by torchrun."""
    parallel = Parallel.from_environment("cpu")
    if "transformers" in arm:
        from transformers import LlamaForCausalLM  # noqa: F401  imports are not what is measured
    before, begin = peak_bytes(CPU), perf_counter()
    count = ARMS[arm](parallel)
    nbytes = parallel.gather(peak_bytes(CPU) - before)
    if parallel.is_main:
        print(json.dumps([perf_counter() - begin, count, *nbytes]), flush=True)
    parallel.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--arm", choices=list(ARMS), help="measure this one, here")
    given = parser.parse_args()
    if given.arm:
        measure(given.arm)
    else:
        compare(given.rounds)


def compare(rounds: int) -> None:
    """All in turn, each in a process of its own."""
    found: dict[tuple[int, str], list[list[float]]] = {}
    for _ in range(rounds):
        for ranks in (1, 2):
            for arm in list(ARMS)[ranks - 1 :]:  # the limit is that of one process
                run = [] if ranks == 1 else ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
                command = [sys.executable, *run, __file__, "--arm", arm]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                found.setdefault((ranks, arm), []).append(json.loads(done.stdout.splitlines()[-1]))
    print("| ranks | made by | seconds | GiB of each rank | parameters | our decoder is |\n|---|---|---|---|---|---|")
    for (ranks, arm), runs in found.items():
        seconds, count, *nbytes = (median(column) for column in zip(*runs, strict=True))
        ratios = [theirs[0] / ours[0] for theirs, ours in zip(runs, found[ranks, "Kosmos, its decoder"], strict=True)]
        memory = ", ".join(f"{size / 2**30:.2f}" for size in nbytes)
        print(f"| {ranks} | {arm} | {seconds:.1f} | {memory} | {count:,.0f} | {median(ratios):.2f}x |")


if __name__ == "__main__":
    main()
