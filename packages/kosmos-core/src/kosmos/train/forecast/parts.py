"""Of which parts a model is made, and how much of each is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kosmos.compose import Composition
from kosmos.model.nf4 import values_in
from kosmos.model.weights import is_update


@dataclass(frozen=True)
class Part:
    """Backbone, encoder or connector."""

    place: str
    """In the run file."""
    component: str
    parameters: int
    trained: int
    """Parameters that steps change."""
    how: str
    """``trained``, ``frozen``, ``LoRA``, or ``partly trained`` by a choice of the component's own."""
    types: tuple[str, ...]
    """Of its parameters."""


def parts_of(composition: Composition) -> list[Part]:
    """In the order in which they were built: the backbone, then each encoder with its connector."""
    weights = composition.config.train.weights
    return [_part(place, module, by.name, weights) for place, (module, by) in composition.parts.items()]


def counted(composition: Composition) -> dict[str, Any]:
    """The numbers of parameters of a model, all and those that steps change, and of each part. Plain values."""
    every = list(composition.model.parameters())
    return {
        "parameters": sum(map(values_in, every)),
        "trained": sum(p.numel() for p in every if p.requires_grad),
        "parts": {
            part.place: {
                "component": part.component, "parameters": part.parameters, "trained": part.trained, "how": part.how
            }
            for part in parts_of(composition)
        },
    }  # fmt: skip


def trained_type(parameter: torch.Tensor, weights: str) -> torch.dtype:
    """In which type a parameter is while it is trained, as ``kosmos.model.weights.round_weights`` leaves it.

    Args:
        weights: ``train.weights``.
    """
    return torch.bfloat16 if weights == "bf16" and parameter.is_floating_point() else parameter.dtype


def _part(place: str, module: nn.Module, component: str, weights: str) -> Part:
    named = list(module.named_parameters())
    total = sum(values_in(p) for _, p in named)
    trained = sum(p.numel() for _, p in named if p.requires_grad)
    types = sorted({str(trained_type(p, weights)).removeprefix("torch.") for _, p in named})
    return Part(place, component, total, trained, _how(named, total, trained), tuple(types))


def _how(named: list[tuple[str, Any]], total: int, trained: int) -> str:
    if any(is_update(name) for name, _ in named):
        return "LoRA"
    return "frozen" if not trained and total else "trained" if trained == total else "partly trained"
