"""Sound that is changed at random in training."""

from __future__ import annotations

import numpy as np
import pytest

from kosmos import ConfigError, Media
from kosmos_audio.augmentation import LARGEST_SHARE, WIDEST_SHARE, Augmentation
from kosmos_audio.inputs import AudioInput
from kosmos_audio.waveform import AudioProcessor

RAW = AudioInput(features="waveform", samples_per_cell=320, normalization="none")
MEL = AudioInput(num_mels=80, samples_per_cell=640, hop=160)
TONE = np.sin(np.arange(16_000, dtype=np.float32) * 0.3) * 0.1


def taken(encoder_input: AudioInput, seed: int = 0, **options) -> tuple[np.ndarray, np.ndarray]:
    """A sound as it is, and as it is changed."""
    processor = AudioProcessor(encoder_input, **options)
    media = Media("audio", TONE, rate_hz=16_000)
    plan = processor.plan(media)
    cells = processor.decode(media, plan), processor.augmented(media, plan, np.random.default_rng(seed))
    assert cells[0].shape == cells[1].shape and cells[1].dtype == np.float32
    again = processor.augmented(media, plan, np.random.default_rng(seed))
    assert np.array_equal(cells[1], again)
    return cells


def test_the_gain_is_one_for_a_sound_and_within_its_bounds() -> None:
    gains = []
    for seed in range(50):
        plain, changed = taken(RAW, seed, gain_db=6.0)
        loud = np.abs(plain) > 0.01
        gains.append(20 * np.log10(changed[loud] / plain[loud]))
        assert np.ptp(gains[-1]) < 1e-3
    means = [gain.mean() for gain in gains]
    assert -6 <= min(means) < -4 and 4 < max(means) <= 6


def test_noise_lies_so_far_below_the_sound() -> None:
    for seed in range(10):
        plain, changed = taken(RAW, seed, noise_snr_db=(10.0, 20.0))
        snr_db = 10 * np.log10(np.square(plain).mean() / np.square(changed - plain).mean())
        assert 9.5 < snr_db < 20.5


def test_masks_are_stretches_of_time_and_of_bands_at_the_item_s_mean() -> None:
    widths = []
    for seed in range(60):
        plain, changed = (cells.reshape(-1, 80) for cells in taken(MEL, seed, time_masks=1, frequency_masks=1))
        differs = plain != changed
        frames, bands = np.flatnonzero(differs.all(1)), np.flatnonzero(differs.all(0))
        assert np.array_equal(changed[~differs], plain[~differs])
        np.testing.assert_allclose(changed[differs], plain.mean(), atol=1e-5)
        for places in (frames, bands):
            assert len(places) == 0 or np.array_equal(places, np.arange(places[0], places[-1] + 1))
        widths.append((len(frames), len(bands)))
    most = np.max(widths, 0)
    assert LARGEST_SHARE * 50 < most[0] <= LARGEST_SHARE * 100 and 20 < most[1] <= WIDEST_SHARE * 80


def test_without_augmentation_a_sound_is_as_it_is() -> None:
    assert not AudioProcessor(MEL).augments
    assert np.array_equal(*taken(MEL))
    assert AudioProcessor(RAW, gain_db=1.0).augments


def test_silence_takes_no_noise_and_the_shortest_item_no_mask() -> None:
    augmentation = Augmentation(0.0, (0.0, 10.0), 2, 2)
    silence = np.zeros(100, np.float32)
    assert not augmentation.of_samples(silence, np.random.default_rng(0)).any()
    item = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert augmentation.of_mel(item, np.random.default_rng(0)).shape == item.shape


def test_a_gain_that_the_encoder_would_take_back_is_refused() -> None:
    with pytest.raises(ConfigError, match="gain_db: the encoder wants every item in one loudness"):
        AudioProcessor(MEL, gain_db=3.0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"gain_db": -1.0}, "gain_db: expected 0 to 100 decibels, got -1"),
        ({"gain_db": float("nan")}, "gain_db: expected 0 to 100 decibels, got nan"),
        ({"noise_snr_db": (20.0, 10.0)}, r"noise_snr_db: expected two numbers .*, the lower first, got \[20, 10\]"),
        ({"noise_snr_db": (-1e4, 0.0)}, r"noise_snr_db: expected two numbers from -100 to 100 decibels"),
        ({"frequency_masks": -1}, "time_masks, frequency_masks: expected 0 or more"),
        ({"time_masks": 1}, "the encoder takes samples, and masks are of log-mel frames"),
    ],
)
def test_what_is_out_of_range_is_refused(options, says) -> None:
    with pytest.raises(ConfigError, match=says):
        AudioProcessor(RAW, **options)
