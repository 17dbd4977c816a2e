"""Open sound of any kind as a stream of mono blocks: libsndfile first, FFmpeg (PyAV) for what it does not know.

Nothing from data is handed to a library as a name: files are opened here. FFmpeg may use demuxers of single files
alone, so that no playlist has it open other files or fetch an address.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Media
from kosmos.errors import SampleError
from kosmos_audio import lengths

Samples = NDArray[np.float32]

BLOCK = 1 << 16
MAX_RATE_HZ = 768_000
MAX_CHANNELS = 64
COUNTED_FORMATS = frozenset({"WAV", "WAVEX", "AIFF", "AU", "CAF", "W64", "RF64", "FLAC"})
"""libsndfile checks their headers against the file's length, or (FLAC) they state the exact number of frames."""
UNCOUNTED_SUBTYPES = frozenset({"MPEG_LAYER_I", "MPEG_LAYER_II", "MPEG_LAYER_III", "VORBIS", "OPUS"})

PREROLL_S = 10
"""How long before a clip of MP3, Vorbis or Opus decoding begins: what a sample is depends on those before it. Opus of
16 and 24 kHz was up to 0.001 off behind 5 s, and equal behind 10."""

UNKNOWN_FRAMES = 1 << 48
"""As many or more are libsndfile's answer where a FLAC that was streamed states no length."""

FFMPEG_FORMATS = (
    "aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,dsf,dts,dtshd,eac3,flac,flv,loas,matroska,mlp,mov,mp3,mpc,mpc8,mpeg,"
    "mpegts,ogg,oma,qcp,rm,tak,truehd,tta,voc,w64,wav,webm,wv,xwma"
)
"""Demuxers that read one file and nothing else."""


class Sound(Protocol):
    """An open medium."""

    rate_hz: int
    declared: int | None
    """Frames, where the header can be trusted to say so."""
    late_s: float
    """By how much it begins behind the first picture of the film that it belongs to; 0 where it belongs to none."""
    film_s: float
    """How long that film lasts, which its sound need not do; 0 where it belongs to none."""

    def blocks(self, start: int) -> Iterator[tuple[int, Samples]]:
        """(first frame, mono float32 samples) of each block from ``start``, or from the beginning, to the end."""
        ...


@contextmanager
def open_sound(media: Media, max_bytes: int) -> Iterator[Sound]:
    """Open the source of ``media``.

    Raises:
        SampleError: too large, not sound, or its rate or channels are impossible.
    """
    source = media.source
    if isinstance(source, np.ndarray):
        yield _ArraySound(source, media.rate_hz, max_bytes)
        return
    with _open_file(source, max_bytes) as file:
        yield from _open_encoded(file)


@contextmanager
def open_header(media: Media, max_bytes: int) -> Iterator[Sound | lengths.Stated]:
    """As ``open_sound``, but nothing is made ready to decode where the header says all that a plan wants."""
    if isinstance(media.source, np.ndarray):
        yield _ArraySound(media.source, media.rate_hz, max_bytes)
        return
    with _open_file(media.source, max_bytes) as file:
        if (stated := lengths.stated_by_flac(file)) is not None:
            _check_format(stated.rate_hz, 1)
            yield stated
        else:
            yield from _open_encoded(file)


def _open_encoded(file: io.BufferedIOBase) -> Iterator[Sound]:
    import soundfile

    try:
        # By its descriptor libsndfile reads a file itself, and calls no Python object for each piece.
        decoder = soundfile.SoundFile(file.fileno() if isinstance(file, _File) else file, closefd=False)
    except Exception as error:
        decoder, refused = None, _reason(error)
    if decoder is not None and (decoder.frames >= UNKNOWN_FRAMES or lengths.is_guessed(decoder, file)):
        decoder.close()  # it would not read such a file to its end
        decoder, refused = None, "it states no length"
    if decoder is None:
        yield from _open_with_ffmpeg(file, refused)
        return
    with decoder:
        lengths.check_whole(decoder, file)
        yield _LibsndfileSound(decoder, file)


