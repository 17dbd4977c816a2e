"""Read picture files safely: limits before pixels, one RGB form after them. No torch here."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from stat import S_ISREG
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from kosmos import SampleError
from kosmos.data.document import MediaSource
from kosmos_vision.grey import GRAY_RANGE, Range, dark, dark_of_cut, is_cut, is_deep, out_of_range, scaled, to_8_bits
from kosmos_vision.jpeg import decode_frame, find_frame, refuse_many_scans
from kosmos_vision.tiff import cut_short, in_words, quiet_libtiff

FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM")
"""What is read. Pillow's other formats stay closed: its EPS reader, for one, starts Ghostscript."""

MOST_PIXELS = 1 << 30
"""That a limit may allow: a decoded picture takes 4 to 12 bytes a pixel, and each data worker has one."""
CUT_UP = "or cut the picture into smaller ones first"
MOST_PAGES = 1000
"""That are counted: those of a TIFF lie in a chain, of which 64 MiB hold so many that it would take hours."""
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a picture may ask for, checked before its pixels are decoded."""

    max_pixels: int
    max_bytes: int
    options: str = ""
    """The path of what they are options of; empty where nobody can set them."""

    def raise_ceiling(self) -> None:
        """Let Pillow's own limit give way to one that is stated, and that is checked before pixels are decoded as well.

        It stays raised in this process: threads that put it back would undo each other's.
        """
        if Image.MAX_IMAGE_PIXELS is not None and self.max_pixels > Image.MAX_IMAGE_PIXELS:
            Image.MAX_IMAGE_PIXELS = self.max_pixels

    def refused(self, what: str, name: str, remedy: str) -> SampleError:
        """Of what is over the limit of a name."""
        said = f"; set {self.options}.{name} higher, {remedy}" if self.options else ""
        return SampleError(f"{what} is over {name} {getattr(self, name)}{said}")


class Header(NamedTuple):
    """What the header of a picture says."""

    height: int
    """Pixels, after the turn."""
    width: int
    """Pixels, after the turn."""
    orientation: int
    """EXIF orientation that is still to be applied: 1 (none) to 8."""


def read_header(source: MediaSource, limits: Limits, gray_range: Range | None = None) -> Header:
    """Size and orientation of a picture, without decoding it.

    Args:
        gray_range: where there is one, arrays of one channel may have any type of numbers.

    Raises:
        SampleError: unreadable, of size zero, or over a limit.
    """
    if isinstance(source, np.ndarray):
        height, width = _checked_array(source, limits, gray_range).shape[:2]
        return Header(height, width, 1)
    with _opened(source, limits) as file:
        if (frame := find_frame(file)) is not None:
            _check_pixels(frame.width, frame.height, limits)
            return Header(*frame, 1)
        with _recognised(file, limits) as picture:
            width, height = picture.size
            orientation = _orientation(picture)
    return Header(width, height, orientation) if orientation >= 5 else Header(height, width, orientation)


def count_frames(source: MediaSource, limits: Limits) -> int:
    """Pages of a TIFF, or frames of an animation, of which the first is the picture; ``MOST_PAGES`` + 1 of a TIFF
    that has more.

    Raises:
        SampleError: as of ``read_header``.
    """
    if isinstance(source, np.ndarray):
        return 1
    with _opened(source, limits) as file, _recognised(file, limits) as picture:
        if picture.format == "MPO":  # as of phones: a JPEG, with what else belongs to it
            return 1
        try:
            return _count_pages(picture) if picture.format == "TIFF" else int(getattr(picture, "n_frames", 1))
        except Exception:  # nobody reads what is broken behind the first
            return 1


def _count_pages(picture: Image.Image) -> int:
    for page in range(1, MOST_PAGES + 1):
        try:
            picture.seek(page)
        except EOFError:
            return page
    return MOST_PAGES + 1


def doubt_of(source: MediaSource, limits: Limits) -> str:
    """That a picture comes out nearly black, as its 16 bits are taken over their full range; empty of any other.

    Raises:
        SampleError: as of ``load_rgb``; only pictures of 16 bits are decoded.
    """
    if isinstance(source, np.ndarray):
        return ""
    with _opened(source, limits) as file:
        if find_frame(file) is not None:
            return ""
        with _recognised(file, limits) as picture:
            was_cut = is_cut(file)
            if not was_cut and not is_deep(picture):
                return ""
            picture.load()
            return dark_of_cut(picture) if was_cut else dark(picture)


def load_rgb(
    source: MediaSource,
    limits: Limits,
    orientation: int | None,
    wanted: tuple[int, int],
    gray_range: Range | None = None,
) -> Image.Image:
    """The first frame as an upright 8-bit RGB picture, transparency laid on white.

    Args:
        source: as in ``Media``; arrays are uint8 [H, W] or [H, W, C], C = 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA.
        limits: checked here too, since a file may have changed since its header was read.
        orientation: from ``read_header``; None reads it.
        wanted: (height, width) that it will be resized to: a JPEG is decoded at a half, quarter or eighth where that
            still leaves twice as many pixels a side.
        gray_range: the values that become 0 and 255, of grey of more than 8 bits, with a sign or of floats; arrays may
            then have any type of numbers, as [H, W] or [H, W, 1]. None takes 16 bits over their full range.

    Raises:
        SampleError: broken, cut short, or of a kind of pixel that has no clear meaning in 8 bits.
    """
    if isinstance(source, np.ndarray):
        pixels = _checked_array(source, limits, gray_range)
        if gray_range is not None and pixels.dtype != np.uint8:
            pixels = scaled(pixels, gray_range)
        return _to_rgb(Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels), gray_range)
    with _opened(source, limits) as file:
        if orientation in (None, 1) and (plain := _plain_jpeg(file, limits, wanted)) is not None:
            return plain
        with _recognised(file, limits) as picture:
            if picture.format in ("JPEG", "MPO"):
                file.seek(0)
                refuse_many_scans(file.read())
            if gray_range is not None and is_cut(file):
                raise out_of_range()
            orientation = _orientation(picture) if orientation is None else orientation
            height, width = wanted if orientation < 5 else wanted[::-1]
            picture.draft(picture.mode, (2 * width, 2 * height))
            picture.load()
            rgb = _to_rgb(picture, gray_range)
            turn = _TURNS.get(orientation)
            return rgb if turn is None else rgb.transpose(turn)


def _plain_jpeg(file: IO[bytes], limits: Limits, wanted: tuple[int, int]) -> Image.Image | None:
    """The picture where it is a plain JPEG that is whole; else None, and the file is at its begin."""
    frame = find_frame(file)
    if frame is None:
        return None
    _check_pixels(frame.width, frame.height, limits)
    content = file.read()
    refuse_many_scans(content)
    picture = decode_frame(content, frame, wanted)
    file.seek(0)
    return picture


def _checked_array(pixels: NDArray[Any], limits: Limits, gray_range: Range | None) -> NDArray[Any]:
    is_grey = pixels.ndim == 2 or pixels.shape[2:] == (1,)
    if gray_range is not None and is_grey and pixels.dtype.kind in "iuf":
        _check_pixels(pixels.shape[1], pixels.shape[0], limits)
        return pixels
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and not 1 <= pixels.shape[2] <= 4):
        raise SampleError(
            f"picture is an array {pixels.dtype} {list(pixels.shape)}; "
            f"need uint8 [H, W] or [H, W, 1 to 4]{_turn(pixels)}{_window(pixels)}"
        )
    _check_pixels(pixels.shape[1], pixels.shape[0], limits)
    return pixels


def _turn(pixels: NDArray[Any]) -> str:
    """What to do to an array as PyTorch has pictures."""
    is_first = pixels.ndim == 3 and 1 <= pixels.shape[0] <= 4 < pixels.shape[2]
    turned = ".transpose(1, 2, 0)" if is_first else ""
    is_float = np.issubdtype(pixels.dtype, np.floating)
    scaled = "(array * 255).round().astype('uint8')" if is_float else "array"
    return f"; such as {scaled}{turned}{', of floats from 0 to 1' * is_float}" if turned or is_float else ""


def _window(pixels: NDArray[Any]) -> str:
    """What else may be done to an array that is grey of many bits."""
    is_grey = pixels.ndim == 2 and pixels.dtype.kind in "iu"
    return f", or say which values are black and white in {GRAY_RANGE}" if is_grey else ""


def _check_pixels(width: int, height: int, limits: Limits) -> None:
    if width < 1 or height < 1:
        raise SampleError(f"picture of {width} x {height} pixels is empty")
    if width * height > limits.max_pixels:
        raise limits.refused(f"picture of {width} x {height} pixels", "max_pixels", CUT_UP)


@contextmanager
def _opened(source: bytes | Path, limits: Limits) -> Iterator[IO[bytes]]:
    """A file within the limits; what Pillow says about a broken one becomes a SampleError."""
    try:
        with _file(source, limits) as file:
            yield file
    except SampleError:
        raise
    except UnidentifiedImageError as error:
        raise SampleError("not a picture that can be read (JPEG, PNG, WebP, GIF, TIFF, BMP, AVIF, ...)") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        pixels = next(iter(re.findall(r"\((\d+) pixels\)", str(error))), "too many")
        raise limits.refused(f"picture of {pixels} pixels", "max_pixels", CUT_UP) from error
    except FileNotFoundError as error:
        raise SampleError(f"picture {source if isinstance(source, Path) else ''} does not exist") from error
    except Exception as error:  # decoders raise anything: OSError, ValueError, struct.error, MemoryError, ...
        raise SampleError(f"broken picture: {in_words(error)}") from error


@contextmanager
def _recognised(file: IO[bytes], limits: Limits) -> Iterator[Image.Image]:
    """A picture of any kind, within the limits."""
    # catch_warnings, since Pillow warns of what we either refuse (bombs) or can live with (bad metadata).
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        limits.raise_ceiling()
        with _open_image(file) as picture:
            _check_pixels(*picture.size, limits)
            if picture.format == "TIFF":
                quiet_libtiff()
            yield picture


def _open_image(file: IO[bytes]) -> Image.Image:
    try:
        return Image.open(file, formats=_formats())
    except UnidentifiedImageError as error:
        if short := cut_short(file):
            raise SampleError(f"broken picture: {short}") from error
        file.seek(0)
        if b"%PDF-" not in file.read(1024):  # readers allow as much in front of it
            raise
        raise SampleError(
            "a PDF is no picture: render its pages first (pdftoppm -r 150 -png FILE.pdf page) and name the picture of "
            "each page"
        ) from error


@contextmanager
def _file(source: bytes | Path, limits: Limits) -> Iterator[IO[bytes]]:
    if isinstance(source, bytes):
        size, name = len(source), "picture"
        file: IO[bytes] = io.BytesIO(source)
    else:
        state = source.stat()
        if not S_ISREG(state.st_mode):  # a pipe would be waited for
            raise SampleError(f"picture {source} is not a file")
        file = source.open("rb")
        size, name = state.st_size, f"picture {source.name}"
    with file:
        if size == 0:
            raise SampleError(f"{name} is empty: 0 bytes")
        if size > limits.max_bytes:
            raise limits.refused(f"{name} of {size} bytes", "max_bytes", "or store it smaller")
        yield file


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _orientation(picture: Image.Image) -> int:
    """EXIF orientation, from the header alone."""
    if picture.format == "TIFF":
        return 1  # Pillow turns TIFFs itself, and its size is the turned one
    try:
        # Image's own method: PNG's would decode the pixels in search of EXIF data behind them.
        value = Image.Image.getexif(picture).get(ExifTags.Base.Orientation, 1)
    except Exception:  # corrupt EXIF data says nothing about the pixels
        return 1
    return value if value in _TURNS else 1


def _to_rgb(picture: Image.Image, gray_range: Range | None) -> Image.Image:
    if is_deep(picture):
        picture = to_8_bits(picture, gray_range)
    if picture.mode == "LAB":
        raise SampleError("pixels of mode LAB have no agreed range; store the picture as RGB")
    clear = picture.info.get("transparency")
    if (
        isinstance(clear, tuple) and max(clear) > 255
    ):  # of a 16-bit RGB PNG, whose pixels Pillow cut to their high bytes
        picture.info["transparency"] = tuple(value >> 8 for value in clear)
    if picture.mode in ("LA", "La", "PA", "RGBA", "RGBa") or clear is not None:
        rgba = picture if picture.mode == "RGBA" and clear is None else picture.convert("RGBA")
        if rgba.getchannel("A").getextrema() == (255, 255):  # as in most screenshots; laying it on white takes long
            return rgba.convert("RGB")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    return picture if picture.mode == "RGB" else picture.convert("RGB")
