"""Run by torchrun: ranks share matrices and rows; losses and gradients against one process.

    torchrun --nproc-per-node N sharing.py PROCESSES,TENSOR,SEQUENCE ...

For every way (so many of the N processes, degrees; those of as many in a row), shape of the decoder and kind of row the
first rank prints a JSON line. Where several groups have rows of their own, each has another kind.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kosmos import Document, Media, Text, make_run
from kosmos.compose import Composition, compose
from kosmos.data.batch import IGNORED, DocumentInfo, PackedArrays, PackedBatch, ReadyDocument, assemble, to_tensors
from kosmos.data.decoding import decode_cells
from kosmos.model import weights
from kosmos.model.loss import TokenLosses
from kosmos.runtime.parallel import Parallel
from kosmos.train.flops import FlopMeter
from kosmos.train.gradients import fill_missing
from kosmos.train.sharding import distribute, settle
from kosmos.train.sharing import check_sharing
from support.runs import SMALL, ticks_registry
from support.same import whole
from support.turns import in_turn

CAP_S = 60
"""A row that takes longer ends the process, with a traceback of where it hangs."""
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"ffn_width": 54},  # 27 features a rank, which sharding cuts unevenly
    "magneto": {"preset": "kosmos-1", "ffn_width": 54, "dropout": 0.0},  # sub-LN, layer norm, biases, xPos, GELU, tied
    "grouped": {"heads": 8, "kv_heads": 4, "qk_norm": True, "sub_ln": True, "ffn_width": 56},
}
WIDTHS = {"name": "decoder", "width": 32, "layers": 2, "heads": 4, "kv_heads": 4}
ROWS = ("several", "long", "untrained", "one token")
COUNTED = 2
"""Rows, of which every rank has an item and a target of each: their operations are counted."""


def composed(shape: str, tensor: int, sequence: int, *, draw: bool = True) -> Composition:
    run = {"backbone": {**WIDTHS, **SHAPES[shape]}, "parallel": {"tensor": tensor, "sequence": sequence}}
    return compose(make_run(SMALL, run, {"data": {"tokens_per_pack": 512}}), ticks_registry(), draw=draw)


def ticks(length: int) -> Media:
    return Media("ticks", np.sin(np.arange(length, dtype=np.float32)))


def documents(kind: str) -> list[Document]:
    if kind == "several":  # the border of two parts, and of four, is in an item
        captions = [(Text("before"), ticks(n), Text(f"a series of {n}", train=True)) for n in (5, 31, 2)]
        weights = 1.0, -0.5, 2.0, 0.25
        told = [*captions, (Text("text alone", train=True),)]
        return [Document("d", parts, weight=weight) for parts, weight in zip(told, weights, strict=True)]
    if kind == "long":
        parts = (Text("look"), ticks(9), Text("and go on " * 9, train=True), ticks(40), Text("to the end", train=True))
        return [Document("d", parts)]
    return [Document("d", (ticks(3), Text("a question without an answer " * 5), Text("end", train=True)))]


def row(parts: Composition, kind: str) -> PackedBatch:
    routes = parts.planner.routes
    if kind == "one token":  # fewer than ranks, and nothing to learn
        one = np.zeros(1, np.int64)
        empty = assemble([], routes, parts.streams).media
        return to_tensors(PackedArrays(one, one + IGNORED, one, (DocumentInfo("", "", (), 0, 1),), empty))
    ready = []
    for document in documents(kind):
        [plan] = parts.planner.plan(document)
        cells = {m.stream: [] for m in plan.media}
        for medium in plan.media:
            cells[medium.stream].append(decode_cells(medium, routes["ticks"].processor))
        ready.append(ReadyDocument(plan, "s", cells))
    return to_tensors(assemble(ready, routes, parts.streams))


def alone(parts: Composition, kind: str) -> tuple[TokenLosses, dict[str, Tensor]]:
    """Losses of a row, and the gradients of their sum."""
    parts.model.zero_grad()
    losses = parts.model(row(parts, kind))
    torch.autograd.backward(losses.total)
    return losses, {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in parts.model.named_parameters()}


def worst(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> tuple[float, str]:
    """Largest difference of a gradient, over the largest value of that gradient or 1e-3, and whose."""
    assert found.keys() == expected.keys()
    errors = ((_error(found[name], expected[name], 1e-3), name) for name in found)
    return max(errors)


def _error(found: Tensor, expected: Tensor, least: float) -> float:
    assert found.shape == expected.shape
    return float((found - expected).abs().max()) / max(least, float(expected.abs().max())) if found.numel() else 0.0


def compared(parallel: Parallel, tensor: int, sequence: int, shape: str) -> Iterator[dict[str, Any]]:
    """A line a kind of row."""
    reference, parts = (composed(shape, tensor, sequence, draw=draw) for draw in (True, False))
    parallel = parallel.shared_by(tensor * sequence)
    settings = parts.config.parallel
    check_sharing(parts.model.backbone, settings, parallel.world_size)
    spread = distribute(parts.model, parallel, settings, torch.device("cpu"), torch.float32)
    drawn = dict(parts.model.named_parameters())
    differ = [n for n, p in reference.model.named_parameters() if not torch.equal(whole(drawn[n]), p)]
    cpu, fp32 = torch.device("cpu"), torch.float32
    meter, meter_alone = FlopMeter(parts.model, cpu, fp32, tensor=tensor), FlopMeter(reference.model, cpu, fp32)
    for number, kind in enumerate(ROWS):
        faulthandler.dump_traceback_later(CAP_S, exit=True)
        kinds = [ROWS[(number + group) % len(ROWS)] for group in range(parallel.data_world_size)]
        results = [alone(reference, other) for other in kinds]
        expected = {n: sum((g[n] for _, g in results), torch.zeros(())) for n in results[0][1]}
        parts.model.zero_grad()
        batch = row(parts, kinds[parallel.data_rank])
        is_counted = number < COUNTED
        with spread.row(True):
            with meter.counting(batch) if is_counted else nullcontext():
                losses = spread.losses(batch)
            torch.autograd.backward(losses.total)
        fill_missing(parts.model.parameters())
        error, name = worst({n: whole(p.grad) for n, p in parts.model.named_parameters()}, expected)
        own, _ = results[parallel.data_rank]
        with torch.no_grad():  # only scoring asks for predictions
            scored = spread.losses(row(parts, kinds[parallel.data_rank]))
            settle(parts.model)  # as after every scoring
            expected_scores = reference.model(row(reference, kinds[parallel.data_rank]))
        if is_counted:
            with meter_alone.counting(batch):  # with what the loss does for its gradients
                reference.model(batch)
        yield {
            "tensor": tensor, "sequence": sequence, "shape": shape, "row": kind, "error": error, "worst": name,
            "loss_error": _error(losses.per_token, own.per_token, 1.0),
            "predictions": torch.equal(scored.predictions, expected_scores.predictions),
            "weights_that_differ": differ, "targets": len(losses.per_token),
            "total": float(losses.total.detach()), "sum": float(own.total.detach()),
            "group": parallel.data_rank, "flops": meter.count([batch]).by_module if is_counted else {},
            "flops_alone": meter_alone.count([batch]).by_module if is_counted else {},
        }  # fmt: skip


def compare(degrees: list[tuple[int, int]]) -> None:
    parallel = Parallel.from_environment("cpu")
    for (tensor, sequence), shape in itertools.product(degrees, SHAPES):
        for line in compared(parallel, tensor, sequence, shape):
            everyone = parallel.gather(line)
            if parallel.is_main:
                print(json.dumps(everyone), flush=True)
    parallel.close()


def main(ways: list[tuple[int, int, int]]) -> None:
    weights.BLOCK = 100  # so that parameters of these sizes are drawn in many blocks
    jobs = itertools.groupby(ways, key=lambda way: way[0])  # torch keeps a mesh, and with it the group of its job
    in_turn(((processes, partial(compare, [degrees for _, *degrees in of])) for processes, of in jobs), cap_s=5 * CAP_S)


if __name__ == "__main__":
    main([tuple(map(int, way.split(","))) for way in sys.argv[1:]])