def _open_with_ffmpeg(file: io.BufferedIOBase, refused: str) -> Iterator[Sound]:
    import av

    file.seek(0)
    try:
        container = av.open(file, mode="r", options={"format_whitelist": FFMPEG_FORMATS, "protocol_whitelist": "none"})
    except av.ArgumentError as error:  # what FFmpeg says of a demuxer that is not among them, and of some damage
        raise SampleError(
            "audio cannot be opened: not sound of a kind that libsndfile or FFmpeg reads, or damaged"
        ) from error
    except Exception as error:
        raise SampleError(f"audio cannot be opened: libsndfile says {refused}; FFmpeg says {_reason(error)}") from error
    with container:
        if not container.streams.audio:
            raise SampleError("audio: the file holds no sound track")
        if container.streams.audio[0].codec_context is None:
            raise SampleError("audio: FFmpeg has no decoder for the sound track; store it as another codec")
        yield _FfmpegSound(container)


def _reason(error: Exception) -> str:
    """What the library says, without its description of our file object."""
    return str(getattr(error, "error_string", None) or getattr(error, "strerror", None) or error).rstrip(".")


def _open_file(source: bytes | Path, max_bytes: int) -> io.BufferedIOBase:
    if isinstance(source, bytes):
        _check_bytes(len(source), max_bytes)
        return _Bytes(source)
    try:
        size = source.stat().st_size
        _check_bytes(size, max_bytes)
        return _File(io.FileIO(source))
    except OSError as error:
        raise SampleError(f"audio file {source}: {error.strerror or error}") from error


def _check_bytes(size: int, max_bytes: int) -> None:
    if size == 0:
        raise SampleError("audio holds no bytes")
    if size > max_bytes:
        raise SampleError(f"audio has {size} bytes, the limit is {max_bytes} (max_bytes)")


def _check_format(rate_hz: float | None, channels: int) -> int:
    rate = float(rate_hz or 0)  # of numpy's small types the largest rate is none
    if not 1 <= rate <= MAX_RATE_HZ or not rate.is_integer():
        raise SampleError(f"audio: expected a whole sample rate of 1 to {MAX_RATE_HZ} Hz, got {rate_hz}")
    if not 1 <= channels <= MAX_CHANNELS:
        raise SampleError(f"audio: expected 1 to {MAX_CHANNELS} channels, got {channels}")
    return int(rate)


def _mono(frames: NDArray[Any]) -> Samples:
    """Mean of the channels of ``frames`` [samples, channels], whole numbers scaled to -1 .. 1: float32 [samples]."""
    kind = frames.dtype
    if kind == np.uint8:
        frames = (frames.astype(np.float32) - 128) / 128
    elif np.issubdtype(kind, np.signedinteger):
        frames = frames.astype(np.float32) / -float(np.iinfo(kind).min)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused by name later
        samples: Samples = frames.astype(np.float32, copy=False)
        if samples.shape[1] == 1:
            return samples[:, 0]
        if samples.shape[1] == 2:  # as ``mean`` to the bit, which takes twenty times as long
            both: Samples = (samples[:, 0] + samples[:, 1]) * np.float32(0.5)
            return both
        mean: Samples = samples.mean(axis=1, dtype=np.float32)
        return mean


def _are_samples(kind: np.dtype[Any]) -> bool:
    """Whether it is agreed on what is silent and what is loudest. Lists of 16-bit numbers become int64, of which these
    are silence; unsigned numbers of more than a byte, and bytes with a sign, are in use by nobody."""
    return kind.kind == "f" or (kind.kind, kind.itemsize) in (("i", 2), ("i", 4), ("u", 1))


class _ArraySound:
    """Samples that are already decoded: [samples] or [samples, channels], floats from -1 to 1 or whole numbers."""

    late_s = film_s = 0.0

    def __init__(self, samples: NDArray[Any], rate_hz: float | None, max_bytes: int) -> None:
        if samples.ndim not in (1, 2) or not _are_samples(samples.dtype):
            raise SampleError(
                "audio array: expected floats, int16, int32 or uint8 [samples] or [samples, channels], "
                f"got {samples.dtype} {list(samples.shape)}"
            )
        if samples.nbytes > max_bytes:
            _check_bytes(samples.nbytes, max_bytes)
        self.samples = samples if samples.ndim == 2 else samples[:, None]
        self.rate_hz = _check_format(rate_hz, self.samples.shape[1])
        self.declared: int | None = len(samples)

    def blocks(self, start: int) -> Iterator[tuple[int, Samples]]:
        for first in range(start, len(self.samples), BLOCK):
            yield first, _mono(self.samples[first : first + BLOCK])


