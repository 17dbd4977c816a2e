"""The kit on our own modalities, with encoded files beside the arrays of their sample sets."""

from __future__ import annotations

import io
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from kosmos import Media
from kosmos.components import ModalitySpec
from kosmos.plugins import load_plugins
from kosmos.testing import Conditions, Promise, promises_of
from support.thorough import ASKED


def _pictures() -> list[bytes]:
    pil = pytest.importorskip("PIL.Image")
    picture = pil.fromarray(np.random.default_rng(0).integers(0, 255, (24, 36, 3), dtype=np.uint8))
    found = []
    for kind in ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"):
        file = io.BytesIO()
        picture.save(file, kind)
        found.append(file.getvalue())
    return found


def _sounds() -> list[bytes]:
    soundfile = pytest.importorskip("soundfile")
    wave = np.sin(np.linspace(0, 300, 4000)).astype(np.float32)
    found = []
    for kind in ("WAV", "FLAC", "OGG"):
        file = io.BytesIO()
        soundfile.write(file, wave, 8000, format=kind)
        found.append(file.getvalue())
    return found


def _films() -> list[bytes]:
    av = pytest.importorskip("av")
    found = []
    for kind, codec in (("mp4", "mpeg4"), ("avi", "mjpeg")):
        file = io.BytesIO()
        with av.open(file, "w", format=kind) as container:
            stream = container.add_stream(codec, rate=10)
            stream.width, stream.height, stream.time_base = 48, 32, Fraction(1, 10)
            stream.pix_fmt = "yuv420p" if codec == "mpeg4" else "yuvj420p"
            for number in range(12):
                frame = av.VideoFrame.from_ndarray(np.full((32, 48, 3), 20 * number, np.uint8), format="rgb24")
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
        found.append(file.getvalue())
    return found


FILES: dict[str, tuple[str, Callable[[], list[bytes]]]] = {
    "kosmos-vision": ("image", _pictures),
    "kosmos-audio": ("audio", _sounds),
    "kosmos-video": ("video", _films),
}
SMALLEST = {"width": 32, "layers": 2, "heads": 2, "feed_forward": 64}
SMALLER = {
    "encoder wav2vec2": {**SMALLEST, "channels": 16},
    "encoder whisper": SMALLEST,
    "encoder conformer": SMALLEST,
}
"""The code is the same; ``nox -s conformance`` builds them in the sizes that they have by default."""


def promises(distribution: str) -> list[Promise]:
    modality, files = FILES[distribution]
    if modality not in load_plugins().specs("modality"):
        pytest.skip(f"{distribution} is not installed")
    examples = {modality: [Media(modality, file) for file in files()]}
    options = SMALLER if distribution == "kosmos-audio" else {}
    return promises_of(distribution, conditions=Conditions(examples=examples, options=options))


def is_default(promise: Promise) -> bool:
    """Whether it is of no further encoder."""
    defaults = [
        f"encoder {s.encoder}" for s in load_plugins().specs("modality").values() if isinstance(s, ModalitySpec)
    ]
    return not promise.component.startswith("encoder ") or promise.component in defaults


def broken(wanted: list[Promise]) -> list[str]:
    return [verdict.message for promise in wanted if (verdict := promise.verdict()).outcome == "failed"]


@pytest.mark.slow
@pytest.mark.parametrize("distribution", FILES)
def test_our_modalities_keep_every_promise(distribution: str) -> None:
    assert broken([promise for promise in promises(distribution) if is_default(promise)]) == []


@pytest.mark.slow
def test_the_further_encoders_of_sound_keep_every_promise() -> None:
    further = [promise for promise in promises("kosmos-audio") if not is_default(promise)]
    assert len({promise.component for promise in further}) == 3
    if not ASKED:  # the tests of the other two compile them too
        further = [p for p in further if p.id != "compiles" or p.component == "encoder conformer"]
    assert broken(further) == []
