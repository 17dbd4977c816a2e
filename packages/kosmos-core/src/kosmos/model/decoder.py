"""Our own backbone: a pre-norm causal transformer over packed rows.

Letters: T = tokens of the row, D = width, H = heads, G = heads of keys and values, d = width of a head,
V = vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kosmos.model.attention import Bounds, attend_cached, attend_row, bounds_of
from kosmos.model.caches import KeyValueBatch, KeyValueCache
from kosmos.model.cpu_kernels import WithKernels, add, can_gate, can_take, swiglu
from kosmos.model.decoder_presets import DecoderShape, Preset, decoder_shape
from kosmos.model.lora import refuse_updates
from kosmos.model.norms import LayerNorm, RMSNorm
from kosmos.model.precision import exact_type
from kosmos.model.recompute import Recompute, run_block
from kosmos.model.rotary import XPOS_LONGEST, Rotation, check_length, rotate, rotation
from kosmos.model.segments import Segments
from kosmos.model.sequence import SharedSegments, attend_shared
from kosmos.model.weights import Normal, draw_weights, filled_later, materialize, new_seed, without_memory


class Decoder(nn.Module):
    """A causal language model; each option that is None comes from ``preset``.

    Args:
        vocab_size: V.
        preset: tiny (0.6 M parameters), small (124 M), kosmos-1 (1.3 B, arXiv 2302.14045), 7b or 18b.
        width: D, features of a token.
        layers: blocks of attention and feed-forward.
        heads: attention heads.
        kv_heads: heads of keys and values; fewer than ``heads`` are shared by groups of queries.
        ffn_width: features between the two maps of a feed-forward.
        norm: RMS norm or layer norm.
        activation: of the feed-forward.
        positions: rope, or xpos for documents up to 32,768 tokens.
        sub_ln: Magneto's further norms before the output projections, with its gains (arXiv 2210.06423).
        qk_norm: an RMS norm for each head of queries and keys.
        bias: whether linear maps have one.
        tie_embeddings: use the embedding as the output projection.
        rope_base: base of the wavelengths.
        dropout: of embeddings and of what each block adds.
    """

    without_files: ClassVar[dict[str, Any]] = {}
    same_for_weights: ClassVar[tuple[str, ...]] = ("heads", "kv_heads", "positions")
    capturable: ClassVar[bool] = True

    def __init__(
        self,
        vocab_size: int,
        *,
        preset: Preset = "tiny",
        width: int | None = None,
        layers: int | None = None,
        heads: int | None = None,
        kv_heads: int | None = None,
        ffn_width: int | None = None,
        norm: Literal["rms", "layer"] | None = None,
        activation: Literal["swiglu", "gelu"] | None = None,
        positions: Literal["rope", "xpos"] | None = None,
        sub_ln: bool | None = None,
        qk_norm: bool | None = None,
        bias: bool | None = None,
        tie_embeddings: bool | None = None,
        rope_base: float | None = None,
        dropout: float | None = None,
    ) -> None:
        overrides = {k: v for k, v in locals().items() if k not in ("self", "vocab_size", "preset", "__class__")}
        super().__init__()
        self.shape = shape = decoder_shape(preset, overrides)
        self.width, self.vocab_size = shape.width, vocab_size
        later = filled_later()
        with without_memory():  # where no module fills what is filled below
            self.embedding = nn.Embedding(vocab_size, shape.width)
            self.blocks = nn.ModuleList(Block(shape, number) for number in range(shape.layers))
            self.norm = _norm(shape, shape.width)
            self.head = None if shape.tie_embeddings else nn.Linear(shape.width, vocab_size, bias=False)
        self._recompute: Recompute = False
        self._seed = new_seed()
        if not later:
            materialize(self, torch.get_default_device(), draw=True)

    @staticmethod
    def in_effect(options: dict[str, Any]) -> dict[str, Any]:
        """Options with those of the preset in the place of None, to compare two decoders."""
        return asdict(decoder_shape(options["preset"], {k: v for k, v in options.items() if k != "preset"}))

    @property
    def longest(self) -> int | None:
        """Most tokens of a document; None where its positions have no end."""
        return XPOS_LONGEST if self.shape.positions == "xpos" else None

    def embed(self, token_ids: Tensor) -> Tensor:
        """int [T] -> [T, D]."""
        return cast(Tensor, self.embedding(token_ids))

    def forward(
        self, x: Tensor, position_ids: Tensor, segments: Segments, cache: KeyValueCache | KeyValueBatch | None = None
    ) -> Tensor:
        """[T, D] -> normed hidden states [T, D]; see ``kosmos.model.protocols.Backbone``.

        Raises:
            ConfigError: a document is longer than the positions allow.
        """
        shape = self.shape
        longest = segments.longest + (0 if cache is None else cache.length)
        check_length(shape.positions, longest)
        table = rotation(
            position_ids,
            shape.head_width,
            shape.positions,
            base=shape.rope_base,
            middle=longest // 2 if cache is None else 0,
            dtype=exact_type(x),
        )
        if isinstance(cache, KeyValueBatch):
            cache.begin(segments)
        x = F.dropout(x, shape.dropout, self.training)
        plain = cache is None and not isinstance(segments, SharedSegments)
        row = (bounds_of(segments, x, shape.head_width) if plain else None) or segments
        for block in self.blocks:
            x = run_block(block, x, table, row, cache, recompute=self._recompute if cache is None else False)
        return cast(Tensor, self.norm(x))

    def output_weight(self) -> Tensor:
        """[V, D]."""
        return self.embedding.weight if self.head is None else self.head.weight

    def new_cache(self) -> KeyValueCache:
        """An empty cache for one document."""
        return KeyValueCache(self.shape.layers)

    def new_batch_cache(self) -> KeyValueBatch:
        """An empty cache for documents that are continued together."""
        return KeyValueBatch()

    def to_transformers(self, longest: int) -> Any:
        """As a model of transformers; see ``kosmos.model.decoder_transformers.as_transformers``.

        Raises:
            ConfigError: none computes the same, or low-rank updates are not in the weights.
        """
        from kosmos.model.decoder_transformers import as_transformers

        refuse_updates(self)
        return as_transformers(self.state_dict(), self.shape, longest)

    def set_gradient_checkpointing(self, enabled: Recompute) -> None:
        """Keep only the input of each block in training, or also products and attention, and compute the rest again."""
        self._recompute = enabled

    def draw_weights(self) -> None:
        """Normal values; what writes to the residual stream starts smaller, or with Magneto's gains."""
        draw_weights(self, {name: self._initial(name, p.shape) for name, p in self.named_parameters()}, self._seed)

    def _initial(self, name: str, shape: torch.Size) -> Normal:
        if len(shape) == 1:
            return Normal(mean=0.0 if name.endswith("bias") else 1.0)
        # An embedding that is no projection starts at one: preset tiny under Lion (bytes of English, 200 steps of 512
        # tokens) came to a loss of 2.30 with 1.0, 2.34 with 0.3, 2.61 with 1 / sqrt(D); tied, 2.68.
        if name == "embedding.weight" and self.head is not None:
            return Normal(std=1.0)
        rows, columns = shape
        layer = name.split(".")[-2]
        if not self.shape.sub_ln or layer in ("embedding", "head"):
            return Normal(std=columns**-0.5 / (math.sqrt(2 * self.shape.layers) if layer == "output" else 1.0))
        gain = 1.0 if layer in ("query", "key") else math.sqrt(math.log(2 * self.shape.layers))
        return Normal(std=gain * math.sqrt(2 / (rows + columns)))


