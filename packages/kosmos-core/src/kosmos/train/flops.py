"""Operations of a step by module, and their share of what the machine can do (MFU).

Products and attention are counted as torch runs them, but for what is padding, on one row in fifty; from there products
scale with tokens and cells, attention with the squares of real lengths. A trained module counts three times its forward
pass, a frozen one once. Where gradients flow through frozen weights (a frozen backbone, layers under LoRA) products
count twice, and attention three times, since all that it reads has a gradient. Recomputation is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from kosmos.data.batch import PackedBatch
from kosmos.model.loss import computed_positions
from kosmos.model.nf4 import values_in
from kosmos.model.omni import OmniModel
from kosmos.model.sequence import part_of
from kosmos.runtime.cores import usable_cores
from kosmos.runtime.environment import num_local_processes
from kosmos.train.parameter_groups import is_product
from kosmos.train.peak import peak_flops

EVERY = 50
"""Steps between two counts."""
BACKBONE, HEAD = "backbone", "head"
CONNECTOR = ".connector"
"""Behind a stream's name: its connector, which may be trained where the encoder is not."""
ATTENTION = (
    "scaled_dot_product", "varlen_attn", "attention_in_products", "attention_in_documents", "attention_of_padding"
)  # fmt: skip


Computed = Callable[[int], int]
"""Cells of an item to those that its encoder computes: more where it fills items up to one length."""


@dataclass(frozen=True)
class Cost:
    """Forward operations of a module: so many a unit (token or cell), and a pair of units that see each other."""

    unit: float
    pair: float


@dataclass(frozen=True)
class Work:
    """What a module has to do in some rows."""

    units: int
    pairs: int
    """Sum of the squared lengths of its items: every unit with every one of its item."""


def work_of(batches: Sequence[PackedBatch], streams: Mapping[str, Computed]) -> dict[str, Work]:
    """Units and pairs by module: documents for the backbone, items for a stream, targets for the head.

    Args:
        streams: name to the cells that its encoder computes for an item of so many.
    """
    lengths = [length for batch in batches for length in batch.lengths]
    work = {BACKBONE: Work(sum(lengths), sum(n * n for n in lengths))}
    for name, computed in streams.items():
        cells = [c for batch in batches for c in batch.media[name].grids.prod(dim=1).tolist()]
        work[name + CONNECTOR] = Work(sum(cells), sum(n * n for n in cells))
        done = [computed(n) for n in cells]
        work[name] = Work(sum(done), sum(n * n for n in done))
    return {**work, HEAD: Work(sum(batch.num_targets for batch in batches), 0)}


class Times(NamedTuple):
    """How often a module's forward operations are done in a step, with the backward pass."""

    unit: float
    pair: float


def times_of(module: nn.Module, *, passed: bool = False, head: Tensor | None = None) -> Times:
    """How often the ``Cost`` of a module comes in a step.

    Args:
        passed: gradients flow through it though none of it is trained.
        head: of its parameters, the one that is multiplied elsewhere.
    """
    if not (passed or any(p.requires_grad for p in module.parameters())):
        return Times(1, 1)
    sizes = [(values_in(p), p.requires_grad) for p in factors_of(module, head) or module.parameters()]
    return Times(2 + sum(n for n, learns in sizes if learns) / max(1, sum(n for n, _ in sizes)), 3)


def factors_of(module: nn.Module, head: Tensor | None = None) -> list[nn.Parameter]:
    """The parameters of products; ``head`` as of ``times_of``."""
    factors = {id(p): p for m in module.modules() if is_product(m) for p in m.parameters(recurse=False)}
    factors.pop(id(head), None)
    return list(factors.values())


def _products(head: Tensor) -> int:
    """Of a learned position with the head, in both passes."""
    return 2 + head.requires_grad


class Counted(NamedTuple):
    """Operations of one process in a step."""

    by_module: dict[str, float]
    saved: float
    """Those of them that a causal mask leaves out."""


