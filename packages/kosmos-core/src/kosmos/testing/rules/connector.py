"""What a connector promises: as many slots as it counts, each from its own item.

Letters: N = cells of a row, M = token slots.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_model, save_model

from kosmos.data.processor import Grid
from kosmos.errors import cause
from kosmos.testing.interrupted import undisturbed
from kosmos.testing.items import Item, apart, check_sums, gradients, output, row, silence, told, with_losses
from kosmos.testing.promise import BrokenPromise, rule
from kosmos.testing.search import rows_of, search
from kosmos.testing.subjects import ComponentUnderTest

WIDTH_IN, WIDTH_OUT = 24, 32
SHAPES = (Grid(1, 1, 1), Grid(3, 1, 1), Grid(1, 4, 4), Grid(1, 2, 6), Grid(2, 4, 4), Grid(17, 1, 1))
TOLERANCE = 1e-6
"""Of the largest value, in float64."""


def features() -> tuple[Item, ...]:
    random = np.random.default_rng(0)
    return tuple(Item(random.standard_normal((grid.cells, WIDTH_IN)), grid) for grid in SHAPES)


def fresh(connector: ComponentUnderTest, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    module = connector.build(WIDTH_IN, WIDTH_OUT).double().train()
    silence(module)
    return module


@rule("connector", "slots-as-counted", "an item fills as many slots as its slot count says, which can be pickled")
def slots_as_counted(connector: ComponentUnderTest) -> None:
    module = fresh(connector)
    try:
        slots = pickle.loads(pickle.dumps(module.slots))  # noqa: S301  pickled in this line
    except Exception as error:  # a seam: pickling runs the plugin's code
        raise BrokenPromise(f"slots cannot be pickled: {cause(error)}") from error

    def check(items: Sequence[Item]) -> None:
        out = output(module, *row(items, features()[0]))
        counts = [slots(item.grid) for item in items]
        for item, count in zip(items, counts, strict=True):
            if not isinstance(count, Integral):
                raise BrokenPromise(f"slots counts {count!r} for an item of {item} cells; expected a whole number")
        counted = sum(counts)
        if tuple(out.shape) != (counted, WIDTH_OUT):
            raise BrokenPromise(f"{told(items)}: {list(out.shape)}; slots counts [{counted}, {WIDTH_OUT}]")

    search(rows_of(features()), check)


@rule("connector", "given-stays", "grids are after its forward pass what they were before")
def given_stays(connector: ComponentUnderTest) -> None:
    values, grids = row(features(), features()[0])
    before = grids.clone()
    fresh(connector)(values, grids)
    if not torch.equal(grids, before):
        raise BrokenPromise(f"{told(features())}: forward changed grids; work on a copy")


@rule("connector", "zero-length", "no items at all give [0, width], forward and backward")
def zero_length(connector: ComponentUnderTest) -> None:
    module = fresh(connector)
    out, losses = with_losses(module, *row([], features()[0]))
    if wrong := next((name for name, loss in losses.items() if loss != 0), None):
        raise BrokenPromise(f"no items give the loss {wrong} {float(losses[wrong].detach()):.3g}; expected 0")
    if tuple(out.shape) != (0, WIDTH_OUT):
        raise BrokenPromise(f"no items give {list(out.shape)}; expected [0, {WIDTH_OUT}]")
    for name, gradient in gradients(module, out, torch.zeros(out.shape), losses).items():
        if not gradient.isfinite().all() or gradient.any():
            raise BrokenPromise(f"no items give the parameter {name} a gradient that is not zero")


@rule("connector", "packed-equals-alone", "items in one row fill their slots as one by one, and their losses add up")
def packed_equals_alone(connector: ComponentUnderTest) -> None:
    module = fresh(connector)

    def check(items: Sequence[Item]) -> None:
        packed, losses = with_losses(module, *row(items, items[0]))
        each = [with_losses(module, *row([item], item)) for item in items]
        alone = torch.cat([out for out, _ in each])
        if packed.shape != alone.shape or not apart(packed, alone) <= TOLERANCE:
            error = apart(packed, alone) if packed.shape == alone.shape else float("inf")
            raise BrokenPromise(f"{told(items)}: slots differ by {error:.2g} of the largest")
        check_sums(losses, [own for _, own in each], TOLERANCE)

    search(rows_of(features(), least=2), check, most=20)


@rule("connector", "gradient-everywhere", "every trainable parameter gets a gradient")
def gradient_reaches_everything(connector: ComponentUnderTest) -> None:
    module = fresh(connector)
    out, losses = with_losses(module, *row(features(), features()[0]))
    found = gradients(module, out, torch.randn(out.shape, generator=torch.Generator().manual_seed(1)), losses)
    if missing := [name for name, gradient in found.items() if not gradient.any()]:
        raise BrokenPromise(f"no gradient reaches {', '.join(missing[:3])}")


@rule("connector", "threads", "two threads that run it at once, each on a row of its own, get what each gets alone")
def threads(connector: ComponentUnderTest) -> None:
    module, items = fresh(connector), features()
    mine, others = row(items[:3], items[0]), row(items[3:], items[0])
    undisturbed(module, lambda: output(module, *mine), lambda: output(module, *others), "the slots")


@rule("connector", "state-round-trips", "what is saved of it and loaded into a new one gives the same slots")
def state_round_trips(connector: ComponentUnderTest) -> None:
    first, second = fresh(connector, seed=1), fresh(connector, seed=2)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "connector.safetensors")
        save_model(first, file)
        load_model(second, file)
        out, again = (output(module.eval(), *row(features(), features()[0])) for module in (first, second))
    if not torch.equal(out, again):
        raise BrokenPromise(f"slots differ by {apart(out, again):.2g} of the largest")


RULES = (
    slots_as_counted,
    given_stays,
    zero_length,
    packed_equals_alone,
    gradient_reaches_everything,
    threads,
    state_round_trips,
)
