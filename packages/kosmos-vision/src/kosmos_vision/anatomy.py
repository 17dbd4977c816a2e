"""Find out what a timm model makes of a picture by running it without data, on torch's meta device."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn

from kosmos import ConfigError
from kosmos_vision.cell_projection import reads_cells

_CLASS_ATTENTION = ("blocks_token_only", "cls_attn_blocks", "post_network")
"""Parts, as timm names them, that only a class token reads: features of positions would leave them untrained."""


@dataclass(frozen=True, slots=True)
class Anatomy:
    """What a dry run of ``forward_features`` showed."""

    patch_px: tuple[int, int]
    """(height, width) of the pixels behind one output position."""
    width: int
    """Features of an output position."""
    unused: tuple[str, ...]
    """Parameters that the features do not depend on, such as a classifier's norm."""
    any_size: bool
    """Whether pictures of another shape work as well."""
    reads_cells: bool
    """Whether all that the model does with a picture is to project its cells."""


def examine(model: nn.Module, size_px: tuple[int, int], *, name: str, other_sizes: bool = True) -> Anatomy:
    """Dry-run a model that lives on the meta device.

    Args:
        model: in training mode or not; parameters and buffers on the meta device.
        size_px: (height, width) of the picture to try.
        name: what to call the model in an error.
        other_sizes: whether pictures of other shapes are tried too; ``any_size`` is else False.

    Raises:
        ConfigError: its features are not one per position of a grid.
    """
    raw = _features(model, size_px, name)
    patch = _patch(model, raw, size_px, name)
    cells = as_cells(model, raw, (size_px[0] // patch[0], size_px[1] // patch[1]))
    trained = {key: p for key, p in model.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(cells.sum(), list(trained.values()), allow_unused=True)
    unused = tuple(key for key, gradient in zip(trained, gradients, strict=True) if gradient is None)
    any_size = other_sizes and _takes_any_size(model, patch, cells.shape[-1], size_px)
    return Anatomy(patch, cells.shape[-1], unused, any_size, reads_cells(model, _picture(size_px), patch))


def as_cells(model: nn.Module, raw: Tensor, grid: tuple[int, int]) -> Tensor:
    """Features of any of timm's three layouts as [B, rows x columns, D].

    Raises:
        ValueError: ``raw`` holds another number of positions.
    """
    if raw.ndim == 4:
        rows_first = raw if _channels_last(model, raw) else raw.permute(0, 2, 3, 1)
        found: tuple[int, ...] = tuple(rows_first.shape[1:3])
        cells = rows_first.flatten(1, 2)
    else:
        cells = raw[:, int(getattr(model, "num_prefix_tokens", 0)) :]
        found = (cells.shape[1],)
    if found not in (grid, (grid[0] * grid[1],)):
        raise ValueError(f"features at {found} positions, expected {grid}")
    return cells


def _channels_last(model: nn.Module, raw: Tensor) -> bool:
    layout = str(getattr(model, "output_fmt", "") or "").upper()
    width = getattr(model, "num_features", None)
    return "NHWC" in layout or (not layout and raw.shape[1] != width and raw.shape[3] == width)


def _picture(size_px: tuple[int, int]) -> Tensor:
    return torch.empty(2, 3, *size_px, device="meta")


def _features(model: nn.Module, size_px: tuple[int, int], name: str) -> Tensor:
    picture = _picture(size_px)
    try:
        raw: Any = model.forward_features(picture)  # type: ignore[operator]
    except Exception as error:  # timm's models refuse a size in as many ways as there are models
        _refuse_cut_patches(_own_patch(model), size_px, name)
        raise ConfigError(
            f"timm model {name} cannot take pictures of {size_px[0]} x {size_px[1]} px: {error}"
        ) from error
    if any(hasattr(model, part) for part in _CLASS_ATTENTION):
        raise ConfigError(f"timm model {name} ends in class attention; need one feature per position of a grid")
    if not isinstance(raw, Tensor) or raw.ndim not in (3, 4):
        kind = f"of shape {list(raw.shape)}" if isinstance(raw, Tensor) else f"as {type(raw).__name__}"
        raise ConfigError(f"timm model {name} gives features {kind}; need one feature per position of a grid")
    return raw


def _patch(model: nn.Module, raw: Tensor, size_px: tuple[int, int], name: str) -> tuple[int, int]:
    """Pixels behind an output position, such that positions x patch = picture."""
    height, width = size_px
    if raw.ndim == 4:
        rows, columns = raw.shape[1:3] if _channels_last(model, raw) else raw.shape[2:4]
        if height % rows == 0 and width % columns == 0:
            return height // rows, width // columns
        raise ConfigError(
            f"timm model {name} gives {rows} x {columns} positions for {height} x {width} px, no whole number of "
            "pixels each; choose an image_size that its stride divides"
        )
    count = raw.shape[1] - int(getattr(model, "num_prefix_tokens", 0))
    own = _own_patch(model)
    if own is not None and count * own[0] * own[1] == height * width:
        return own
    _refuse_cut_patches(own, size_px, name)
    side = isqrt(height * width // max(count, 1))
    if count < 2 or side * side * count != height * width or height % side or width % side:
        raise ConfigError(
            f"timm model {name} gives {count} features for {height} x {width} px (class attention or pooled?); need "
            "one per position of a grid"
        )
    return side, side


def _own_patch(model: nn.Module) -> tuple[int, int] | None:
    """(height, width) of the patches that a model says it cuts pictures into; None where it says nothing."""
    for part in ("patch_embed", "embeds", "stem"):
        own = getattr(getattr(model, part, None), "patch_size", None)
        if isinstance(own, tuple) and len(own) == 2:
            return int(own[0]), int(own[1])
    return None


def _refuse_cut_patches(own: tuple[int, int] | None, size_px: tuple[int, int], name: str) -> None:
    """Raises ConfigError where a picture is no whole number of patches."""
    if own is not None and (size_px[0] % own[0] or size_px[1] % own[1]):
        raise ConfigError(
            f"timm model {name} cuts pictures into patches of {own[0]} x {own[1]} px, and {size_px[0]} x {size_px[1]} "
            "px are no whole number of them; choose an image_size that its stride divides"
        )


def _takes_any_size(model: nn.Module, patch: tuple[int, int], width: int, size_px: tuple[int, int]) -> bool:
    rows, columns = size_px[0] // patch[0], size_px[1] // patch[1]
    for grid in ((rows + 1, columns + 2), (rows + 3, columns)):
        picture = _picture((grid[0] * patch[0], grid[1] * patch[1]))
        try:
            cells = as_cells(model, model.forward_features(picture), grid)  # type: ignore[operator]
        except Exception:  # as above; the answer is no
            return False
        if cells.shape[-1] != width:
            return False
    return True
