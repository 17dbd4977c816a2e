"""Where the cells of a row's media are put."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from kosmos.data.batch import RowCells
from kosmos.data.document import Media
from kosmos.data.plan import DocumentPlan, PlannedMedia, Route
from kosmos.data.processor import Grid, MediaPlan
from kosmos.data.slots import OnePerCell
from kosmos.errors import PluginError


def route(shape: tuple[int, ...], kind: str) -> Route:
    processor = SimpleNamespace(cell_shape=shape, cell_dtype=np.dtype(kind))
    return Route(processor, "eyes", OnePerCell(), frozenset())  # type: ignore[arg-type]


PLAN = DocumentPlan(
    origin="row 0",
    modalities=("image", "video"),
    token_ids=np.zeros(2, np.int32),
    train=np.zeros(2, np.bool_),
    media=tuple(PlannedMedia(Media(m, b""), MediaPlan((Grid(1, 1, 1),), None), "eyes") for m in ("image", "video")),
    slots={"eyes": np.arange(2, dtype=np.int32)},
)


@pytest.mark.parametrize("kinds", [("u1", "f4"), ("f4", "u1")])
def test_a_stream_that_modalities_share_holds_the_values_of_both(kinds):
    cells = RowCells([PLAN], {"image": route((2,), kinds[0]), "video": route((2,), kinds[1])}, ["eyes"])
    for kind in kinds:
        cells.put("eyes", np.full((1, 2), 200 if kind == "u1" else -0.5, kind))
    assert sorted(cells.values()["eyes"][:, 0].tolist()) == [-0.5, 200]


def test_cells_of_different_shapes_find_no_room_in_one_stream():
    routes = {"image": route((3, 2), "u1"), "video": route((1, 2), "u1")}
    with pytest.raises(PluginError, match=r"stream eyes: .*image \(3, 2\), video \(1, 2\)"):
        RowCells([PLAN], routes, ["eyes"])
