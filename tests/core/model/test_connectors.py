"""Connectors: slots as planned, items apart, nothing at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from kosmos.data.processor import Grid
from kosmos.data.slots import Pooled
from kosmos.errors import ConfigError
from kosmos.model.connectors import LinearConnector, MLPConnector, PoolConnector, pool_grids
from kosmos.model.resampler import ResamplerConnector

BUILDERS: dict[str, Any] = {
    "linear": lambda: LinearConnector(6, 16),
    "linear without norm": lambda: LinearConnector(6, 16, norm=False),
    "mlp": lambda: MLPConnector(6, 16, hidden=20),
    "mlp with pool": lambda: MLPConnector(6, 16, pool=(2, 1, 3)),
    "pool": lambda: PoolConnector(6, 16, factor=2, time_factor=2),
    "resampler": lambda: ResamplerConnector(6, 16, latents=5, heads=2),
    "deep resampler": lambda: ResamplerConnector(6, 16, latents=3, layers=3),
}
GRIDS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 5)), max_size=4)


def build(name: str) -> Any:
    torch.manual_seed(0)
    return BUILDERS[name]().double()


def tensors(items: list[tuple[int, int, int]]) -> tuple[Tensor, Tensor]:
    grids = torch.tensor(items, dtype=torch.int64).reshape(-1, 3)
    features = torch.randn(int(grids.prod(1).sum()), 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return features.requires_grad_(), grids


@pytest.mark.parametrize("name", BUILDERS)
@settings(max_examples=20, deadline=None)
@given(items=GRIDS)
def test_slots_are_as_many_as_planned_and_those_of_an_item_depend_on_it_alone(
    name: str, items: list[tuple[int, int, int]]
) -> None:
    connector = build(name)
    features, grids = tensors(items)
    together = connector(features, grids)
    counts = [connector.slots(Grid(*item)) for item in items]
    assert together.shape == (sum(counts), 16)
    cells = [t * h * w for t, h, w in items]
    for part, grid, slots in zip(features.split(cells), grids, together.split(counts), strict=True):
        # fp64; measured 3e-16
        torch.testing.assert_close(connector(part, grid[None]), slots, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", BUILDERS)
def test_no_items_give_no_slots_and_a_backward_pass(name: str) -> None:
    connector: nn.Module = build(name)
    features, grids = tensors([])
    out = connector(features, grids)
    out.sum().backward()
    assert out.shape == (0, 16)
    assert all(p.grad is None or not p.grad.any() for p in connector.parameters())


@pytest.mark.parametrize("name", BUILDERS)
def test_every_parameter_learns(name: str) -> None:
    connector: nn.Module = build(name)
    features, grids = tensors([(1, 4, 5), (2, 3, 3)])
    (connector(features, grids) ** 3).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in connector.parameters())
    assert features.grad is not None


def test_blocks_at_the_edge_average_what_they_have() -> None:
    cells = torch.arange(9.0)[:, None]
    pooled = pool_grids(cells, torch.tensor([[1, 3, 3]]), Pooled(1, 2, 2))
    assert pooled[:, 0].tolist() == [(0 + 1 + 3 + 4) / 4, (2 + 5) / 2, (6 + 7) / 2, 8]


def test_pooling_joins_frames_in_time() -> None:
    cells = torch.arange(6.0)[:, None]
    pooled = pool_grids(cells, torch.tensor([[3, 1, 2]]), Pooled(2, 1, 1))
    assert pooled[:, 0].tolist() == [1, 2, 4, 5]


def test_sums_of_half_precision_are_kept_in_fp32() -> None:
    cells = torch.full((1024, 1), 1.0 + 1 / 128, dtype=torch.bfloat16)
    pooled = pool_grids(cells, torch.tensor([[1, 32, 32]]), Pooled(1, 32, 32))
    assert pooled.item() == 1.0 + 1 / 128


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: MLPConnector(6, 16, pool=(0, 1, 1)),
        lambda: PoolConnector(6, 16, factor=0),
        lambda: ResamplerConnector(6, 16, heads=3),
        lambda: ResamplerConnector(6, 16, latents=0),
    ],
)
def test_wrong_options_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        wrong()


def test_time_is_pooled_as_it_is_counted():
    connector = PoolConnector(4, 6, time_factor=2)
    assert len(connector(torch.zeros(64, 4), torch.tensor([[4, 4, 4]]))) == connector.slots(Grid(4, 4, 4)) == 8


def test_hidden_is_the_width_between():
    assert MLPConnector(4, 6, hidden=5).layers[0].out_features == 5
