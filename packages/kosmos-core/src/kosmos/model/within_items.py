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
        rows: R, where cells of padding stand behind the items: none sees them, and what attention gives them is zeros.
        by_kernels: as of ``attend``.

    Returns:
        bool [1, 1, R, R], which takes no memory and is nothing but a place for ``items``. A layer that does anything
        with it but hand it on (or cut it to all of its keys, or look at its shape) raises ConfigError; so does
        attention of a batch of several, or with dropout.

    Raises:
        ConfigError: fewer rows than cells.
    """
    size = items.total if rows is None else rows
    if size < items.total:
        raise ConfigError(f"within_items: {size} rows for {items.total} cells")
    mask = torch.ones(1, 1, 1, 1, dtype=torch.bool).expand(1, 1, size, size).as_subclass(WithinItems)
    mask.items, mask.by_kernels = items, by_kernels
    return mask


HANDED_ON = {"__getitem__", "contiguous", "detach", "expand", "to"}
"""What a layer may make of a mask, if the shape stays."""


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
        name = getattr(func, "__name__", str(func))
        if name in HANDED_ON:
            mask = next(x for x in args if isinstance(x, WithinItems))
            if found.shape != mask.shape:
                raise _refused(f"cuts its mask from {list(mask.shape)} to {list(found.shape)}")
            found.items, found.by_kernels = mask.items, mask.by_kernels
        elif name != "__get__" and (isinstance(found, Tensor) or not isinstance(args[0], WithinItems)):
            raise _refused(f"computes with its mask ({name})")  # by which everything would be seen
        return found


def _refused(what: str) -> ConfigError:
    return ConfigError(
        f"within_items: a layer {what}; it has to take one row and hand the mask to torch's attention as it is "
        '(those of transformers do with attn_implementation "sdpa", without position biases)'
    )


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
    assert isinstance(attn_mask, WithinItems)
    items = attn_mask.items
    if query.shape[0] != 1:
        raise _refused(f"attends in a batch of {query.shape[0]}")
    if dropout_p and items.total:
        raise _refused(f"drops parts of attention (dropout {dropout_p})")
    padding = query.shape[2] - items.total
    q, k, v = (x[0, :, : items.total].transpose(0, 1) for x in (query, key, value))
    out: Tensor = attend(q, k, v, items, causal=is_causal, scale=scale, by_kernels=attn_mask.by_kernels)
    return F.pad(out, (0, 0, 0, 0, 0, padding)).transpose(0, 1)[None]
