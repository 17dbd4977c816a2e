"""Copies of tensors in the CPU's memory, which later steps leave alone while they are written."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

SLAB_BYTES = 2**30
"""Of pinned memory that is taken at once, unless a tensor is larger. PyTorch rounds it up to a power of two."""
ALIGNED = 64
"""Bytes at whose multiples a tensor begins."""


class Staging:
    """Makes the copies of a checkpoint.

    Those of a GPU's tensors stand in pinned memory, to which it copies by itself. Pinning takes long, so that memory is
    kept for the next checkpoint: about as much as this rank saved the last time of what is on its GPU, as long as this
    is there.
    """

    def __init__(self) -> None:
        self._slabs: list[Tensor] = []
        """uint8, pinned."""
        self._used: list[int] = []
        """Bytes of each."""
        self._pins = True
        self.problem: str | None = None
        """Why the last copies are not all in pinned memory, where that was found by them; it is not tried again."""

    def copies(self, tensors: Mapping[str, Tensor], *, keep: bool = False) -> dict[str, Tensor]:
        """Of all tensors, of sharded ones this rank's part. They stand where those of the call before stood.

        A GPU is waited for once.

        Args:
            keep: memory that these have no use for is kept too, for more to come.
        """
        local = {name: t.to_local() if isinstance(t, DTensor) else t for name, t in tensors.items()}
        pinned = self._in_pinned_memory({name: t for name, t in local.items() if t.is_cuda})
        copies = {name: pinned[name] if name in pinned else _copied(t) for name, t in local.items()}
        for device in {local[name].device for name in pinned}:
            torch.cuda.synchronize(device)
        if not keep:
            self._give_back()
        return {name: _as(tensors[name], copy) for name, copy in copies.items()}

    def _in_pinned_memory(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies that are on their way; tensors for which there is no pinned memory are left out."""
        self._used, self.problem = [0] * len(self._slabs), None
        left = sum(map(_room, tensors.values()))
        found: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            slab = self._slab_for(_room(tensor), left)
            left -= _room(tensor)
            if slab is None:
                continue
            begin = self._used[slab]
            self._used[slab] += _room(tensor)
            place = self._slabs[slab][begin : begin + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            found[name] = place.copy_(tensor.detach(), non_blocking=True)
        return found

    def _give_back(self) -> None:
        """Memory that the last copies have no use for, such as that of what is linked from then on."""
        used = [slab for slab, used in zip(self._slabs, self._used, strict=True) if used]
        if len(used) < len(self._slabs):
            self._slabs = used
            torch._C._host_emptyCache()  # else PyTorch keeps it pinned

    def _slab_for(self, size: int, left: int) -> int | None:
        """One with room for ``size`` of the ``left`` bytes that are still to be placed."""
        for number, slab in enumerate(self._slabs):
            if self._used[number] + size <= slab.nbytes:
                return number
        if not self._pins:
            return None
        wanted = max(size, min(left, SLAB_BYTES))
        try:
            self._slabs.append(torch.empty(wanted, dtype=torch.uint8, pin_memory=True))
        except RuntimeError as error:  # CUDA's
            self._pins, self.problem = False, f"{wanted:,} bytes: {str(error).partition(chr(10))[0]}"
            return None
        self._used.append(0)
        return len(self._slabs) - 1


def _room(tensor: Tensor) -> int:
    return -(-tensor.nbytes // ALIGNED) * ALIGNED


def _copied(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())


def _as(tensor: Tensor, part: Tensor) -> Tensor:
    """``part`` as the part of this rank, where ``tensor`` is sharded."""
    if isinstance(tensor, DTensor):
        return DTensor(part, tensor._spec, requires_grad=False)  # type: ignore[no-untyped-call]
    return part
