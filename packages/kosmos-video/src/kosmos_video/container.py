"""Encoded films: opened within limits, and what their headers say (PyAV).

Only file objects reach PyAV, never strings from data, and only demuxers of single files are allowed: a playlist that
names other files or URLs is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import av

from kosmos import SampleError

FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,mpegts,flv,gif,ogg,asf"
"""Demuxers that read one file and nothing else."""


GUESSED = "mpeg"
"""Of MPEG program streams FFmpeg guesses the duration, by the last timestamp of any track that it comes across, and may
be a second short of the film's."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a film may cost before it is refused."""

    max_bytes: int
    max_pixels: int
    max_source_frames: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a film says about itself, or what its packets say where the header is silent."""

    duration_s: float
    """From the first frame's timestamp to the end of the last."""
    num_frames: int | None
    width_px: int
    height_px: int


def read_header(source: bytes | Path, limits: Limits) -> Header:
    """Duration and size without decoding.

    Raises:
        SampleError: no film in it, unreadable, or over a limit.
    """
    with opened(source, limits) as container:
        stream = video_stream(container, limits)
        stated = stated_header(container, stream, limits)
        return stated or _checked(*_count_packets(container, stream, limits), stream, limits)


def stated_header(container: Any, stream: Any, limits: Limits) -> Header | None:
    """What the header of an opened film says, without a look at its packets; None where it has no duration.

    Raises:
        SampleError: over a limit, or a duration that none has.
    """
    duration_s, num_frames = _declared(container, stream)
    return None if duration_s is None else _checked(duration_s, num_frames, stream, limits)


def _checked(duration_s: float, num_frames: int | None, stream: Any, limits: Limits) -> Header:
    if num_frames is not None and num_frames > limits.max_source_frames:
        raise SampleError(f"video declares {num_frames} frames, over max_source_frames {limits.max_source_frames}")
    if duration_s <= 0:
        raise SampleError(f"video declares a duration of {duration_s:g} s")
    return Header(duration_s, num_frames, stream.width, stream.height)


@contextmanager
def opened(source: bytes | Path, limits: Limits) -> Iterator[Any]:
    """The container, closed afterwards. Whatever PyAV raises inside becomes a SampleError."""
    try:
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        if size > limits.max_bytes:
            raise SampleError(f"video has {size} bytes, over max_bytes {limits.max_bytes}")
        if size == 0:
            raise SampleError("video file is empty (0 bytes)")
        with _file(source) as file, _container(file) as container:
            yield container
    except SampleError:
        raise
    except Exception as error:  # the seam to the decoder: FFmpeg's errors, but also ValueError and MemoryError
        # FFmpeg's errors name the file, but the document's origin does that already.
        cause = getattr(error, "strerror", None) or error
        raise SampleError(f"video cannot be decoded: {type(error).__name__}: {cause}") from error


def _file(source: bytes | Path) -> BinaryIO:
    return BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def _container(file: BinaryIO) -> Any:
    options = {"format_whitelist": FORMATS, "protocol_whitelist": "none"}
    try:
        return av.open(file, options=options, metadata_errors="replace")
    except av.ArgumentError as error:  # what FFmpeg says of a demuxer that is not among them, and of some damage
        raise SampleError(
            "video cannot be decoded: not a film of a kind that is read (MP4, Matroska, WebM, AVI, MPEG, FLV, GIF, "
            "Ogg, ASF), or damaged; sound and single pictures are of other modalities (write a film that is given as "
            "files of its frames as several images)"
        ) from error


def video_stream(container: Any, limits: Limits) -> Any:
    """The first stream of moving pictures; cover art of a sound file is none."""
    films = [stream for stream in container.streams.video if not _is_cover(stream)]
    if not films:
        kinds = ", ".join(map(_kind, container.streams)) or "no streams"
        raise SampleError(f"file holds no video, only: {kinds}")
    stream = films[0]
    if stream.codec_context is None:
        raise SampleError("FFmpeg has no decoder for the video track; store it as another codec")
    check_pixels(stream.width, stream.height, limits)
    return stream


def _is_cover(stream: Any) -> bool:
    return bool(stream.disposition & av.stream.Disposition.attached_pic)


def _kind(stream: Any) -> str:
    return "cover art (an attached picture)" if _is_cover(stream) else str(stream.type)


def check_pixels(width: int, height: int, limits: Limits) -> None:
    if not 0 < width * height <= limits.max_pixels:
        raise SampleError(f"video frame is {width}x{height} pixels; need 1 to max_pixels {limits.max_pixels}")


def _declared(container: Any, stream: Any) -> tuple[float | None, int | None]:
    """Duration from the first frame on and frame count, as far as the header has them."""
    num_frames = stream.frames or None
    if container.format.name == GUESSED:
        return None, num_frames
    if stream.duration:
        return float(stream.duration * stream.time_base), num_frames
    start_s = float((stream.start_time or 0) * stream.time_base)
    tag = stream.metadata.get("DURATION")  # Matroska: the end of this track, hours:minutes:seconds
    if tag is not None:
        try:
            hours, minutes, seconds = tag.strip().split(":")
            return int(hours) * 3600 + int(minutes) * 60 + float(seconds) - start_s, num_frames
        except ValueError as error:
            raise SampleError(f"video has the unreadable duration {tag!r}") from error
    # The container's duration is that of its longest track, so it only counts where there is one.
    if container.duration and len(container.streams) == 1:
        return container.duration / av.time_base - start_s, num_frames
    return None, num_frames


def _count_packets(container: Any, stream: Any, limits: Limits) -> tuple[float, int]:
    """Duration and frame count by reading through the file without decoding it."""
    first: int | None = None
    last, count = 0, 0
    for packet in container.demux(stream):
        if packet.size == 0 or packet.pts is None:
            continue
        count += 1
        if count > limits.max_source_frames:
            raise SampleError(f"video has more than max_source_frames {limits.max_source_frames} frames")
        first = packet.pts if first is None else min(first, packet.pts)
        last = max(last, packet.pts + (packet.duration or 0))
    if first is None:
        raise SampleError("video has no duration in its header and no packets with timestamps")
    return float((last - first) * stream.time_base), count
