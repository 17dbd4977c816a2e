"""The encoder of Whisper as transformers builds it, on items of any length up to 30 s."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kosmos import ConfigError, PlanMismatch, Recompute, Segments, WithKernels, run_block, to_device, within_items
from kosmos_audio.inputs import AudioInput
from kosmos_audio.items import as_weights, own_neighbours, silent_cell, with_neighbours
from kosmos_audio.weights import load_weights

POSITIONS = 1500
"""Cells of 20 ms that the original takes, always all of them: 30 s."""
FRAMES_PER_CELL = 2
PREFIXES = ("model.encoder.", "encoder.")
CONFIG_FIELDS = {
    "width": "d_model",
    "layers": "encoder_layers",
    "heads": "encoder_attention_heads",
    "feed_forward": "encoder_ffn_dim",
    "mels": "num_mel_bins",
}


class WhisperEncoder(WithKernels):
    """Whisper's encoder (arXiv 2212.04356); a cell is two frames of 10 ms at 16 kHz, 1,500 cells an item at most.

    Items lie packed one after another and never see each other; the layers are those of transformers.

    The original always sees 30 s, filled up with silence. With ``context="item"`` an item uses the first n positions
    and sees no silence, which costs n / 1500 of the work; with ``"30s"`` it is filled up as the original does, so that
    published weights meet what they were trained on. ``"masked"`` is what models do that fill up and then mask what
    they have filled with, as Qwen2-Audio: an item sees itself, and the first convolution one frame behind its end.
    Either way the features of the n cells come out.

    Args:
        weights: local folder with ``config.json`` and the weights of a Whisper model (or of its encoder); the sizes
            then come from there. Or a file of weights alone, with the sizes below. None: random weights, likewise.
        context: what an item sees beside itself: nothing (``item``), or the silence that fills it up to 30 s (``30s``),
            as published weights expect, or one frame of that (``masked``).
        norm: the layer norm behind the layers; false where the connector has it, behind an average of cells
            (``paired``).
        width: features of a cell.
        layers: transformer layers.
        heads: attention heads; must divide ``width``.
        feed_forward: hidden features of a layer.
        mels: mel bands (80; large-v3 has 128).

    Raises:
        ConfigError: the numbers, the folder or the weights do not fit.
    """

    compiles = True
    same_for_weights: ClassVar[tuple[str, ...]] = ("heads",)
    input: AudioInput

    def __init__(
        self,
        *,
        weights: str | None = None,
        context: Literal["item", "30s", "masked"] = "item",
        norm: bool = True,
        width: int = 384,
        layers: int = 4,
        heads: int = 6,
        feed_forward: int = 1536,
        mels: int = 80,
    ) -> None:
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperEncoder as Encoder

        super().__init__()
        sizes = {"width": width, "layers": layers, "heads": heads, "feed_forward": feed_forward, "mels": mels}
        if weights is not None:
            sizes = _sizes_of(Path(weights)) or sizes
        if sizes["heads"] < 1 or sizes["width"] % sizes["heads"]:
            raise ConfigError(f"heads: {sizes['heads']} does not divide width {sizes['width']}")
        options: dict[str, Any] = {CONFIG_FIELDS[name]: value for name, value in sizes.items()}
        self.encoder = Encoder(WhisperConfig(**options, max_source_positions=POSITIONS, attn_implementation="sdpa"))
        if not norm:
            self.encoder.layer_norm = nn.Identity()
        self.width = sizes["width"]
        self.context = context
        self.takes_padding = context != "30s"  # in 30 s the item of zeros would cost all of them
        self.input = AudioInput(
            samples_per_cell=FRAMES_PER_CELL * 160,
            max_cells=POSITIONS,
            normalization="whisper",
            num_mels=sizes["mels"],
            mel_scale="slaney",
            frame_behind=context == "masked",
        )
        self.recompute: Recompute = False
        self.without_files = {} if weights is None else {"weights": None, **sizes}
        """Options that build it again where its weights are not to be had."""
        if weights is not None:
            load_weights(self.encoder, weights, PREFIXES)

    @property
    def blocks(self) -> list[nn.Module]:
        """Its layers."""
        return list(self.encoder.layers)

    def set_gradient_checkpointing(self, enabled: Recompute) -> None:
        """Keep only the input of each layer, or also products and attention, and compute the rest again."""
        self.recompute = enabled

    def computed_cells(self, cells: int) -> int:
        """Cells that an item of so many costs."""
        return POSITIONS if self.context == "30s" else cells

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        """values [N, *input.cell_shape], grids int64 [items, 3] on the CPU -> [N, width]. May be empty.

        Raises:
            PlanMismatch: an item has more than 1,500 cells.
        """
        items = Segments.of_grids(grids)
        if items.longest > POSITIONS:
            raise PlanMismatch(f"an item of {items.longest} cells; Whisper has {POSITIONS} positions")
        values = as_weights(values, self)
        if not items.total:
            return self._encode(*silent_cell(values))[:0]
        if self.context != "30s":
            return self._encode(values, items)
        real, filled = _fill_with_silence(values, items)
        return self._encode(filled, Segments((POSITIONS,) * len(items.lengths))).index_select(0, real)

    def _encode(self, values: Tensor, items: Segments) -> Tensor:
        positions = self.encoder.embed_positions.weight.index_select(0, to_device(items.places(), values.device))
        # [None] before the sum: what is a view would be a program of its own to a compiled layer.
        x = self._convolved(values, items)[None] + positions
        mask = within_items(items, x, by_kernels=self.by_kernels)
        for layer in self.blocks:
            x = run_block(layer, x, mask, recompute=self.recompute)
        features: Tensor = self.encoder.layer_norm(x[0])
        return features

    def _convolved(self, values: Tensor, items: Segments) -> Tensor:
        """[N, 2 or 3, mels] -> [N, width]: the second convolution makes a cell of two frames."""
        frames = Segments(tuple(FRAMES_PER_CELL * length for length in items.lengths))
        own = own_neighbours(frames, 1, values.device)
        seen = with_neighbours(values[:, :FRAMES_PER_CELL].flatten(0, 1), own)
        if self.context == "masked":  # of all cells but the last of an item it is there already
            windows = seen.view(-1, FRAMES_PER_CELL, 3, values.shape[2])
            windows[:, -1, -1] = values[:, FRAMES_PER_CELL]
        x = F.gelu(_product(self.encoder.conv1, seen))
        return F.gelu(_product(self.encoder.conv2, with_neighbours(x, own, step=FRAMES_PER_CELL)))


def _product(convolution: nn.Conv1d, gathered: Tensor) -> Tensor:
    """What a convolution makes of rows [S, kernel * channels] with their neighbours: [S, channels out]."""
    return F.linear(gathered, convolution.weight.transpose(1, 2).flatten(1), convolution.bias)


def _fill_with_silence(values: Tensor, items: Segments) -> tuple[Tensor, Tensor]:
    """Each item filled to 30 s by what digital silence gives: 80 dB below its peak.

    Returns:
        int64 [N], where the cells of ``values`` [N, 2, mels] are now; and [items * 1500, 2, mels].
    """
    peaks = torch.stack([item.amax() for item in torch.split(values, list(items.lengths))])
    silence = (peaks - 2.0).clamp_min(-1.5)[:, None, None, None]
    filled = silence.expand(-1, POSITIONS, *values.shape[1:]).flatten(0, 1)
    begins = POSITIONS * torch.arange(len(items.lengths)).repeat_interleave(torch.tensor(items.lengths))
    real = to_device(begins + items.places(), values.device)
    return real, filled.index_copy(0, real, values)


def _sizes_of(weights: Path) -> dict[str, int]:
    """What a folder's ``config.json`` states; nothing of a file without one, as of an encoder that was exported."""
    folder = weights.parent if weights.is_file() else weights
    if weights.is_file() and not _is_whisper(folder / "config.json"):
        return {}
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        sizes = {name: int(config[field]) for name, field in CONFIG_FIELDS.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"weights {folder}: no Whisper config.json there: {error!r}") from error
    if config.get("max_source_positions", POSITIONS) != POSITIONS:
        raise ConfigError(f"weights {folder}: expected {POSITIONS} positions, got {config['max_source_positions']}")
    return sizes


def _is_whisper(config: Path) -> bool:
    with suppress(OSError, ValueError):
        content = json.loads(config.read_text(encoding="utf-8"))
        return isinstance(content, dict) and content.get("model_type") == "whisper"
    return False
