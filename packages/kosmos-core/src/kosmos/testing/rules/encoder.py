"""What an encoder promises: its items are alone, none is a case like any other, and training reaches all of it.

Letters: N = cells of a row, D = width of a backbone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor

from kosmos.data.processor import Grid
from kosmos.errors import cause, own_line
from kosmos.testing.interrupted import undisturbed
from kosmos.testing.items import (
    Item,
    apart,
    check_sums,
    comparable,
    exchanged,
    full_row,
    gradients,
    output,
    row,
    same,
    silence,
    told,
    with_losses,
)
from kosmos.testing.promise import BrokenPromise, Unchecked, rule
from kosmos.testing.search import rows_of, search
from kosmos.testing.subjects import EncoderUnderTest

TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}
"""Largest difference relative to the largest value. Of six encoders at most 8e-16 and 2e-6 were measured; an encoder
may compute some of it in float32 even so."""
GRADIENT_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3}
"""As above, of all gradients: 3e-15 and 4e-6 were measured."""
LEAK = 1e-6
"""As above: with the same shapes 0 was measured."""


@rule("encoder", "width-and-count", "N cells come out as [N, width], in the type of its parameters or of autocast")
def width_and_count(encoder: EncoderUnderTest) -> None:
    for autocast in (False, True):
        module = encoder.fresh()
        types = _types_of(module, autocast)
        for items in (encoder.items[:1], encoder.items[:3], *([] if autocast else [full_row(encoder.items)])):
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                out = output(module, *row(items, encoder.items[0]))
            expected = (sum(item.grid.cells for item in items), module.width)
            if tuple(out.shape) != expected or out.dtype not in types:
                given, where = f"{_named(out.dtype)} {list(out.shape)}", " under bf16 autocast" if autocast else ""
                wanted = f"{' or '.join(map(_named, types))} {list(expected)}"
                raise BrokenPromise(f"{told(items)} gives {given}{where}; expected {wanted}")


def _types_of(module: Any, autocast: bool) -> list[torch.dtype]:
    """Of its features: float32, another type in which it keeps its parameters, and what autocast makes of them."""
    others = {p.dtype for p in module.parameters() if p.is_floating_point()} | ({torch.bfloat16} if autocast else set())
    return [torch.float32, *sorted(others - {torch.float32}, key=_named)]


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@rule("encoder", "given-stays", "values and grids are after its forward pass what they were before")
def given_stays(encoder: EncoderUnderTest) -> None:
    module, like = encoder.fresh(), encoder.items[0]
    for items in (encoder.items[:4], [exchanged(item, encoder.items) for item in encoder.items[:2]]):
        for autocast, gradients_on in ((False, True), (True, True), (False, False)):
            given = dict(zip(("values", "grids"), row(items, like), strict=True))
            before = {name: tensor.clone() for name, tensor in given.items()}
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast), torch.set_grad_enabled(gradients_on):
                _forward(module.train(gradients_on), items, *given.values())
            if changed := [name for name, tensor in given.items() if not same(tensor, before[name])]:
                raise BrokenPromise(f"{told(items)}: forward changed {' and '.join(changed)}; work on a copy")


def _forward(module: Any, items: Sequence[Item], values: Tensor, grids: Tensor) -> Tensor:
    """An error is told with the row where some of its values are made up: it may be of them."""
    try:
        out = output(module, values, grids)
    except Exception as error:  # a seam: the plugin's own code
        if not any(item.made_up for item in items):
            raise
        where = own_line(error, type(module).__module__)
        raise BrokenPromise(f"{told(items)} raised {cause(error)}{where}") from error
    return out


@rule("encoder", "zero-length", "no items at all give [0, width], forward and backward, in fp32 and bf16")
def zero_length(encoder: EncoderUnderTest) -> None:
    for autocast in (False, True):
        module = encoder.fresh()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            out, losses = with_losses(module, *row([], encoder.items[0]))
        if wrong := next((name for name, loss in losses.items() if loss != 0), None):
            raise BrokenPromise(f"no items give the loss {wrong} {float(losses[wrong].detach()):.3g}; expected 0")
        if tuple(out.shape) != (0, module.width):
            raise BrokenPromise(f"no items give {list(out.shape)}; expected [0, {module.width}]")
        if sums := [x.sum() for x in (out, *losses.values()) if x.requires_grad]:
            torch.autograd.backward(sums)
        for name, parameter in module.named_parameters():
            if parameter.grad is not None and (not parameter.grad.isfinite().all() or parameter.grad.any()):
                raise BrokenPromise(f"no items give the parameter {name} a gradient that is not zero")
        _finite_buffers(module)


def _finite_buffers(module: Any) -> None:
    for name, buffer in module.named_buffers():
        if buffer.is_floating_point() and not buffer.isfinite().all():
            raise BrokenPromise(f"no items make the buffer {name} not finite")


@rule(
    "encoder",
    "packed-equals-alone",
    "items in one row have the features, gradients and losses that they have one by one",
)
def packed_equals_alone(encoder: EncoderUnderTest) -> None:
    module, exact = comparable(encoder.fresh, encoder.items)

    def check(items: Sequence[Item]) -> None:
        values, grids = row(items, encoder.items[0], exact=exact)
        packed, losses = with_losses(module, values, grids)
        each = [with_losses(module, *row([item], item, exact=exact)) for item in items]
        alone, own = torch.cat([out for out, _ in each]), [losses for _, losses in each]
        if packed.shape != alone.shape:
            raise BrokenPromise(f"{told(items)}: {list(packed.shape)} packed, {list(alone.shape)} one by one")
        precision = packed.dtype if packed.dtype in TOLERANCE else torch.float32
        if not apart(packed, alone) <= TOLERANCE[precision]:
            raise BrokenPromise(f"{told(items)}: features differ by {apart(packed, alone):.2g} of the largest")
        check_sums(losses, own, GRADIENT_TOLERANCE[precision])
        sums = {name: sum((one[name] for one in own if name in one), packed.new_zeros(())) for name in losses}
        weights = _weights(packed)
        mine, theirs = gradients(module, packed, weights, losses), gradients(module, alone, weights, sums)
        largest = max((float(g.abs().max()) for g in theirs.values() if g.numel()), default=0.0)
        for name, gradient in mine.items():
            error = float((gradient - theirs[name]).abs().max()) / max(largest, 1e-30) if gradient.numel() else 0.0
            if not error <= GRADIENT_TOLERANCE[precision]:
                raise BrokenPromise(f"{told(items)}: the gradient of {name} differs by {error:.2g} of the largest")

    search(rows_of(encoder.items, least=2), check, most=10)
    _full_equals_alone(module, encoder.items, exact)


def _full_equals_alone(module: Any, items: Sequence[Item], exact: bool) -> None:
    """In a row of the size that runs make: where an encoder may take another way."""
    alone = {item: _features(module, [item], exact)[0] for item in items}
    full = full_row(items)
    for number, (item, mine) in enumerate(zip(full, _features(module, full, exact), strict=True), 1):
        theirs = alone[item]
        if not apart(mine, theirs) <= TOLERANCE[mine.dtype if mine.dtype in TOLERANCE else torch.float32]:
            off = f"the features of item {number} differ by {apart(mine, theirs):.2g} of the largest"
            raise BrokenPromise(f"{told(full)}: {off}")


def _weights(out: Tensor) -> Tensor:
    """Fixed weights of a loss: a plain sum is blind where features are normalized."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(out.shape, generator=generator, dtype=torch.float64)


