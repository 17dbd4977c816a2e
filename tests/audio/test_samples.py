"""The sample set is deterministic, varied and can be told apart."""

from __future__ import annotations

import pickle
import re
from collections import Counter

import numpy as np
import pytest

from kosmos.data.document import Media, Text
from kosmos.errors import ConfigError
from kosmos_audio.inputs import AudioInput
from kosmos_audio.samples import DESCRIPTIONS, TonesSource
from kosmos_audio.waveform import AudioProcessor


def sound_of(source: TonesSource, index: int) -> tuple[Media, str]:
    media, text = source.document(index).segments
    assert isinstance(media, Media)
    assert isinstance(text, Text)
    assert text.train
    return media, text.text


def test_a_document_depends_on_seed_split_and_index_alone() -> None:
    source = TonesSource("train", size=50)
    same = pickle.loads(pickle.dumps(TonesSource("train", size=9)))
    for index in range(5):
        (one, text), (two, again) = sound_of(source, index), sound_of(same, index)
        assert text == again
        assert np.array_equal(one.source, two.source)  # type: ignore[arg-type]
    assert source.document(3).origin == "tones train 3"


def test_splits_and_seeds_share_no_sound() -> None:
    sources = [TonesSource("train"), TonesSource("held_out"), TonesSource("train", seed=1)]
    sounds = {sound_of(source, index)[0].source.tobytes() for source in sources for index in range(100)}  # type: ignore[union-attr]
    assert len(sounds) == 300


def test_sounds_are_short_bounded_and_of_both_rates() -> None:
    source = TonesSource("held_out")
    rates = Counter()  # type: ignore[var-annotated]
    for index in range(200):
        media, text = sound_of(source, index)
        assert isinstance(media.source, np.ndarray)
        assert media.rate_hz is not None
        assert 0.39 <= len(media.source) / media.rate_hz <= 1.3
        assert np.abs(media.source).max() <= 1
        assert media.source.dtype == np.float32
        assert re.fullmatch(r"[a-z ]+", text)
        rates[media.rate_hz] += 1
    assert set(rates) == {8000.0, 16_000.0}


def test_every_description_occurs_about_as_often() -> None:
    source = TonesSource("train")
    counts = Counter(sound_of(source, index)[1] for index in range(330))
    assert set(counts) == set(DESCRIPTIONS)
    assert min(counts.values()) > 15  # 30 expected


def test_numbers_of_beats_are_heard_in_the_loudness() -> None:
    source = TonesSource("train")
    beats = {"two": 2, "three": 3, "four": 4}
    heard = 0
    checked = 0
    for index in range(300):
        media, text = sound_of(source, index)
        if not text.endswith("beats"):
            continue
        assert isinstance(media.source, np.ndarray)
        size = int((media.rate_hz or 0) * 0.01)
        loudness = np.abs(media.source[: len(media.source) // size * size]).reshape(-1, size).mean(1)
        loud = np.concatenate(([False], loudness > loudness.max() * 0.4))
        heard += int((loud[1:] & ~loud[:-1]).sum() == beats[text.split()[0]])
        checked += 1
    assert heard / checked > 0.9


def test_every_sound_is_planned_and_produced() -> None:
    processor, source = AudioProcessor(AudioInput()), TonesSource("held_out")
    for index in range(30):
        media, _ = sound_of(source, index)
        plan = processor.plan(media)
        assert processor.decode(media, plan).shape == (plan.cells, 4, 80)


def test_wrong_options_are_config_errors() -> None:
    with pytest.raises(ConfigError, match="split"):
        TonesSource("test")
    with pytest.raises(ConfigError, match="size"):
        TonesSource("train", size=0)
    with pytest.raises(IndexError):
        TonesSource("train", size=3).document(3)
    assert len(TonesSource("train")) == 16_384
