"""Items of different lengths without padding: neighbours inside an item, and batches of items of equal length."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kosmos import Segments, to_device


def as_weights(values: Tensor, module: nn.Module) -> Tensor:
    """Cells in the type of the module's weights, for one that was brought to another; autocast picks its own."""
    dtype = next(module.parameters()).dtype
    is_free = torch.is_autocast_enabled(values.device.type) and dtype != torch.float64  # which it leaves as they are
    return values if is_free else values.to(dtype)


def silent_cell(values: Tensor) -> tuple[Tensor, Segments]:
    """An item of one cell, for layers that cannot run on none: none of its features is kept, so gradients are zero."""
    return values.new_zeros(1, *values.shape[1:]), Segments((1,))


def own_neighbours(items: Segments, reach: int, device: torch.device) -> Tensor:
    """Which of the rows within ``reach`` of a row are of its own item.

    Returns:
        bool [R, 2 * reach + 1, 1] for R = ``items.total``, from the row ``reach`` in front to the one behind.
    """
    lengths = torch.tensor(items.lengths, dtype=torch.int64)
    places = items.places()[:, None] + torch.arange(-reach, reach + 1)
    own = (places >= 0) & (places < lengths.repeat_interleave(lengths)[:, None])
    return to_device(own[:, :, None], device)


def with_neighbours(x: Tensor, own: Tensor, step: int = 1) -> Tensor:
    """Every ``step``-th row of ``x`` [R, C] with those around it: the input of a convolution as a product.

    Args:
        x: rows of all items.
        own: of ``own_neighbours``; zeros stand for rows of others.
        step: the stride of the convolution; R is a multiple of it.

    Returns:
        [R / step, (2 * reach + 1) * C].
    """
    rows, kernel = own.shape[:2]
    padded = F.pad(x, (0, 0, kernel // 2, kernel // 2))
    windows = torch.stack([padded[begin : begin + rows : step] for begin in range(kernel)], 1)
    return windows.masked_fill(~own[::step], 0).flatten(1)


class Lengths(NamedTuple):
    """Items by their lengths."""

    each: list[tuple[int, Tensor]]
    """A length, and the cells of the items that have it, int64 [items x length] on the device."""
    back: Tensor
    """int64 [N]: where each cell is once these stand one after another."""

    @staticmethod
    def of(items: Segments, device: torch.device) -> Lengths:
        """``items`` have at least one cell in all."""
        begins: dict[int, list[int]] = {}
        for length, begin in zip(items.lengths, items.bounds, strict=False):
            begins.setdefault(length, []).append(begin)
        cells = [
            (length, (torch.tensor(own)[:, None] + torch.arange(length)).flatten()) for length, own in begins.items()
        ]
        back = torch.cat([index for _, index in cells]).argsort()
        return Lengths([(length, to_device(index, device)) for length, index in cells], to_device(back, device))


def by_length(x: Tensor, lengths: Lengths, encode: Callable[[Tensor], Tensor]) -> Tensor:
    """Encode items in batches of equal length, so that neither padding nor a mask is needed.

    Args:
        x: [N, width].
        lengths: of its items.
        encode: [B, n, width] -> [B, n, width out], with nothing crossing the first axis.

    Returns:
        [N, width out].
    """
    found = [
        encode(x.index_select(0, index).view(-1, length, x.shape[1])).flatten(0, 1) for length, index in lengths.each
    ]
    return torch.cat(found).index_select(0, lengths.back)
