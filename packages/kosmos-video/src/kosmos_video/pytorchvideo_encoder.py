"""Clip encoders of pytorchvideo, as encoders of single items.

Batch statistics would let clips of one batch influence each other, so no BatchNorm stays: from scratch it
becomes GroupNorm, with pretrained weights its running statistics are frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from kosmos import ConfigError, prefix_of, read_weights
from kosmos_video.architectures import Architecture, find_architecture
from kosmos_video.convolutions import pad_few_frames
from kosmos_video.frames import ClipInput
from kosmos_video.norms import freeze_batch_norm, group_batch_norm, replace_swish

_OWN = "net."
"""What the names of the encoder's own tensors begin with."""
_COUNT = ".num_batches_tracked"
KINETICS_MEAN, KINETICS_STD = (0.45, 0.45, 0.45), (0.225, 0.225, 0.225)
"""What pytorchvideo's published weights were trained with."""


class PytorchVideoEncoder(nn.Module):
    """A pytorchvideo network without its head: one feature for each cell of a clip.

    A cell is the block of frames and pixels that one output position stands for (strides, not receptive field).
    The networks are built by pytorchvideo 0.1.5 (x3d, slow, csn, r2plus1d, mvit); here the head is removed,
    BatchNorm replaced, and MViT's class token dropped after the last block.

    Args:
        model: ``resnet_tiny`` (learns from scratch on a CPU), ``x3d_tiny``, ``mvit_tiny``, ``x3d_xs``, ``x3d_s``,
            ``x3d_m``, ``x3d_l``, ``slow_r50``, ``csn_r101``, ``r2plus1d_r50``, ``mvit_base_16x4``, ``mvit_base_32x3``.
        frames: frames a clip (None: what the model was made for).
        size_px: side of the square frames (None: what the model was made for).
        weights: local file with a state dict, ``.safetensors`` or torch's own format (read without running
            code). None: from scratch.
        norm: what becomes of BatchNorm: ``group`` (GroupNorm), ``frozen`` (running statistics, in training too),
            ``auto``: ``frozen`` with weights, ``group`` without.
        mean: of each channel, of values in [0, 1].
        std: of each channel, of values in [0, 1].

    Raises:
        ConfigError: unknown model, a clip size that the model cannot divide into cells, or weights that do not fit.
    """

    input: ClipInput
    width: int

    def __init__(
        self,
        *,
        model: str = "resnet_tiny",
        frames: int | None = None,
        size_px: int | None = None,
        weights: str | None = None,
        norm: Literal["auto", "group", "frozen"] = "auto",
        mean: tuple[float, float, float] = KINETICS_MEAN,
        std: tuple[float, float, float] = KINETICS_STD,
    ) -> None:
        super().__init__()
        architecture = find_architecture(model)
        stored = None if weights is None else _stored(Path(weights))
        if stored is not None and norm == "group" and any(name.endswith(".running_mean") for name in stored):
            raise ConfigError("norm: 'group' would throw away the statistics of the weights; use 'frozen' or 'auto'")
        self.frames, self.size_px = frames or architecture.frames, size_px or architecture.size_px
        self.net = _build(model, architecture, self.frames, self.size_px)
        self.is_transformer = architecture.is_transformer
        is_frozen = norm == "frozen" or (norm == "auto" and weights is not None)
        self.without_files = {} if weights is None else {"weights": None, "norm": "frozen" if is_frozen else "group"}
        """Options that build it again where its weights are not to be had."""
        head = architecture.head_prefix(self.net)
        if stored is not None and is_frozen:
            _load(self.net, stored, str(weights), head)
        _remove_head(self.net)
        replace_swish(self.net)
        pad_few_frames(self.net)
        if is_frozen:
            freeze_batch_norm(self.net)
        else:
            group_batch_norm(self.net)
            if stored is not None:  # of a run that has trained it so
                _load(self.net, stored, str(weights), head)
        self.gradient_checkpointing = False
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1, 1), persistent=False)
        self.width, self.input = self._measure(model, tuple(mean), tuple(std))

    @staticmethod
    def in_effect(options: dict[str, Any]) -> dict[str, Any]:
        """Options with what the model has by its name in the place of None, to compare two encoders."""
        own = find_architecture(options["model"])
        norm = "group" if options["norm"] == "auto" and options["weights"] is None else options["norm"]
        frames, size_px = options["frames"] or own.frames, options["size_px"] or own.size_px
        return {**options, "frames": frames, "size_px": size_px, "norm": norm}

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        """values uint8 [N, 3, cell_frames, ph, pw], grids int64 [items, 3] -> [N, width].

        Clips of the same grid go through the network together; the result is in the order of the items. With no
        items, a batch of no clips goes through all the same, so that every parameter takes part.
        """
        shapes = [tuple(grid) for grid in grids.tolist()] or [tuple(self.input.grid)]
        counts = [t * h * w for t, h, w in shapes] if len(grids) else [0]
        assert sum(counts) == len(values), (grids, values.shape)
        starts = [sum(counts[:i]) for i in range(len(counts))]
        parts: list[Tensor] = [values.new_empty(0)] * len(shapes)
        for shape in dict.fromkeys(shapes):
            members = [i for i, other in enumerate(shapes) if other == shape]
            cells = torch.cat([values[starts[i] : starts[i] + counts[i]] for i in members])
            features = self._encode(cells, cast(tuple[int, int, int], shape))
            sizes = [counts[i] for i in members]
            for i, part in zip(members, torch.split(features, sizes), strict=True):
                parts[i] = part
        return torch.cat(parts)

    def set_gradient_checkpointing(self, enabled: bool) -> None:
        """Whether activations of each block are computed again in backward, to save memory."""
        self.gradient_checkpointing = enabled

    def _encode(self, cells: Tensor, shape: tuple[int, int, int]) -> Tensor:
        """Cells of clips of the grid ``shape`` -> [cells, width]."""
        t, h, w = shape
        if self.is_transformer and shape != tuple(self.input.grid):
            raise ConfigError(
                f"clip grid {shape} is not {tuple(self.input.grid)}, for which the transformer's positions were made"
            )
        frames, ph, pw = cells.shape[2:]
        clips = cells.reshape(-1, t, h, w, 3, frames, ph, pw).permute(0, 4, 1, 5, 2, 6, 3, 7)
        clips = clips.reshape(-1, 3, t * frames, h * ph, w * pw)
        features = self._trunk(self._scale(clips))
        assert features.shape[2:] == (t, h, w), (features.shape, shape)
        return features.permute(0, 2, 3, 4, 1).reshape(-1, self.width)

    def _scale(self, clips: Tensor) -> Tensor:
        """uint8 [B, 3, T, H, W] to the network's type, mean and spread."""
        kind = next(self.net.parameters()).dtype
        mean, std = cast(Tensor, self.mean), cast(Tensor, self.std)
        scaled = (clips.to(mean.dtype) / 255 - mean) / std
        return scaled.to(kind)

    def _trunk(self, clips: Tensor) -> Tensor:
        """[B, 3, T, H, W] -> [B, width, t, h, w]."""
        net: Any = self.net
        if not self.is_transformer:
            for block in net.blocks:
                clips = self._run(block, clips)
            return clips
        tokens = net.cls_positional_encoding(net.patch_embed(clips))
        thw = list(net.cls_positional_encoding.patch_embed_shape)
        for block in net.blocks:
            tokens, thw = self._run(block, tokens, thw)
        tokens = net.norm_embed(tokens)[:, 1:]  # without the class token
        return cast(Tensor, tokens.transpose(1, 2).reshape(tokens.shape[0], tokens.shape[2], *thw))

    def _run(self, block: nn.Module, *args: Any) -> Any:
        if self.gradient_checkpointing and torch.is_grad_enabled():
            return checkpoint(block, *args, use_reentrant=False)
        return block(*args)

    @torch.no_grad()
    def _measure(self, model: str, mean: tuple[float, ...], std: tuple[float, ...]) -> tuple[int, ClipInput]:
        """Width and cell of the network, from one clip of zeros."""
        whole = (self.frames, self.size_px, self.size_px)
        try:
            _, width, *grid = self._trunk(torch.zeros(1, 3, *whole)).shape
        except Exception as error:  # the seam to pytorchvideo, which fails on clips that are too small for its strides
            raise ConfigError(
                f"{model}: cannot take clips of {self.frames} frames of {self.size_px} pixels: {error}"
            ) from error
        if any(side % cells for side, cells in zip(whole, grid, strict=True)):
            raise ConfigError(
                f"{model}: frames {self.frames}, size_px {self.size_px} give a grid of {'x'.join(map(str, grid))}, "
                "which does not divide them; choose multiples of the model's strides"
            )
        frames, ph, pw = (side // cells for side, cells in zip(whole, grid, strict=True))
        size = (self.size_px, self.size_px)
        return width, ClipInput(self.frames, frames, (ph, pw), size, mean, std)


def _build(model: str, architecture: Architecture, frames: int, size_px: int) -> nn.Module:
    try:
        return architecture.build(frames, size_px)
    except Exception as error:  # the seam to pytorchvideo, which asserts on sizes
        raise ConfigError(f"{model}: cannot be built for {frames} frames of {size_px} pixels: {error}") from error


def _remove_head(net: nn.Module) -> None:
    if hasattr(net, "head"):
        net.head = None  # type: ignore[assignment]
    else:
        net.blocks = cast(nn.ModuleList, net.blocks)[:-1]


def _stored(path: Path) -> dict[str, Tensor]:
    """By pytorchvideo's names, also where the file is of an encoder that a run has trained."""
    state = read_weights(path)
    own = all(name.startswith(_OWN) for name in state)
    return {name.removeprefix(_OWN): tensor for name, tensor in state.items()} if own else state


def _load(net: nn.Module, stored: Mapping[str, Tensor], path: str, head_prefix: str) -> None:
    """Load a state dict into the whole network; only the head's tensors may be absent or of another shape.

    Counts of batches, which nothing here reads, may be absent too.
    """
    body = {name: value for name, value in stored.items() if not name.startswith(head_prefix)}
    own = {name: value for name, value in net.state_dict().items() if not name.startswith(head_prefix)}
    wrong = [n for n in own.keys() & body.keys() if own[n].shape != body[n].shape]
    differ = sorted(n for n in [*(own.keys() ^ body.keys()), *wrong] if n in body or not n.endswith(_COUNT))
    if not differ:
        net.load_state_dict(body, strict=False)
        return
    advice = ""
    if under := prefix_of([name for name in own if not name.endswith(_COUNT)], stored):
        advice = f"; it holds them under {under[:-1]}: kosmos export RUN FILE --part {under[:-1]} writes them alone"
    elif all(name.endswith((".running_mean", ".running_var")) for name in differ):
        advice = "; norm: group takes weights without statistics of batches"
    raise ConfigError(
        f"weights: {path} does not fit the model: {len(differ)} tensors differ, first {differ[0]}{advice}"
    )
