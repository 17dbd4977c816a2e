"""Layers of other libraries on a packed row: a mask that answers torch's attention with ours.

A library's layer takes a batch, pads it, and hands its mask on to torch's attention. Given a batch of one, which is the
whole row, and this in the place of the mask, it attends within each item, and nothing is padded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kosmos.errors import ConfigError
from kosmos.model.attention import attend
from kosmos.model.segments import Segments


def within_items(items: Segments, *, rows: int | None = None, by_kernels: bool = False) -> Tensor:
    """Where torch's attention expects a mask: each cell of a row sees its own item and nothing else.

    For any layer that takes a mask [B, 1, R, R] and gives it to ``scaled_dot_product_attention`` as it is: call it with
    the row as a batch of one, [1, R, width]. Compiled blocks take it too.

    Args:
        items: lengths, in cells, one behind the other.
        rows: R, of the row and its padding, whose attention is zeros; as many as ``items`` have by default.
        by_kernels: as of ``attend``.

    Returns:
        bool [1, 1, R, R], which takes no memory and is nothing but a place for ``items``. Attention raises ConfigError
        where the layer asks it to drop some.
    """
    size = items.total if rows is None else rows
    assert size >= items.total, (size, items)
    mask = torch.empty(1, 1, 1, 1, dtype=torch.bool).expand(1, 1, size, size).as_subclass(WithinItems)
    mask.items, mask.by_kernels = items, by_kernels
    return mask


class WithinItems(Tensor):
    """What ``within_items`` gives."""

    items: Segments
    by_kernels: bool

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            return _attend(*args, **(kwargs or {}))
        found = super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        if isinstance(found, WithinItems):  # layers cut masks to the keys that there are: here, to all
            found.__dict__.update(next(x.__dict__ for x in args if isinstance(x, WithinItems)))
        return found


@torch.compiler.disable  # type: ignore[untyped-decorator]  # lengths differ from row to row
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """[1, heads, R, width of a head] each -> the same shape. The arguments are those of torch's attention."""
    assert isinstance(attn_mask, WithinItems) and query.shape[0] == 1, query.shape
    items = attn_mask.items
    if dropout_p and items.total:
        raise ConfigError(f"attention within items drops nothing, and the layer asks for dropout {dropout_p}")
    padding = query.shape[2] - items.total
    q, k, v = (x[0, :, : items.total].transpose(0, 1) for x in (query, key, value))
    out: Tensor = attend(q, k, v, items, causal=is_causal, scale=scale, by_kernels=attn_mask.by_kernels)
    return F.pad(out, (0, 0, 0, 0, 0, padding)).transpose(0, 1)[None]
