"""Operations of a step, counted on rows that are planned and a model without memory for its weights.

The model is run as ``FlopMeter`` runs it in training, on tensors of the right shapes that hold nothing, so both count
the same. A model that cannot be run so, because its code looks at values, is estimated by its parameters.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from kosmos.data.batch import MediaArrays, PackedBatch, to_tensors
from kosmos.data.lane import Row
from kosmos.errors import KosmosError, cause
from kosmos.model.nf4 import values_in
from kosmos.model.omni import OmniModel
from kosmos.model.weights import round_weights
from kosmos.runtime.devices import autocast
from kosmos.train.flops import BACKBONE, CONNECTOR, HEAD, Cost, FlopMeter, factors_of

COMPILED = True
"""Said to the meter, so that it counts only what it has not met."""


@dataclass(frozen=True)
class Work:
    """Operations of a step of all processes, on average over the planned rows."""

    by_module: dict[str, float]
    saved: float
    """Those of them that a causal mask leaves out."""
    by_parameters: str = ""
    """Why they are estimated by parameters alone; empty where they were counted."""

    @property
    def total(self) -> float:
        """With causal attention in full."""
        return sum(self.by_module.values())

    @property
    def half_causal(self) -> float:
        """With what a causal mask leaves of attention."""
        return self.total - self.saved


def work_of_step(model: OmniModel, rows: Sequence[Row], *, lanes: int) -> Work:
    """The model is of no other use afterwards: what memory its weights had is given back.

    Args:
        lanes: rows of a step.
    """
    empty = FakeTensorMode(allow_non_fake_inputs=True)
    model.train()
    _let_weights_go(model, empty)
    meter = FlopMeter(model, torch.device("cpu"), torch.float32)
    batches = [to_tensors(row.arrays) for row in rows]
    reason = _count(model, meter, batches, empty, torch.float32)
    if reason:
        round_weights(model)  # kernels of mixtures want them so
        if _count(model, meter, batches, empty, torch.bfloat16):
            meter.costs = _by_parameters(model)
        else:
            reason = ""
    counted = meter.count(batches)
    each = lanes / len(rows)
    by_module = {name: each * number for name, number in counted.by_module.items()}
    return Work(by_module, each * counted.saved, reason)


def _count(
    model: OmniModel, meter: FlopMeter, batches: Sequence[PackedBatch], empty: FakeTensorMode, dtype: torch.dtype
) -> str:
    """Have the meter know all modules that the rows need; why it could not, else nothing.

    Args:
        dtype: of products. In fp32 a CPU pads as little as a GPU; in bf16 it has items of padding for some encoders.
    """
    try:
        with _quiet():
            for batch in batches:
                if meter.wants(1, batch, compiled=COMPILED):
                    with autocast(meter.device, dtype), meter.counting(batch):
                        model(_without_values(batch, empty))
    except Exception as error:  # a seam: code of plugins
        return str(error) if isinstance(error, KosmosError) else cause(error)
    return ""


@contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch logs what fails on tensors without memory, which is told by an error too."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _let_weights_go(model: OmniModel, empty: FakeTensorMode) -> None:
    """Put tensors without memory in the place of parameters; buffers stay, as code may look at their values."""
    made: dict[int, nn.Parameter] = {}
    kept: list[Tensor] = []  # so that no id comes twice
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in made:
                made[id(parameter)] = nn.Parameter(_like(parameter, empty), parameter.requires_grad)
                kept.append(parameter)
            module._parameters[name] = made[id(parameter)]


def _like(tensor: Tensor, empty: FakeTensorMode) -> Tensor:
    with empty:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def _without_values(batch: PackedBatch, empty: FakeTensorMode) -> PackedBatch:
    media = {n: MediaArrays(_like(m.values, empty), m.grids, m.slots) for n, m in batch.media.items()}
    return replace(batch, media=media)


def _by_parameters(model: OmniModel) -> dict[str, Cost]:
    """Two operations a weight and unit, and none of attention, whose heads nobody can know."""
    head = cast(Any, model.backbone).output_weight()
    of_head = 2 * head.numel() * (2 + head.requires_grad)  # the loss counts gradients itself: see ``FlopMeter``
    costs = {BACKBONE: _cost(factors_of(model.backbone, head)), HEAD: Cost(of_head, 0)}
    for name, stream in model.streams.items():
        for part, module in ((name, cast(Any, stream).encoder), (name + CONNECTOR, cast(Any, stream).connector)):
            costs[part] = _cost(factors_of(module) or list(module.parameters()))
    return costs


def _cost(factors: Sequence[Tensor]) -> Cost:
    return Cost(2.0 * sum(map(values_in, factors)), 0)