class _LibsndfileSound:
    late_s = film_s = 0.0

    def __init__(self, decoder: Any, file: io.BufferedIOBase) -> None:
        self.decoder = decoder
        self.rate_hz = _check_format(decoder.samplerate, decoder.channels)
        self._is_counted = decoder.format in COUNTED_FORMATS and decoder.subtype not in UNCOUNTED_SUBTYPES
        stated = self._is_counted or lengths.is_stated(decoder, file)
        self.declared = int(decoder.frames) if stated else None

    def blocks(self, start: int) -> Iterator[tuple[int, Samples]]:
        first = self._begin(start)
        try:
            if self.decoder.seekable():  # to 0 too: libsndfile 1.2.2 drops what is in front of Opus only behind a seek
                self.decoder.seek(first)
            while len(frames := self.decoder.read(BLOCK, dtype="float32", always_2d=True)):
                yield first, _mono(frames)
                first += len(frames)
                if self.declared is not None and first >= self.declared:
                    break  # where nobody knows the length, damage may make a block short before the end
        except Exception as error:
            raise SampleError(f"audio is broken after sample {first}: {_reason(error)}") from error

    def _begin(self, start: int) -> int:
        """Where decoding has to begin to be right at ``start``."""
        if self.declared is None or not self.decoder.seekable():  # GSM 6.10 of telephones does not seek
            return 0
        return start if self._is_counted else max(0, start - PREROLL_S * self.rate_hz)


class _FfmpegSound:
    def __init__(self, container: Any) -> None:
        self.container = container
        self.stream = container.streams.audio[0]
        self.rate_hz = _check_format(self.stream.rate, self.stream.codec_context.channels)
        self.declared = lengths.stated_by_container(container, self.stream, self.rate_hz)
        self.late_s = lengths.late_by(container, self.stream)
        self.film_s = lengths.of_film(container)

    def blocks(self, start: int) -> Iterator[tuple[int, Samples]]:
        first = 0
        try:
            frames = self._frames()
            if self.declared is not None and start > PREROLL_S * self.rate_hz:
                self.container.seek(start - PREROLL_S * self.rate_hz, stream=self.stream)
                frames = self.container.decode(self.stream)
                if (landed := next(frames, None)) is not None:
                    first, frames = landed.pts, chain([landed], frames)  # times are counted in samples
            for frame in frames:
                if frame.sample_rate != self.rate_hz:
                    raise SampleError(f"audio changes its rate from {self.rate_hz} to {frame.sample_rate} Hz")
                values = frame.to_ndarray()
                planar = frame.format.is_planar
                yield first, _mono(values.T if planar else values.reshape(frame.samples, -1))
                first += frame.samples
        except SampleError:
            raise
        except Exception as error:
            raise SampleError(f"audio is broken after sample {first}: {_reason(error)}") from error

    def _frames(self) -> Iterator[Any]:
        if self.container.format.name != "mp3":
            yield from self.container.decode(self.stream)
            return
        # Behind the last frame of an MP3 may be tags (APE, Lyrics3, ID3v2) or zeros, which FFmpeg tries to decode.
        refused: Exception | None = None
        for packet in self.container.demux(self.stream):
            try:
                frames = packet.decode()
            except Exception as error:
                refused = refused or error
                continue
            if frames and refused is not None:
                raise refused
            yield from frames


class _Forgiving:
    """Seeking before the start answers with an error code, as C libraries expect, instead of raising in a callback."""

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return super().seek(offset, whence)  # type: ignore[misc,no-any-return]
        except (OSError, ValueError):
            return -1


class _Bytes(_Forgiving, io.BytesIO):
    pass


class _File(_Forgiving, io.BufferedReader):
    pass
