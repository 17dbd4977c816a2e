"""Sizes that recur, for a CPU that multiplies in bf16.

oneDNN builds a kernel for every shape of a product in bf16 and keeps it: 1 to 3 ms and 2 MB each, of attention 9 ms and
8 MB (Intel Xeon with AMX), more than the product itself takes. The length of a row hardly changes, but the cells of
sounds, the positions that are trained and the lengths of documents are new at every step. Rounded up they are few.
"""

from __future__ import annotations

import torch
from torch import Tensor

MULTIPLE = 64
"""What counts of rows are rounded up to."""


def rounded(count: int, multiple: int = MULTIPLE) -> int:
    """The next multiple; 0 stays 0."""
    return -(-count // multiple) * multiple


def wants_recurring(x: Tensor) -> bool:
    """Whether products with ``x`` are those of a CPU in bf16."""
    if x.device.type != "cpu":
        return False
    return x.dtype == torch.bfloat16 or (
        torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    )


def recurring_size(count: int, x: Tensor) -> int:
    """``count`` of rows, for products with ``x``: rounded up on a CPU in bf16, as it is anywhere else.

    For encoders whose rows differ in length: what stands behind them must be an item of its own, whose features nobody
    takes.
    """
    return rounded(count) if wants_recurring(x) else count


def padded_rows(x: Tensor, count: int) -> Tensor:
    """[n, ...] -> [count, ...], rows of zeros behind; ``x`` itself where it has as many."""
    if len(x) == count:
        return x
    return torch.cat([x, x.new_zeros(count - len(x), *x.shape[1:])])
