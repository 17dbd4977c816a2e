"""Films for tests, and what is shown of them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import numpy as np

from kosmos import Media
from kosmos_video.frames import ClipInput, VideoProcessor

HALF = (0.5, 0.5, 0.5)
CLIP = ClipInput(frames=8, cell_frames=4, patch_px=(16, 16), size_px=(48, 32), mean=HALF, std=HALF)


@dataclass(frozen=True)
class Picture:
    """Stands where a picture encoder's input stands."""

    patch_px: tuple[int, int] = (8, 8)
    size_px: tuple[int, int] | None = (16, 24)
    mean: tuple[float, ...] = HALF
    std: tuple[float, ...] = HALF


def numbered(num_frames: int, height: int = 16, width: int = 24) -> np.ndarray:
    """A film whose frame i is all of the value i."""
    film = np.arange(num_frames, dtype=np.uint8)[:, None, None, None]
    return np.broadcast_to(film, (num_frames, height, width, 3)).copy()


def shown(processor: VideoProcessor, media: Media) -> list[int]:
    """Numbers of the frames of a numbered film that the cells show."""
    cells = processor.decode(media, processor.plan(media))
    if processor.clip is not None:
        clips = cells.reshape(-1, *CLIP.grid, *cells.shape[1:])[:, :, 0, 0, 0]  # [clips, t, cell_frames, ph, pw]
        return [round(float(frame.mean())) for clip in clips for cell in clip for frame in cell]
    return [round(float(item.mean())) for item in cells.reshape(-1, 6, *cells.shape[1:])]


def encoded(frames: list[np.ndarray], times_ms: list[int], *, form: str = "matroska") -> bytes:
    """A lossless film with the given timestamps."""
    out = io.BytesIO()
    with av.open(out, "w", format=form) as container:
        stream = container.add_stream("ffv1", rate=30, options={})
        stream.height, stream.width, stream.pix_fmt = *frames[0].shape[:2], "bgr0"
        stream.codec_context.time_base = av_fraction(1, 1000)
        for array, at in zip(frames, times_ms, strict=True):
            frame = av.VideoFrame.from_ndarray(array, format="rgb24").reformat(format="bgr0")
            frame.pts, frame.time_base = at, av_fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()


def av_fraction(numerator: int, denominator: int) -> Any:

    return Fraction(numerator, denominator)
