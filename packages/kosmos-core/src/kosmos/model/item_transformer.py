"""A transformer within items, from which encoders of any kind of cells are made.

Letters: N = cells of all items of a row, D = width, H = heads, d = width of a head.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from kosmos.data.transfer import to_device
from kosmos.errors import ConfigError
from kosmos.model.attention import Bounds, attend_row, bounds_of
from kosmos.model.cpu_kernels import WithKernels
from kosmos.model.precision import exact_type
from kosmos.model.recompute import Recompute, run_block
from kosmos.model.rotary import Rotation, rotate, rotation
from kosmos.model.segments import Segments


class ItemTransformer(nn.Module):
    """Base of an encoder whose cells attend to each other within their item: blocks, a norm, recomputation.

    A subclass makes features [N, D] of its cells in ``forward`` and hands them to ``transform``. Items of different
    sizes lie one after another without padding, and no cell sees one of another item.

    Args:
        width: features of a cell.
        layers: transformer blocks.
        heads: attention heads; must divide ``width``.
        feed_forward: hidden features of a block's feed-forward part, as a multiple of ``width``.
        rotary: whether the order of an item's cells counts, by rotation (arXiv 2104.09864). Without it a subclass
            adds positions of its own, or its cells are a set.

    Raises:
        ConfigError: one of the numbers is too small, or they do not fit each other.
    """

    compiles = True
    same_for_weights: ClassVar[tuple[str, ...]] = ("heads",)

    def __init__(self, *, width: int, layers: int, heads: int, feed_forward: int, rotary: bool = False) -> None:
        super().__init__()
        for name, value, least in (("width", width, 1), ("layers", layers, 0), ("heads", heads, 1)):
            if value < least:
                raise ConfigError(f"{name}: expected {least} or more, got {value}")
        if width % heads or (rotary and width // heads % 2):
            even = " into heads of an even size" if rotary else ""
            raise ConfigError(f"heads: {heads} does not divide width {width}{even}")
        self.width, self.heads, self.rotary = width, heads, rotary
        self.blocks = nn.ModuleList(ItemBlock(width, heads, feed_forward * width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.recompute: Recompute = False

    def set_gradient_checkpointing(self, enabled: Recompute) -> None:
        """Keep only the input of each block, or also products and attention, and compute the rest again."""
        self.recompute = enabled

    def transform(self, x: Tensor, grids: Tensor) -> Tensor:
        """x [N, D], grids int64 [items, 3] on the CPU, N = sum of their products -> [N, D]. N may be 0."""
        items = Segments.of_grids(grids)
        table = self._positions(items, x) if self.rotary else None
        row = bounds_of(items, x, self.width // self.heads) or items
        for block in self.blocks:
            x = run_block(block, x, row, table, recompute=self.recompute)
        features: Tensor = self.norm(x)
        return features

    def _positions(self, items: Segments, x: Tensor) -> Rotation:
        places = to_device(items.places(), x.device)
        return rotation(places, self.width // self.heads, "rope", base=10_000.0, middle=0, dtype=exact_type(x))


class ItemBlock(WithKernels):
    """Pre-norm transformer block; a cell sees all cells of its item and nothing else."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        for last in (self.out, self.down):
            nn.init.normal_(last.weight, std=0.02)  # a block begins close to passing its input on

    def forward(self, x: Tensor, row: Segments | Bounds, positions: Rotation | None) -> Tensor:
        """x [N, D] -> [N, D]; ``row`` are the items, ``positions`` tables [N, 1, d / 2]."""
        q, k, v = self.qkv(self.norm_1(x)).unflatten(1, (3, self.heads, -1)).unbind(1)
        if positions is not None:
            q, k = (rotate(x, table, by_kernels=self.by_kernels) for x, table in zip((q, k), positions, strict=True))
        seen = attend_row(q, k, v, row, causal=False, by_kernels=self.by_kernels)
        x = x + self.out(seen.flatten(1).to(x.dtype))
        out: Tensor = x + self.down(F.gelu(self.up(self.norm_2(x))))
        return out
