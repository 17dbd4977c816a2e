"""What an encoder of sound wants to be fed: the value that encoder and processor agree on. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kosmos.errors import ConfigError

Normalization = Literal["none", "item", "whisper"]


@dataclass(frozen=True, kw_only=True)
class AudioInput:
    """Cells of sound: equal stretches of samples, or the log-mel frames of such a stretch.

    Raises:
        ConfigError: the numbers do not fit each other.
    """

    features: Literal["waveform", "logmel"] = "logmel"
    """``"waveform"``: a cell is float32 [samples_per_cell]. ``"logmel"``: float32 [frames_per_cell, num_mels]."""
    sample_rate_hz: int = 16_000
    """Rate to which everything is resampled."""
    samples_per_cell: int = 640
    """Samples at ``sample_rate_hz`` that a cell stands for."""
    max_cells: int | None = None
    """The longest item that the encoder takes; longer sound is split. None: no limit of the encoder's own."""
    normalization: Normalization = "item"
    """``"item"``: zero mean and unit variance over an item. ``"whisper"``: 80 dB below the item's peak are kept,
    then (log10 + 4) / 4. ``"none"``: as it is."""
    num_mels: int = 80
    """Mel bands (log-mel only)."""
    hop: int = 160
    """Samples from one frame to the next (log-mel only)."""
    fft_size: int = 400
    """Samples of a frame (log-mel only)."""
    mel_scale: Literal["htk", "slaney"] = "slaney"
    """Formula of the mel scale; with ``"slaney"`` the bands have equal area (log-mel only)."""

    frame_behind: bool = False
    """Each cell holds the frame behind its own, too: what a convolution sees behind the end of an item that is filled
    up, zeros behind one of ``max_cells`` (log-mel only)."""

    def __post_init__(self) -> None:
        for name in ("sample_rate_hz", "samples_per_cell", "num_mels", "hop", "fft_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if self.max_cells is not None and self.max_cells < 1:
            raise ConfigError(f"max_cells: expected at least 1 or null, got {self.max_cells}")
        if self.features == "waveform":
            if self.normalization == "whisper":
                raise ConfigError('normalization: "whisper" is for log-mel; a waveform takes "none" or "item"')
            return
        if self.samples_per_cell % self.hop:
            raise ConfigError(f"samples_per_cell {self.samples_per_cell} is not a multiple of hop {self.hop}")
        if self.samples_per_cell <= self.fft_size // 2:
            raise ConfigError(f"samples_per_cell {self.samples_per_cell} must exceed half of fft_size {self.fft_size}")
        if self.num_mels > self.fft_size // 2:
            raise ConfigError(f"num_mels {self.num_mels} must not exceed half of fft_size {self.fft_size}")

    @property
    def frames_per_cell(self) -> int:
        return self.samples_per_cell // self.hop

    @property
    def cell_shape(self) -> tuple[int, ...]:
        return (
            (self.samples_per_cell,)
            if self.features == "waveform"
            else (self.frames_per_cell + self.frame_behind, self.num_mels)
        )
