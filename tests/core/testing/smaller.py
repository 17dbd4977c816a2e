"""A good plugin of the smaller kinds, one of each, and what its mutants change. A module of its own: runs import it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kosmos import (
    BackboneSpec,
    CommandSpec,
    ConnectorSpec,
    MetricSpec,
    ObserverSpec,
    OptimizerSpec,
    ScheduleSpec,
    Segments,
    TrackerSpec,
    hookimpl,
)
from kosmos.data.slots import Fixed, SlotCount
from kosmos.model.decoder import Decoder

KOSMOS_API = 1


class Mean(nn.Module):
    """One slot an item. ``counted`` is what it says, ``crosses`` adds the mean of the row, ``bare`` has no buffer."""

    counted, crosses, dead = 1, False, False

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.slots: SlotCount = Fixed(self.counted)
        self.linear = nn.Linear(width_in, width_out)

    def forward(self, features: Tensor, grids: Tensor) -> Tensor:
        cells = grids.prod(dim=1)
        item = torch.repeat_interleave(torch.arange(len(cells)), cells)
        sums = features.new_zeros(len(cells), features.shape[1]).index_add(0, item, features)
        mean: Tensor = self.linear(sums / cells[:, None].clamp(min=1))
        if self.crosses and len(mean):
            mean = mean + mean.mean(dim=0)
        return mean.detach() if self.dead else mean


class Small(Decoder):
    """Core's decoder, small. ``crosses`` takes the row for one document, ``peeks`` adds the next token."""

    crosses, peeks, forgets = False, False, False

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size, width=32, layers=1, heads=2, ffn_width=48)

    def forward(self, x: Tensor, position_ids: Tensor, segments: Segments, cache: Any = None) -> Tensor:
        if self.crosses:
            segments = Segments((segments.total,))
        if self.peeks:
            x = x + x.roll(-1, dims=0)
        if self.forgets:
            cache = None
        return super().forward(x, position_ids, segments, cache)


def descent(groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": g["params"], "lr": g["lr"]} for g in groups], lr=learning_rate, momentum=0.9)


class Ascent(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(parameter.grad, alpha=group["lr"])


class OwnRate(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(parameter.grad, alpha=-0.01)


class Counting(torch.optim.SGD):
    """Its rate falls by a count that is no part of its state."""

    steps = 0

    def step(self, closure: Any = None) -> None:
        self.steps += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(parameter.grad, alpha=-group["lr"] / self.steps**0.1)


def stairs(steps: int, warmup_steps: int) -> Callable[[int], float]:
    return lambda step: min(1.0, (step + 1) / (warmup_steps + 1)) * 0.5 ** (step * 4 // steps)


def same_length() -> Callable[[list[str], list[str]], float]:
    def score(predictions: list[str], references: list[str]) -> float:
        pairs = zip(predictions, references, strict=True)
        return sum(len(p) == len(r) for p, r in pairs) / len(references)

    return score


class Lines:
    def __init__(self, output: Path, run: Mapping[str, Any]) -> None:
        self.file = (output / "rows.txt").open("w")

    def log(self, row: Mapping[str, Any]) -> None:
        self.file.write(f"{sorted(row)}\n")

    def close(self) -> None:
        self.file.close()


def watch() -> Callable[[Mapping[str, Any]], None]:
    return lambda row: print(row["step"])


def show(count: int = 3) -> None:
    """Show a few."""
    print(count)


@hookimpl
def kosmos_connectors() -> Iterator[ConnectorSpec]:
    yield ConnectorSpec(name="average", target=f"{__name__}:Mean", summary="One slot an item.")


@hookimpl
def kosmos_backbones() -> Iterator[BackboneSpec]:
    yield BackboneSpec(name="little", target=f"{__name__}:Small", summary="Core's decoder, small.")


@hookimpl
def kosmos_optimizers() -> Iterator[OptimizerSpec]:
    yield OptimizerSpec(name="momentum", target=f"{__name__}:descent", summary="Gradient descent.")


@hookimpl
def kosmos_schedules() -> Iterator[ScheduleSpec]:
    yield ScheduleSpec(name="stairs", target=f"{__name__}:stairs", summary="Halved now and then.")


@hookimpl
def kosmos_metrics() -> Iterator[MetricSpec]:
    yield MetricSpec(name="same_length", target=f"{__name__}:same_length", summary="Share of equal lengths.")


@hookimpl
def kosmos_trackers() -> Iterator[TrackerSpec]:
    yield TrackerSpec(name="lines", target=f"{__name__}:Lines", summary="A line a row.")


@hookimpl
def kosmos_observers() -> Iterator[ObserverSpec]:
    yield ObserverSpec(name="watch", target=f"{__name__}:watch", summary="Prints steps.")


@hookimpl
def kosmos_commands() -> Iterator[CommandSpec]:
    yield CommandSpec(name="show", target=f"{__name__}:show", summary="Show a few.")
