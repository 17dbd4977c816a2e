"""The sample set of moving shapes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from kosmos import DataError, Media, SampleError, Text
from kosmos_video.frames import VideoProcessor
from kosmos_video.plugin import kosmos_datasets, kosmos_encoders, kosmos_modalities
from kosmos_video.pytorchvideo_encoder import PytorchVideoEncoder
from kosmos_video.samples import COLOURS, MOTIONS, SHAPES, MovingShapesSource


def media_and_text(source: MovingShapesSource, index: int) -> tuple[np.ndarray, str]:
    media, text = source.document(index).segments
    assert isinstance(media, Media)
    assert isinstance(text, Text)
    assert text.train
    assert isinstance(media.source, np.ndarray)
    return media.source, text.text


def test_samples_depend_on_seed_split_and_number_alone() -> None:
    source = MovingShapesSource("train", size=10)
    again = pickle.loads(pickle.dumps(MovingShapesSource("train", size=99)))
    np.testing.assert_array_equal(media_and_text(source, 7)[0], media_and_text(again, 7)[0])
    for other in (MovingShapesSource("held_out", size=10), MovingShapesSource("train", size=10, seed=1)):
        first, second = media_and_text(source, 7)[0], media_and_text(other, 7)[0]
        assert first.shape != second.shape or (first != second).any()


def test_every_description_occurs_and_films_are_short() -> None:
    source = MovingShapesSource("train")
    seen = set()
    for index in range(120):
        film, text = media_and_text(source, index)
        assert film.dtype == np.uint8
        assert film.shape[1:] == (48, 48, 3)
        assert 8 <= len(film) <= 16
        colour, shape, motion = text.removeprefix("a ").split(" ", 2)
        seen |= {colour, shape, motion}
    assert seen == {*COLOURS, *SHAPES, *MOTIONS}


def test_shapes_move_as_described() -> None:
    source = MovingShapesSource("held_out")
    for index in range(60):
        film, text = media_and_text(source, index)
        area, row, column = zip(*(_blob(frame) for frame in (film[0], film[-1])), strict=True)
        dy, dx = row[1] - row[0], column[1] - column[0]
        growth = area[1] / area[0]
        motion = text.split(" ", 3)[3]
        expected = {
            "moving left": dx < -8,
            "moving right": dx > 8,
            "moving up": dy < -8,
            "moving down": dy > 8,
            "growing": growth > 1.3,
            "shrinking": growth < 0.8,
            "standing still": abs(dx) < 2 and abs(dy) < 2,
        }
        assert expected[motion], (index, text, dx, dy, growth)


def _blob(frame: np.ndarray) -> tuple[float, float, float]:
    """Area, row and column of what differs from the ground."""
    ground = np.median(frame.reshape(-1, 3), axis=0)
    rows, columns = np.nonzero(np.abs(frame.astype(float) - ground).max(-1) > 60)
    return float(len(rows)), float(rows.mean()), float(columns.mean())


def test_rows_and_splits_that_do_not_exist_are_refused() -> None:
    with pytest.raises(SampleError, match="row 5 of 5"):
        MovingShapesSource("train", size=5).document(5)
    with pytest.raises(DataError, match="split 'test'"):
        MovingShapesSource("test")  # type: ignore[arg-type]


def test_the_plugin_names_what_exists() -> None:
    modality = next(iter(kosmos_modalities()))
    assert modality.encoder == next(iter(kosmos_encoders())).name
    assert modality.sample_set == next(iter(kosmos_datasets())).name
    encoder = PytorchVideoEncoder(**modality.encoder_options)
    media = next(MovingShapesSource("train").document(0).media)
    processor = VideoProcessor(encoder.input)
    plan = processor.plan(media)
    values = torch.from_numpy(processor.decode(media, plan))
    assert encoder(values, torch.tensor(plan.grids)).shape == (plan.cells, encoder.width)
