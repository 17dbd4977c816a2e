"""From the CPU's memory to a device's, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """``tensor``, of any shape and type, on ``device``, without waiting for what a GPU has still to do.

    For what a forward pass makes on the CPU, such as indices. A plain ``.to(device)`` waits, and so does an
    asynchronous one from memory that is not pinned. From a GPU to the CPU this waits too: the values are to be there.
    """
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.contiguous().pin_memory()
    return tensor.to(device, non_blocking=device.type != "cpu")


def on_its_way(tensor: Tensor) -> Callable[[], Tensor]:
    """Begin to copy a tensor to the CPU; what is returned waits for it, and for nothing that a GPU was given since."""
    copy = tensor.detach().to("cpu", non_blocking=True)  # pinned
    if not tensor.is_cuda:
        return lambda: copy
    import torch

    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()

    def arrived() -> Tensor:
        copied.synchronize()
        return copy

    return arrived
