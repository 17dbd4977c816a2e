"""What compressed sound states of its length, and whether that can be believed.

libsndfile knows it of OGG (Vorbis, Opus), by the positions that the pages state, and of MP3 where the first frame is a
tag that states frames and bytes ("Xing" or "Info", which encoders write by default). Of other MP3s it guesses, and ends
there: after 60,086 samples of 352,800 of one that begins loud and falls silent.
"""

from __future__ import annotations

import io
import math
import os
import struct
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from kosmos.errors import SampleError

_OGG = ("VORBIS", "OPUS")
_M4A = ("aac", "alac")
_LAYER_3 = 0xE3
"""Second byte of a frame of layer III without a checksum, but for the bits of its version."""
_STATES_BOTH = 0b11
"""Flags of the tag: the number of frames is there, and that of bytes."""
_FLAC_HEAD = struct.Struct(">4s4sHH6sQ")
"""Name, header of the first block, sizes of blocks and frames, then what ``stated_by_flac`` takes apart."""
_FLAC_BITS = (8, 16, 24)
"""Of a sample, that libsndfile decodes."""

_STREAMED = 0x7FFF0000
"""So many bytes or more, or none, are what a WAV states that was written to a pipe, by tools that could not go back."""
_MOST_CHUNKS = 64
"""Of a WAV, in front of its samples."""
MOST_MISSING_S = 0.1
"""Of a WAV, by which it may be shorter than its header states: what fills its last block is not always written."""

LEAST_LATE_S = 0.1
"""Between the beginnings of two tracks. Less may be what an encoder puts in front, which decoding has dropped: 0.021 s
of AAC, 0.007 s of Opus."""


class Stated(NamedTuple):
    """What a header says."""

    rate_hz: int
    declared: int
    """Samples of each channel."""

    @property
    def late_s(self) -> float:
        """As of ``kosmos_audio.reading.Sound``: it belongs to no film."""
        return 0.0

    @property
    def film_s(self) -> float:
        """As ``late_s``."""
        return 0.0


def stated_by_flac(file: io.BufferedIOBase) -> Stated | None:
    """Rate and length of a FLAC by its first 26 bytes, for which libsndfile would make a whole decoder ready.

    None where it is none, says nothing of its length, or is of a kind that libsndfile may not know.

    Source: the STREAMINFO block of RFC 9639, section 8.2: behind the sizes stand 20 bits of rate, 3 of channels less
    one, 5 of bits a sample less one, 36 of samples.
    """
    head = _bytes_at(file, 0, _FLAC_HEAD.size)
    if len(head) < _FLAC_HEAD.size:
        return None
    name, block, smallest, largest, _, packed = _FLAC_HEAD.unpack(head)
    if name != b"fLaC" or block not in (b"\0\0\0\x22", b"\x80\0\0\x22") or not 16 <= smallest <= largest:
        return None
    rate_hz, bits, samples = packed >> 44, (packed >> 36 & 0x1F) + 1, packed & (1 << 36) - 1
    return Stated(rate_hz, samples) if rate_hz and samples and bits in _FLAC_BITS else None


def is_guessed(decoder: Any, file: io.BufferedIOBase) -> bool:
    """Whether ``decoder.frames``, at which it ends, is a guess, or that of the first of several files in one.

    Args:
        decoder: an open ``soundfile.SoundFile``.
        file: what it reads; its position stays.
    """
    if decoder.format != "MP3":
        return False
    return (stated := _mp3_bytes(file)) is None or _goes_on(file, stated)


def is_stated(decoder: Any, file: io.BufferedIOBase) -> bool:
    """Whether ``decoder.frames`` is what decoding gives, unless the file is damaged. Arguments as of ``is_guessed``."""
    if decoder.format == "OGG":
        return decoder.subtype in _OGG
    if decoder.format != "MP3" or (stated := _mp3_bytes(file)) is None:
        return False
    return stated <= _size(file)


def check_whole(decoder: Any, file: io.BufferedIOBase) -> None:
    """Raises SampleError where a WAV is shorter than it states, which libsndfile passes over. Arguments as of
    ``is_guessed``."""
    if decoder.format not in ("WAV", "WAVEX") or (found := _wav_samples(file)) is None:
        return
    begin, stated = found
    there = _size(file) - begin
    if not 0 < there < stated < _STREAMED:
        return
    there_s = decoder.frames / decoder.samplerate
    stated_s = there_s * stated / there
    if stated_s - there_s > MOST_MISSING_S:
        raise SampleError(f"audio is cut short: its header states {stated_s:.3f} s, {there_s:.3f} s are there")


def _wav_samples(file: io.BufferedIOBase) -> tuple[int, int] | None:
    """Where the samples of a WAV begin, and how many bytes it states that they take; None where that is not found.

    Source: RIFF: chunks of a name, a size and so many bytes, filled up to an even number.
    """
    place = 12
    if _bytes_at(file, 0, 4) != b"RIFF":  # RIFX counts from the other end, RF64 states sizes elsewhere
        return None
    for _ in range(_MOST_CHUNKS):
        head = _bytes_at(file, place, 8)
        if len(head) < 8:
            return None
        name, nbytes = struct.unpack("<4sI", head)
        place += 8
        if name == b"data":
            return place, nbytes
        place += nbytes + nbytes % 2
    return None


