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
from kosmos.model.attention import Bounds, attend, attend_within, bounds_of, takes
from kosmos.model.segments import Segments


def within_items(items: Segments, x: Tensor, *, by_kernels: bool = False) -> Tensor:
    """Where torch's attention expects a mask: each cell of a row sees its own item and nothing else.

    For any layer that takes a mask [B, 1, R, R] and gives it to ``scaled_dot_product_attention`` as it is: call it with
    the row as a batch of one, [1, R, width]. Compiled blocks take it too.

    Args:
        items: lengths, in cells, one behind the other.
        x: the row [..., R, width] that the layers get, on their device and under their autocast. Where it has cells of
            padding behind the items, none sees them, and what attention gives them is zeros.
        by_kernels: as of ``attend``.

    Returns:
        bool [1, 1, R, R], which takes no memory and is nothing but a place for ``items``. A layer that does anything
        with it but hand it on (or cut it to all of its keys, or look at its shape) raises ConfigError; so does
        attention of a batch of several, over another number of cells, or with dropout.

    Raises:
        ConfigError: the row has fewer cells than the items.
    """
    rows = x.shape[-2]
    if rows < items.total:
        raise ConfigError(f"within_items: a row of {rows} for {items.total} cells")
    # Not as a view: compiled code would look at what it is a view of.
    mask = Tensor._make_subclass(WithinItems, torch.ones(1, 1, 1, 1, dtype=torch.bool).expand(1, 1, rows, rows))
    mask.items, mask.by_kernels = items, by_kernels
    mask.bounds = bounds_of(items, x) if rows == items.total else None
    return mask


HANDED_ON = {"__getitem__", "contiguous", "detach", "expand", "to"}
"""What a layer may make of a mask, if the shape stays."""


class WithinItems(Tensor):
    """What ``within_items`` gives."""

    items: Segments
    by_kernels: bool
    bounds: Bounds | None
    """Of ``items``, where the flash kernel of a GPU takes them as they lie."""

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
            found.items, found.by_kernels, found.bounds = mask.items, mask.by_kernels, mask.bounds
        elif name != "__get__" and (isinstance(found, Tensor) or not isinstance(args[0], WithinItems)):
            raise _refused(f"computes with its mask ({name})")  # by which everything would be seen
        return found


def _refused(what: str) -> ConfigError:
    return ConfigError(
        f"within_items: a layer {what}; it has to take one row and hand the mask to torch's attention as it is "
        '(those of transformers do with attn_implementation "sdpa", without position biases)'
    )


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
    if not attn_mask.shape[-1] == query.shape[2] == key.shape[2] == value.shape[2]:
        raise _refused(f"attends over another row than that of its mask, {attn_mask.shape[-1]} cells")
    if query.shape[0] != 1:
        raise _refused(f"attends in a batch of {query.shape[0]}")
    if dropout_p and query.shape[2]:
        raise _refused(f"drops parts of attention (dropout {dropout_p})")
    q, k, v = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    bounds = attn_mask.bounds
    if takes(bounds, q, v):
        out = attend_within(q, k, v, bounds, causal=is_causal, scale=scale)
    else:
        out = _attend_as_written(q, k, v, attn_mask, is_causal, scale)
    return out.transpose(0, 1)[None]


@torch.compiler.disable  # type: ignore[untyped-decorator]  # lengths differ from row to row
def _attend_as_written(q: Tensor, k: Tensor, v: Tensor, mask: WithinItems, causal: bool, scale: float | None) -> Tensor:
    """[R, heads, width of a head] each -> the same shape."""
    items = mask.items
    padding = len(q) - items.total
    if padding:
        q, k, v = (x[: items.total] for x in (q, k, v))
    out: Tensor = attend(q, k, v, items, causal=causal, scale=scale, by_kernels=mask.by_kernels)
    return F.pad(out, (0, 0, 0, 0, 0, padding)) if padding else out
