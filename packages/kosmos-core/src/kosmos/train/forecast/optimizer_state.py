"""Bytes of the state that an optimizer keeps, of any that is installed: it is built over small parameters and asked.

A parameter of few elements is taken as it is. Of a large one three are taken in its place, of fewer rows; a state that
grows with the rows, or with their square, is known from three.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from inspect import signature
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kosmos.config import TrainConfig
from kosmos.errors import KosmosError, cause
from kosmos.plugins import Registry

AS_IT_IS = 2**18
"""Elements up to which a parameter is tried as it is."""
ROWS = (128, 160, 192)
"""Of larger ones: as many as matter to optimizers that treat small matrices otherwise."""
LEAST_ROWS = (1, 2, 3)
"""Of those whose rows are as large as a matrix: experts of a mixture."""
Kind = tuple[int, tuple[int, ...], torch.dtype]
"""Group, shape and type: parameters that are alike in these have states of one size."""


class StateBytes(NamedTuple):
    """Of all parameters that a rank trains."""

    by_name: dict[str, int]
    """By the name that the optimizer gives a part of its state."""
    unknown: str = ""
    """Why it is not known, which may be that it steps on a GPU alone."""

    @property
    def total(self) -> int:
        return sum(self.by_name.values())


def state_bytes(registry: Registry, train: TrainConfig, groups: Sequence[Mapping[str, Any]]) -> StateBytes:
    """
    Args:
        groups: as of ``parameter_groups``, but of things with a ``shape`` and a ``dtype``: what a rank holds.

    Raises:
        ConfigError: options are none that the optimizer takes.
    """
    counts: dict[Kind, int] = {}
    for number, group in enumerate(groups):
        for held in group["params"]:
            kind = number, tuple(held.shape), held.dtype
            counts[kind] = counts.get(kind, 0) + 1
    try:
        tries = [_try(registry, train, groups, list(counts), at) for at in range(len(ROWS))]
    except KosmosError:
        raise
    except Exception as error:  # a seam: code of plugins
        return StateBytes({}, f"{train.optimizer.name} took no step of small parameters on a CPU ({cause(error)})")
    found: dict[str, int] = {}
    for kind, count in counts.items():
        for name in dict.fromkeys(name for each in tries for name in each[kind]):
            sizes = [each[kind].get(name, 0) for each in tries]
            found[name] = found.get(name, 0) + count * _at_full_size(kind[1], sizes)
    return StateBytes(found)


def _try(
    registry: Registry, train: TrainConfig, groups: Sequence[Mapping[str, Any]], kinds: Sequence[Kind], at: int
) -> dict[Kind, dict[str, int]]:
    """Bytes by name after one step, of a parameter of each kind, with the rows of try number ``at``."""
    made = {kind: nn.Parameter(torch.zeros(_tried(kind[1], at), dtype=kind[2])) for kind in kinds}
    small = []
    for number, group in enumerate(groups):
        own = [kind for kind in kinds if kind[0] == number]
        names = [group["names"][_first_of(group, kind)] for kind in own]
        small.append({**group, "names": names, "params": [made[kind] for kind in own]})
    optimizer: torch.optim.Optimizer = registry.build(
        "optimizer", train.optimizer.name, small, train.learning_rate,
        options=_uncompiled(registry, train), path="train.optimizer",
    )  # fmt: skip
    for parameter in made.values():
        parameter.grad = torch.full_like(parameter, 1e-3)
    optimizer.step()
    return {kind: dict(_sizes(optimizer.state.get(p, {}))) for kind, p in made.items()}


def _uncompiled(registry: Registry, train: TrainConfig) -> dict[str, Any]:
    """The optimizer's options: nothing is compiled, and left on a disk, for the sake of three small steps."""
    options = dict(train.optimizer.options)
    own = signature(registry.resolve("optimizer", train.optimizer.name)).parameters.get("compile")
    if own is not None and options.get("compile", own.default) in (True, "auto"):
        options["compile"] = False
    return options


def _first_of(group: Mapping[str, Any], kind: Kind) -> int:
    alike = (tuple(held.shape) == kind[1] and held.dtype == kind[2] for held in group["params"])
    return next(number for number, is_one in enumerate(alike) if is_one)


def _tried(shape: tuple[int, ...], at: int) -> tuple[int, ...]:
    rows = _rows(shape)
    return shape if rows is None else (rows[at], *shape[1:])


def _rows(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Of the three that are tried in place of a parameter; None where it is tried as it is."""
    if prod(shape) <= AS_IT_IS or len(shape) < 2:
        return None
    rows = ROWS if len(shape) == 2 else LEAST_ROWS
    return rows if shape[0] > rows[-1] else None


def _at_full_size(shape: tuple[int, ...], sizes: Sequence[int]) -> int:
    """What three sizes come to at the rows of ``shape``, by the parabola through them."""
    rows = _rows(shape)
    if rows is None:
        return sizes[0]
    total = Fraction(0)
    for at, size in zip(rows, sizes, strict=True):
        others = [other for other in rows if other != at]
        total += size * prod(Fraction(shape[0] - other, at - other) for other in others)
    return round(total)


def _sizes(state: Any, name: str = "") -> Iterator[tuple[str, int]]:
    """Name and bytes of each tensor in a parameter's state, however deep; numbers take none to speak of."""
    if isinstance(state, Tensor):
        yield name, state.numel() * state.element_size()
    elif isinstance(state, Mapping):
        for key, value in state.items():
            yield from _sizes(value, f"{name}.{key}" if name else str(key))
    elif isinstance(state, list | tuple):
        for number, value in enumerate(state):
            yield from _sizes(value, f"{name}.{number}")
