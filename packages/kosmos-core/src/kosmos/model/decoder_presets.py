"""Shapes of the built-in decoder by name."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from kosmos.errors import ConfigError

Preset = Literal["tiny", "small", "kosmos-1", "7b", "18b"]


@dataclass(frozen=True, kw_only=True)
class DecoderShape:
    """Everything that decides which parameters a decoder has and how they are used."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    """Heads of keys and values; fewer than ``heads`` share them in groups."""
    ffn_width: int
    norm: Literal["rms", "layer"] = "rms"
    activation: Literal["swiglu", "gelu"] = "swiglu"
    positions: Literal["rope", "xpos"] = "rope"
    sub_ln: bool = False
    """A further norm before the output projections of attention and feed-forward, and Magneto's gains."""
    qk_norm: bool = False
    """An RMS norm for each head of queries and keys."""
    bias: bool = False
    tie_embeddings: bool = False
    """Use the embedding as the output projection."""
    rope_base: float = 10_000.0
    dropout: float = 0.0
    """Of embeddings and of what each block adds, in training."""

    def __post_init__(self) -> None:
        for name in ("width", "layers", "heads", "kv_heads", "ffn_width"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected 1 or more, got {getattr(self, name)}")
        if self.width % self.heads or self.head_width % 2:
            raise ConfigError(f"heads: {self.heads} must cut width {self.width} into even parts")
        if self.heads % self.kv_heads:
            raise ConfigError(f"kv_heads: {self.kv_heads} does not divide heads {self.heads}")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout: expected 0 to below 1, got {self.dropout}")

    @property
    def head_width(self) -> int:
        return self.width // self.heads


PRESETS: dict[str, DecoderShape] = {
    # 0.60 M with 300 tokens, for two CPU cores
    "tiny": DecoderShape(width=128, layers=2, heads=4, kv_heads=4, ffn_width=512),
    # 123.6 M with 50,257 tokens
    "small": DecoderShape(width=768, layers=12, heads=12, kv_heads=12, ffn_width=2_048, tie_embeddings=True),
    # 1.34 B with 64,007 tokens (arXiv 2302.14045): Magneto's sub-LN, xPos
    "kosmos-1": DecoderShape(
        width=2_048,
        layers=24,
        heads=32,
        kv_heads=32,
        ffn_width=8_192,
        norm="layer",
        activation="gelu",
        positions="xpos",
        sub_ln=True,
        bias=True,
        tie_embeddings=True,
        dropout=0.1,
    ),
    # 7.24 B with 32,000 tokens
    "7b": DecoderShape(width=4_096, layers=32, heads=32, kv_heads=8, ffn_width=14_336, rope_base=500_000.0),
    # 18.2 B with 32,000 tokens
    "18b": DecoderShape(
        width=6_144, layers=48, heads=48, kv_heads=8, ffn_width=15_360, qk_norm=True, rope_base=500_000.0
    ),
}
"""Name to shape. Parameter counts are checked by the tests."""


def decoder_shape(preset: str, overrides: dict[str, Any]) -> DecoderShape:
    """The preset with every override that is not None.

    A preset's kv_heads follow ``heads`` where only heads are given: as many groups as the preset has.

    Raises:
        ConfigError: an unknown preset, or values that do not fit each other.
    """
    if preset not in PRESETS:
        raise ConfigError(f"preset: no decoder {preset!r}; there are {', '.join(PRESETS)}")
    shape = PRESETS[preset]
    given = {name: value for name, value in overrides.items() if value is not None}
    assert given.keys() <= {field.name for field in fields(DecoderShape)}, given
    if "heads" in given and "kv_heads" not in given:
        given["kv_heads"] = max(1, given["heads"] * shape.kv_heads // shape.heads)
    return replace(shape, **given)
