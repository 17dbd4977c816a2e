"""Models of timm on pictures of any shapes as one row of cells, without padding: NaFlex, plain ViTs, EVA and DINOv3.

The blocks are timm's own. In place of a mask, which they would hand to torch's attention, they get
``kosmos.within_items``, whose items are the pictures. D = width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kosmos import ConfigError, Segments, recurring_size, run_block, within_items
from kosmos_vision.lean_timm import timm
from kosmos_vision.timm_attention import PictureAttention

VisionTransformer: Any = timm.models.vision_transformer.VisionTransformer
Eva: Any = timm.models.eva.Eva
BLOCKS = (timm.models.vision_transformer.Block, timm.models.eva.EvaBlock, timm.models.eva.EvaBlockPostNorm)


def is_naflex(model: nn.Module) -> bool:
    return type(model).__name__ == "NaFlexVit"


def takes_rows(model: Any) -> bool:
    """Whether it is a vision transformer of timm whose blocks can, and which drops no part of a picture at random.

    What it drops would fall on all pictures of a row alike; models that do run a batch for each shape.
    """
    plain = type(model) is VisionTransformer and all(type(block.attn) is PictureAttention for block in model.blocks)
    known = (plain or type(model) is Eva) and all(type(block) in BLOCKS for block in model.blocks)
    return known and isinstance(model.patch_drop or nn.Identity(), nn.Identity) and drops(model) is None


def prepare(model: Any, name: str) -> None:
    """Make a model that is one of these ready for ``features``; where it has rotary positions, its own
    ``forward_features`` is no longer right.

    Raises:
        ConfigError: it looks up positions in a way that it has for its padded batches only.
    """
    for option in ("pos_embed_use_grid_sample", "pos_embed_align_corners") if is_naflex(model) else ():
        if getattr(model.embeds, option, False):
            raise refused(name, option)
    for module in model.modules():
        if not hasattr(module, "fused_attn"):
            continue
        module.fused_attn = True  # what ``within_items`` answers
        if hasattr(module, "num_prefix_tokens"):  # tokens that are not rotated: the table of rotations says so
            module.num_prefix_tokens = 0


def drops(model: nn.Module) -> str | None:
    """The option by which a model in training drops parts of attention or of pictures at random, if it does.

    It would drop the same of all pictures of a row: a NaFlex model is refused, others run a batch for each shape.
    """
    return next((option for module in model.modules() if (option := _drops(module)) is not None), None)


def refused(name: str, option: str) -> ConfigError:
    return ConfigError(f"timm model {name}: {option} cannot be used with variable: true, where pictures share a row")


def features(model: Any, pictures: Sequence[Tensor], *, by_kernels: bool = False) -> list[Tensor]:
    """Features of every cell.

    Args:
        model: a NaFlex model or one that ``takes_rows``, after ``prepare``.
        pictures: [B, 3, height, width] each, normalised, of one shape each; B may be 0.
        by_kernels: as of ``kosmos.attend``.

    Returns:
        [B, cells of a picture, D] for each of ``pictures``.
    """
    prefix = int(model.num_prefix_tokens)
    embedded, tables, lengths = [], [], []
    for batch in pictures:
        tokens, table = _embedded(model, batch)
        embedded.append(tokens)
        lengths += [tokens.shape[1]] * len(batch)
        if table is not None:
            tables += [_behind(table, prefix)] * len(batch)
    # No view of the row, which to a compiled block would be a program of its own.
    x = model.norm_pre(torch.cat([tokens.flatten(0, 1)[None] for tokens in embedded], dim=1))
    padding = recurring_size(x.shape[1], x) - x.shape[1]
    x = F.pad(x, (0, 0, 0, padding))
    mask = within_items(Segments(tuple(lengths)), x, by_kernels=by_kernels)
    arguments: dict[str, Any] = {"attn_mask": mask}
    table = F.pad(torch.cat(tables, dim=-2).to(x.device), (0, 0, 0, padding)) if tables else None
    mixed = getattr(model, "rope_is_mixed", False) or getattr(model, "rope_mixed", False)  # NaFlex, EVA: one a block
    for number, block in enumerate(model.blocks):
        if table is not None:
            arguments["rope"] = table[number] if mixed else table
        x = run_block(block, x, recompute=model.grad_checkpointing, **arguments)
    rows = torch.split(model.norm(x)[0], [*(tokens.shape[0] * tokens.shape[1] for tokens in embedded), padding])[:-1]
    return [row.view(*tokens.shape[:2], x.shape[-1])[:, prefix:] for row, tokens in zip(rows, embedded, strict=True)]


def _embedded(model: Any, batch: Tensor) -> tuple[Tensor, Tensor | None]:
    """Tokens [B, tokens of a picture, D] of pictures of one shape, and the rotations of its cells."""
    if is_naflex(model):
        tokens, grid = model.embeds(batch)
        return tokens, None if model.rope is None else model.rope.get_embed(shape=list(grid))
    found = model._pos_embed(model.patch_embed(batch))
    return found if isinstance(found, tuple) else (found, None)


def _behind(table: Tensor, prefix: int) -> Tensor:
    """Rotations [..., cells, sines and cosines] behind those of ``prefix`` tokens, which are not rotated."""
    none = torch.cat([table.new_zeros(prefix, table.shape[-1] // 2), table.new_ones(prefix, table.shape[-1] // 2)], -1)
    return torch.cat([none.expand(*table.shape[:-2], *none.shape), table], dim=-2)


def _drops(module: nn.Module) -> str | None:
    """The option of a model by which this part of it drops something of a picture, if it does."""
    if isinstance(module, timm.layers.DropPath) and module.drop_prob:
        return "drop_path_rate"
    dropout = getattr(module, "attn_drop", None)
    probability = dropout.p if isinstance(dropout, nn.Dropout) else dropout
    return "attn_drop_rate" if probability else None
