"""Two versions of a plugin's encoder of ticks: of one name and of the same shapes, with other defaults."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import Tensor

from kosmos import EncoderSpec, hookimpl
from kosmos.plugins import Registry
from support.runs import ticks_registry
from support.ticks_encoder import TicksEncoder


class Scaled(TicksEncoder):
    """What it reads counts ``scale`` times."""

    def __init__(self, *, scale: float = 1.0, plus: float = 0.0) -> None:
        super().__init__()
        self.scale, self.plus = scale, plus

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        return super().forward(self.scale * values + self.plus, grids)


class Louder(Scaled):
    """The next version."""

    def __init__(self, *, scale: float = 30.0, plus: float = 0.0) -> None:
        super().__init__(scale=scale, plus=plus)


class Renamed(Scaled):
    """The version after that."""

    def __init__(self, *, factor: float = 30.0, plus: float = 0.0) -> None:
        super().__init__(scale=factor, plus=plus)


class Undone(Scaled):
    """Its gradients are no numbers."""

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        cells = super().forward(values, grids)
        if cells.requires_grad:
            cells.register_hook(lambda gradient: gradient * float("nan"))
        return cells


def version(of: type[Scaled]) -> Registry:
    @hookimpl
    def kosmos_encoders() -> Any:
        yield EncoderSpec(name="scaled", target=f"support.scaled:{of.__name__}", summary="Ticks, scaled.")

    return ticks_registry(scaled=SimpleNamespace(KOSMOS_API=1, __name__="scaled", kosmos_encoders=kosmos_encoders))
