"""Items of different lengths without padding: neighbours inside an item, and batches of items of equal length."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from kosmos import Segments, to_device


def neighbours(segments: Segments, reach: int, device: torch.device) -> Tensor:
    """Rows within ``reach`` of each row, in the same segment.

    Returns:
        int64 [R, 2 * reach + 1] for R = ``segments.total``. A place outside the segment holds R, the number of
        the row of zeros that ``gather_rows`` appends.
    """
    rows = torch.arange(segments.total)
    lengths = torch.tensor(segments.lengths, dtype=torch.int64)
    start = torch.tensor(segments.bounds[:-1], dtype=torch.int64).repeat_interleave(lengths)
    end = torch.tensor(segments.bounds[1:], dtype=torch.int64).repeat_interleave(lengths)
    near = rows[:, None] + torch.arange(-reach, reach + 1)
    inside = (near >= start[:, None]) & (near < end[:, None])
    return to_device(near.where(inside, segments.total), device)


def gather_rows(x: Tensor, index: Tensor) -> Tensor:
    """``x`` [R, C] at ``index`` [R, K], zeros where it is R: [R, K * C]. The input of a convolution as a product."""
    padded = F.pad(x, (0, 0, 0, 1))
    return padded.index_select(0, index.flatten()).view(x.shape[0], index.shape[1] * x.shape[1])


def by_length(values: Tensor, grids: Tensor, width: int, encode: Callable[[Tensor], Tensor]) -> Tensor:
    """Encode items in batches of equal length, so that neither padding nor a mask is needed.

    Args:
        values: [N, *cell].
        grids: int64 [items, 3] on the CPU, (cells, 1, 1) each.
        width: features that ``encode`` gives a cell.
        encode: [B, n, *cell] -> [B, n, width], with nothing crossing the first axis. Where there is no item, it gets
            one silent cell whose feature is left out: every layer runs and gradients are zero (the attention of
            torchaudio cannot take a batch of none).

    Returns:
        [N, width], in the order of ``values``.
    """
    segments = Segments.of_grids(grids)
    if segments.total == 0:
        silence = values.new_zeros(1, 1, *values.shape[1:])
        return encode(silence)[0, :0]
    groups: dict[int, list[int]] = {}
    for length, begin in zip(segments.lengths, segments.bounds, strict=False):
        groups.setdefault(length, []).append(begin)
    features, order = [], []
    for length, begins in groups.items():
        index = to_device((torch.tensor(begins)[:, None] + torch.arange(length)).flatten(), values.device)
        batch = values.index_select(0, index).view(len(begins), length, *values.shape[1:])
        features.append(encode(batch).reshape(-1, width))
        order.append(index)
    return torch.cat(features).index_select(0, torch.cat(order).argsort())