@rule("encoder", "no-leak", "changing one item leaves the features of the others as they were")
def nothing_leaks(encoder: EncoderUnderTest) -> None:
    module, exact = comparable(encoder.fresh, encoder.items)
    _changes_reach_no_other(encoder, module, exact)
    full = full_row(encoder.items)
    _change_reaches_no_other(encoder, module, exact, full, [len(full) // 2])
    if module.training:
        _changes_reach_no_other(encoder, module.eval(), exact)  # where it may compute something else
    if getattr(module, "takes_padding", False):
        _padding_leaves_features(encoder, module, exact)


def _changes_reach_no_other(encoder: EncoderUnderTest, module: Any, exact: bool) -> None:
    def check(items: Sequence[Item]) -> None:
        _change_reaches_no_other(encoder, module, exact, items, range(len(items)))

    search(rows_of(encoder.items, least=2, most=3), check, most=6)


def _change_reaches_no_other(
    encoder: EncoderUnderTest, module: Any, exact: bool, items: Sequence[Item], places: Sequence[int]
) -> None:
    before = _features(module, items, exact)
    for place in places:
        other = exchanged(items[place], encoder.items)
        others = [*items[:place], other, *items[place + 1 :]]
        for number, after in enumerate(_features(module, others, exact)):
            most = LEAK if other.grid == items[place].grid else TOLERANCE.get(after.dtype, TOLERANCE[torch.float32])
            if number != place and not (found := apart(before[number], after)) <= most:
                who = f"item {place + 1} changes the features of item {number + 1} by {found:.2g} of the largest"
                raise BrokenPromise(f"{told(others)}: {who}")


def _padding_leaves_features(encoder: EncoderUnderTest, module: Any, exact: bool) -> None:
    """An item of zeros behind the others, as a row is rounded up on a CPU in bf16."""
    items, like = encoder.items[:2], encoder.items[0].values
    padding = Item(np.zeros((7, *like.shape[1:]), like.dtype), Grid(7, 1, 1))
    pairs = zip(_features(module, items, exact), _features(module, [*items, padding], exact), strict=False)
    if not (found := max(apart(before, after) for before, after in pairs)) <= TOLERANCE[torch.float32]:
        who = f"says takes_padding = True, and an item of {padding} zeros behind the others changes their features"
        raise BrokenPromise(f"{told(items)}: {who} by {found:.2g} of the largest")


def _features(module: Any, items: Sequence[Item], exact: bool) -> Sequence[Tensor]:
    with torch.no_grad():
        out = _forward(module, items, *row(items, items[0], exact=exact))
    if len(out) != (cells := sum(item.grid.cells for item in items)):
        raise BrokenPromise(f"{told(items)} gives {len(out)} features for {cells} cells")
    return torch.split(out, [item.grid.cells for item in items])


@rule("encoder", "finite", "features and gradients are finite in fp32 and under bf16 autocast")
def finite_in_both_types(encoder: EncoderUnderTest) -> None:
    items = encoder.items[:4]
    for autocast in (False, True):
        module = encoder.fresh()
        silence(module)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            out, losses = with_losses(module, *row(items, items[0]))
        named = {"the features": out, **gradients(module, out.float(), _weights(out), losses)}
        for name, tensor in named.items():
            if not tensor.isfinite().all():
                what = name if tensor is out else f"the gradient of {name}"
                raise BrokenPromise(f"{told(items)}: {what} is not finite in {'bf16' if autocast else 'fp32'}")


@rule("encoder", "gradient-everywhere", "every trainable parameter gets a gradient from the sample set")
def gradient_reaches_everything(encoder: EncoderUnderTest) -> None:
    module = encoder.fresh()
    silence(module)
    missing = {name for name, p in module.named_parameters() if p.requires_grad}
    for begin in range(0, len(encoder.items), 4):
        if not missing:
            break
        items = encoder.items[begin : begin + 4]
        out, losses = with_losses(module, *row(items, items[0]))
        missing -= {name for name, g in gradients(module, out, _weights(out), losses).items() if g.any()}
    if missing:
        shown = ", ".join(sorted(missing)[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise BrokenPromise(f"no gradient over {len(encoder.items)} items: {shown}; train it, or freeze it")


@rule("encoder", "threads", "two threads that run it at once, each on a row of its own, get what each gets alone")
def threads(encoder: EncoderUnderTest) -> None:
    if getattr(encoder.fresh(), "takes_threads", True) is False:
        raise Unchecked("the encoder says takes_threads = False")
    module, exact = comparable(encoder.fresh, encoder.items)
    like = encoder.items[0]
    for autocast in (False, True):
        if autocast and exact:
            module.float()

        def run(items: Sequence[Item], autocast: bool = autocast) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                return output(module, *row(items, like, exact=exact and not autocast))

        for others in (encoder.items[1:4], encoder.items[:0]):
            undisturbed(module, partial(run, encoder.items[:2]), partial(run, others), "the features")


@rule("encoder", "state-round-trips", "what is saved of it and loaded into a new one gives the same features")
def state_round_trips(encoder: EncoderUnderTest) -> None:
    first, second = encoder.fresh(seed=1), encoder.fresh(seed=2)
    items = encoder.items[:3]
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        first(*row(items, items[0]))  # statistics of training, if it keeps any, are part of the state
        file = Path(folder) / "encoder.safetensors"
        save_model(first, str(file))
        load_model(second, str(file))
        out, again = (output(module.eval(), *row(items, items[0])) for module in (first, second))
    if not torch.equal(out, again):
        raise BrokenPromise(f"features differ by {apart(out, again):.2g} of the largest; is a tensor no buffer?")


@rule("encoder", "recomputation", "with gradient checkpointing the features and gradients are the same")
def recomputation_changes_nothing(encoder: EncoderUnderTest) -> None:
    if not hasattr(encoder.fresh(), "set_gradient_checkpointing"):
        raise Unchecked("the encoder has no set_gradient_checkpointing")
    module, exact = comparable(encoder.fresh, encoder.items)
    items = encoder.items[:3]
    found = []
    for on in (False, True):
        module.set_gradient_checkpointing(on)
        out, losses = with_losses(module, *row(items, items[0], exact=exact))
        found.append({"the features": out.detach(), **gradients(module, out, _weights(out), losses)})
        module(*row([], items[0], exact=exact))
    for name, plain in found[0].items():
        if not (error := apart(plain, found[1][name])) <= TOLERANCE[torch.float64 if exact else torch.float32]:
            raise BrokenPromise(f"{told(items)}: {name} differs by {error:.2g} of the largest")


@rule(
    "encoder", "compiles", "its blocks compiled, it gives the same features, where it says compiles = True", slow=True
)
def compiles(encoder: EncoderUnderTest) -> None:
    module = encoder.fresh().eval()
    if getattr(module, "compiles", False) is not True:
        raise Unchecked("the encoder does not say compiles = True")
    blocks = list(getattr(module, "blocks", ()))
    if not blocks:
        raise BrokenPromise("says compiles = True and has no blocks, which are what a run compiles")
    rows = (encoder.items[:2], encoder.items[1:4], encoder.items[:0])
    with torch.no_grad():
        plain = [output(module, *row(items, encoder.items[0])) for items in rows]
        for block in blocks:
            block.compile(backend="aot_eager")  # traced as ever; what a compiler then makes of it is the compiler's
        for items, before in zip(rows, plain, strict=True):
            after = output(module, *row(items, encoder.items[0]))
            if before.shape != after.shape or not apart(before, after) <= 1e-3:
                off = apart(before, after)
                raise BrokenPromise(f"{told(items)}: {list(after.shape)}, {off:.2g} of the largest apart")


RULES = (
    width_and_count,
    given_stays,
    zero_length,
    packed_equals_alone,
    nothing_leaks,
    finite_in_both_types,
    gradient_reaches_everything,
    threads,
    state_round_trips,
    recomputation_changes_nothing,
    compiles,
)