class FlopMeter:
    """Knows what a unit of each module costs, and says what a step came to."""

    def __init__(self, model: OmniModel, device: torch.device, dtype: torch.dtype, *, tensor: int = 1) -> None:
        """
        Args:
            tensor: ranks that share the matrices of the backbone (``parallel.tensor``), and do all else alike.
        """
        self.tensor = tensor
        self._modules = dict(model.streams.items())
        self.streams = {name: _computed(cast(Any, stream).encoder) for name, stream in self._modules.items()}
        self.costs: dict[str, Cost] = {}
        head = cast(Any, model.backbone).output_weight()  # of which the loss counts the gradient itself
        self.times = {BACKBONE: times_of(model.backbone, passed=True, head=head), HEAD: Times(1, 1)}
        for name, stream in model.streams.items():
            encoder, connector = cast(Any, stream).encoder, cast(Any, stream).connector
            learns = any(p.requires_grad for p in encoder.parameters())
            self.times |= {name: times_of(encoder), name + CONNECTOR: times_of(connector, passed=learns)}
        if model.learning is not None and model.learning.reference:  # which computes all of it once more
            self.times = {name: Times(times.unit + 1, times.pair + 1) for name, times in self.times.items()}
            self.times[HEAD] = Times(1 + 1 / _products(head), 1)
        self._output_weight = cast(Any, model.backbone).output_weight
        self._model = model
        self.device, self.dtype = device, dtype
        self.peak: float | None = None

    def state(self) -> dict[str, tuple[float, float]]:
        """What was counted, for a run that goes on: counting again would be one more step without compilation."""
        return {name: (cost.unit, cost.pair) for name, cost in self.costs.items()}

    def load(self, state: Mapping[str, Sequence[float]]) -> None:
        """Take over what was counted of modules that are here."""
        known = {BACKBONE, HEAD, *self.streams}
        found = {
            name: Cost(unit, pair) for name, (unit, pair) in state.items() if name.removesuffix(CONNECTOR) in known
        }
        # Older checkpoints count a stream as a whole.
        self.costs = {name + CONNECTOR: Cost(0, 0) for name in self.streams if name in found} | found

    def wants(self, step: int, batch: PackedBatch, *, compiled: bool) -> bool:
        """Whether to count a row: until every module has been met, and in one step of ``EVERY`` where that costs no
        step without compilation."""
        new = self._is_new(work_of([batch], self.streams)) and self._is_new(self._own(batch))
        return new or (step % EVERY == 0 and not compiled)

    def _is_new(self, work: Mapping[str, Work]) -> bool:
        return any(name not in self.costs and of.units for name, of in work.items())

    def _own(self, batch: PackedBatch) -> dict[str, Work]:
        """What this rank has to do in a row, which others may share."""
        ranks = self._model.row_ranks
        if ranks is None:
            return work_of([batch], self.streams)
        slots = {name: cast(Any, stream).connector.slots for name, stream in self._modules.items()}
        part = part_of(batch, ranks, slots)
        work = work_of([replace(batch, media=part.seen.media)], self.streams)
        pairs = work[BACKBONE].pairs // ranks.size  # of some heads all of them
        return work | {BACKBONE: Work(len(part.position_ids), pairs), HEAD: Work(len(part.trained), 0)}

    @contextmanager
    def counting(self, batch: PackedBatch) -> Iterator[None]:
        """Around the forward pass of a row whose operations are to be counted; nothing of it may be compiled."""
        work = self._own(batch)
        mode = FlopCounterMode(display=False, depth=8, custom_mapping=_MAPPING | _mapping_of_transformers())
        with mode:
            yield
        for name, (products, attention) in self._by_module(mode.get_flop_counts()).items():
            if work[name].units:
                padding = self._padding(name, work[name].units)
                units, pairs = work[name].units + padding, work[name].pairs + padding**2
                self.costs[name] = Cost(products / units, attention / max(1, pairs))

    def _padding(self, name: str, units: int) -> int:
        """Units of padding that were computed beside so many."""
        if name == HEAD:
            own = self._model.by_kernels
            return computed_positions(units, self._output_weight(), by_kernels=own) - units
        stream = self._modules.get(name.removesuffix(CONNECTOR))
        return int(cast(Any, stream).padding(units)) if stream is not None else 0

    def _by_module(self, counts: Mapping[str, Mapping[Any, int]]) -> dict[str, tuple[int, int]]:
        products, attention = _of(counts, ".backbone")
        found = {BACKBONE: (products, attention * self.tensor)}  # products of shared matrices are counted whole
        for name in self.streams:
            whole, connector = _of(counts, f".streams.{name}"), _of(counts, f".streams.{name}.connector")
            found |= {name: (whole[0] - connector[0], whole[1] - connector[1]), name + CONNECTOR: connector}
        everything = _split(counts.get("Global", {}))
        rest = everything[0] - sum(products for products, _ in found.values())
        return {**found, HEAD: (max(0, round(rest * self._share_of_head())), 0)}

    def _share_of_head(self) -> float:
        """Of the operations of the head: an objective looks at a row's losses first, which is made again behind."""
        products = _products(self._output_weight())
        return 1 if self._model.learning is None else products / (products + 1)

    def count(self, batches: Sequence[PackedBatch]) -> Counted:
        """Operations of this process for some rows, its share of what several do alike; none before the first count."""
        full: dict[str, float] = {}
        saved = 0.0
        ranks = self._model.row_ranks
        shared = self.tensor * (1 if ranks is None else ranks.size)  # what is done twice counts once
        for name, work in work_of(batches, self.streams).items() if self.costs else ():
            cost = self.costs.get(name, Cost(0, 0))
            times = self.times[name]
            flops = (times.unit * cost.unit * work.units + times.pair * cost.pair * work.pairs) / shared
            module = name.removesuffix(CONNECTOR)
            full[module] = full.get(module, 0.0) + flops
            if name == BACKBONE:
                saved = times.pair * cost.pair * work.pairs / 2 / shared
        return Counted(full, saved)

    def _cores_of_own(self) -> float:
        """Share of a process's threads on a CPU that have a core of their own, as several share the machine."""
        wanted = torch.get_num_threads() * num_local_processes()
        return min(1.0, usable_cores() / wanted) if self.device.type == "cpu" else 1.0

    def row(self, counted: Sequence[Counted], seconds: float) -> dict[str, Any]:
        """Fields of a row of metrics, of what each process has counted. Empty before the first count.

        ``mfu`` counts causal attention in full, ``mfu_half_causal`` what a causal mask leaves of it.
        """
        if not self.costs:
            return {}
        if self.peak is None:
            self.peak = peak_flops(self.device, self.dtype) * self._cores_of_own()
        full = {name: sum(one.by_module.get(name, 0.0) for one in counted) for name in counted[0].by_module}
        saved = sum(one.saved for one in counted)
        rate = seconds * self.peak * len(counted)
        return {
            "flops": sum(full.values()),
            "peak_flops": self.peak * len(counted),
            "mfu": sum(full.values()) / rate,
            "mfu_half_causal": (sum(full.values()) - saved) / rate,
            "mfu_by_module": {name: flops / rate for name, flops in full.items()},
        }


