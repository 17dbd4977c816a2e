"""Pictures come to the same bytes by Pillow and by C++, before, while and after it is compiled."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from kosmos import CppCompilation, Media
from kosmos_vision.images import ImageInput, ImageProcessor
from kosmos_vision.resampling import WHERE, Resampler

needs_compiler = pytest.mark.skipif(CppCompilation.missing(WHERE) is not None, reason="no C++ compiler")
CXX = shutil.which("g++") or shutil.which("clang++")
BICUBIC = Image.Resampling.BICUBIC
PATIENCE_S = 60


def noise(height: int, width: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    # Of black and white alone, sums pass both ends of a byte.
    return Image.fromarray(np.where(pixels > 127, 255, 0).astype(np.uint8) if seed % 2 else pixels)


def planes_of(picture: Image.Image) -> NDArray[np.uint8]:
    return np.asarray(picture).transpose(2, 0, 1)


def until_compiled(resampler: Resampler) -> Resampler:
    end = time.monotonic() + PATIENCE_S
    while not resampler.is_compiled:
        assert time.monotonic() < end, "never compiled"
        resampler.planes(noise(8, 8), (5, 5))
        time.sleep(0.05)
    return resampler


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    def is_script(text: str) -> None:
        (tmp_path / "cxx").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "cxx").chmod(0o755)
        monkeypatch.setenv("CXX", str(tmp_path / "cxx"))
        monkeypatch.setenv("REAL", str(CXX))

    return is_script


@pytest.fixture
def begun(compiler: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Whether a compiler is being run, or was: its folder is there at once, its mark stays."""
    compiler(f'touch "{tmp_path}/begun"; exec {CXX} "$@"')
    (tmp_path / "own").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "own"))
    return lambda: (tmp_path / "begun").exists() or bool(os.listdir(tmp_path / "own"))


@pytest.fixture(scope="module")
def compiled() -> Resampler:
    return until_compiled(Resampler(pays_s=0.0))


@st.composite
def asked(draw: st.DrawFn) -> tuple[Image.Image, tuple[int, int], tuple[float, float, float, float] | None]:
    """A picture, a size, which may be a small part of it, and mostly a box."""
    height, width = draw(st.integers(1, 200)), draw(st.integers(1, 200))
    picture = noise(height, width, draw(st.integers(0, 5)))
    size = draw(st.tuples(*[st.one_of(st.integers(1, 20), st.integers(1, 260))] * 2))
    if draw(st.booleans()):
        return picture, size, None
    ends = []
    for side in (width, height):
        begin = draw(st.floats(0, side - 0.5))
        ends.append((begin, draw(st.floats(begin + 0.4, side))))
    (left, right), (top, bottom) = ends
    return picture, size, (left, top, right, bottom)


@needs_compiler
@settings(max_examples=400, deadline=None)
@given(asked=asked())
def test_bytes_are_those_that_pillow_comes_to(compiled: Resampler, asked) -> None:
    picture, size, box = asked
    found = compiled.planes(picture, size, box)
    assert compiled.is_compiled and found.dtype == np.uint8 and found.flags.c_contiguous
    np.testing.assert_array_equal(found, Resampler(compiles=False).planes(picture, size, box))


