"""What the conformance kit does not know of this encoder: sets have no order, places matter."""

from __future__ import annotations

import pytest
import torch

from kosmos import ConfigError
from kosmos_pointcloud.encoder import GroupEncoder

GRID = torch.tensor([[4, 1, 1]])


def test_the_order_of_the_points_of_a_group_does_not_matter() -> None:
    torch.manual_seed(0)
    encoder, values = GroupEncoder(), torch.randn(4, 33, 3)
    shuffled = torch.cat((values[:, :1], values[:, 1:][:, torch.randperm(32)]), dim=1)
    torch.testing.assert_close(encoder(shuffled, GRID), encoder(values, GRID))  # differs by 5e-7 in fp32


def test_repeating_points_adds_nothing() -> None:
    torch.manual_seed(0)
    encoder, values = GroupEncoder(), torch.randn(4, 33, 3)
    few = torch.cat((values[:, :17], values[:, 1:17]), dim=1)
    torch.testing.assert_close(encoder(few, GRID), encoder(values[:, :17], GRID))


def test_equal_groups_at_different_places_are_told_apart() -> None:
    torch.manual_seed(0)
    values = torch.randn(1, 33, 3).repeat(4, 1, 1)
    values[:, 0] = torch.tensor([[0.0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]])
    features = GroupEncoder()(values, GRID)
    assert torch.pdist(features.detach()).min() > 0.1  # features have a length of about 11


@pytest.mark.parametrize("options", [{"heads": 3}, {"heads": 0}])
def test_sizes_that_do_not_fit_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="heads"):
        GroupEncoder(**options)