def stated_by_container(container: Any, stream: Any, rate_hz: int) -> int | None:
    """Samples of a sound track by its header; None where nobody states them to the sample.

    MP4 does of what m4a holds, if it counts time in samples and its index has every packet, one right behind the other,
    up to the end that is stated. Decoding gives as many, and what fills the last frame of the codec. Nothing else is
    believed: MPEG layer II came out 27 samples short, Opus in fragments 312 samples early behind a jump.

    Args:
        container: as opened by PyAV.
        stream: of sound.
        rate_hz: what it decodes to.
    """
    if "mp4" not in container.format.name.split(",") or stream.codec_context.name not in _M4A:
        return None
    if stream.time_base != Fraction(1, rate_hz) or stream.start_time != 0 or not stream.duration:
        return None
    index = stream.index_entries
    if len(index) < 2:
        return None
    step = index[1].timestamp - index[0].timestamp
    is_whole = index[-1].pos + index[-1].size <= container.size and index[-1].timestamp + step >= stream.duration
    if not is_whole or stream.codec_context.frame_size not in (0, step):  # ALAC's is not known before it is decoded
        return None
    times = (entry.timestamp for entry in index)
    return int(stream.duration) if all(after - before == step for before, after in pairwise(times)) else None


def late_by(container: Any, stream: Any) -> float:
    """Seconds by which a sound track begins behind the first picture of its film, negative where it begins before.

    Films that were cut without being encoded anew have tracks that begin seconds apart, each at a keyframe of its own.

    Args:
        container: as opened by PyAV.
        stream: of sound.
    """
    starts = [
        float(track.start_time * track.time_base)
        for track in (stream, *_films(container)[:1])
        if track.start_time is not None
    ]
    if len(starts) < 2:
        return 0.0
    late_s = starts[0] - starts[1]
    return late_s if abs(late_s) >= LEAST_LATE_S else 0.0


def of_film(container: Any) -> float:
    """Seconds of the film that a container, as opened by PyAV, holds; 0 where it holds none, infinite where it states
    nothing of its length."""
    if not _films(container):
        return 0.0
    return math.inf if container.duration is None else float(container.duration / 1_000_000)


def _films(container: Any) -> list[Any]:
    """Its streams of pictures, but for those on the cover."""
    from av.stream import Disposition

    return [film for film in container.streams.video if not film.disposition & Disposition.attached_pic]


def _mp3_bytes(file: io.BufferedIOBase) -> int | None:
    """Where an MP3 ends by the tag in its first frame; None where there is no such tag.

    Source: the tags of Xing and LAME as encoders write them: behind the frame's header and side information stand the
    name, flags, frames and bytes, which are counted from the beginning of this frame.
    """
    begin = _behind_id3(file, 0)
    frame = _bytes_at(file, begin, 64)
    if len(frame) < 64 or frame[0] != 0xFF or frame[1] & 0xE7 != _LAYER_3:
        return None
    is_mpeg_1, is_mono = frame[1] & 0x18 == 0x18, frame[3] >> 6 == 3
    side = (17 if is_mono else 32) if is_mpeg_1 else (9 if is_mono else 17)
    name, flags, frames, nbytes = struct.unpack_from(">4sIII", frame, 4 + side)
    if name not in (b"Xing", b"Info") or flags & _STATES_BOTH != _STATES_BOTH or not (frames and nbytes):
        return None
    return begin + int(nbytes)


def _goes_on(file: io.BufferedIOBase, place: int) -> bool:
    """Whether another frame stands where an MP3 should end, or behind the tags there, as where files were joined."""
    if _bytes_at(file, place, 3) == b"TAG":
        place += 128
    head = _bytes_at(file, _behind_id3(file, place), 4)
    return len(head) == 4 and head[0] == 0xFF and head[1] & 0xE6 == _LAYER_3 & 0xE6 and head[2] >> 4 != 0xF


def _behind_id3(file: io.BufferedIOBase, place: int) -> int:
    """Where an ID3v2 tag that begins at ``place`` ends; ``place`` where there is none."""
    head = _bytes_at(file, place, 10)
    if len(head) < 10 or head[:3] != b"ID3":
        return place
    size = sum((byte & 0x7F) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True))
    footer = 10 if head[5] & 0x10 else 0
    return place + 10 + size + footer


def _size(file: io.BufferedIOBase) -> int:
    return len(file.getbuffer()) if isinstance(file, io.BytesIO) else os.fstat(file.fileno()).st_size


def _bytes_at(file: io.BufferedIOBase, place: int, count: int) -> bytes:
    if isinstance(file, io.BytesIO):
        return bytes(file.getbuffer()[place : place + count])
    return os.pread(file.fileno(), count, place)