def _computed(encoder: Any) -> Computed:
    return getattr(encoder, "computed_cells", None) or _as_many


def _as_many(cells: int) -> int:
    return cells


def _of(counts: Mapping[str, Mapping[Any, int]], suffix: str) -> tuple[int, int]:
    """(products, attention) of the module whose path ends so: the shortest, for parts of it are counted in it."""
    paths = [path for path in counts if path.endswith(suffix)]
    return _split(counts[min(paths, key=len)]) if paths else (0, 0)


def _split(operations: Mapping[Any, int]) -> tuple[int, int]:
    attention = sum(n for op, n in operations.items() if any(part in str(op) for part in ATTENTION))
    return sum(operations.values()) - attention, attention


def _sdpa_flops(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    """[batch, heads, queries, d] against [batch, heads, keys, d]: two products, causal ones in full."""
    b, h, t, d = query
    s, d_v = key[2], value[3]
    return int(2 * b * h * t * s * (d + d_v))


def _products_flops(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    counts: Sequence[int],
    lengths: Sequence[int],
    *args: Any,
    **kwargs: Any,
) -> int:
    """So many matrices of so many rows each, [N, d] together: two products of each, causal ones in full."""
    pairs = sum(count * length**2 for count, length in zip(counts, lengths, strict=True))
    return int(2 * pairs * (query[1] + value[1]))


def _varlen_flops(query: Any, key: Any, value: Any, rows: Any, columns: Any, *args: Any, **kwargs: Any) -> int:
    """[T, heads, d] cut by the cumulated lengths ``rows`` and ``columns``."""
    pairs = int(((rows[1:] - rows[:-1]).long() * (columns[1:] - columns[:-1]).long()).sum())
    return int(2 * pairs * query.shape[1] * (query.shape[2] + value.shape[2]))


def _documents_flops(query: Any, key: Any, value: Any, bounds: Any, *args: Any, **kwargs: Any) -> int:
    """[T, heads, d] cut by the cumulated lengths ``bounds``; causal ones in full."""
    return _varlen_flops(query, key, value, bounds, bounds)


_documents_flops._get_raw = True  # type: ignore[attr-defined]
_varlen_flops._get_raw = True  # type: ignore[attr-defined]  # torch: give it the tensors, not their shapes


def _grouped_flops(rows: Any, matrices: Any, *args: Any, **kwargs: Any) -> int:
    """[T, K] against [experts, K, N], each row by one of them."""
    return int(2 * rows[-2] * rows[-1] * matrices[-1])


def _mapping() -> dict[Any, Callable[..., int]]:
    import torch.nn.attention.varlen  # registers its operator

    return {
        torch.ops.aten._grouped_mm: _grouped_flops,
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _sdpa_flops,
        torch.ops.aten.addmm_: lambda total, a, b, *args, **kwargs: 2 * a[0] * a[1] * b[1],
        torch.ops.torch_attn._varlen_attn: _varlen_flops,
        torch.ops.kosmos.attention_in_products: _products_flops,
        torch.ops.kosmos.attention_in_documents: _documents_flops,
        torch.ops.kosmos.attention_of_padding: lambda q, width, pairs, **kwargs: -2 * q[1] * (q[2] + width) * pairs,
        torch.ops.kosmos.add_product_: lambda total, a, b, *args, **kwargs: 2 * a[0] * a[1] * b[1],
    }


_MAPPING = _mapping()


def _mapping_of_transformers() -> dict[Any, Callable[..., int]]:
    """Its own products of experts, where it has registered them: for what torch's cannot take."""
    own = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    return {own: _grouped_flops} if own is not None else {}
