"""The encoder of Whisper as transformers builds it, on items of any length up to 30 s."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kosmos.errors import ConfigError
from kosmos_audio.inputs import AudioInput
from kosmos_audio.items import by_length
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


class WhisperEncoder(nn.Module):
    """Whisper's encoder (arXiv 2212.04356); a cell is two frames of 10 ms at 16 kHz, 1,500 cells an item at most.

    The original always sees 30 s, filled up with silence. With ``context="item"`` an item uses the first n positions
    and sees no silence, which costs n / 1500 of the work; with ``"30s"`` it is filled up as the original does, so that
    published weights meet what they were trained on. Either way the features of the n cells come out.

    Args:
        weights: local folder with ``config.json`` and the weights of a Whisper model (or of its encoder); the sizes
            then come from there. None: random weights, with the sizes below.
        context: what an item sees beside itself: nothing (``item``), or the silence that fills it up to 30 s (``30s``),
            as published weights expect.
        width: features of a cell.
        layers: transformer layers.
        heads: attention heads; must divide ``width``.
        feed_forward: hidden features of a layer.
        mels: mel bands (80; large-v3 has 128).

    Raises:
        ConfigError: the numbers, the folder or the weights do not fit.
    """

    same_for_weights: ClassVar[tuple[str, ...]] = ("heads",)
    input: AudioInput

    def __init__(
        self,
        *,
        weights: str | None = None,
        context: Literal["item", "30s"] = "item",
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
            sizes = _sizes_of(Path(weights))
        if sizes["heads"] < 1 or sizes["width"] % sizes["heads"]:
            raise ConfigError(f"heads: {sizes['heads']} does not divide width {sizes['width']}")
        options: dict[str, Any] = {CONFIG_FIELDS[name]: value for name, value in sizes.items()}
        self.encoder = Encoder(WhisperConfig(**options, max_source_positions=POSITIONS, attn_implementation="sdpa"))
        self.width = sizes["width"]
        self.context = context
        self.input = AudioInput(
            samples_per_cell=FRAMES_PER_CELL * 160,
            max_cells=POSITIONS,
            normalization="whisper",
            num_mels=sizes["mels"],
            mel_scale="slaney",
        )
        self.recompute = False
        self.without_files = {} if weights is None else {"weights": None, **sizes}
        """Options that build it again where its weights are not to be had."""
        if weights is not None:
            load_weights(self.encoder, weights, PREFIXES)

    def set_gradient_checkpointing(self, enabled: bool) -> None:
        """Keep only the input of each layer and compute it again in the backward pass."""
        self.recompute = enabled

    def computed_cells(self, cells: int) -> int:
        """Cells that an item of so many costs."""
        return POSITIONS if self.context == "30s" else cells

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        """values [N, 2, mels], grids int64 [items, 3] on the CPU -> [N, width]. May be empty."""
        return by_length(values, grids, self.width, self._encode)

    def _encode(self, batch: Tensor) -> Tensor:
        cells = batch.shape[1]
        mel = batch.flatten(1, 2).transpose(1, 2)
        if self.context == "30s":
            mel = _fill_with_silence(mel)
        x = F.gelu(self.encoder.conv2(F.gelu(self.encoder.conv1(mel)))).transpose(1, 2)
        x = x + self.encoder.embed_positions.weight[: x.shape[1]]
        for layer in self.encoder.layers:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(layer, x, None, use_reentrant=False)
            else:
                x = layer(x, None)
        out: Tensor = self.encoder.layer_norm(x)
        return out[:, :cells]


def _fill_with_silence(mel: Tensor) -> Tensor:
    """``mel`` [B, mels, frames], each item filled to 30 s by what digital silence gives: 80 dB below its peak."""
    silence = (mel.amax(dim=(1, 2), keepdim=True) - 2.0).clamp_min(-1.5)
    missing = POSITIONS * FRAMES_PER_CELL - mel.shape[2]
    return torch.cat((mel, silence.expand(-1, mel.shape[1], missing)), dim=2)


def _sizes_of(folder: Path) -> dict[str, int]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        sizes = {name: int(config[field]) for name, field in CONFIG_FIELDS.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"weights {folder}: no Whisper config.json there: {error!r}") from error
    if config.get("max_source_positions", POSITIONS) != POSITIONS:
        raise ConfigError(f"weights {folder}: expected {POSITIONS} positions, got {config['max_source_positions']}")
    return sizes
