"""Weights that steps have broken: found before a checkpoint of them takes the place of a good one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from kosmos.checkpoint.tensors import optimizer_tensors
from kosmos.runtime.parallel import Parallel
from kosmos.train.optim.operands import local
from kosmos.train.sharding import settle


def broken(
    model: nn.Module, optimizer: torch.optim.Optimizer, names: Mapping[int, str], parallel: Parallel
) -> str | None:
    """The first weight that is learned and not finite, or average that the optimizer keeps of one and is NaN, in words:
    an optimizer may keep infinities on purpose, as of the least that it has seen. Of one number, such as a count of
    steps, nothing is said.

    Every rank looks at what it holds, and all are told the same. A collective.

    Args:
        names: of the parameters that are learned, by ``id``.
    """
    settle(model)

    def look() -> tuple[int, str] | None:
        weights = [(name, p) for name, p in model.named_parameters() if id(p) in names]
        kept = [(path, state) for path, state in optimizer_tensors(optimizer, names)[0].items() if state.dim()]
        first = first_not_finite([*(p for _, p in weights), *(state for _, state in kept)], may_overflow=len(weights))
        if first is None:
            return None
        if first < len(weights):
            return first, f"the weight {weights[first][0]} is not finite"
        name, _, what = kept[first - len(weights)][0].rpartition("/")
        return first, f"what the optimizer keeps of {name} ({what}) is NaN"

    found = [one for one in parallel.agreed(look) if one is not None]
    return min(found)[1] if found else None


@torch.no_grad()
def first_not_finite(tensors: Sequence[Tensor], may_overflow: int | None = None) -> int | None:
    """Where the first tensor is that holds a number which is not finite, in the part of it that is here; None of none.
    From ``may_overflow`` on it is one that holds NaN.

    One fused pass over those of a kind, for which a GPU is waited for once: a norm that is finite is of numbers that
    all are. Numbers of a byte or less, whole ones, and classes of tensors that hold theirs otherwise are not looked at.
    """
    kinds: dict[tuple[torch.device, torch.dtype], list[tuple[int, Tensor]]] = {}
    for number, tensor in enumerate(map(local, tensors)):
        if tensor.is_floating_point() and tensor.element_size() > 1 and type(tensor) in (Tensor, nn.Parameter):
            kinds.setdefault((tensor.device, tensor.dtype), []).append((number, tensor))
    devices: dict[torch.device, list[Tensor]] = {}
    looked: dict[torch.device, list[tuple[int, Tensor]]] = {}
    for (device, dtype), own in kinds.items():
        wide = torch.promote_types(dtype, torch.float32)
        norms = torch._foreach_norm([tensor for _, tensor in own], 2.0, dtype=wide)
        devices.setdefault(device, []).append(torch.stack(norms).isfinite())
        looked.setdefault(device, []).extend(own)
    doubtful = [
        one
        for device, flags in devices.items()
        for one, is_finite in zip(looked[device], torch.cat(flags).tolist(), strict=True)
        if not is_finite
    ]  # squares of large numbers overflow, too
    least_nan = len(tensors) if may_overflow is None else may_overflow
    return next(
        (n for n, t in sorted(doubtful, key=_place) if (t.isnan().any() if n >= least_nan else not t.isfinite().all())),
        None,
    )


def _place(one: tuple[int, Tensor]) -> int:
    return one[0]
