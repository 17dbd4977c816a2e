"""Frames of encoded films at chosen times (PyAV).

Frames are picked by their timestamps. Where the next one that is wanted lies behind a keyframe, decoding goes on there,
in containers whose index says where keyframes are; whatever is odd behind such a jump makes it decode from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
from av.sidedata.sidedata import Type as SideDataType
from numpy.typing import NDArray

from kosmos import SampleError
from kosmos_video.container import Header, Limits, check_pixels, opened, read_header, stated_header, video_stream
from kosmos_video.fitting import Fit, scaled

TimesOf = Callable[[Header], Sequence[float]]
"""Which times of a film to show, in seconds, by its header."""

INDEXED = frozenset({"mov", "mp4", "matroska", "webm"})
"""Containers that list their keyframes. Of MPEG program streams the index lists packets, and calls all keyframes."""
FEWEST_SKIPPED = 16
"""Frames that a jump has to save: it empties the decoder, which then has to fill again."""


def frames_at(
    source: bytes | Path, times_s: Sequence[float], fit: Fit, declared: Header, limits: Limits
) -> NDArray[np.uint8]:
    """The frame on show at each time, as a player would show it: turned upright, resized.

    A time belongs to the latest frame whose timestamp is not after it. Time 0 is the first frame.

    Args:
        times_s: in any order, with repeats.
        fit: size of the result, and how frames are brought to it. Where they keep their shape, it is that in which they
            are shown: with the shape of their pixels (the sample aspect ratio).
        declared: from ``read_header``; names in errors what was promised.

    Returns:
        uint8 [len(times_s), H, W, 3].

    Raises:
        SampleError: the film ends before a time, a frame that is needed is damaged, or a limit is passed.
    """
    return _frames_at(source, lambda header: times_s, fit, declared, limits)


def frames_of(source: bytes | Path, times_of: TimesOf, fit: Fit, limits: Limits) -> NDArray[np.uint8]:
    """As ``frames_at``, of a film whose header nobody has read: it is opened once.

    Args:
        times_of: the times to show, of a film with this header; it may raise SampleError.
    """
    return _frames_at(source, times_of, fit, None, limits)


def _frames_at(
    source: bytes | Path, times_of: TimesOf, fit: Fit, declared: Header | None, limits: Limits
) -> NDArray[np.uint8]:
    try:
        return _shown(source, times_of, fit, declared, limits, jumps=True)
    except _AstrayError:
        return _shown(source, times_of, fit, declared, limits, jumps=False)


def keyframe_before(source: bytes | Path, time_s: float, limits: Limits) -> float:
    """Seconds from the first frame to the keyframe at which decoding for a time begins.

    0 where the film lists no keyframes: then it begins with the film.

    Raises:
        SampleError: no film in it, unreadable, or over a limit.
    """
    with opened(source, limits) as container:
        stream = video_stream(container, limits)
        formats = container.format.name.split(",")
        if "matroska" in formats:
            container.seek(0)  # its index is read as something is sought
        index = stream.index_entries
        if INDEXED.isdisjoint(formats) or not len(index):
            return 0.0
        begin, base = index[0].timestamp, stream.time_base
        number = index.search_timestamp(begin + floor(Fraction(time_s) / base))
        return float((index[number].timestamp - begin) * base) if number >= 0 else 0.0


class _AstrayError(SampleError):
    """Something was odd behind a jump: what it is, decoding from the start will tell."""


def _shown(
    source: bytes | Path,
    times_of: TimesOf,
    fit: Fit,
    declared: Header | None,
    limits: Limits,
    *,
    jumps: bool,
) -> NDArray[np.uint8]:
    """The frames, as of ``frames_at``. Raises _AstrayError only where it ``jumps``."""
    frames: _Frames | None = None
    try:
        with opened(source, limits) as container:
            stream = video_stream(container, limits)
            # Where packets have to be counted, the file is read to its end, and is opened anew behind it.
            declared = declared or stated_header(container, stream, limits) or read_header(source, limits)
            times_s = times_of(declared)
            wanted = sorted(set(times_s))
            stream.thread_type = "NONE"  # data workers are processes already; frame threads also crash on broken files
            stream.codec_context.options = {"max_pixels": str(limits.max_pixels)}
            frames = _Frames(container, stream, limits, wanted if jumps else ())
            picture = partial(_upright, fit=fit, pixel_aspect=float(stream.sample_aspect_ratio or 1))
            found = dict(zip(wanted, _pick(frames, wanted, picture, declared), strict=True))
            return np.stack([found[time] for time in times_s])
    except SampleError as error:
        if frames is not None and frames.jumped:
            raise _AstrayError(str(error)) from error
        raise


Shown = tuple[float, float, Any]
"""Seconds since the first frame, seconds on show, and the frame."""
PictureOf = Callable[[Any, float], NDArray[np.uint8]]
"""What a frame at a time looks like, in the size that is wanted."""


class _Frames:
    """The frames of a film in the order of showing, from the first on, and from keyframes that it jumps to."""

    def __init__(self, container: Any, stream: Any, limits: Limits, wanted: Sequence[float]) -> None:
        """
        Args:
            wanted: ascending times that will be jumped to, where it can be done.
        """
        self.container, self.stream, self.limits = container, stream, limits
        self.period_s = 1 / float(stream.average_rate) if stream.average_rate else 0.0
        self.count = 0
        """Frames that were decoded."""
        self.jumped = False
        formats = container.format.name.split(",")
        apart_s = max((after - before for before, after in pairwise([0.0, *wanted])), default=0.0)
        self._jumps = not INDEXED.isdisjoint(formats) and apart_s > FEWEST_SKIPPED * self.period_s > 0
        self._frames = container.decode(stream)
        self._first: Fraction | None = None
        self._last: Fraction | None = None
        """Time of the frame that came last; None behind a jump."""
        self._latest_landing: Fraction | None = None
        if self._jumps and "matroska" in formats:
            self._read_index()

    def _read_index(self) -> None:
        """Of Matroska, which does so as something is sought."""
        self.jumped = True
        self.container.seek(0)
        self._frames = self.container.decode(self.stream)

    def __iter__(self) -> Iterator[Shown]:
        return self

    def __next__(self) -> Shown:
        frame = next(self._frames)
        if self.count >= self.limits.max_source_frames:
            raise SampleError(f"video has more than max_source_frames {self.limits.max_source_frames} frames")
        if frame.pts is None:
            raise SampleError(f"frame {self.count} of the video has no timestamp")
        time = frame.pts * (frame.time_base or self.stream.time_base)
        if self._last is not None and time < self._last:
            raise SampleError(
                f"timestamps of the video run backwards at frame {self.count}: {float(time):g} s after "
                f"{float(self._last):g} s"
            )
        if self._latest_landing is not None and (time > self._latest_landing or not frame.key_frame):
            raise SampleError(f"a jump to a keyframe landed at {float(time):g} s")
        check_pixels(frame.width, frame.height, self.limits)
        self.count += 1
        self._first = time if self._first is None else self._first
        self._last, self._latest_landing = time, None
        shown_s = max(float((frame.duration or 0) * self.stream.time_base), self.period_s)
        return float(time - self._first), shown_s, frame

    def jump(self, to_s: float) -> bool:
        """Go on at the last keyframe that is shown at ``to_s`` or before; False where that saves too little."""
        if not self._jumps:
            return False
        assert self._first is not None and self._last is not None, "a jump follows a frame"
        base, index = self.stream.time_base, self.stream.index_entries
        target = self._first + Fraction(to_s)
        if not len(index) or target - self._last < FEWEST_SKIPPED * self.period_s:
            return False
        # An index may say when frames are decoded, which is so much before they are shown.
        lead = round(self._first / base) - index[0].timestamp
        number = index.search_timestamp(floor(target / base) - lead)
        keyframe = index[number].timestamp + lead if number >= 0 else 0
        if keyframe * base - self._last < FEWEST_SKIPPED * self.period_s:
            return False
        self.jumped = True
        self.container.seek(keyframe, stream=self.stream)
        self._frames = self.container.decode(self.stream)
        self._last, self._latest_landing = None, target
        return True


def _pick(frames: _Frames, wanted: Sequence[float], picture: PictureOf, declared: Header) -> list[NDArray[np.uint8]]:
    """The frame on show at each of the ascending times ``wanted``, decoding no further than needed."""
    picked: list[NDArray[np.uint8]] = []
    current: Shown | None = None
    for at_s, shown_s, frame in frames:
        # Containers round timestamps (Matroska to 1 ms), so a frame may be up to that late for its time.
        forgiven_s = min(1e-3, shown_s / 4)
        before = len(picked)
        picked = _emit(picked, wanted, at_s - forgiven_s, current, picture)
        current = (at_s, shown_s, frame)
        if len(picked) == len(wanted):
            return picked
        if (frames.count == 1 or len(picked) > before) and frames.jump(wanted[len(picked)]):
            current = None
    if current is None:
        raise SampleError(f"video declares {_promise(declared)}, but no frame could be decoded")
    # Headers round durations to whole frames and some count one too many: one frame's time is forgiven.
    end_s = current[0] + 2 * current[1]
    if wanted[-1] > end_s:
        raise SampleError(
            f"video declares {_promise(declared)}, but its frames end at {current[0] + current[1]:.3f} s "
            f"({frames.count} frames); the plan needs {wanted[-1]:.3f} s"
        )
    return _emit(picked, wanted, float("inf"), current, picture)


def _emit(
    picked: list[NDArray[np.uint8]],
    wanted: Sequence[float],
    before_s: float,
    current: Shown | None,
    picture: PictureOf,
) -> list[NDArray[np.uint8]]:
    """``picked`` and one array for each further wanted time before ``before_s``: all of them show ``current``."""
    end = len(picked)
    while end < len(wanted) and wanted[end] < before_s:
        end += 1
    if end == len(picked):
        return picked
    assert current is not None, "times start at the first frame"
    array = picture(current[2], current[0])
    return [*picked, *[array] * (end - len(picked))]


def _promise(declared: Header) -> str:
    frames = f"{declared.num_frames} frames, " if declared.num_frames else ""
    return f"{frames}{declared.duration_s:.3f} s"


def _upright(frame: Any, at_s: float, *, fit: Fit, pixel_aspect: float) -> NDArray[np.uint8]:
    """The frame turned as its display matrix says, as ``fit`` has it."""
    if frame.is_corrupt:
        raise SampleError(f"frame at {at_s:.3f} s is damaged (so says the decoder)")
    matrix = frame.side_data.get(SideDataType.DISPLAYMATRIX)
    if matrix is None:
        return fit.placed(scaled(frame, fit, pixel_aspect))
    # A point (x, y) of the frame is shown at (a x + c y, b x + d y); 16.16 fixed point, ISO/IEC 14496-12 6.2.2.
    a, b, _, c, d = (int(value) for value in np.frombuffer(bytes(matrix), np.int32)[:5])
    if bool(a and d) == bool(b and c) or (a and b) or (c and d):
        raise SampleError(f"display matrix [{a} {b}; {c} {d}] is no quarter turn")
    if a:
        array, flip_rows, flip_columns = scaled(frame, fit, pixel_aspect), d < 0, a < 0
    else:
        on_its_side = replace(fit, size_px=fit.size_px[::-1])
        array, flip_rows, flip_columns = scaled(frame, on_its_side, pixel_aspect).transpose(1, 0, 2), b < 0, c < 0
    return np.ascontiguousarray(fit.placed(array[:: -1 if flip_rows else 1, :: -1 if flip_columns else 1]))
