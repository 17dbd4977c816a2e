"""Which samples of a sound are wanted, and the limits that hold before any is decoded. No torch here."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kosmos import Media, SampleError
from kosmos_audio.lengths import Stated
from kosmos_audio.reading import Sound

Samples = NDArray[np.float32]
CLIP_GRACE_S = 0.5
"""By which a clip may end behind the sound: ends in manifests are rounded. As of films."""
LOUDEST = 8.0
"""Magnitude of a sample beyond which its numbers are of another scale than -1 to 1. Noise of full scale reached 1.9
resampled, 2.9 as MP3 and 3.1 as Vorbis, and mixes of several may reach more; sound of 16 bits that was never divided by
32,768 stays below 8 only where it is silent (-72 dB)."""
MOST_COUNTS = 1 << 16
"""Lengths of files that are kept, about 200 bytes each."""


class Extent(NamedTuple):
    """Frames ``start`` to ``stop`` of the source, at its rate."""

    start: int
    stop: int
    rate_hz: int


class Limits:
    """Of a sound, and what was counted of files.

    Args:
        max_duration_s: longest sound (after ``Media.clip``) that is accepted at all, in seconds.
        max_samples: most samples of it, at its own rate, that are decoded.
        option: what a run file calls the former.
    """

    def __init__(self, max_duration_s: float, max_samples: int, option: str) -> None:
        self.max_duration_s, self.max_samples, self.option = max_duration_s, max_samples, option
        self._counts: dict[tuple[str, int, int], int] = {}
        """Frames of files that had to be decoded to count them, by path, time of the last change and size. Plans
        are kept for a file and its clip; this is for many clips of one file."""

    def extent(self, sound: Sound | Stated, media: Media) -> Extent:
        """The frames that are wanted, all of which are there."""
        clip = media.clip
        start, stop = _clip_frames(clip, sound.rate_hz, sound.late_s)
        limit = start + int(self.max_duration_s * sound.rate_hz)
        needed = limit + 1 if stop is None else min(stop, limit + 1)
        there = sound.declared
        if there is None:
            assert not isinstance(sound, Stated)
            there = self._counted(sound, needed, media.source)
        if clip is not None and (sound.declared is not None or there < needed):
            _check_inside(clip, max(there / sound.rate_hz + sound.late_s, sound.film_s))
        stop = there if stop is None else min(stop, there)
        if stop > limit:
            counted = sound.declared is None and stop > limit  # no further than that
            lasts = f"longer than {self.max_duration_s:g}" if counted else f"{(stop - start) / sound.rate_hz:,.1f}"
            limit_of = f"{self.option.rpartition('.')[2]} {self.max_duration_s:g}"
            raise SampleError(
                f"audio is {lasts} s, over {limit_of}; cut it by a clip in its row, or raise {self.option}"
            )
        if stop <= start:
            where = "" if clip is None else f" in the clip {clip[0]:g}-{clip[1]:g} s"
            raise SampleError(f"audio holds no samples{where}")
        if stop - start > self.max_samples:
            raise SampleError(
                f"audio has {stop - start} samples at {sound.rate_hz} Hz, the limit is {self.max_samples} (max_samples)"
            )
        return Extent(start, stop, sound.rate_hz)

    def _counted(self, sound: Sound, needed: int, source: Any) -> int:
        """As ``_count``; the whole length of a file is kept for the next epoch."""
        if not isinstance(source, Path):
            return _count(sound, needed)
        state = source.stat()
        key = str(source), state.st_mtime_ns, state.st_size
        if key not in self._counts:
            frames = _count(sound, needed)
            if frames >= needed:  # there may be more
                return frames
            if len(self._counts) >= MOST_COUNTS:
                self._counts.clear()
            self._counts[key] = frames
        return self._counts[key]


def _clip_frames(clip: tuple[float, float] | None, rate_hz: int, late_s: float) -> tuple[int, int | None]:
    """Of the sound, which begins ``late_s`` behind the film that the times of the clip are of."""
    if clip is None:
        return 0, None
    if not (isfinite(clip[0]) and isfinite(clip[1]) and 0 <= clip[0] < clip[1]):
        raise SampleError(f"audio clip: expected 0 <= start < end in seconds, got {clip}")
    start, stop = (max(0, round((time_s - late_s) * rate_hz)) for time_s in clip)
    return start, stop


def _check_inside(clip: tuple[float, float], lasts_s: float) -> None:
    """Raises SampleError where a clip is not of a sound, or of the film of one, that lasts so long."""
    if clip[0] >= lasts_s > 0 or clip[1] > lasts_s + CLIP_GRACE_S:
        raise SampleError(f"clip {clip[0]:g}-{clip[1]:g} s does not lie in the audio's 0-{lasts_s:.3f} s")


def _count(sound: Sound, needed: int) -> int:
    """Frames that decoding really gives; stops once ``needed`` are there."""
    frames = 0
    for first, block in sound.blocks(0):
        frames = first + len(block)
        if frames >= needed:
            break
    return frames


def read_samples(sound: Sound, recipe: Extent) -> Samples:
    """Exactly the samples of the recipe."""
    if sound.rate_hz != recipe.rate_hz:
        raise SampleError(f"audio changed since it was planned: {recipe.rate_hz} Hz then, {sound.rate_hz} Hz now")
    samples = np.empty(recipe.stop - recipe.start, dtype=np.float32)
    filled = 0
    for first, block in sound.blocks(recipe.start):
        part = block[max(recipe.start - first, 0) : recipe.stop - first]
        samples[filled : filled + len(part)] = part
        filled += len(part)
        if first + len(block) >= recipe.stop:
            break
    if filled != len(samples):
        raise SampleError(f"audio declares {recipe.stop} samples, only {recipe.start + filled} can be decoded")
    if not np.isfinite(samples).all():
        raise SampleError("audio holds samples that are not finite")
    if (peak := max(samples.max(), -samples.min())) > LOUDEST:
        raise SampleError(
            f"audio: expected floats from -1 to 1, got samples that reach {peak:.6g}; divide numbers of 16 bits by "
            "32768, or give them as int16"
        )
    return samples
