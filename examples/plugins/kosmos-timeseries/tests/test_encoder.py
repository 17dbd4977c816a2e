"""What the conformance kit does not know of this encoder: where a cell stands in its window."""

from __future__ import annotations

import pytest
import torch

from kosmos import ConfigError
from kosmos_timeseries.encoder import PatchEncoder, places


def test_cells_stand_by_time_and_then_by_channel_beginning_anew_in_each_item() -> None:
    time, channel = places(torch.tensor([[2, 3, 1], [1, 1, 1], [3, 1, 1]]))
    assert time.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 1, 2]
    assert channel.tolist() == [0, 1, 2, 0, 1, 2, 0, 0, 0, 0]


@pytest.mark.parametrize("grid", [(4, 1, 1), (1, 4, 1)], ids=["time", "channel"])
def test_equal_cells_at_different_places_are_told_apart(grid: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    cell = torch.randn(1, 2, 16)
    features = PatchEncoder()(cell.expand(4, 2, 16), torch.tensor([grid]))
    assert (features[1:] - features[0]).abs().amax(dim=1).min() > 0.05  # features are about 0.8


def test_a_patch_sees_the_whole_of_its_window() -> None:
    torch.manual_seed(0)
    values = torch.randn(6, 2, 16, requires_grad=True)
    PatchEncoder()(values, torch.tensor([[2, 3, 1]]))[0].square().sum().backward()
    assert values.grad is not None
    assert values.grad.flatten(1).abs().amax(dim=1).gt(0).all()


@pytest.mark.parametrize("options", [{"heads": 3}, {"heads": 0}, {"width": 21, "heads": 7}])
def test_sizes_that_do_not_fit_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"heads|width: 21 is odd"):
        PatchEncoder(**options)
