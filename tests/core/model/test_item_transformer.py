"""Encoders made of the shared transformer: items apart, in order, recomputed."""

from __future__ import annotations

import pytest
import torch

from kosmos import ConfigError, ItemTransformer

GRIDS = torch.tensor([[3, 1, 1], [1, 2, 2], [1, 1, 1]])


class Plain(ItemTransformer):
    """Cells are features already."""

    def forward(self, values: torch.Tensor, grids: torch.Tensor) -> torch.Tensor:
        return self.transform(values, grids)


def _made(*, rotary: bool) -> Plain:
    torch.manual_seed(0)
    return Plain(width=16, layers=2, heads=4, feed_forward=2, rotary=rotary).double()


@pytest.mark.parametrize("rotary", [False, True])
def test_items_of_a_row_are_as_if_alone(rotary: bool) -> None:
    encoder, values = _made(rotary=rotary), torch.randn(8, 16, dtype=torch.float64)
    packed = encoder(values, GRIDS)
    parts = values.split(GRIDS.prod(dim=1).tolist())
    alone = torch.cat([encoder(part, grid[None]) for part, grid in zip(parts, GRIDS, strict=True)])
    torch.testing.assert_close(packed, alone)


@pytest.mark.parametrize("rotary", [False, True])
def test_the_order_of_cells_counts_where_it_was_asked_for(rotary: bool) -> None:
    encoder, values = _made(rotary=rotary), torch.randn(5, 16, dtype=torch.float64)
    order, grids = torch.tensor([4, 2, 0, 1, 3]), torch.tensor([[5, 1, 1]])
    same = torch.allclose(encoder(values, grids)[order], encoder(values[order], grids))
    assert same is not rotary


def test_recomputation_changes_no_gradient() -> None:
    encoder, values = _made(rotary=True), torch.randn(8, 16, dtype=torch.float64)
    gradients = []
    for how in (False, True, "selective"):
        encoder.set_gradient_checkpointing(how)
        encoder.zero_grad()
        encoder(values, GRIDS).square().sum().backward()
        gradients.append([p.grad.clone() for p in encoder.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(list(encoder.parameters()))
    torch.testing.assert_close(gradients[1:], gradients[:1] * 2)


def test_no_items_run_forward_and_backward() -> None:
    encoder = _made(rotary=True)
    out = encoder(torch.zeros(0, 16, dtype=torch.float64), torch.zeros(0, 3, dtype=torch.int64))
    out.sum().backward()
    assert out.shape == (0, 16)


@pytest.mark.parametrize(("width", "heads", "rotary"), [(10, 4, False), (12, 4, True)])
def test_numbers_that_do_not_fit(width: int, heads: int, rotary: bool) -> None:
    with pytest.raises(ConfigError, match=r"heads: .* does not divide width"):
        Plain(width=width, layers=1, heads=heads, feed_forward=2, rotary=rotary)


@pytest.mark.parametrize(("option", "value"), [("width", 0), ("width", -4), ("layers", -1), ("heads", 0)])
def test_a_number_that_is_too_small_is_named(option: str, value: int) -> None:
    numbers = {"width": 8, "layers": 1, "heads": 2, option: value}
    with pytest.raises(ConfigError, match=rf"^{option}: expected [01] or more, got {value}$"):
        Plain(**numbers, feed_forward=2)
