"""Rows of one shape, which a graph of a GPU can hold, continue documents as rows of those that go on do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kosmos.model.continuing import Launched, OneShape, continuing
from kosmos.model.decoder import Decoder
from support.continued import Keeps, hidden_states, launched


def decoder(**options: Any) -> Decoder:
    torch.manual_seed(0)
    return Decoder(256, width=32, layers=2, heads=4, kv_heads=2, ffn_width=48, **options).eval()


@st.composite
def schedules(draw: st.DrawFn) -> tuple[list[int], int, Keeps]:
    lengths = draw(st.lists(st.integers(1, 70), min_size=1, max_size=6))
    going, keeps = len(lengths), {}
    for number in sorted(draw(st.sets(st.integers(0, 8), max_size=3))):
        kept = draw(st.sets(st.integers(0, going - 1), min_size=1))
        keeps[number], going = tuple(sorted(kept)), len(kept)
    return lengths, draw(st.integers(9, 12)), keeps


@given(schedules())
@settings(max_examples=40, deadline=None)
def test_rows_of_one_shape_give_the_hidden_states_of_rows_without_the_others(case: Any) -> None:
    backbone = decoder()
    expected, found = (hidden_states(backbone, way, *case) for way in (launched, OneShape))
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=2e-5)


@pytest.mark.parametrize("options", [{}, {"positions": "xpos", "norm": "layer", "bias": True}, {"qk_norm": True}])
def test_buffers_grow_on_the_way(options: dict[str, Any]) -> None:
    backbone = decoder(**options)
    case = [3, 120, 60], 80, {70: (0, 2)}
    expected, found = (hidden_states(backbone, way, *case) for way in (launched, OneShape))
    assert max(float((one - other).abs().max()) for one, other in zip(found, expected, strict=True)) < 2e-5


def test_addresses_change_when_room_or_rows_do_and_at_no_other_token() -> None:
    backbone, changed = decoder(), []

    class Watched(OneShape):
        def _begin(self, going: Any) -> None:
            super()._begin(going)
            changed.append((self.cache.documents, self.cache.room, list(self._going)))

    hidden_states(backbone, Watched, [60, 5, 7, 1], 80, {2: (0, 1, 3), 4: (0, 1), 79: (1,)})
    assert changed == [(4, 128, [0, 1, 2, 3]), (2, 128, [0, 1]), (2, 256, [0, 1]), (1, 256, [0])]


def test_a_document_that_is_left_out_counts_no_more() -> None:
    """It may have come to the end of the positions, where the others may go on."""
    backbone, seen = decoder(), []

    class Watched(OneShape):
        def _run(self) -> Any:
            seen.append((self.cache.length, self.cache.room))
            return super()._run()

    hidden_states(backbone, Watched, [126, 5, 7], 4, {1: (1, 2)})
    assert seen == [(126, 192), (8, 192), (9, 192), (10, 192)]


def test_a_cpu_launches() -> None:
    cpu = torch.device("cpu")
    assert isinstance(continuing(decoder(), cpu, one=False), Launched)
    assert isinstance(continuing(decoder(), cpu, one=True), Launched)
