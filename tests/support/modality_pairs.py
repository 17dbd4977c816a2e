"""Run by torchrun: every rank's row holds its own subset of modalities; gradients against one process with all rows.

    torchrun --nproc-per-node N modality_pairs.py PROCESSES,STRATEGY,EVERY ...

Takes every EVERY-th of the 225 pairs of non-empty subsets of text, image, audio and video; 0 takes of each pair and the
one the other way round only one, now this, now that. Even ranks have the first subset of the pair, odd ranks the
second. The first rank prints a JSON line a pair. Strategies of as many processes stand in a row.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from kosmos import Document, Media, Text, make_run
from kosmos.compose import Composition, compose
from kosmos.data.batch import PackedBatch, ReadyDocument, assemble, to_tensors
from kosmos.data.decoding import decode_cells
from kosmos.plugins import Registry
from kosmos.runtime.parallel import Parallel
from kosmos.train.gradients import fill_missing
from kosmos.train.sharding import Distributed, distribute
from support.turns import in_turn

MODALITIES = ("text", "image", "audio", "video")
SUBSETS = [s for size in range(1, 5) for s in itertools.combinations(MODALITIES, size)]
PAIRS = list(itertools.product(SUBSETS, SUBSETS))
CAP_S = 60
"""A pair that takes longer ends the process, with a traceback of where it hangs."""
STREAMS = {
    "image": {
        "encoder": {"name": "timm", "model": "test_vit", "model_options": {"depth": 2}},
        "connector": {"name": "resampler", "latents": 3},
    },
    "audio": {"encoder": {"name": "logmel", "width": 32, "layers": 1, "heads": 2}, "connector": "mlp"},
    "video": {"connector": "pool"},
}
BACKBONE = {"name": "decoder", "width": 32, "layers": 2, "heads": 2, "ffn_width": 48}


def pairs(every: int) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    if every:
        return PAIRS[::every]
    places = itertools.product(range(len(SUBSETS)), repeat=2)
    return [pair for pair, (i, j) in zip(PAIRS, places, strict=True) if (i <= j) == ((i + j) % 2 == 0)]


def composed(strategy: str) -> Composition:
    packages = {name: f"kosmos_{name}.plugin" for name in ("vision", "audio", "video")}
    parallel = {"strategy": strategy, "shards": 2 if strategy == "hsdp" else None}
    run = {"modalities": list(MODALITIES), "streams": STREAMS, "backbone": BACKBONE, "parallel": parallel}
    return compose(make_run(run, {"data": {"tokens_per_pack": 4096}}), Registry.from_modules(packages))


def document(modality: str, rank: int) -> Document:
    """A medium with its caption, or text alone."""
    random = np.random.default_rng([rank, MODALITIES.index(modality)])
    caption = Text(f"{modality} {rank}", train=True)
    if modality == "text":
        return Document("text", (caption,))
    shape: tuple[int, ...] = {"image": (24, 32, 3), "audio": (1600 + 320 * rank,), "video": (4, 32, 32, 3)}[modality]
    if modality == "audio":
        source = random.standard_normal(shape).astype(np.float32) / 8
    else:
        source = random.integers(0, 256, shape, dtype=np.uint8)
    rates = {"audio": 16_000, "video": 4}
    return Document(modality, (Media(modality, source, rate_hz=rates.get(modality)), caption))


def row(parts: Composition, subset: Sequence[str], rank: int) -> PackedBatch:
    ready = []
    for modality in subset:
        [plan] = parts.planner.plan(document(modality, rank))
        cells: dict[str, list[np.ndarray]] = {}
        for medium in plan.media:
            processor = parts.planner.routes[medium.media.modality].processor
            cells.setdefault(medium.stream, []).append(decode_cells(medium, processor))
        ready.append(ReadyDocument(plan, "s", cells))
    return to_tensors(assemble(ready, parts.planner.routes, parts.streams))


def gradients_alone(model: nn.Module, batch: PackedBatch) -> dict[str, Tensor]:
    """Of the summed loss of one row."""
    model.zero_grad()
    torch.autograd.backward(model(batch).total)
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def addends(model: nn.Module, batch: PackedBatch, like: Mapping[str, Tensor]) -> dict[str, Addend]:
    found = gradients_alone(model, batch)
    return {name: Addend(gradient, local_part(gradient, like[name])) for name, gradient in found.items()}


def gradients_together(model: nn.Module, spread: Distributed, batch: PackedBatch) -> dict[str, Tensor]:
    """Of the summed loss of the rows of all ranks, as each rank holds them."""
    model.zero_grad()
    with spread.row(True):
        torch.autograd.backward(spread.losses(batch).total)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    fill_missing(trained.values())
    return {n: p.grad for n, p in trained.items() if p.grad is not None}


@dataclass(frozen=True)
class Addend:
    """A gradient of one row alone: whole, and what of it this rank would hold."""

    whole: Tensor
    here: Tensor


def worst_error(found: Mapping[str, Tensor], addends: Sequence[Mapping[str, Addend]]) -> float:
    """Largest difference of this rank's part of a gradient, over the largest gradient of that parameter or 1e-3."""
    worst = 0.0
    for name, gradient in found.items():
        theirs = [a[name] for a in addends if name in a]
        mine = local(gradient)
        difference = mine - sum((a.here for a in theirs), torch.zeros(mine.shape))
        if difference.numel() and (error := float(difference.abs().max())):
            expected = sum((a.whole for a in theirs), torch.zeros(gradient.shape))
            worst = max(worst, error / max(1e-3, float(expected.abs().max())))
    return worst


def local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_part(tensor: Tensor, like: Tensor) -> Tensor:
    """What of ``tensor`` this rank would hold, were it sharded as ``like``."""
    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None).to_local()


def compare(ways: Sequence[tuple[str, int]]) -> None:
    parallel = Parallel.from_environment("cpu")
    for strategy, every in ways:
        _compare(parallel, strategy, every)
    parallel.close()


def _compare(parallel: Parallel, strategy: str, every: int) -> None:
    reference, parts = composed(strategy), composed(strategy)
    reference.model.train()
    parts.model.train()
    spread = distribute(parts.model, parallel, parts.config.parallel, torch.device("cpu"), torch.float32)
    like, ranks = dict(parts.model.named_parameters()), range(parallel.world_size)
    taken = pairs(every)
    needed = {(pair[rank % 2], rank) for pair in taken for rank in ranks}
    alone = {key: addends(reference.model, row(reference, *key), like) for key in sorted(needed)}
    for pair in taken:
        faulthandler.dump_traceback_later(CAP_S, exit=True)
        found = gradients_together(parts.model, spread, row(parts, pair[parallel.rank % 2], parallel.rank))
        error = worst_error(found, [alone[pair[rank % 2], rank] for rank in ranks])
        moved = {n.split(".")[1] for n, g in found.items() if n.startswith("streams.") and local(g).any()}
        everyone = parallel.gather((error, moved))
        if parallel.is_main:
            streams = sorted(set().union(*(theirs for _, theirs in everyone)))
            told = {"strategy": strategy, "pair": pair, "error": max(theirs for theirs, _ in everyone)}
            print(json.dumps({**told, "moved": streams, "parameters": len(found)}), flush=True)


def main(ways: Sequence[str]) -> None:
    jobs = itertools.groupby((way.split(",") for way in ways), key=lambda way: int(way[0]))
    in_turn(((processes, partial(compare, [(s, int(n)) for _, s, n in of])) for processes, of in jobs), cap_s=9 * CAP_S)


if __name__ == "__main__":
    main(sys.argv[1:])
