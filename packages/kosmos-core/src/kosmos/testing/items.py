"""Rows of encoder items, as a batch has them, and encoders put so that two calls can be compared.

Letters: N = cells of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Media
from kosmos.data.foreign import called
from kosmos.data.kept_plans import no_plan
from kosmos.data.processor import Grid, MediaPlan
from kosmos.errors import PluginError, SampleError, cause, own_line
from kosmos.testing.promise import BrokenPromise

if TYPE_CHECKING:
    from torch import Tensor


FULL_ITEMS, FULL_CELLS = 64, 2048
"""Of a row as large as runs make them: ``data.tokens_per_pack`` is 512 by default, and cells may be pooled."""


@dataclass(frozen=True, eq=False)
class Item:
    """One item: its cells [n, *cell] and their grid."""

    values: NDArray[Any]
    grid: Grid
    made_up: bool = False
    """Its values are of no processor."""
    rearranged: bool = False
    """Its cells are those of a processor in another order."""

    def __str__(self) -> str:
        return "x".join(map(str, self.grid))


def exchanged(item: Item, items: Sequence[Item]) -> Item:
    """Another item, as a processor makes it where one is to be had: an encoder may look something up by its cells, or
    follow offsets from one to another.

    Args:
        items: of the same encoder. One of the same grid is taken first, then one of nearly as many cells; only where
            all are the same as ``item`` are its own cells rearranged.
    """
    cells = item.values

    def differs(values: NDArray[Any]) -> bool:
        return not np.array_equal(values, cells, equal_nan=cells.dtype.kind == "f")

    others = sorted(items, key=lambda other: (other.grid != item.grid, abs(other.grid.cells - item.grid.cells)))
    if (other := next((one for one in others if differs(one.values)), None)) is not None:
        return other
    own = cells[[*[-1] * (len(cells) - 1), 0]]  # all but the last are the last, whose mean is another
    if differs(own):
        return replace(item, values=own, rearranged=True)
    if np.issubdtype(cells.dtype, np.floating):
        return replace(item, values=(cells * -0.7 + 0.3).astype(cells.dtype), made_up=True)
    most = np.iinfo(cells.dtype).max if cells.dtype != np.bool_ else 1
    return replace(item, values=(most - cells).astype(cells.dtype), made_up=True)


def full_row(items: Sequence[Item]) -> list[Item]:
    """As many as a row of a run holds, repeated as often as it takes; two or more."""
    found: list[Item] = []
    cells = 0
    for item in cycle(items):
        cells += item.grid.cells
        if len(found) == FULL_ITEMS or (len(found) > 1 and cells > FULL_CELLS):
            return found
        found.append(item)
    raise AssertionError("no items")


def planned(processor: Any, medium: Media) -> MediaPlan:
    """The plan of a medium.

    Raises:
        SampleError: the processor refuses the medium.
        BrokenPromise: it raises something else, or gives no plan.
    """
    try:
        plan: MediaPlan = processor.plan(medium)
    except SampleError:
        raise
    except Exception as error:  # a seam: the plugin's own code
        raise BrokenPromise(
            f"{called(processor, 'plan')} raised {cause(error)}{own_line(error, type(processor).__module__)}; "
            "expected a plan or a SampleError"
        ) from error
    if wrong := no_plan(processor, plan):
        raise BrokenPromise(wrong)
    return plan


def cut_items(cells: NDArray[Any], grids: Sequence[Grid]) -> list[Item]:
    """The items of a medium."""
    ends = np.cumsum([grid.cells for grid in grids]).tolist()
    return [Item(cells[end - grid.cells : end], grid) for grid, end in zip(grids, ends, strict=True)]


def told(items: Sequence[Item]) -> str:
    """``"a row of 2 items (3x1x1, 5x1x1 cells)"``; of many, the first and how many cells they have in all."""
    shown = ", ".join(map(str, items[:8]))
    rest = f", ...; {sum(item.grid.cells for item in items)} cells in all" if len(items) > 8 else " cells"
    made_up = ", values made up by the kit: its media give no others" if any(item.made_up for item in items) else ""
    if any(item.rearranged for item in items):
        made_up += ", the cells of one rearranged by the kit: its media give no other item"
    return f"a row of {len(items)} items ({shown}{rest}{made_up})"


def row(items: Sequence[Item], like: Item, *, exact: bool = False) -> tuple[Tensor, Tensor]:
    """Values [N, *cell] and grids int64 [items, 3]; ``like`` tells the cell where there are no items.

    Args:
        exact: make floating values float64.
    """
    import torch

    values = torch.from_numpy(np.concatenate([like.values[:0], *(item.values for item in items)]))
    grids = torch.tensor([item.grid for item in items], dtype=torch.int64).reshape(-1, 3)
    return (values.double() if exact and values.is_floating_point() else values), grids


def silence(encoder: Any) -> None:
    """Switch off what is drawn at random (dropout, stochastic depth), and leave training mode on."""
    for module in encoder.modules():
        for name in ("p", "drop_prob", "dropout", "attention_dropout", "activation_dropout", "layer_drop", "layerdrop"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)


def comparable(make: Callable[[], Any], items: Sequence[Item]) -> tuple[Any, bool]:
    """An encoder whose results can be compared, and whether it takes float64.

    In training mode without dropout where that is deterministic (so that statistics of a batch show), else in
    evaluation mode.
    """
    import torch

    encoder = make()
    silence(encoder)
    exact = True
    try:
        encoder.double()
        with torch.no_grad():
            exact = bool(torch.isfinite(output(encoder, *row(items[:1], items[0], exact=True))).all())
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        exact = False
    encoder = make()  # the trial may have changed buffers
    silence(encoder)
    if exact:
        encoder.double()
    with torch.no_grad():
        first, second = (output(encoder, *row(items[:2], items[0], exact=exact)) for _ in range(2))
    if not torch.equal(first, second):
        encoder.eval()
    return encoder, exact


def output(module: Any, *arguments: Any) -> Tensor:
    """What a part gives, without losses of its own."""
    from kosmos.model.own_losses import output_of

    found: Tensor = output_of(module(*arguments))
    return found


def with_losses(module: Any, values: Tensor, grids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """What a part gives for a row, and its own losses.

    Raises:
        BrokenPromise: as of ``own_losses``.
    """
    from kosmos.model.own_losses import output_of

    given = module(values, grids)
    return output_of(given), own_losses(given, module, filled=len(grids) > 0)


def own_losses(given: Any, module: Any, *, filled: bool) -> dict[str, Tensor]:
    """Those of what a part gave, for a row that holds something for it or nothing.

    Raises:
        BrokenPromise: they are none that a step can minimize, or its class does not say that it has any.
    """
    from kosmos.model.own_losses import losses_of, says_losses

    try:
        losses = losses_of(given, type(module).__name__, module, filled=filled)
    except PluginError as error:
        raise BrokenPromise(str(error)) from error
    if losses and not says_losses(module):
        raise BrokenPromise(
            f"hands on the loss {next(iter(losses))}; write own_losses = True in its class, which tells a run"
        )
    return losses


def check_sums(packed: Mapping[str, Tensor], alone: Sequence[Mapping[str, Tensor]], most: float) -> None:
    """Raises BrokenPromise where losses of a row differ from the sums of those of its items by more than so much of the
    largest."""
    for name in sorted({*packed, *(name for losses in alone for name in losses)}):
        mine, *items = (float(losses[name].detach()) if name in losses else 0.0 for losses in (packed, *alone))
        off = abs(mine - sum(items)) / max(abs(mine), *map(abs, items), 1e-30)
        if not off <= most:
            raise BrokenPromise(
                f"its loss {name} is {mine:.6g} for the row and {sum(items):.6g} as the sum of its items one by one; "
                "give the sum over items, not their mean"
            )


def gradients(
    module: Any, out: Tensor, weights: Tensor, losses: Mapping[str, Tensor] = MappingProxyType({})
) -> dict[str, Tensor]:
    """Gradients of ``(out * weights).sum()`` and of losses beside it by name; a missing one is zero.

    Raises:
        BrokenPromise: the module keeps tensors of an earlier row, to which they lead.
    """
    import torch

    from kosmos.model.failures import raise_as_kept

    named = {name: p for name, p in module.named_parameters() if p.requires_grad}
    sums = [loss for loss in losses.values() if loss.requires_grad]
    if out.requires_grad:
        sums.insert(0, (out * weights.to(out.dtype)).sum())
    if not named or not sums:
        return {name: torch.zeros_like(p) for name, p in named.items()}
    try:
        found = torch.autograd.grad(sums, list(named.values()), allow_unused=True)
    except RuntimeError as error:
        try:
            raise_as_kept(error, module)
        except PluginError as told:
            raise BrokenPromise(str(told)) from error
        raise
    zipped = zip(named.items(), found, strict=True)
    return {name: torch.zeros_like(p) if g is None else g for (name, p), g in zipped}


def apart(one: Tensor, other: Tensor) -> float:
    """Largest difference, relative to the largest value of the two."""
    one, other = one.detach(), other.detach()
    if not one.numel():
        return 0.0
    scale = max(float(one.abs().max()), float(other.abs().max()), 1e-30)
    return float((one - other).abs().max()) / scale


def same(one: Tensor, other: Tensor) -> bool:
    """To the bit; NaN is as it was."""
    import torch

    return bool(torch.equal(one, other) or torch.allclose(one, other, rtol=0, atol=0, equal_nan=True))
