"""Encoded films: their headers, and their frames at chosen times (PyAV).

Only file objects reach PyAV, never strings from data, and only demuxers of single files are allowed: a playlist that
names other files or URLs is refused. Frames are decoded from the start and picked by their timestamps, because seeking
lands on different frames in different containers and is slower on long groups of pictures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import av
import numpy as np
from av.sidedata.sidedata import Type as SideDataType
from numpy.typing import NDArray

from kosmos import SampleError

FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,mpegts,flv,gif,ogg,asf"
"""Demuxers that read one file and nothing else."""


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
    with _open(source, limits) as container:
        stream = _video_stream(container, limits)
        duration_s, num_frames = _declared(container, stream)
        if duration_s is None:
            duration_s, num_frames = _count_packets(container, stream, limits)
        if num_frames is not None and num_frames > limits.max_source_frames:
            raise SampleError(f"video declares {num_frames} frames, over max_source_frames {limits.max_source_frames}")
        if duration_s <= 0:
            raise SampleError(f"video declares a duration of {duration_s:g} s")
        return Header(duration_s, num_frames, stream.width, stream.height)


def frames_at(
    source: bytes | Path, times_s: Sequence[float], size_px: tuple[int, int], declared: Header, limits: Limits
) -> NDArray[np.uint8]:
    """The frame on show at each time, as a player would show it: turned upright, resized.

    A time belongs to the latest frame whose timestamp is not after it. Time 0 is the first frame.

    Args:
        times_s: in any order, with repeats.
        size_px: height and width of the result. Frames are stretched to it, so the shape of pixels (the
            sample aspect ratio) makes no difference.
        declared: from ``read_header``; names in errors what was promised.

    Returns:
        uint8 [len(times_s), H, W, 3].

    Raises:
        SampleError: the film ends before a time, a frame that is needed is damaged, or a limit is passed.
    """
    wanted = sorted(set(times_s))
    with _open(source, limits) as container:
        stream = _video_stream(container, limits)
        stream.thread_type = "NONE"  # data workers are processes already; frame threads also crash on broken files
        stream.codec_context.options = {"max_pixels": str(limits.max_pixels)}
        shown = dict(zip(wanted, _pick(_decode(container, stream, limits), wanted, size_px, declared), strict=True))
    return np.stack([shown[time] for time in times_s])


def resize(frame: NDArray[np.uint8], size_px: tuple[int, int]) -> NDArray[np.uint8]:
    """uint8 [H, W, 3] to the size (height, width), with the same filter as encoded films."""
    if frame.shape[:2] == size_px:
        return frame
    return _to_array(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24"), size_px)


@contextmanager
def _open(source: bytes | Path, limits: Limits) -> Iterator[Any]:
    """The container, closed afterwards. Whatever PyAV raises inside becomes a SampleError."""
    try:
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        if size > limits.max_bytes:
            raise SampleError(f"video has {size} bytes, over max_bytes {limits.max_bytes}")
        if size == 0:
            raise SampleError("video file is empty (0 bytes)")
        options = {"format_whitelist": FORMATS, "protocol_whitelist": "none"}
        with _file(source) as file, av.open(file, options=options, metadata_errors="replace") as container:
            yield container
    except SampleError:
        raise
    except Exception as error:  # the seam to the decoder: FFmpeg's errors, but also ValueError and MemoryError
        # FFmpeg's errors name the file, but the document's origin does that already.
        cause = getattr(error, "strerror", None) or error
        raise SampleError(f"video cannot be decoded: {type(error).__name__}: {cause}") from error


def _file(source: bytes | Path) -> BinaryIO:
    return BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def _video_stream(container: Any, limits: Limits) -> Any:
    """The first stream of moving pictures; cover art of a sound file is none."""
    films = [s for s in container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]
    if not films:
        kinds = ", ".join(stream.type for stream in container.streams) or "no streams"
        raise SampleError(f"file holds no video, only: {kinds}")
    stream = films[0]
    _check_pixels(stream.width, stream.height, limits)
    return stream


def _check_pixels(width: int, height: int, limits: Limits) -> None:
    if not 0 < width * height <= limits.max_pixels:
        raise SampleError(f"video frame is {width}x{height} pixels; need 1 to max_pixels {limits.max_pixels}")


def _declared(container: Any, stream: Any) -> tuple[float | None, int | None]:
    """Duration from the first frame on and frame count, as far as the header has them."""
    num_frames = stream.frames or None
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


def _decode(container: Any, stream: Any, limits: Limits) -> Iterator[tuple[float, float, Any]]:
    """(seconds since the first frame, seconds on show, frame) in the order of showing."""
    first: Fraction | None = None
    previous: Fraction | None = None
    period = 1 / float(stream.average_rate) if stream.average_rate else 0.0
    for count, frame in enumerate(container.decode(stream)):
        if count >= limits.max_source_frames:
            raise SampleError(f"video has more than max_source_frames {limits.max_source_frames} frames")
        if frame.pts is None:
            raise SampleError(f"frame {count} of the video has no timestamp")
        time = frame.pts * (frame.time_base or stream.time_base)
        if previous is not None and time < previous:
            raise SampleError(
                f"timestamps of the video run backwards at frame {count}: {float(time):g} s after {float(previous):g} s"
            )
        first, previous = time if first is None else first, time
        _check_pixels(frame.width, frame.height, limits)
        yield float(time - first), max(float((frame.duration or 0) * stream.time_base), period), frame


def _pick(
    frames: Iterator[tuple[float, float, Any]], wanted: Sequence[float], size_px: tuple[int, int], declared: Header
) -> list[NDArray[np.uint8]]:
    """The frame on show at each of the ascending times ``wanted``, decoding no further than needed."""
    picked: list[NDArray[np.uint8]] = []
    current: tuple[float, float, Any] | None = None
    found = 0
    for at_s, shown_s, frame in frames:
        found += 1
        # Containers round timestamps (Matroska to 1 ms), so a frame may be up to that late for its time.
        forgiven_s = min(1e-3, shown_s / 4)
        picked = _emit(picked, wanted, at_s - forgiven_s, current, size_px)
        current = (at_s, shown_s, frame)
        if len(picked) == len(wanted):
            return picked
    if current is None:
        raise SampleError(f"video declares {_promise(declared)}, but no frame could be decoded")
    # Headers round durations to whole frames and some count one too many: one frame's time is forgiven.
    end_s = current[0] + 2 * current[1]
    if wanted[-1] > end_s:
        raise SampleError(
            f"video declares {_promise(declared)}, but its frames end at {current[0] + current[1]:.3f} s "
            f"({found} frames); the plan needs {wanted[-1]:.3f} s"
        )
    return _emit(picked, wanted, float("inf"), current, size_px)


def _emit(
    picked: list[NDArray[np.uint8]],
    wanted: Sequence[float],
    before_s: float,
    current: tuple[float, float, Any] | None,
    size_px: tuple[int, int],
) -> list[NDArray[np.uint8]]:
    """``picked`` and one array for each further wanted time before ``before_s``: all of them show ``current``."""
    end = len(picked)
    while end < len(wanted) and wanted[end] < before_s:
        end += 1
    if end == len(picked):
        return picked
    assert current is not None, "times start at the first frame"
    array = _upright(current[2], current[0], size_px)
    return [*picked, *[array] * (end - len(picked))]


def _promise(declared: Header) -> str:
    frames = f"{declared.num_frames} frames, " if declared.num_frames else ""
    return f"{frames}{declared.duration_s:.3f} s"


def _upright(frame: Any, at_s: float, size_px: tuple[int, int]) -> NDArray[np.uint8]:
    """The frame turned as its display matrix says, at ``size_px``."""
    if frame.is_corrupt:
        raise SampleError(f"frame at {at_s:.3f} s is damaged (so says the decoder)")
    matrix = frame.side_data.get(SideDataType.DISPLAYMATRIX)
    if matrix is None:
        return _to_array(frame, size_px)
    # A point (x, y) of the frame is shown at (a x + c y, b x + d y); 16.16 fixed point, ISO/IEC 14496-12 6.2.2.
    a, b, _, c, d = (int(value) for value in np.frombuffer(bytes(matrix), np.int32)[:5])
    if bool(a and d) == bool(b and c) or (a and b) or (c and d):
        raise SampleError(f"display matrix [{a} {b}; {c} {d}] is no quarter turn")
    if a:
        array, flip_rows, flip_columns = _to_array(frame, size_px), d < 0, a < 0
    else:
        array, flip_rows, flip_columns = _to_array(frame, size_px[::-1]).transpose(1, 0, 2), b < 0, c < 0
    return np.ascontiguousarray(array[:: -1 if flip_rows else 1, :: -1 if flip_columns else 1])


def _to_array(frame: Any, size_px: tuple[int, int]) -> NDArray[np.uint8]:
    scaled = frame.reformat(width=size_px[1], height=size_px[0], format="rgb24", interpolation="BICUBIC", threads=1)
    array: NDArray[np.uint8] = scaled.to_ndarray()
    return array
