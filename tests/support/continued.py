"""Documents that are continued by one way beside another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kosmos import Segments
from kosmos.model.continuing import Continuing, Launched

Keeps = dict[int, tuple[int, ...]]
"""After so many tokens of each, which documents of those that are there go on."""


def hidden_states(
    backbone: Any, way: Callable[[Any, torch.device], Continuing], lengths: Sequence[int], more: int, keeps: Keeps
) -> list[Tensor]:
    """Of ``more`` tokens behind prompts of ``lengths``."""
    device = next(backbone.parameters()).device
    tokens = torch.randint(200, (len(lengths), max(lengths) + more), generator=torch.Generator().manual_seed(1))
    steps, going, found = way(backbone, device), list(range(len(lengths))), []
    prompts = torch.cat([tokens[n, :length] for n, length in enumerate(lengths)]).to(device)
    positions = torch.cat([torch.arange(length) for length in lengths]).to(device)
    with torch.no_grad():
        backbone(backbone.embed(prompts), positions, Segments(tuple(lengths)), steps.cache)
        for number in range(more):
            if number in keeps:
                steps.keep(keeps[number])
                going = [going[place] for place in keeps[number]]
            places = [lengths[document] + number for document in going]
            ids = [int(tokens[document, place]) for document, place in zip(going, places, strict=True)]
            found.append(steps(ids, places).clone())
    return found


def launched(backbone: Any, device: torch.device) -> Continuing:
    return Launched(backbone, device, backbone.new_batch_cache())
