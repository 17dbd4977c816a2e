"""Gradients of a step before the optimizer reads them: none missing, their norm known, clipped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from kosmos.train.optim.adamw import FusedAdamW
from kosmos.train.optim.operands import Cut, cut_of, local, summed
from kosmos.train.optim.parameterwise import Parameterwise

CLIP_MARGIN = 1e-6
"""What torch adds to a norm before it divides by it."""


def fill_missing(parameters: Iterable[nn.Parameter]) -> None:
    """Zeros for a parameter that no row of the step used, so that it is decayed at any number of ranks alike."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def norms_of(parts: Sequence[Sequence[nn.Parameter]]) -> Tensor:
    """[1 + parts]: the norm of all gradients, then that of each part, where they are: a GPU is not waited for.

    All ranks call this.
    """
    kinds: dict[tuple[Cut, torch.dtype], list[list[Tensor]]] = {}
    for number, part in enumerate(parts):
        for (cut, dtype), found in _alike(part).items():
            kinds.setdefault((cut, dtype), [[] for _ in parts])[number] = found
    norms = [_norms(alike, cut) for (cut, _), alike in kinds.items()]
    if not norms:
        return torch.zeros(1 + len(parts))
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms), dim=0)


def _norms(parts: list[list[Tensor]], cut: Cut) -> Tensor:
    """Of gradients that are cut alike, in fp32 at least: in bf16 they would be rounded to three digits.

    Of what each rank has of them: DTensor's own norms take no ``dtype`` with torch 2.14.
    """
    own = [local(gradient) for part in parts for gradient in part]
    found = torch.stack(torch._foreach_norm(own, 2.0, dtype=torch.promote_types(own[0].dtype, torch.float32)))
    parted = torch.split(found, [len(part) for part in parts])
    norms = torch.stack([torch.linalg.vector_norm(norms) for norms in (found, *parted)])
    return norms if cut is None else summed(norms.square(), cut).sqrt()


def clip(optimizer: torch.optim.Optimizer, norm: float, most: float) -> None:
    """Scale the gradients, whose norm is ``norm``, so that it is ``most`` at most: now, or as the next step reads them.

    The factor is that of ``torch.nn.utils.clip_grad_norm_``, but for rounding.
    """
    if norm + CLIP_MARGIN <= most:  # torch would read and write all gradients to multiply them by 1
        return
    factor = float((most / (torch.tensor(norm) + CLIP_MARGIN)).clamp(max=1.0))
    if isinstance(optimizer, Parameterwise | FusedAdamW) and optimizer.scale_next(factor):
        return
    for gradients in _alike(p for group in optimizer.param_groups for p in group["params"]).values():
        torch._foreach_mul_(gradients, factor)


def _alike(parameters: Iterable[nn.Parameter]) -> dict[tuple[Cut, torch.dtype], list[Tensor]]:
    """Gradients by how they are shared out, and by type: torch joins norms of one kind only."""
    found: dict[tuple[Cut, torch.dtype], list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            found.setdefault((cut_of(parameter.grad), parameter.grad.dtype), []).append(parameter.grad)
    return found
