"""Plan and decode films: as clips for a clip encoder, or as single frames for a picture encoder.

No torch here: this runs in data workers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError, Grid, Media, MediaPlan, PlanMismatch, SampleError, cut_blocks
from kosmos_video.container import Header, Limits, check_pixels, read_header
from kosmos_video.decoding import frames_at, frames_of, keyframe_before
from kosmos_video.fitting import Fit, Resize, fit_array
from kosmos_video.sampling import at_rate, clip_starts, clip_times, count_at_rate, spread

DEFAULT_SIDE_PX = 224
"""Side of the frames for a picture encoder that takes any size, rounded to whole patches."""


@dataclass(frozen=True, slots=True)
class ClipInput:
    """What a clip encoder wants: clips of ``frames`` frames, cut into cells that each become one feature."""

    frames: int
    """Frames of a clip."""
    cell_frames: int
    """Frames of a cell."""
    patch_px: tuple[int, int]
    """Height and width of a cell."""
    size_px: tuple[int, int]
    """Height and width of a frame."""
    mean: tuple[float, ...]
    """Of each channel, of values in [0, 1]; the encoder subtracts it."""
    std: tuple[float, ...]
    """Of each channel, of values in [0, 1]; the encoder divides by it."""

    def __post_init__(self) -> None:
        sizes = zip((self.frames, *self.size_px), (self.cell_frames, *self.patch_px), strict=True)
        assert all(block > 0 and whole % block == 0 for whole, block in sizes), self

    @property
    def grid(self) -> Grid:
        """Cells of a clip."""
        return Grid(
            self.frames // self.cell_frames,
            self.size_px[0] // self.patch_px[0],
            self.size_px[1] // self.patch_px[1],
        )


@dataclass(frozen=True, slots=True)
class Recipe:
    """Which frames the plan looks at, and what the film's header declared."""

    times_s: tuple[float, ...]
    """Of every frame, clip after clip, on the film's own timeline."""
    declared: Header


OPTIONS = "modalities.video.processor"
"""Where a run file has the options of the processor, for messages."""

Item = tuple[float, list[float]]
"""Time mark, and times of the frames."""
TooLong = Literal["refuse", "spread"]


