"""A component of each of the smaller kinds, as they should be, with switches for what their mutants do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kosmos import Judged, Segments, to_device
from kosmos.data.slots import Fixed, SlotCount
from kosmos.model.caches import KeyValueBatch
from kosmos.model.decoder import Decoder


class Mean(nn.Module):
    """One slot an item. ``counted`` is what it says, ``crosses`` adds the mean of the row, ``dead`` has no gradient,
    ``elsewhere`` adds what is always on the CPU, ``spoils`` writes into the grids, ``stores`` keeps them on itself."""

    counted, crosses, dead, elsewhere, spoils, stores = 1, False, False, False, False, False

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.slots: SlotCount = Fixed(self.counted)
        self.linear = nn.Linear(width_in, width_out)

    def forward(self, features: Tensor, grids: Tensor) -> Tensor:
        cells = grids.prod(dim=1)
        item = to_device(torch.repeat_interleave(torch.arange(len(cells)), cells), features.device)
        sums = features.new_zeros(len(cells), features.shape[1]).index_add(0, item, features)
        if self.stores:
            self.last = cells
        mean: Tensor = self.linear(sums / to_device(cells[:, None].clamp(min=1), features.device))
        if self.stores:
            mean = mean * to_device(self.last[:, None], features.device)
        if self.crosses and len(mean):
            mean = mean + mean.mean(dim=0)
        if self.elsewhere:
            mean = mean + torch.zeros(len(mean), 1)
        if self.spoils:
            grids.zero_()
        return mean.detach() if self.dead else mean


class Small(Decoder):
    """Core's decoder, small. ``crosses`` takes the row for one document, ``peeks`` adds the next token, ``elsewhere``
    adds what is always on the CPU; of documents that are continued together, ``mixes`` gives each what is another's,
    and ``keeps`` the first ones in place of those that go on. ``stores`` keeps the row's documents on itself.
    ``looks`` has a norm of another class where it finds no values in it. ``crosses``, ``peeks`` and ``forgets`` do so
    from so many tokens on; beyond ``ends_at`` there are no positions."""

    crosses, peeks, forgets, ends_at = (math.inf,) * 4
    elsewhere, mixes, keeps, stores, looks = (False,) * 5

    draw_weights = Decoder.draw_weights

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size, width=32, layers=1, heads=2, ffn_width=48)
        if self.looks and self.norm.weight.is_meta:
            self.norm = torch.nn.RMSNorm(32)

    def forward(self, x: Tensor, position_ids: Tensor, segments: Segments, cache: Any = None) -> Tensor:
        if segments.total >= self.crosses:
            segments = Segments((segments.total,))
        if segments.total >= self.peeks:
            x = x + x.roll(-1, dims=0)
        if segments.longest > self.ends_at:
            raise IndexError("index out of range in self")
        if self.elsewhere:
            x = x + torch.zeros(len(x), 1)
        if len(position_ids) and position_ids[0] >= self.forgets:
            cache = None
        if self.stores:
            self.last = position_ids
        hidden = super().forward(x, position_ids, segments, cache)
        if self.stores:
            hidden = hidden * (1 + self.last[:, None])
        return hidden.roll(1, dims=0) if self.mixes and isinstance(cache, KeyValueBatch) else hidden

    def new_batch_cache(self) -> KeyValueBatch:
        return KeepsTheFirst() if self.keeps else super().new_batch_cache()


class OtherInOneShape(KeyValueBatch):
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, **more: Any) -> Tensor:
        return super().attend(layer, q, k, v if self._ends is None else 2 * v, **more)


class KeepsTheFirst(KeyValueBatch):
    def keep(self, which: Tensor) -> None:
        super().keep(torch.arange(len(which)))


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


class InGroups(torch.optim.SGD):
    """Its rate falls by a count in its groups, which checkpoints keep."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.data.add_(parameter.grad, alpha=-group["lr"] / group["k"] ** 0.1)


class Counted(torch.optim.SGD):
    """It counts for a change that is beyond the kit's steps."""

    taken = 0

    def step(self, closure: Any = None) -> None:
        self.taken += 1
        super().step(closure)


class Told(Counted):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "taken": self.taken}


class Mapped(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["own"] = {"steps": 1}
        super().step(closure)


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

    def log_answers(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.file.writelines(f"{row['prompt']}{row['answer']}\n" for row in rows)

    def close(self) -> None:
        self.file.close()


def watch() -> Callable[[Mapping[str, Any]], None]:
    return lambda row: print(row["step"])


def show(count: int = 3) -> None:
    """Show a few."""
    print(count)


def squares() -> Callable[[Judged], Tensor]:
    """Mean square of what is learned of a document."""
    return lambda judged: judged.of_documents(judged.losses.square()) / judged.learned
