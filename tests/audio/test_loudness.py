"""Floats are sound from -1 to 1 and a little beyond; what is of another scale is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kosmos.data.document import Media
from kosmos.errors import SampleError
from kosmos_audio.extent import LOUDEST
from kosmos_audio.waveform import AudioProcessor
from support.sounds import WAVEFORM, encoded, produce


@settings(max_examples=40, deadline=None)
@given(
    peak=st.floats(2.0**-20, 2.0**31, width=32),
    sign=st.sampled_from([-1, 1]),
    kind=st.sampled_from([np.float32, np.float64]),
    format=st.sampled_from(["array", "FLOAT", "DOUBLE"]),
)
@example(peak=1.5, sign=1, kind=np.float32, format="FLOAT")
@example(peak=8.0, sign=-1, kind=np.float32, format="array")
def test_floats_are_heard_up_to_a_loudness_that_sound_can_have(peak: float, sign: int, kind: Any, format: str) -> None:
    """What overshoots 1 is sound; what was never divided by 32,768 would be features that no encoder knows."""
    sound = np.sin(np.arange(800) / 9) * 0.99 * peak
    sound[77] = sign * peak
    source = sound.astype(kind) if format == "array" else encoded(sound, 16_000, "WAV", format)
    media = Media("audio", source, rate_hz=16_000)
    if peak > LOUDEST:
        with pytest.raises(SampleError, match=r"floats from -1 to 1, got samples that reach .*; divide"):
            produce(AudioProcessor(WAVEFORM), media)
    else:
        _, cells = produce(AudioProcessor(WAVEFORM), media)
        assert np.array_equal(cells.ravel()[:800], sound.astype(np.float32))
