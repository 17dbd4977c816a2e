"""wav2vec 2.0, HuBERT and WavLM as torchaudio builds them: samples in, one feature every 320 samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kosmos import ConfigError, Recompute, Segments, WithKernels, run_block, to_device, within_items
from kosmos_audio.inputs import AudioInput
from kosmos_audio.items import Lengths, as_weights, by_length, silent_cell
from kosmos_audio.transformers_names import as_torchaudio
from kosmos_audio.weights import load_weights

AT_ONCE = 1024
"""Cells (20 s) that are convolved together: the first convolution makes 64 frames of a cell."""
STRIDE = 320
RECEPTIVE = 400  # samples that one output of the seven convolutions sees

Model = Literal[
    "wav2vec2_base",
    "wav2vec2_large",
    "wav2vec2_large_lv60k",
    "wav2vec2_xlsr_300m",
    "wav2vec2_xlsr_1b",
    "wav2vec2_xlsr_2b",
    "hubert_base",
    "hubert_large",
    "hubert_xlarge",
    "wavlm_base",
    "wavlm_large",
]


@dataclass(frozen=True)
class Size:
    """What tells torchaudio's builders of this family apart."""

    width: int
    layers: int
    heads: int
    feed_forward: int
    norm_first: bool = False
    """Layer norm before each part; the convolutions then have a layer norm each, else one group norm."""
    conv_bias: bool = False
    channels: int = 512


BASE = Size(768, 12, 12, 3072)
LARGE = Size(1024, 24, 16, 4096)
LARGE_NORM_FIRST = replace(LARGE, norm_first=True)
XLARGE = Size(1280, 48, 16, 5120, norm_first=True)
_OWN = ("model.",)
"""What the names of the encoder's own tensors begin with, as of one that a run has trained."""
SIZES: dict[str, Size] = {
    "wav2vec2_base": BASE,
    "wav2vec2_large": LARGE,
    "wav2vec2_large_lv60k": replace(LARGE_NORM_FIRST, conv_bias=True),
    "wav2vec2_xlsr_300m": replace(LARGE_NORM_FIRST, conv_bias=True),
    "wav2vec2_xlsr_1b": replace(XLARGE, conv_bias=True),
    "wav2vec2_xlsr_2b": Size(1920, 48, 16, 7680, norm_first=True, conv_bias=True),
    "hubert_base": BASE,
    "hubert_large": LARGE_NORM_FIRST,
    "hubert_xlarge": XLARGE,
    "wavlm_base": BASE,
    "wavlm_large": LARGE_NORM_FIRST,
}


