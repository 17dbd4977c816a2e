"""NaFlex models of timm on pictures of any shapes as one row of cells, without padding.

The blocks are timm's own. In place of a mask, which they would hand to torch's attention, they get ``WithinPictures``,
which attends within each picture. D = width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kosmos import ConfigError, Segments, attend, recurring_size
from kosmos_vision.lean_timm import timm


def is_naflex(model: nn.Module) -> bool:
    return type(model).__name__ == "NaFlexVit"


def prepare(model: Any, name: str) -> None:
    """Make a model ready for ``features``; its own ``forward_features`` is no longer right for rotary positions.

    Raises:
        ConfigError: it looks up positions in a way that it has for its padded batches only.
    """
    for option in ("pos_embed_use_grid_sample", "pos_embed_align_corners"):
        if getattr(model.embeds, option, False):
            raise refused(name, option)
    for module in model.modules():
        if not hasattr(module, "fused_attn"):
            continue
        module.fused_attn = True  # what ``WithinPictures`` answers
        if hasattr(module, "num_prefix_tokens"):  # tokens that are not rotated: the table of rotations says so
            module.num_prefix_tokens = 0


def drops(model: nn.Module) -> str | None:
    """The option by which a model in training drops parts of attention or of pictures at random, if it does.

    It would drop the same of all pictures of a row.
    """
    return next((option for module in model.modules() if (option := _drops(module)) is not None), None)


def refused(name: str, option: str) -> ConfigError:
    return ConfigError(f"timm model {name}: {option} cannot be used with variable: true, where pictures share a row")


def features(model: Any, pictures: Sequence[Tensor], *, by_kernels: bool = False) -> list[Tensor]:
    """Features of every cell.

    Args:
        model: a ``NaFlexVit`` after ``prepare``.
        pictures: [B, 3, height, width] each, normalised, of one shape each; B may be 0.
        by_kernels: as of ``kosmos.attend``.

    Returns:
        [B, cells of a picture, D] for each of ``pictures``.
    """
    prefix = int(model.num_prefix_tokens)
    embedded, tables, lengths = [], [], []
    for batch in pictures:
        tokens, grid = model.embeds(batch)
        embedded.append(tokens)
        lengths += [tokens.shape[1]] * len(batch)
        if model.rope is not None:
            own = _behind(model.rope.get_embed(shape=list(grid)), prefix)
            tables += [own] * len(batch)
    x = model.norm_pre(torch.cat([tokens.flatten(0, 1) for tokens in embedded])[None])
    padding = recurring_size(x.shape[1], x) - x.shape[1]
    x = F.pad(x, (0, 0, 0, padding))
    arguments: dict[str, Any] = {"attn_mask": WithinPictures.of(Segments(tuple(lengths)), by_kernels)}
    table = F.pad(torch.cat(tables, dim=-2).to(x.device), (0, 0, 0, padding)) if tables else None
    for number, block in enumerate(model.blocks):
        if table is not None:
            arguments["rope"] = table[number] if model.rope_is_mixed else table
        x = _run(block, x, arguments, recompute=model.grad_checkpointing)
    rows = torch.split(model.norm(x)[0], [*(tokens.shape[0] * tokens.shape[1] for tokens in embedded), padding])[:-1]
    return [row.view(*tokens.shape[:2], x.shape[-1])[:, prefix:] for row, tokens in zip(rows, embedded, strict=True)]


class WithinPictures(Tensor):
    """Where torch's attention expects a mask: each token of a row sees its own picture and nothing else.

    What stands behind the last picture is padding, and attention gives it zeros.
    """

    segments: Segments
    by_kernels: bool

    @staticmethod
    def of(segments: Segments, by_kernels: bool = False) -> WithinPictures:
        mask = torch.empty(0, dtype=torch.bool).as_subclass(WithinPictures)
        mask.segments, mask.by_kernels = segments, by_kernels
        return mask

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
        return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]


@torch.compiler.disable  # type: ignore[untyped-decorator]  # lengths differ from row to row
def _attend(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: WithinPictures, dropout_p: float = 0.0, is_causal: bool = False
) -> Tensor:
    """q, k, v [1, heads, tokens, width of a head] -> the same shape."""
    segments = attn_mask.segments
    assert not is_causal and q.shape[0] == 1, (is_causal, q.shape)
    assert not dropout_p or not segments.total, dropout_p  # see ``drops``
    padding = q.shape[2] - segments.total
    q, k, v = (x[0, :, : segments.total].transpose(0, 1) for x in (q, k, v))
    out: Tensor = attend(q, k, v, segments, causal=False, by_kernels=attn_mask.by_kernels)
    return F.pad(out, (0, 0, 0, 0, 0, padding)).transpose(0, 1)[None]


def _run(block: nn.Module, x: Tensor, arguments: dict[str, Any], *, recompute: bool) -> Tensor:
    out: Tensor
    if recompute and torch.is_grad_enabled():
        out = checkpoint(block, x, use_reentrant=False, **arguments)
    else:
        out = block(x, **arguments)
    return out


def _behind(table: Tensor, prefix: int) -> Tensor:
    """Rotations [..., cells, sines and cosines] behind those of ``prefix`` tokens, which are not rotated."""
    none = torch.cat([table.new_zeros(prefix, table.shape[-1] // 2), table.new_ones(prefix, table.shape[-1] // 2)], -1)
    return torch.cat([none.expand(*table.shape[:-2], *none.shape), table], dim=-2)


def _drops(module: nn.Module) -> str | None:
    """The option of a NaFlex model by which this part of it drops something of a picture, if it does."""
    if isinstance(module, timm.layers.DropPath) and module.drop_prob:
        return "drop_path_rate"
    dropout = getattr(module, "attn_drop", None)
    probability = dropout.p if isinstance(dropout, nn.Dropout) else dropout
    return "attn_drop_rate" if probability else None
