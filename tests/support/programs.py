"""Blocks compiled for a GPU that computes nothing: how many programs rows of different lengths take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from kosmos.testing.fake_gpu import fake_gpu, put_on

LENGTHS = [(100, 28), (3, 5, 120, 7, 9), (64, 64, 200), (90,), (1, 2, 3), (300, 200)]
"""Of the items of rows."""


def grids_of(lengths: tuple[int, ...]) -> torch.Tensor:
    """int64 [items, 3] on the CPU, for items of one dimension."""
    return torch.tensor([[length, 1, 1] for length in lengths])


def programs(model: Any, rows: Iterable[Any], call: Callable[[Any, Any], object]) -> list[list[str]]:
    """Operations of each program that ``call(model, row)`` made of the model's blocks, one behind the other in bf16.

    A block that is no single program is an error of torch's compiler.
    """
    torch.compiler.reset()
    found: list[list[str]] = []

    def keep(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        found.append([str(node.target) for node in graph.graph.nodes])
        return graph.forward

    with fake_gpu(), torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        model = put_on(model).train()
        blocks: list[nn.Module] = list(model.blocks)
        assert len(blocks) > 1, "what the first is given may differ from what the others are"
        for block in blocks:
            block.compile(fullgraph=True, backend=keep)
        for row in rows:
            call(model, row)
    return found


def check_programs(found: list[list[str]], kinds: int = 1) -> None:
    """This length, any length, any longest item, of each kind of block; and attention is in each."""
    assert 1 < len(found) <= 3 * kinds
    assert all(any("varlen_attn" in name for name in names) for names in found)