class Wav2Vec2Encoder(WithKernels):
    """A model of the wav2vec 2.0 family on samples at 16 kHz; a cell is 320 samples (20 ms).

    80 zeros follow each item, so that n cells give exactly n features: the first of them equal the original's.
    Items lie packed one after another, so there is no padding that a norm or attention could see; for the convolution
    of positions, and for the layers of WavLM, those of equal length share a batch. Dropout and layer drop are off.

    Args:
        model: name of torchaudio's builder.
        weights: local file with the state of that model, as torchaudio or transformers names it, or a folder with one.
            None: random.
        width: features instead of the model's own.
        layers: transformer layers instead of the model's own.
        heads: attention heads instead of the model's own.
        feed_forward: hidden features of a layer instead of the model's own.
        channels: channels of the convolutions instead of 512.
        normalize: bring each item to zero mean and unit variance. None: for the models that were trained so (large,
            layer norm first).

    Raises:
        ConfigError: the numbers or the weights do not fit.
    """

    same_for_weights: ClassVar[tuple[str, ...]] = ("heads",)
    input: AudioInput

    def __init__(
        self,
        *,
        model: Model = "wav2vec2_base",
        weights: str | None = None,
        width: int | None = None,
        layers: int | None = None,
        heads: int | None = None,
        feed_forward: int | None = None,
        channels: int | None = None,
        normalize: bool | None = None,
    ) -> None:
        super().__init__()
        asked = {"width": width, "layers": layers, "heads": heads, "feed_forward": feed_forward, "channels": channels}
        changes: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        size = replace(SIZES[model], **changes)
        if size.heads < 1 or size.width % size.heads or size.width % 16:
            raise ConfigError(f"width: {size.width} must be a multiple of 16 and of heads {size.heads}")
        normalize = size.norm_first if normalize is None else normalize
        self.input = AudioInput(
            features="waveform", samples_per_cell=STRIDE, normalization="item" if normalize else "none"
        )
        self.width = size.width
        self.model = build(model, size)
        self._takes_rows = not model.startswith("wavlm")  # whose attention adds what hangs on how far cells are apart
        self.takes_padding = self.compiles = self._takes_rows
        self.recompute: Recompute = False
        self.without_files = {} if weights is None else {"weights": None}
        """Options that build it again where its weights are not to be had."""
        if weights is not None:
            load_weights(self.model, weights, _OWN, convert=as_torchaudio)

    @staticmethod
    def in_effect(options: dict[str, Any]) -> dict[str, Any]:
        """Options with the sizes of the model in the place of None, to compare two encoders."""
        size = SIZES[options["model"]]
        own = {**asdict(size), "normalize": size.norm_first}
        return {name: own.get(name) if value is None else value for name, value in options.items()}

    @property
    def blocks(self) -> list[nn.Module]:
        """Its transformer layers."""
        return list(self.model.encoder.transformer.layers)

    def set_gradient_checkpointing(self, enabled: Recompute) -> None:
        """Keep only the input of each transformer layer, or also products and attention, and compute the rest again."""
        self.recompute = enabled

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        """values [N, 320], grids int64 [items, 3] on the CPU -> [N, width]. May be empty."""
        items, values = Segments.of_grids(grids), as_weights(values, self)
        if not items.total:
            return self._encode(*silent_cell(values))[:0]
        return self._encode(values, items)

    def _encode(self, values: Tensor, items: Segments) -> Tensor:
        encoder, lengths = self.model.encoder, Lengths.of(items, values.device)
        x = encoder.feature_projection(self._convolved(values, items))
        x = x[None] + self._positions(x, lengths)  # no view, which to a compiled layer is a program of its own
        if encoder.transformer.layer_norm_first:
            x = encoder.transformer.layer_norm(x)
        if self._takes_rows:
            x = self._layers(x, within_items(items, x, by_kernels=self.by_kernels))
        else:
            x = by_length(x[0], lengths, self._layers)[None]
        if not encoder.transformer.layer_norm_first:
            x = encoder.transformer.layer_norm(x)
        features: Tensor = x[0]
        return features

    def _convolved(self, values: Tensor, items: Segments) -> Tensor:
        """[N, 320] -> [N, channels], so many items at a time that what is between them never takes much memory."""
        found, begin = [], 0
        for part in _parts(items):
            found.append(self._convolved_at_once(values[begin : begin + part.total], part))
            begin += part.total
        return torch.cat(found)

    def _convolved_at_once(self, values: Tensor, items: Segments) -> Tensor:
        """Items as one stretch of sound, with a cell of zeros behind each, whose feature is left out: no convolution
        sees more than 80 samples behind a cell."""
        count = len(items.lengths)
        gaps = torch.arange(count).repeat_interleave(torch.tensor(items.lengths))
        real = to_device(torch.arange(items.total) + gaps, values.device)
        row = values.new_zeros(items.total + count, STRIDE).index_copy(0, real, values).flatten()
        x = F.pad(row, (0, RECEPTIVE - STRIDE))[None, None]
        first, *others = self.model.feature_extractor.conv_layers
        x = _first_of_each(first, x, items) if isinstance(first.layer_norm, nn.GroupNorm) else first(x, None)[0]
        for layer in others:
            x = layer(x, None)[0]
        return x[0].T.index_select(0, real)

    def _positions(self, x: Tensor, lengths: Lengths) -> Tensor:
        convolution = self.model.encoder.transformer.pos_conv_embed.conv
        weight = convolution.weight.to(x.dtype)  # computed from its norm and direction at each access, and not cached
        half = weight.shape[2] // 2

        def along(batch: Tensor) -> Tensor:  # [B, n, width]
            rows = F.conv1d(batch.transpose(1, 2), weight, convolution.bias, padding=half, groups=convolution.groups)
            return rows[..., :-1].transpose(1, 2)

        return F.gelu(by_length(x, lengths, along))

    def _layers(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, n, width] -> [B, n, width]."""
        bias = None
        for layer in self.blocks:
            x, bias = run_block(layer, x, mask, bias, recompute=self.recompute)
        return x


def _parts(items: Segments) -> Iterator[Segments]:
    """Neighbours of at most ``AT_ONCE`` cells together, or one that has more."""
    part: list[int] = []
    for length in items.lengths:
        if part and sum(part) + length > AT_ONCE:
            yield Segments(tuple(part))
            part = []
        part.append(length)
    yield Segments(tuple(part))


def _first_of_each(layer: Any, x: Tensor, items: Segments) -> Tensor:
    """The first convolution [1, 1, samples] -> [1, channels, frames], whose norm is over the frames of an item.

    Those are the frames that begin in its cells or in the 80 zeros behind, as the original would have them; of the rest
    of the gap no feature is made.
    """
    x = layer.conv(x)
    per_cell = STRIDE // layer.stride
    behind = (RECEPTIVE - STRIDE - layer.kernel_size) // layer.stride + 1
    normed, begin = [], 0
    for length in items.lengths:
        end = begin + length * per_cell + behind
        normed.append(F.pad(layer.layer_norm(x[..., begin:end]), (0, per_cell - behind)))
        begin += (length + 1) * per_cell
    return F.gelu(torch.cat(normed, dim=2))


def build(model: str, size: Size) -> Any:
    """torchaudio's model with ``size``, without dropout."""
    from torchaudio.models import wav2vec2_model, wavlm_model

    channels = size.channels
    convolutions = [(channels, 10, 5)] + [(channels, 3, 2)] * 4 + [(channels, 2, 2)] * 2
    options: dict[str, Any] = {
        "extractor_mode": "layer_norm" if size.norm_first else "group_norm",
        "extractor_conv_layer_config": convolutions,
        "extractor_conv_bias": size.conv_bias,
        "encoder_embed_dim": size.width,
        "encoder_projection_dropout": 0.0,
        "encoder_pos_conv_kernel": 128,
        "encoder_pos_conv_groups": 16,
        "encoder_num_layers": size.layers,
        "encoder_num_heads": size.heads,
        "encoder_attention_dropout": 0.0,
        "encoder_ff_interm_features": size.feed_forward,
        "encoder_ff_interm_dropout": 0.0,
        "encoder_dropout": 0.0,
        "encoder_layer_norm_first": size.norm_first,
        "encoder_layer_drop": -1.0,  # torchaudio drops a layer where a random number is at most this: never
        "aux_num_out": None,
    }
    if model.startswith("wavlm"):
        return wavlm_model(**options, encoder_num_buckets=320, encoder_max_distance=800)
    return wav2vec2_model(**options)
