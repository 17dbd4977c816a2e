"""At which times a film is looked at. Plain numbers: seconds of the film's own timeline."""

from __future__ import annotations

from math import ceil


def spread(start_s: float, end_s: float, count: int) -> list[float]:
    """The middles of ``count`` equal stretches of [start_s, end_s]."""
    step = (end_s - start_s) / count
    return [start_s + (i + 0.5) * step for i in range(count)]


def count_at_rate(start_s: float, end_s: float, rate_hz: float) -> int:
    """Frames that ``rate_hz`` gives from start_s on, before end_s; at least one."""
    # The 1e-6 forgives the rounding of durations such as 2.9999999: no frame more for it.
    return max(1, ceil((end_s - start_s) * rate_hz - 1e-6))


def at_rate(start_s: float, rate_hz: float, count: int) -> list[float]:
    """``count`` times, the first at start_s."""
    return [start_s + i / rate_hz for i in range(count)]


def clip_starts(start_s: float, end_s: float, clip_s: float, num_clips: int) -> list[float]:
    """Starts of clips of ``clip_s`` seconds, each in the middle of its share of the film, none before start_s."""
    latest = max(start_s, end_s - clip_s)
    return [min(max(middle - clip_s / 2, start_s), latest) for middle in spread(start_s, end_s, num_clips)]


def clip_times(first_s: float, end_s: float, frames: int, rate_hz: float) -> list[float]:
    """Times of one clip. Past the film's end they stay on it: the last frame is held."""
    return [min(time, end_s) for time in at_rate(first_s, rate_hz, frames)]
