"""Parts with losses of their own: an encoder, a connector and a backbone, as a plugin of our tests would bring them.

Run by torchrun it compares gradients of two ranks, of which one has no media, with those of one process:

    torchrun --nproc-per-node 2 own_losses.py STRATEGY ...

Strategies are fsdp, ddp, tensor (2 ranks share matrices) and sequence (2 share a row).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from kosmos import (
    BackboneSpec,
    ConnectorSpec,
    EncoderSpec,
    OnePerCell,
    Segments,
    WithLosses,
    hookimpl,
    make_run,
    run_block,
)
from kosmos.compose import Composition, compose
from kosmos.errors import PluginError
from kosmos.model.decoder import Decoder
from kosmos.plugins import Registry
from kosmos.runtime.parallel import Parallel
from kosmos.train.gradients import fill_missing
from kosmos.train.sharding import distribute
from support import sharing
from support.runs import SMALL, ticks_registry
from support.same import whole
from support.ticks import CELL
from support.turns import in_turn

LONG = 12
"""Tokens of a document that the head of the backbone looks at."""


class Mix(nn.Module):
    """A layer with a loss."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mixed = torch.tanh(self.linear(x))
        return x + mixed, mixed.square().sum()


class Committed(nn.Module):
    """Features, and by ``guess``, which these do not need, what was in their cells."""

    input = CELL
    compiles = own_losses = True
    FAULTS: ClassVar[dict[str, Callable[[Tensor], Any]]] = {
        "": lambda loss: {"guess": loss},
        "name": lambda loss: {"Guess!": loss},
        "number": lambda loss: {"guess": 1.0},
        "vector": lambda loss: {"guess": loss[None]},
        "whole": lambda loss: {"guess": loss.long()},
        "list": lambda loss: [loss],
        "detached": lambda loss: {"guess": loss.detach()},
        "infinite": lambda loss: {"guess": loss + torch.inf},
    }

    def __init__(self, *, width: int = 8, weight: float = 0.5, mean: bool = False, fault: str = "") -> None:
        super().__init__()
        self.width, self.weight, self.mean, self.fault = width, weight, mean, fault
        self.lift = nn.Linear(CELL, width)
        self.blocks = nn.ModuleList([Mix(width)])
        self.guess = nn.Linear(width, CELL)
        self.recompute: Any = False

    def set_gradient_checkpointing(self, how: Any) -> None:
        self.recompute = how

    def forward(self, values: Tensor, grids: Tensor) -> WithLosses:
        values = values.to(self.lift.weight.dtype)
        x, mixed = self.lift(values), values.new_zeros(())
        for block in self.blocks:
            x, more = run_block(block, x, recompute=self.recompute)
            mixed = mixed + more
        guess = self.weight * (self.guess(x) - values).square().sum()
        if self.mean:
            guess = guess / max(1, len(values))
        given = self.FAULTS[self.fault](guess)
        return WithLosses(x, {"mixed": mixed, **given} if isinstance(given, dict) else given)


class Small(nn.Module):
    """A connector whose slots are to be small."""

    own_losses = True

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.slots = OnePerCell()
        self.linear = nn.Linear(width_in, width_out)

    def forward(self, features: Tensor, grids: Tensor) -> WithLosses:
        slots = self.linear(features)
        return WithLosses(slots, {"size": 0.01 * slots.square().sum()})


class Headed(Decoder):
    """A head of its own over long documents, which some rows have none of."""

    own_losses = True

    def __init__(self, vocab_size: int, *, width: int = 32, layers: int = 1, heads: int = 2) -> None:
        super().__init__(vocab_size, width=width, layers=layers, heads=heads, ffn_width=48)
        self.places = nn.Linear(width, 1)

    def forward(self, x: Tensor, position_ids: Tensor, segments: Segments, cache: Any = None) -> WithLosses:
        hidden = super().forward(x, position_ids, segments, cache)
        ends = torch.tensor(segments.lengths).cumsum(0).tolist()
        off = [self.places(hidden[end - length : end]).square().sum()
               for end, length in zip(ends, segments.lengths, strict=True) if length >= LONG]  # fmt: skip
        return WithLosses(hidden, {"places": sum(off, hidden.new_zeros(()))})


def registry() -> Registry:
    plugin, here = ModuleType("own_losses"), "support.own_losses"
    encoder = EncoderSpec(name="committed", target=f"{here}:Committed", summary="Guesses its cells.")
    connector = ConnectorSpec(name="small", target=f"{here}:Small", summary="Has small slots.")
    backbone = BackboneSpec(name="headed", target=f"{here}:Headed", summary="Has a head of its own.")
    vars(plugin).update(
        KOSMOS_API=1, kosmos_encoders=hookimpl(lambda: [encoder]), kosmos_connectors=hookimpl(lambda: [connector]),
        kosmos_backbones=hookimpl(lambda: [backbone]),
    )  # fmt: skip
    return ticks_registry(own_losses=plugin)


PARTS: dict[str, Any] = {"streams": {"ticks": {"encoder": "committed", "connector": "small"}}}
HEADED: dict[str, Any] = {**SMALL, **PARTS, "backbone": {"name": "headed"}}


def composed(**over: Any) -> Composition:
    return compose(make_run(HEADED, over), registry())


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}


ROWS = ("several", "one token")
"""Of each rank; the second holds no medium, and no document that is long."""


def compare(way: str) -> None:
    parallel = Parallel.from_environment("cpu")
    shared = {way: 2} if way in ("tensor", "sequence") else {"strategy": way}
    reference, parts = (composed(parallel=shared, data={"tokens_per_pack": 512}) for _ in range(2))
    parallel = parallel.shared_by(2 if "strategy" not in shared else 1)
    try:
        spread = distribute(parts.model, parallel, parts.config.parallel, torch.device("cpu"), torch.float32)
    except PluginError as error:
        everyone = parallel.gather(str(error))
        if parallel.is_main:
            print(json.dumps({"way": way, "error": everyone}), flush=True)
        return
    kinds = ROWS if "strategy" in shared else ROWS[:1]
    for kind in kinds:
        torch.autograd.backward(reference.model(sharing.row(reference, kind)).total)
    expected, told = gradients(reference.model), {}
    with spread.row(True):
        losses = spread.losses(sharing.row(parts, kinds[parallel.data_rank]))
        told = {name: float(loss) for name, loss in losses.modules.items()}
        torch.autograd.backward(losses.total)
    fill_missing(parts.model.parameters())
    off = {n: (whole(p.grad) - expected[n]).abs().max() for n, p in parts.model.named_parameters()}
    everyone = parallel.gather(told)
    if parallel.is_main:
        worst = max(float(off[n]) / max(1e-3, float(expected[n].abs().max())) for n in off)
        own = {part: bool(expected[part].any()) for part in ("streams.ticks.encoder.guess.weight",
                                                             "backbone.places.weight")}  # fmt: skip
        print(json.dumps({"way": way, "worst": worst, "told": everyone, "own": own}), flush=True)


if __name__ == "__main__":
    in_turn([(2, partial(compare, way)) for way in sys.argv[1:]])
