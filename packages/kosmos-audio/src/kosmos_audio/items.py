"""Items of different lengths without padding: neighbours inside an item, and batches of items of equal length."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from kosmos import Segments, to_device


def strangers(segments: Segments, reach: int, device: torch.device) -> Tensor:
    """Which of the rows within ``reach`` of a row are of another segment, or none.

    Returns:
        bool [R, 2 * reach + 1, 1] for R = ``segments.total``, from the row ``reach`` in front to the one behind.
    """
    lengths = torch.tensor(segments.lengths, dtype=torch.int64)
    places = segments.places()[:, None] + torch.arange(-reach, reach + 1)
    outside = (places < 0) | (places >= lengths.repeat_interleave(lengths)[:, None])
    return to_device(outside[:, :, None], device)


def with_neighbours(x: Tensor, outside: Tensor, step: int = 1) -> Tensor:
    """Every ``step``-th row of ``x`` [R, C] with those around it: the input of a convolution as a product.

    Args:
        x: rows of all segments.
        outside: of ``strangers``; zeros stand for them.
        step: the stride of the convolution; R is a multiple of it.

    Returns:
        [R / step, (2 * reach + 1) * C].
    """
    rows, kernel = outside.shape[:2]
    padded = F.pad(x, (0, 0, kernel // 2, kernel // 2))
    windows = torch.stack([padded[begin : begin + rows : step] for begin in range(kernel)], 1)
    return windows.masked_fill(outside[::step], 0).flatten(1)


def by_length(values: Tensor, items: Segments, width: int, encode: Callable[[Tensor], Tensor]) -> Tensor:
    """Encode items in batches of equal length, so that neither padding nor a mask is needed.

    Args:
        values: [N, *cell].
        items: N cells in all, at least one.
        width: features that ``encode`` gives a cell.
        encode: [B, n, *cell] -> [B, n, width], with nothing crossing the first axis.

    Returns:
        [N, width], in the order of ``values``.
    """
    groups: dict[int, list[int]] = {}
    for length, begin in zip(items.lengths, items.bounds, strict=False):
        groups.setdefault(length, []).append(begin)
    features, order = [], []
    for length, begins in groups.items():
        index = to_device((torch.tensor(begins)[:, None] + torch.arange(length)).flatten(), values.device)
        batch = values.index_select(0, index).view(len(begins), length, *values.shape[1:])
        features.append(encode(batch).reshape(-1, width))
        order.append(index)
    return torch.cat(features).index_select(0, torch.cat(order).argsort())
