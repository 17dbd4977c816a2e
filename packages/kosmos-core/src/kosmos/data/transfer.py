"""From the CPU's memory to a device's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """``tensor``, of any shape and type, on ``device``, at once.

    For what a forward pass makes on the CPU, such as indices. A plain ``.to(device)`` would wait for all that a GPU has
    still to do, since the memory is not pinned.
    """
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
