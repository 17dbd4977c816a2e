"""Encoders that do not keep the protocol: the run names them, not a line inside torch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kosmos import EncoderSpec, hookimpl, make_run
from kosmos.compose import compose
from kosmos.errors import PluginError
from support.runs import SMALL, ticks_registry


class Faulty(nn.Module):
    """Gives ``rows`` rows too many of ``width`` features, and says that it gives 8."""

    def __init__(self, *, rows: int = 0, width: int = 8, lacks: str = "", of_torch: bool = True) -> None:
        super().__init__()
        has = {"input": 4, "width": 8}
        for name in has.keys() - {lacks}:
            setattr(self, name, has[name])
        self.rows, self.features, self.of_torch = rows, width, of_torch

    def forward(self, values: Tensor, grids: Tensor) -> Any:
        given = torch.zeros(len(values) + self.rows, self.features)
        return given if self.of_torch else given.numpy()


def stream_of(**options: Any) -> nn.Module:
    plugin = ModuleType("faulty")
    spec = EncoderSpec(name="faulty", target=f"{__name__}:Faulty", summary="Breaks its promises.")
    vars(plugin).update(KOSMOS_API=1, kosmos_encoders=hookimpl(lambda: [spec]))
    run = make_run(SMALL, {"streams": {"ticks": {"encoder": {"name": "faulty", **options}}}})
    return compose(run, ticks_registry(faulty=plugin)).model.streams["ticks"]


@pytest.mark.parametrize(
    ("options", "given"),
    [({"rows": 1}, r"\[4, 8\]"), ({"width": 6}, r"\[3, 6\]"), ({"of_torch": False}, "ndarray")],
)
def test_what_an_encoder_gives_is_held_against_what_it_has_to_give(options: dict[str, Any], given: str) -> None:
    stream = stream_of(**options)
    with pytest.raises(PluginError, match=rf"^encoder Faulty: forward gave {given}; expected a tensor \[3, 8\], of"):
        stream(torch.zeros(3, 4), torch.tensor([[3, 1, 1]]))


@pytest.mark.parametrize("lacks", ["input", "width"])
def test_an_encoder_that_lacks_a_part_is_named_with_it(lacks: str) -> None:
    with pytest.raises(
        PluginError, match=rf"^streams\.ticks\.encoder: faulty \(Faulty\) has no {lacks}; an encoder has"
    ):
        stream_of(lacks=lacks)
