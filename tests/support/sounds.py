"""Sounds for tests, and what is made of them."""

from __future__ import annotations

import io
from typing import Any

import av
import numpy as np
import soundfile
from numpy.typing import NDArray

from kosmos.data.document import Media
from kosmos.data.processor import MediaPlan
from kosmos_audio.inputs import AudioInput
from kosmos_audio.waveform import AudioProcessor

WAVEFORM = AudioInput(features="waveform", samples_per_cell=320, normalization="none")


def tone(seconds: float, rate_hz: int, frequency_hz: float = 440.0) -> NDArray[np.float32]:
    time = np.arange(round(seconds * rate_hz)) / rate_hz
    return (0.5 * np.sin(2 * np.pi * frequency_hz * time)).astype(np.float32)


def encoded(samples: NDArray[Any], rate_hz: int, format: str = "WAV", subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format=format, subtype=subtype)
    return file.getvalue()


def opus_of_ffmpeg(samples: NDArray[np.float32]) -> bytes:
    """Mono sound of 48,000 Hz as FFmpeg writes it: libsndfile's own has its samples from the first page on."""
    file = io.BytesIO()
    with av.open(file, "w", format="ogg") as container:
        stream = container.add_stream("libopus", rate=48_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
        frame.sample_rate = 48_000
        container.mux([*stream.encode(frame), *stream.encode(None)])
    return file.getvalue()


def adts(samples: NDArray[np.float32], rate_hz: int) -> bytes:
    """AAC in a stream that states nothing of its length."""
    file = io.BytesIO()
    with av.open(file, "w", format="adts") as container:
        stream = container.add_stream("aac", rate=rate_hz, layout="mono")
        frame = av.AudioFrame.from_ndarray(samples[None], format="fltp", layout="mono")
        frame.sample_rate = rate_hz
        container.mux([*stream.encode(frame), *stream.encode(None)])
    return file.getvalue()


def without_tag(mp3: bytes) -> bytes:
    """An MP3 whose first frame no longer states how long it is."""
    assert mp3.count(b"Info") + mp3.count(b"Xing") == 1
    return mp3.replace(b"Info", bytes(4)).replace(b"Xing", bytes(4))


def produce(processor: AudioProcessor, media: Media) -> tuple[MediaPlan, NDArray[np.float32]]:
    plan = processor.plan(media)
    cells = processor.decode(media, plan)
    assert cells.shape == (plan.cells, *processor.cell_shape)
    assert cells.dtype == processor.cell_dtype == np.float32
    assert np.isfinite(cells).all()
    return plan, cells
