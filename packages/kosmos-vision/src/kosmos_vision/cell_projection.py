"""Cells that a timm model projects as they are, without a picture made of them.

A vision transformer begins with a convolution whose windows are our cells. As one product that takes a fraction of the
time, and the cells, which lie one after another, need not be put together to pictures first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class CellProjection(nn.Conv2d):
    """A convolution whose windows are cells, for pictures whose memory is their cells, one after another.

    A model with it no longer takes ordinary pictures.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, rows x height, columns x width], of which the memory holds [B, rows, columns, C, height, width] ->
        [B, D, rows, columns]."""
        height, width = self.kernel_size
        grid = x.shape[2] // height, x.shape[3] // width
        cells = x.view(len(x), *grid, x.shape[1] * height * width)
        return F.linear(cells, self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)


def project_cells(model: nn.Module) -> None:
    """Have a model for which ``reads_cells`` holds take pictures as ``CellProjection`` does."""
    projection: Any = model.patch_embed.proj  # type: ignore[union-attr]
    projection.__class__ = CellProjection  # its parameters and their names stay


def takes_cells(model: nn.Module) -> bool:
    """Whether ``project_cells`` was called for a model."""
    return isinstance(getattr(getattr(model, "patch_embed", None), "proj", None), CellProjection)


def reads_cells(model: nn.Module, picture: Tensor, patch_px: tuple[int, int]) -> bool:
    """Whether all that a model does with a picture is to project its cells.

    Args:
        model: it runs on the picture.
        patch_px: (height, width) of a cell.
    """
    projection = getattr(getattr(model, "patch_embed", None), "proj", None)
    if type(projection) is not nn.Conv2d:
        return False
    windows = projection.kernel_size, projection.stride, projection.padding, projection.dilation
    if windows != (patch_px, patch_px, (0, 0), (1, 1)) or projection.groups != 1:
        return False
    with _Readers(picture) as readers, torch.no_grad():
        model.forward_features(picture)  # type: ignore[operator]
    return bool(readers.found == [F.conv2d])


class _Readers(TorchFunctionMode):
    """Functions that were given a tensor; those that ask for its shape alone do not count."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self.tensor = tensor
        self.found: list[Any] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(x is self.tensor for x in args) and function != Tensor.shape.__get__:  # type: ignore[attr-defined]
            self.found.append(function)
        return function(*args, **(kwargs or {}))
