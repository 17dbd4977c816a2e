"""Films that are changed at random in training."""

from __future__ import annotations

import numpy as np
import pytest

from kosmos import ConfigError, Media
from kosmos_video.frames import VideoProcessor
from support.films import CLIP


def test_a_film_is_mirrored_in_training_with_all_its_frames_or_not_at_all() -> None:
    film = np.random.default_rng(0).integers(0, 256, (8, 48, 32, 3), np.uint8)
    media, mirrored = (Media("video", frames, rate_hz=8.0) for frames in (film, film[:, :, ::-1].copy()))
    processor = VideoProcessor(CLIP, flip=0.5)
    plan = processor.plan(media)
    assert processor.augments and not VideoProcessor(CLIP).augments
    as_it_is, turned = processor.decode(media, plan), processor.decode(mirrored, plan)
    found = [processor.augmented(media, plan, np.random.default_rng(seed)) for seed in range(40)]
    flips = [np.array_equal(cells, turned) for cells in found]
    assert all(flip or np.array_equal(cells, as_it_is) for flip, cells in zip(flips, found, strict=True))
    assert 10 <= sum(flips) <= 30
    with pytest.raises(ConfigError, match=r"flip: expected a probability from 0 to 1, got 2"):
        VideoProcessor(CLIP, flip=2.0)