@settings(max_examples=300, deadline=None)
@given(asked=asked(), upright=st.booleans())
def test_pillow_at_once_comes_to_the_same_but_for_its_order(asked, upright: bool) -> None:
    """Of stripes, which one pass leaves as they are but for its rounding, in whichever order its version takes them."""
    picture, size, box = asked
    pixels = np.asarray(picture)
    picture = Image.fromarray(np.broadcast_to(pixels[:1] if upright else pixels[:, :1], pixels.shape).copy())
    found = Resampler(compiles=False).planes(picture, size, box).astype(int)
    expected = planes_of(picture.resize(size[::-1], BICUBIC, box, reducing_gap=2.0))
    assert abs(found - expected).max() <= 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_part_of_a_long_picture_takes_no_more_than_its_part() -> None:
    """Of 10 x 2,000,000 pixels the part alone is brought to 224 columns: all would be 1.8 GB."""
    code = (
        "import numpy as np; from PIL import Image; from kosmos import Media\n"
        "from kosmos_vision.images import ImageInput, ImageProcessor\n"
        "from kosmos_vision.resampling import Resampler\n"
        "for compiles in (False, True):\n"
        "    resampler = Resampler(compiles, 0.0)\n"
        "    while compiles and resampler.hints == () and not resampler.is_compiled:\n"
        "        resampler.planes(Image.new('RGB', (9, 9)), (5, 5))\n"
        "    for size in ((10, 2_000_000), (2_000_000, 10)):\n"
        "        begin = tuple((side - 10) / 2 for side in size)\n"
        "        resampler.planes(Image.new('RGB', size), (224, 224), (*begin, *(at + 10 for at in begin)))\n"
        "for size in ((10, 2_000_000), (2_000_000, 10)):\n"
        "    padded = ImageProcessor(ImageInput((16, 16), (224, 224)), resize='pad', exact=True)\n"
        "    media = Media('image', np.zeros((*size, 3), np.uint8))\n"
        "    padded.decode(media, padded.plan(media))\n"
        "print(*[line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert int(done.stdout) < 400_000  # KiB; the picture itself takes 80,000; measured: 125,000


@needs_compiler
@pytest.mark.parametrize("folder", ["images/coco", "images/flowers", "images/photos"])
@pytest.mark.parametrize("how", ["squash", "crop", "pad", "exact pad"])
def test_real_pictures_come_to_the_same_cells(
    compiled: Resampler, folder: str, how: str, shared_data: Callable[[str], Path]
) -> None:
    files = sorted(shared_data(folder).rglob("*.jp*g"))[:20]
    assert files
    for size in (64, 224):
        by_pillow, by_c = (
            ImageProcessor(
                ImageInput((16, 16), (size, size)), resize=how.split()[-1], exact="exact" in how, compile=compile
            )
            for compile in (False, True)
        )
        by_c.resampler = compiled
        for file in files:
            media = Media("image", file)
            cells = [processor.decode(media, processor.plan(media)) for processor in (by_pillow, by_c)]
            np.testing.assert_array_equal(*cells)


@needs_compiler
def test_a_process_compiles_once_it_has_spent_what_that_takes(begun: Callable[[], bool]) -> None:
    resampler, picture = Resampler(pays_s=0.05), noise(600, 600)
    resampler.planes(noise(9, 9), (5, 5))
    assert not begun()
    expected = resampler.planes(picture, (224, 224))
    end = time.monotonic() + PATIENCE_S
    while not resampler.is_compiled and time.monotonic() < end:
        np.testing.assert_array_equal(resampler.planes(picture, (224, 224)), expected)
    assert resampler.is_compiled and begun()
    np.testing.assert_array_equal(resampler.planes(picture, (224, 224)), expected)


@needs_compiler
def test_another_process_compiles_for_itself(compiled: Resampler) -> None:
    there = pickle.loads(pickle.dumps(compiled))
    assert not there.is_compiled
    assert until_compiled(there).is_compiled


def test_who_wants_nothing_compiled_is_left_alone(begun: Callable[[], bool]) -> None:
    resampler = Resampler(compiles=False, pays_s=0.0)
    resampler.planes(noise(9, 9), (5, 5))
    assert resampler.hints == () and not begun()


def test_who_has_no_compiler_is_told_before(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    resampler = Resampler(pays_s=0.0)
    (hint,) = resampler.hints
    assert hint == (
        f"pictures are resized by Pillow, in two to four times the time: {WHERE}: it needs a C++ compiler: CXX names "
        f"no-such-compiler; install one, or set {WHERE}=false"
    )
    for _ in range(3):
        resampler.planes(noise(9, 9), (5, 5))
    assert not resampler.is_compiled and capfd.readouterr().err == ""


OTHER = """
for source; do case $source in *.cpp) break;; esac; done
sed 's/1.5 \\* x - 2.5/1.25 * x - 2.25/' "$source" > "$TMPDIR/other.cpp"
exec "$REAL" -shared -fPIC -O1 "$TMPDIR/other.cpp" -o "$(eval echo \\${$#})"
"""


EMPTY = """
echo "int nothing;" > "$TMPDIR/x.cpp"
exec "$REAL" -shared "$TMPDIR/x.cpp" -o "$(eval echo \\${$#})"
"""


@needs_compiler
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'error: no such thing' >&2; exit 3", f"{WHERE}: .*failed: error: no such thing; set {WHERE}=false"),
        (OTHER, f"{WHERE}: it gives other values than Pillow"),
        (EMPTY, "undefined symbol"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_or_differs_is_told_once(
    script: str, said: str, compiler: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    compiler(script)
    resampler, picture = Resampler(pays_s=0.0), noise(40, 40)
    expected = Resampler(compiles=False).planes(picture, (30, 30))
    end, told = time.monotonic() + PATIENCE_S, ""
    while not told and time.monotonic() < end:
        np.testing.assert_array_equal(resampler.planes(picture, (30, 30)), expected)
        told += capfd.readouterr().err
        time.sleep(0.05)
    assert told.startswith("warning: pictures go on to be resized by Pillow, in two to four times the time: ")
    assert re.search(said, told) and told.count("\n") == 1, told
    np.testing.assert_array_equal(resampler.planes(picture, (30, 30)), expected)
    assert not resampler.is_compiled and capfd.readouterr().err == ""


def test_a_process_that_is_killed_as_it_compiles_leaves_nothing(
    compiler: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler("exec sleep 2")
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "own"))
    code = (
        "import numpy as np; from PIL import Image; from kosmos import Media\n"
        "from kosmos_vision.images import ImageInput, ImageProcessor\n"
        "from kosmos_vision.resampling import Resampler\n"
        "resampler = Resampler(pays_s=0.0)\n"
        "resampler.planes(Image.new('RGB', (9, 9)), (5, 5)); print('begun', flush=True); input()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "begun\n"
    assert len(os.listdir(tmp_path / "own")) == 1
    process.send_signal(signal.SIGKILL)
    process.communicate()
    end = time.monotonic() + PATIENCE_S
    while os.listdir(tmp_path / "own"):
        assert time.monotonic() < end
        time.sleep(0.05)


FORK = """
import os, signal, time
from PIL import Image
from kosmos_vision.resampling import Resampler

def until_compiled():
    while not resampler.is_compiled:
        resampler.planes(Image.new("RGB", (9, 9)), (5, 5))

resampler = Resampler(pays_s=0.0)
resampler.planes(Image.new("RGB", (9, 9)), (5, 5))
there, here = os.pipe()
if not (child := os.fork()):
    until_compiled()
    os.write(here, b"child")
    time.sleep(1000)
until_compiled()
print("parent", os.read(there, 5).decode())
os.kill(child, signal.SIGKILL)
"""


@needs_compiler
def test_who_forks_as_it_compiles_waits_for_nobody() -> None:
    """The child, which compiles for itself, outlives what was begun."""
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert (done.stdout, done.stderr) == ("parent child\n", "")


def test_a_compilation_that_nobody_waits_for_is_ended(
    compiler: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(f'echo $$ > "{tmp_path}/compiler"; exec sleep 1000')
    (tmp_path / "own").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "own"))
    resampler = Resampler(pays_s=0.0)
    resampler.planes(noise(9, 9), (5, 5))
    end = time.monotonic() + PATIENCE_S
    while not (tmp_path / "compiler").exists() or not (tmp_path / "compiler").read_text():
        assert time.monotonic() < end
        time.sleep(0.01)
    del resampler
    assert os.listdir(tmp_path / "own") == []
    assert not Path("/proc", (tmp_path / "compiler").read_text().strip()).exists()


def test_a_picture_of_its_size_stays_as_it_is() -> None:
    picture = noise(64, 48)
    np.testing.assert_array_equal(Resampler().planes(picture, (64, 48)), planes_of(picture))
