"""Items of a row: those that take the place of others have values such as processors make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kosmos.data.processor import Grid
from kosmos.testing import promises_of
from kosmos.testing.items import Item, exchanged, full_row, told
from support import ticks
from support.ticks import TicksProcessor
from support.ticks_encoder import TicksEncoder


def item(*values: float, dtype: type = np.float32) -> Item:
    return Item(np.array(values, dtype)[:, None], Grid(len(values), 1, 1))


def test_an_item_is_exchanged_for_its_own_cells_in_another_order_where_these_differ() -> None:
    found = exchanged(item(1, 2, 5), [item(1, 2, 5)])
    assert (found.values.ravel().tolist(), found.made_up) == ([5, 5, 1], False)
    assert told([found]) == "a row of 1 items (3x1x1 cells, the cells of one rearranged by the kit: its media give " + (
        "no other item)"
    )


def test_an_item_is_exchanged_for_another_one_of_its_grid_else_of_nearly_its_size() -> None:
    first, alike, near, far = item(1, 2, 5), item(1, 2, 6), item(3, 4), item(*range(9))
    assert exchanged(first, [far, near, first, alike]) is alike
    assert exchanged(first, [far, near, first]) is near


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.bool_])
def test_values_are_made_up_where_there_are_no_others_and_the_row_says_so(dtype: type) -> None:
    found = exchanged(item(1, 1, dtype=dtype), [item(1, 1, dtype=dtype)])
    assert found.made_up and not np.any(found.values == dtype(1))
    assert told([found]) == "a row of 1 items (2x1x1 cells, values made up by the kit: its media give no others)"


def test_a_full_row_repeats_items_to_64_or_2048_cells_and_has_two_of_any_size() -> None:
    assert [len(full_row([item(*range(cells))])) for cells in (1, 32, 100, 5000)] == [64, 64, 20, 2]
    assert told(full_row([item(1)])).endswith("1x1x1, ...; 64 cells in all)")


def test_an_encoder_may_look_something_up_by_a_value_of_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel number, say: its table has no more rows than that has values."""

    def numbered(self: object, media: object, plan: object) -> np.ndarray:
        return np.arange(plan.cells * 4, dtype=np.float32).reshape(-1, 4) % 3

    def looks_up(self: TicksEncoder, values: torch.Tensor, grids: torch.Tensor) -> torch.Tensor:
        return self.map.weight[:3].repeat(1, 2)[values[:, 0].long()]

    monkeypatch.setattr(TicksProcessor, "decode", numbered)
    monkeypatch.setattr(TicksEncoder, "forward", looks_up)
    wanted = [p for p in promises_of(ticks) if p.component == "encoder ticks" and p.id in ("given-stays", "no-leak")]
    assert [promise.verdict().message for promise in wanted] == ["", ""]


def test_an_encoder_may_follow_offsets_from_a_cell_to_another_of_its_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph's edges, say: cells in another order than a processor's would lead out of the item."""

    def edges(self: object, media: object, plan: Any) -> np.ndarray:
        steps = [np.arange(grid.cells, dtype=np.float32)[::-1] for grid in plan.grids]
        return np.repeat(np.concatenate(steps)[:, None], 4, axis=1)  # each cell leads to the last of its item

    def follows(self: TicksEncoder, values: torch.Tensor, grids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(len(values)) + values[:, 0].long()
        return self.map.weight[:3].repeat(1, 2)[values[places, 0].long()] + values[places, :1]

    monkeypatch.setattr(TicksProcessor, "decode", edges)
    monkeypatch.setattr(TicksEncoder, "forward", follows)
    (promise,) = (p for p in promises_of(ticks) if p.component == "encoder ticks" and p.id == "no-leak")
    assert promise.verdict().message == ""
