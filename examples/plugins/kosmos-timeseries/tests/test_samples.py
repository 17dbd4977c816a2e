"""The sample set can be learned and can be failed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kosmos import ConfigError, Document, Media, Text
from kosmos_timeseries.samples import AXES, FAULTS, HEALTHY, MachinesSource


def parts(document: Document) -> tuple[np.ndarray, str]:
    media, text = document.segments
    assert isinstance(media, Media) and isinstance(media.source, np.ndarray) and isinstance(text, Text) and text.train
    return media.source, text.text


def test_every_state_is_drawn_and_none_is_most_of_them() -> None:
    source = MachinesSource("train")
    counts = Counter(parts(source.document(index))[1] for index in range(600))
    assert set(counts) == {HEALTHY, *(f"{axis} {fault}" for axis in AXES for fault in FAULTS)}
    assert max(counts.values()) < 0.25 * 600


def test_lengths_channels_and_gaps_vary() -> None:
    windows = [parts(MachinesSource("held_out").document(index))[0] for index in range(60)]
    assert {window.shape[1] for window in windows} == {2, 3}
    assert len({window.shape[0] for window in windows}) > 30
    gapped = [bool(np.isnan(window).any()) for window in windows]
    assert any(gapped) and not all(gapped)
    assert all(np.isnan(window).mean() < 0.5 for window in windows)


def test_the_named_axis_is_one_of_the_window_and_its_values_spread_most() -> None:
    right, faulty = 0, 0
    for index in range(200):
        window, text = parts(MachinesSource("train").document(index))
        if text != HEALTHY:
            axis = AXES.index(text[0])
            assert axis < window.shape[1]
            faulty, right = faulty + 1, right + int(np.nanstd(window, axis=0).argmax() == axis)
    assert right / faulty > 0.9


def test_train_and_held_out_are_different_windows() -> None:
    train, held_out = (parts(MachinesSource(split).document(0))[0] for split in ("train", "held_out"))
    assert train.shape != held_out.shape or not np.array_equal(train, held_out)


def test_a_wrong_split_or_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="split 'test' is unknown"):
        MachinesSource("test")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="size"):
        MachinesSource("train", size=0)