class Block(WithKernels):
    """Attention and feed-forward, each with a norm before it and a residual around it."""

    def __init__(self, shape: DecoderShape, number: int) -> None:
        super().__init__()
        self.dropout = shape.dropout
        self.attention_norm = _norm(shape, shape.width)
        self.attention = Attention(shape, number)
        self.feed_forward_norm = _norm(shape, shape.width)
        self.feed_forward = FeedForward(shape)

    def forward(
        self, x: Tensor, table: Rotation, row: Segments | Bounds, cache: KeyValueCache | KeyValueBatch | None = None
    ) -> Tensor:
        added = self.attention(self.attention_norm(x), table, row, cache)
        x = self._plus(x, added)
        return self._plus(x, self.feed_forward(self.feed_forward_norm(x)))

    def _plus(self, x: Tensor, added: Tensor) -> Tensor:
        added = F.dropout(added, self.dropout, self.training)
        widens = x.dtype == torch.float32 != added.dtype
        return add(x, added) if self.by_kernels and widens and can_take(x, added) else x + added


class Attention(WithKernels):
    """Causal attention within documents.

    Queries, keys and values have a projection each, and so have gate and value of the feed-forward, because tensor
    parallelism cuts them by heads and features, and stored weights must not depend on how often. One fused projection
    is no faster: a step of tiny (512 tokens, one core) takes 5 % longer with it, one of small as long.
    """

    def __init__(self, shape: DecoderShape, number: int) -> None:
        super().__init__()
        self.shape, self.number = shape, number
        self.query = nn.Linear(shape.width, shape.width, bias=shape.bias)
        self.key = nn.Linear(shape.width, shape.kv_heads * shape.head_width, bias=shape.bias)
        self.value = nn.Linear(shape.width, shape.kv_heads * shape.head_width, bias=shape.bias)
        self.query_norm = RMSNorm(shape.head_width) if shape.qk_norm else nn.Identity()
        self.key_norm = RMSNorm(shape.head_width) if shape.qk_norm else nn.Identity()
        self.sub_norm = _norm(shape, shape.width) if shape.sub_ln else nn.Identity()
        self.output = nn.Linear(shape.width, shape.width, bias=shape.bias)

    def forward(
        self, x: Tensor, table: Rotation, row: Segments | Bounds, cache: KeyValueCache | KeyValueBatch | None
    ) -> Tensor:
        width = self.shape.head_width
        q, k, v = (part(x).unflatten(-1, (-1, width)) for part in (self.query, self.key, self.value))
        q = rotate(self.query_norm(q), table.query, by_kernels=self.by_kernels)
        k = rotate(self.key_norm(k), table.key, by_kernels=self.by_kernels)
        if isinstance(cache, KeyValueBatch):
            out = cache.attend(self.number, q, k.to(v.dtype), v, by_kernels=self.by_kernels)
        elif cache is not None:
            out = attend_cached(q, *cache.extend(self.number, k.to(v.dtype), v), by_kernels=self.by_kernels)
        elif isinstance(row, SharedSegments):
            out = attend_shared(q.to(v.dtype), k.to(v.dtype), v, row)
        else:
            out = attend_row(q, k, v, row, causal=True, by_kernels=self.by_kernels)
        return cast(Tensor, self.output(self.sub_norm(out.flatten(1))))


class FeedForward(WithKernels):
    """SwiGLU (arXiv 2002.05202) or GELU."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.shape = shape
        self.gate = nn.Linear(shape.width, shape.ffn_width, bias=shape.bias) if shape.activation == "swiglu" else None
        self.inner = nn.Linear(shape.width, shape.ffn_width, bias=shape.bias)
        self.sub_norm = _norm(shape, shape.ffn_width) if shape.sub_ln else nn.Identity()
        self.output = nn.Linear(shape.ffn_width, shape.width, bias=shape.bias)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.inner(x)
        inner = F.gelu(inner) if self.gate is None else self._gated(self.gate(x), inner)
        return cast(Tensor, self.output(self.sub_norm(inner)))

    def _gated(self, gate: Tensor, inner: Tensor) -> Tensor:
        return swiglu(gate, inner) if self.by_kernels and can_gate(gate, inner) else F.silu(gate) * inner


def _norm(shape: DecoderShape, width: int) -> nn.Module:
    return RMSNorm(width) if shape.norm == "rms" else LayerNorm(width)
