"""Plan and decode sound: any rate, channel count and length become cells of what the encoder wants. No torch here."""

from __future__ import annotations

from math import ceil
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Media
from kosmos.data.processor import Grid, MediaPlan
from kosmos.errors import ConfigError, SampleError
from kosmos_audio.augmentation import Augmentation
from kosmos_audio.extent import Extent, Limits, read_samples
from kosmos_audio.inputs import AudioInput
from kosmos_audio.reading import open_header, open_sound
from kosmos_audio.resample import resample, resampled_length
from kosmos_audio.spectrogram import log_mel

Samples = NDArray[np.float32]
BEGIN, END = "<audio>", "</audio>"
"""Marks before and behind the cells of a sound."""


class AudioProcessor:
    """Sound to cells: mono (mean of the channels), resampled, zeros after the end of the last cell.

    The layout is ``<audio>``, one grid (cells, 1, 1) for each span, ``</audio>``. What states its exact length (ogg,
    opus and m4a too, and mp3 with the tag that encoders write) is planned by that; the rest is counted by decoding it,
    each file once.

    Args:
        encoder_input: what the encoder wants.
        max_duration_s: longest sound (after ``Media.clip``) that is accepted at all, in seconds.
        max_bytes: largest file or array that is accepted.
        max_samples: most samples of it, at its own rate, that are decoded: silence packs into few bytes.
        span_s: longest item in seconds; the encoder's own limit holds as well.
        long_audio: ``"split"`` sound longer than a span into equal spans, or ``"refuse"`` it.
        gain_db: in training, by how many decibels a sound becomes louder or less loud at most; not for encoders that
            want every item in one loudness.
        noise_snr_db: in training, white noise is added, and the sound lies so many decibels above it: at random between
            these two. None adds none.
        time_masks: in training, so many stretches of an item's log-mel frames become its mean (SpecAugment).
        frequency_masks: in training, so many stretches of its mel bands likewise.
        marks: whether ``<audio>`` stands before a sound and ``</audio>`` behind it; published models that have learned
            without them want none.

    Raises:
        ConfigError: a limit is not positive, a span is shorter than a cell, an augmentation is out of range or does
            nothing for the encoder.
    """

    def __init__(
        self,
        encoder_input: AudioInput,
        *,
        max_duration_s: float = 600.0,
        max_bytes: int = 256 << 20,
        max_samples: int = 64 << 20,
        span_s: float = 30.0,
        long_audio: Literal["split", "refuse"] = "split",
        gain_db: float = 0.0,
        noise_snr_db: tuple[float, float] | None = None,
        time_masks: int = 0,
        frequency_masks: int = 0,
        marks: bool = True,
    ) -> None:
        limits = {
            "max_duration_s": max_duration_s,
            "max_bytes": max_bytes,
            "max_samples": max_samples,
            "span_s": span_s,
        }
        for name, value in limits.items():
            if not value > 0:
                raise ConfigError(f"{name}: expected a positive number, got {value}")
        self.input = encoder_input
        self.max_bytes = max_bytes
        self.limits = Limits(max_duration_s, max_samples, "modalities.audio.processor.max_duration_s")
        self.long_audio, self.marks = long_audio, marks
        span_cells = int(span_s * encoder_input.sample_rate_hz / encoder_input.samples_per_cell)
        self.max_cells = min(span_cells, encoder_input.max_cells or span_cells)
        if self.max_cells < 1:
            raise ConfigError(f"span_s: {span_s} s is shorter than a cell of {encoder_input.samples_per_cell} samples")
        self.augmentation = Augmentation(gain_db, noise_snr_db, time_masks, frequency_masks)
        self.augments = self.augmentation.is_on
        if self.augmentation.masks and encoder_input.features != "logmel":
            raise ConfigError("time_masks, frequency_masks: the encoder takes samples, and masks are of log-mel frames")
        if gain_db and encoder_input.normalization == "item":
            raise ConfigError("gain_db: the encoder wants every item in one loudness, so that it would change nothing")
        self.cell_shape: tuple[int, ...] = encoder_input.cell_shape
        self.cell_dtype: np.dtype[Any] = np.dtype(np.float32)

    def plan(self, media: Media) -> MediaPlan:
        """Count the cells of ``media`` and cut them into spans.

        Raises:
            SampleError: unreadable, empty or over a limit.
        """
        with open_header(media, self.max_bytes) as sound:
            recipe = self.limits.extent(sound, media)
        samples = resampled_length(recipe.stop - recipe.start, recipe.rate_hz, self.input.sample_rate_hz)
        cells = ceil(samples / self.input.samples_per_cell)
        if cells > self.max_cells and self.long_audio == "refuse":
            raise SampleError(
                f"audio takes {cells} cells ({samples / self.input.sample_rate_hz:.2f} s), a span holds "
                f"{self.max_cells}; set long_audio to split or raise span_s"
            )
        grids = (Grid(t, 1, 1) for t in _equal_parts(cells, ceil(cells / self.max_cells)))
        layout: tuple[str | Grid, ...] = (BEGIN, *grids, END) if self.marks else (*grids,)
        return MediaPlan(layout=layout, recipe=recipe)

    def decode(self, media: Media, plan: MediaPlan) -> Samples:
        """The planned cells: float32 [N, *cell_shape].

        Raises:
            SampleError: the medium is broken, shorter than planned, or holds values that are not finite or over
                ``LOUDEST``.
        """
        return self._decoded(media, plan, None)

    def augmented(self, media: Media, plan: MediaPlan, random: np.random.Generator) -> Samples:
        """As ``decode``, of the sound as it is changed in training."""
        return self._decoded(media, plan, random)

    def _decoded(self, media: Media, plan: MediaPlan, random: np.random.Generator | None) -> Samples:
        recipe: Extent = plan.recipe
        with open_sound(media, self.max_bytes) as sound:
            samples = read_samples(sound, recipe)
        samples = resample(samples, recipe.rate_hz, self.input.sample_rate_hz)
        if random is not None and self.augmentation.changes_samples:
            samples = self.augmentation.of_samples(samples, random)
        parts, begin = [], 0
        for grid in plan.grids:
            end = begin + grid.t * self.input.samples_per_cell
            cells = self._cells(samples[begin:end], grid.t)
            if random is not None and self.augmentation.masks:
                cells = self._masked(cells, random)
            parts.append(cells)
            begin = end
        assert 0 <= begin - len(samples) < self.input.samples_per_cell, (begin, len(samples))
        return np.concatenate(parts)

    def _cells(self, samples: Samples, cells: int) -> Samples:
        if self.input.features == "logmel":
            return log_mel(samples, cells, self.input)
        if self.input.normalization == "item":
            samples = (samples - samples.mean()) / np.sqrt(samples.var() + np.float32(1e-5))
        padded = np.zeros(cells * self.input.samples_per_cell, dtype=np.float32)
        padded[: len(samples)] = samples
        return padded.reshape(cells, self.input.samples_per_cell)

    def _masked(self, cells: Samples, random: np.random.Generator) -> Samples:
        """Log-mel of one item: [cells, frames_per_cell, num_mels]."""
        frames = cells.reshape(-1, cells.shape[-1])
        return self.augmentation.of_mel(frames, random).reshape(cells.shape)


def _equal_parts(total: int, parts: int) -> list[int]:
    """``total`` as ``parts`` numbers that differ by one at most, the larger ones first."""
    size, larger = divmod(total, parts)
    return [size + 1] * larger + [size] * (parts - larger)