class VideoProcessor:
    """Films to cells: planned from the header, decoded by timestamps.

    With a ``ClipInput`` each clip is one item, Grid(t, h, w). With the input of a picture encoder (anything with
    ``patch_px`` and ``size_px``) each frame is one item, Grid(1, h, w). Every item is preceded by its time as plain
    text, such as "1.5s", counted from the start of the film or of ``Media.clip``.

    Sampling. ``frame_rate_hz`` takes frames at that rate; without it the frames spread evenly over the film (middles of
    equal stretches), as they do with ``too_long="spread"`` where the rate gives more than ``max_frames``. A film with
    fewer frames than asked shows frames more than once, and a clip longer than its film holds the last frame: every
    item has its full shape. Frames are stretched to the encoder's size, whatever the shape of picture and pixels, where
    ``resize`` says nothing else.

    Where all films take the same tokens (one clip without ``frame_rate_hz``, or a number of items that is set without
    time marks), planning opens no file: each is opened once, as it is decoded, which is where faults of it are found.

    ``Media.source`` is an encoded film (bytes or path) or uint8 [T, H, W, 3] with ``Media.rate_hz``.

    Args:
        encoder_input: ``ClipInput``, or a picture encoder's input.
        num_clips: clips a film, each from the middle of its share (clip encoders only; None: one).
        num_frames: frames a film (picture encoders only; None: as many as ``frame_rate_hz``, by default 1 Hz, gives).
        frame_rate_hz: frames a second of film.
        size_px: height and width of frames, for a picture encoder that takes any size (None: about 224 a side).
        resize: how frames are brought to that size, or to the one that the encoder takes: ``squash`` changes their
            shape, ``crop`` cuts what stands out around the centre, ``pad`` adds margins of the encoder's mean colour.
        time_marks: whether items are preceded by their times.
        max_frames: frames that are sampled of a film, at most.
        too_long: what becomes of a film that needs more than ``max_frames`` at ``frame_rate_hz`` (picture encoders
            only): ``refuse`` makes it a bad sample, ``spread`` takes ``max_frames`` evenly spread over it. None is cut.
        max_source_frames: frames that a film may hold, at most.
        max_bytes: size of the encoded film, at most.
        max_pixels: pixels of a source frame, at most.
        max_duration_s: seconds of film to the last sampled frame, at most: from the keyframe before the first one, at
            which decoding begins, or from the start of a film that does not list its keyframes.
        flip: in training, the probability that a film is mirrored, left to right: all its frames alike.

    Raises:
        ConfigError: options that do not fit the encoder.
    """

    def __init__(
        self,
        encoder_input: Any,
        *,
        num_clips: int | None = None,
        num_frames: int | None = None,
        frame_rate_hz: float | None = None,
        size_px: tuple[int, int] | None = None,
        resize: Resize = "squash",
        time_marks: bool = True,
        max_frames: int = 256,
        too_long: TooLong = "refuse",
        max_source_frames: int = 100_000,
        max_bytes: int = 512 * 2**20,
        max_pixels: int = 4096 * 2304,
        max_duration_s: float = 600.0,
        flip: float = 0.0,
    ) -> None:
        self.clip = encoder_input if isinstance(encoder_input, ClipInput) else None
        self.num_clips, self.num_frames, self.frame_rate_hz = num_clips, num_frames, frame_rate_hz
        self.time_marks, self.max_frames, self.max_duration_s = time_marks, max_frames, max_duration_s
        self.too_long = too_long
        self.limits = Limits(max_bytes, max_pixels, max_source_frames)
        self.flip, self.augments = flip, flip > 0
        self._check_options()
        if self.clip is not None:
            if size_px not in (None, self.clip.size_px):
                raise ConfigError(
                    f"size_px: {size_px} does not fit the clip encoder's {self.clip.size_px}; leave it out"
                )
            self.size_px, patch, self._cell_frames = self.clip.size_px, self.clip.patch_px, self.clip.cell_frames
            self.cell_shape: tuple[int, ...] = (3, self._cell_frames, *patch)
            self._grid = self.clip.grid
        else:
            patch = _patch_of(encoder_input)
            self.size_px, self._cell_frames = _frame_size(encoder_input, patch, size_px), 1
            self.cell_shape = (3, *patch)
            self._grid = Grid(1, self.size_px[0] // patch[0], self.size_px[1] // patch[1])
        self._patch_px = patch
        self.fit = Fit(self.size_px, resize, _margin(encoder_input) if resize == "pad" else (0, 0, 0))
        self.cell_dtype = np.dtype(np.uint8)
        self.reads_headers = not self._same_for_all()
        self._one_plan = None if self.reads_headers else self._plan_of(self._items(0.0, 1.0), 0.0, None)

    def plan(self, media: Media) -> MediaPlan:
        """Reads the header (or, where it lacks the duration, the packets), decodes nothing.

        Raises:
            SampleError: no video in it, unreadable, over a limit, or ``Media.clip`` outside of it; where all films have
                one plan, ``decode`` finds that.
        """
        if self._one_plan is not None:
            return self._one_plan
        declared = self._header(media)
        start_s, end_s = _span(media, declared)
        items = self._items(start_s, end_s)
        return self._plan_of(items, start_s, Recipe(self._checked_times(items, media), declared))

    def _plan_of(self, items: list[Item], start_s: float, recipe: Recipe | None) -> MediaPlan:
        gaps = [after - before for (before, _), (after, _) in pairwise(items)]
        digits = 1 if min(gaps, default=1.0) >= 0.1 else 2
        layout: list[str | Grid] = ["<video>"]
        for at_s, _ in items:
            if self.time_marks:
                layout.append(f"{at_s - start_s:.{digits}f}s")
            layout.append(self._grid)
        return MediaPlan((*layout, "</video>"), recipe)

    def _same_for_all(self) -> bool:
        """Whether films take the same tokens whatever they hold: so many items, and no times that hang on the film."""
        if self.clip is None:
            return self.num_frames is not None and not self.time_marks
        from_the_start = self.frame_rate_hz is None and self.num_clips in (None, 1)
        return from_the_start or not self.time_marks

    def _times(self, media: Media, declared: Header) -> tuple[float, ...]:
        """Of the frames of a film. Raises as ``plan``."""
        return self._checked_times(self._items(*_span(media, declared)), media)

    def _checked_times(self, items: list[Item], media: Media) -> tuple[float, ...]:
        times_s = tuple(time for _, times in items for time in times)
        if max(times_s) <= self.max_duration_s:
            return times_s
        # Of a clip far into a film, what is in front of its keyframe is jumped over.
        begin_s, fits = 0.0, max(times_s) - min(times_s) <= self.max_duration_s
        if fits:
            source, begin_s = media.source, min(times_s)
            begin_s = begin_s if isinstance(source, np.ndarray) else keyframe_before(source, begin_s, self.limits)
        if max(times_s) - begin_s > self.max_duration_s:
            decoded = f" and decoded from {begin_s:.1f} s on, as no keyframe is nearer" if fits else ""
            advice = "" if fits else " or give a shorter clip"
            raise SampleError(
                f"video is sampled up to {max(times_s):.1f} s{decoded}, over max_duration_s {self.max_duration_s:g}; "
                f"raise {OPTIONS}.max_duration_s{advice}"
            )
        return times_s

    def described(self, media: Media, plan: MediaPlan) -> str:
        """The size and length of a film, and what is fed of it, for people.

        Raises:
            SampleError: as of ``plan`` where the header is read.
        """
        declared = self._header(media) if plan.recipe is None else plan.recipe.declared
        size, fed = (" x ".join(map(str, of)) for of in ((declared.height_px, declared.width_px), self.size_px))
        frames = len(plan.grids) * (1 if self.clip is None else self.clip.frames)
        took = f"{declared.duration_s:.3g} s"
        return f"height x width in px: {size}, {took}; fed as {frames} frame{'s' * (frames > 1)} of {fed}"

    def decode(self, media: Media, plan: MediaPlan) -> NDArray[np.uint8]:
        """uint8 [N, 3, cell_frames, h, w] for clips, [N, 3, h, w] for frames; N = the plan's cells.

        Raises:
            SampleError: damaged, or shorter than its header declared; as of ``plan``, where that read no header.
        """
        return self._cells(self._frames(media, plan), plan)

    def augmented(self, media: Media, plan: MediaPlan, random: np.random.Generator) -> NDArray[np.uint8]:
        """As ``decode``, of the film as it is changed in training."""
        frames = self._frames(media, plan)
        return self._cells(frames[:, :, ::-1] if random.random() < self.flip else frames, plan)

    def _frames(self, media: Media, plan: MediaPlan) -> NDArray[np.uint8]:
        """uint8 [T, H, W, 3], in the encoder's size."""
        recipe = plan.recipe
        if isinstance(media.source, np.ndarray):
            times_s = self._times(media, self._header(media)) if recipe is None else recipe.times_s
            rate_hz = _rate_of(media)
            # A hundredth of a frame forgives the rounding of time * rate.
            indices = [min(int(time * rate_hz + 0.01), len(media.source) - 1) for time in times_s]
            return np.stack([fit_array(media.source[i], self.fit) for i in indices])
        if recipe is None:
            return frames_of(media.source, partial(self._times, media), self.fit, self.limits)
        return frames_at(media.source, recipe.times_s, self.fit, recipe.declared, self.limits)

    def _cells(self, frames: NDArray[np.uint8], plan: MediaPlan) -> NDArray[np.uint8]:
        cells = cut_blocks(frames, (self._cell_frames, *self._patch_px)).reshape(-1, *self.cell_shape)
        if len(cells) != plan.cells:
            raise PlanMismatch(f"video: planned {plan.cells} cells, decoded {len(cells)}")
        return cells

    def _check_options(self) -> None:
        if not 0 <= self.flip <= 1:
            raise ConfigError(f"flip: expected a probability from 0 to 1, got {self.flip:g}")
        for name in ("num_clips", "num_frames", "frame_rate_hz", "max_frames", "max_duration_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name}: {value} must be positive")
        if self.clip is not None and self.num_frames is not None:
            raise ConfigError(
                "num_frames: the clip encoder takes clips of its own length; set num_clips, or its option frames"
            )
        if self.clip is None and self.num_clips is not None:
            raise ConfigError("num_clips: a picture encoder takes single frames; set num_frames or frame_rate_hz")
        if self.num_frames is not None and self.frame_rate_hz is not None:
            raise ConfigError(
                "num_frames and frame_rate_hz: set one of them; at most so many frames, at that rate where they "
                "suffice, are frame_rate_hz, max_frames and too_long: spread"
            )
        if self.too_long == "spread" and (self.clip is not None or self.num_frames is not None):
            raise ConfigError("too_long: every film takes the same number of frames, however long it is; leave it out")
        wanted = self.num_frames if self.clip is None else self.clip.frames * (self.num_clips or 1)
        if wanted is not None and wanted > self.max_frames:
            raise ConfigError(
                f"max_frames {self.max_frames}: every film takes {wanted} frames; sample fewer or raise it"
            )

    def _header(self, media: Media) -> Header:
        if isinstance(media.source, np.ndarray):
            return _array_header(media.source, _rate_of(media), self.limits)
        return read_header(media.source, self.limits)

    def _items(self, start_s: float, end_s: float) -> list[Item]:
        if self.clip is None:
            return [(time, [time]) for time in self._frame_times(start_s, end_s)]
        frames, num_clips = self.clip.frames, self.num_clips or 1
        if self.frame_rate_hz is None:
            share_s = (end_s - start_s) / num_clips
            starts = [start_s + i * share_s for i in range(num_clips)]
            return [(first, spread(first, first + share_s, frames)) for first in starts]
        starts = clip_starts(start_s, end_s, frames / self.frame_rate_hz, num_clips)
        return [(first, clip_times(first, end_s, frames, self.frame_rate_hz)) for first in starts]

    def _frame_times(self, start_s: float, end_s: float) -> list[float]:
        """Of single frames."""
        if self.num_frames is not None:
            return spread(start_s, end_s, self.num_frames)
        rate_hz = self.frame_rate_hz or 1.0
        if (count := count_at_rate(start_s, end_s, rate_hz)) <= self.max_frames:
            return at_rate(start_s, rate_hz, count)
        if self.too_long == "spread":
            return spread(start_s, end_s, self.max_frames)
        raise SampleError(
            f"video needs {count} frames, over max_frames {self.max_frames}; sample fewer, raise {OPTIONS}.max_frames "
            f"or set {OPTIONS}.too_long=spread"
        )


def _span(media: Media, declared: Header) -> tuple[float, float]:
    """Start and end in seconds: ``media.clip`` where it is given and inside the film."""
    if media.clip is None:
        return 0.0, declared.duration_s
    start_s, end_s = media.clip
    # Half a second of grace on the end: clip ranges in manifests are rounded; what is sampled stays inside the film.
    if not 0 <= start_s < min(end_s, declared.duration_s) or end_s > declared.duration_s + 0.5:
        raise SampleError(f"clip {start_s:g}-{end_s:g} s does not lie in the video's 0-{declared.duration_s:.3f} s")
    return float(start_s), float(min(end_s, declared.duration_s))


def _rate_of(media: Media) -> float:
    if media.rate_hz is None or not 0 < media.rate_hz < math.inf:
        raise SampleError(f"video array needs a positive, finite rate_hz, got {media.rate_hz}")
    return float(media.rate_hz)


def _turn(film: NDArray[Any]) -> str:
    """What to do to an array as PyTorch has films."""
    turned = ".transpose(0, 2, 3, 1)" if film.ndim == 4 and film.shape[1] == 3 != film.shape[-1] else ""
    is_float = np.issubdtype(film.dtype, np.floating)
    scaled = "(array * 255).round().astype('uint8')" if is_float else "array"
    return f"; such as {scaled}{turned}{', of floats from 0 to 1' * is_float}" if turned or is_float else ""


def _array_header(film: NDArray[Any], rate_hz: float, limits: Limits) -> Header:
    if film.dtype != np.uint8 or film.ndim != 4 or film.shape[-1] != 3 or 0 in film.shape:
        raise SampleError(
            f"video array must be uint8 [T, H, W, 3], none of them 0; got {film.dtype} {list(film.shape)}{_turn(film)}"
        )
    num_frames, height, width = film.shape[:3]
    check_pixels(width, height, limits)
    if num_frames > limits.max_source_frames:
        raise SampleError(f"video has {num_frames} frames, over max_source_frames {limits.max_source_frames}")
    duration_s = num_frames / rate_hz
    if duration_s == math.inf:
        raise SampleError(f"video array needs a rate_hz by which it ends, got {rate_hz}")
    return Header(duration_s, num_frames, width, height)


def _patch_of(encoder_input: Any) -> tuple[int, int]:
    if not hasattr(encoder_input, "patch_px") or not hasattr(encoder_input, "size_px"):
        raise ConfigError(
            "the video modality needs an encoder of clips or of pictures; "
            f"its stream's encoder takes {type(encoder_input).__name__}"
        )
    height, width = encoder_input.patch_px
    return int(height), int(width)


def _margin(encoder_input: Any) -> tuple[int, ...]:
    """The encoder's mean colour: red, green and blue from 0 to 255."""
    mean = getattr(encoder_input, "mean", None)
    if mean is None:
        raise ConfigError(
            f"resize: pad takes the encoder's mean colour, and {type(encoder_input).__name__} states none; set squash "
            "or crop"
        )
    return tuple(round(255 * value) for value in mean)


def _frame_size(encoder_input: Any, patch: tuple[int, int], wanted: tuple[int, int] | None) -> tuple[int, int]:
    """Height and width of frames for a picture encoder, in whole patches."""
    fixed = encoder_input.size_px
    if fixed is not None:
        if wanted is not None and tuple(wanted) != tuple(fixed):
            raise ConfigError(f"size_px: {wanted} does not fit the picture encoder's {tuple(fixed)}; leave it out")
        return int(fixed[0]), int(fixed[1])
    if wanted is None:
        height, width = (max(1, round(DEFAULT_SIDE_PX / side)) * side for side in patch)
        return height, width
    if any(size <= 0 or size % side for size, side in zip(wanted, patch, strict=True)):
        raise ConfigError(f"size_px: {wanted} is not a multiple of the picture encoder's patch {patch}")
    return wanted
