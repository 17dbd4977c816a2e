"""Planning and decoding of films."""

from __future__ import annotations

import io
import json
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from kosmos import ConfigError, Grid, Media, SampleError
from kosmos_video.frames import VideoProcessor
from support.films import CLIP, Picture, encoded, numbered, shown

HOW = [{}, {"num_clips": 2}]
"""Sampling by which all films have one plan, which reads nothing, and by which each has that of its header."""


def cells_of(processor: VideoProcessor, media: Media) -> np.ndarray:
    return processor.decode(media, processor.plan(media))


@settings(max_examples=40, deadline=None)
@given(
    num_frames=st.integers(1, 40),
    size=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    rate_hz=st.floats(0.3, 240),
    sampling=st.sampled_from([{}, {"num_clips": 3}, {"frame_rate_hz": 7.0}, {"num_clips": 2, "frame_rate_hz": 30.0}]),
)
def test_clips_decode_to_the_cells_that_were_planned(
    num_frames: int, size: tuple[int, int], rate_hz: float, sampling: dict[str, Any]
) -> None:
    processor = VideoProcessor(CLIP, **sampling)
    media = Media("video", numbered(num_frames, *size), rate_hz=rate_hz)
    plan = processor.plan(media)
    cells = processor.decode(media, plan)
    assert cells.shape == (plan.cells, *processor.cell_shape) == (plan.cells, 3, 4, 16, 16)
    assert cells.dtype == processor.cell_dtype
    assert plan.grids == (Grid(2, 3, 2),) * sampling.get("num_clips", 1)


@settings(max_examples=40, deadline=None)
@given(
    num_frames=st.integers(1, 40),
    size=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    rate_hz=st.floats(0.3, 240),
    sampling=st.sampled_from([{}, {"num_frames": 5}, {"frame_rate_hz": 1.7}]),
)
def test_frames_decode_to_the_cells_that_were_planned(
    num_frames: int, size: tuple[int, int], rate_hz: float, sampling: dict[str, Any]
) -> None:
    processor = VideoProcessor(Picture(), **sampling)
    media = Media("video", numbered(num_frames, *size), rate_hz=rate_hz)
    plan = processor.plan(media)
    cells = processor.decode(media, plan)
    assert cells.shape == (plan.cells, *processor.cell_shape) == (plan.cells, 3, 8, 8)
    assert set(plan.grids) == {Grid(1, 2, 3)}


@settings(max_examples=60, deadline=None)
@given(num_frames=st.integers(1, 60), rate_hz=st.floats(0.5, 120))
def test_an_array_sampled_at_its_own_rate_gives_every_frame_once(num_frames: int, rate_hz: float) -> None:
    processor = VideoProcessor(Picture(), frame_rate_hz=rate_hz)
    assert shown(processor, Media("video", numbered(num_frames), rate_hz=rate_hz)) == list(range(num_frames))


def test_a_clip_of_eight_frames_from_a_film_of_eight_is_the_film() -> None:
    film = Media("video", numbered(8, 48, 32), rate_hz=8.0)
    assert shown(VideoProcessor(CLIP), film) == list(range(8))
    assert shown(VideoProcessor(CLIP, frame_rate_hz=8.0), film) == list(range(8))


def test_a_film_shorter_than_a_clip_holds_its_last_frame() -> None:
    film = Media("video", numbered(3, 48, 32), rate_hz=8.0)
    assert shown(VideoProcessor(CLIP, frame_rate_hz=8.0), film) == [0, 1, 2, 2, 2, 2, 2, 2]
    assert shown(VideoProcessor(CLIP), Media("video", numbered(1, 48, 32), rate_hz=8.0)) == [0] * 8


def test_cells_are_blocks_of_time_then_rows_then_columns() -> None:
    film = np.random.default_rng(0).integers(0, 256, (8, 48, 32, 3), np.uint8)
    media = Media("video", film, rate_hz=8.0)
    processor = VideoProcessor(CLIP)
    cells = processor.decode(media, processor.plan(media))
    second_time_last_row_first_column = film[4:, 32:, :16].transpose(3, 0, 1, 2)
    np.testing.assert_array_equal(cells[6 + 2 * 2], second_time_last_row_first_column)


def test_times_precede_the_items_and_count_from_the_clip() -> None:
    film = Media("video", numbered(30), rate_hz=10.0)
    grid = Grid(1, 2, 3)
    assert VideoProcessor(Picture()).plan(film).layout == (
        *("<video>", "0.0s", grid, "1.0s", grid, "2.0s", grid, "</video>"),
    )
    part = Media("video", film.source, clip=(1.0, 2.0), rate_hz=10.0)
    processor = VideoProcessor(Picture(), frame_rate_hz=2.0)
    assert processor.plan(part).layout == ("<video>", "0.0s", grid, "0.5s", grid, "</video>")
    assert shown(processor, part) == [10, 15]
    assert VideoProcessor(Picture(), num_frames=1, time_marks=False).plan(film).layout == ("<video>", grid, "</video>")


def test_a_clip_outside_the_film_is_refused() -> None:
    for clip in ((3.0, 4.0), (2.0, 1.0), (-1.0, 1.0), (1.0, 9.0), (float("nan"), 1.0)):
        with pytest.raises(SampleError, match="does not lie in"):
            VideoProcessor(Picture()).plan(Media("video", numbered(30), clip=clip, rate_hz=10.0))


def test_frames_of_a_variable_rate_are_chosen_by_their_times() -> None:
    times_ms = [0, 33, 67, 100, 200, 300, 533, 767, 1000]
    film = encoded(list(numbered(9)), times_ms)
    processor = VideoProcessor(Picture(), frame_rate_hz=10.0)
    media = Media("video", film)
    wanted = [max(i for i, at in enumerate(times_ms) if at <= 100 * k + 1) for k in range(11)]
    assert shown(processor, media)[:11] == wanted == [0, 3, 4, 5, 5, 5, 6, 6, 7, 7, 8]


def test_an_encoded_film_equals_its_array() -> None:
    film = np.random.default_rng(1).integers(0, 256, (8, 48, 32, 3), np.uint8)
    times_ms = [125 * i for i in range(8)]
    processor = VideoProcessor(CLIP, frame_rate_hz=8.0)
    coded, array = Media("video", encoded(list(film), times_ms)), Media("video", film, rate_hz=8.0)
    np.testing.assert_array_equal(
        processor.decode(coded, processor.plan(coded)), processor.decode(array, processor.plan(array))
    )


ONE_PLAN = [
    (CLIP, {}),
    (CLIP, {"time_marks": False, "num_clips": 3}),
    (CLIP, {"time_marks": False, "num_clips": 2, "frame_rate_hz": 7.0}),
    (Picture(), {"time_marks": False, "num_frames": 5}),
]


@pytest.mark.parametrize(("encoder_input", "sampling"), ONE_PLAN)
def test_films_of_one_plan_are_opened_once_and_show_what_their_headers_would_have_planned(
    encoder_input: Any, sampling: dict[str, Any], shared_data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shared_data("video")
    rows = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    media = [Media("video", folder / row["video"]) for row in rows[::6]]
    media += [replace(media[0], clip=(0.2, 0.9)), Media("video", numbered(30), rate_hz=10.0)]
    once = VideoProcessor(encoder_input, **sampling)
    by_header = VideoProcessor(encoder_input, **sampling)
    by_header.reads_headers, by_header._one_plan = True, None
    opened, av_open = [], av.open
    monkeypatch.setattr(av, "open", lambda *args, **options: opened.append(args) or av_open(*args, **options))
    for medium in media:
        opened.clear()
        cells, plan = cells_of(once, medium), once.plan(medium)
        assert len(opened) == (not isinstance(medium.source, np.ndarray))
        assert plan.layout == by_header.plan(medium).layout
        np.testing.assert_array_equal(cells, cells_of(by_header, medium))
    assert not once.reads_headers


@pytest.mark.parametrize(
    ("encoder_input", "sampling"),
    [
        (CLIP, {"num_clips": 2}),
        (CLIP, {"frame_rate_hz": 7.0}),
        (Picture(), {"num_frames": 5}),
        (Picture(), {"time_marks": False}),
    ],
)
def test_films_whose_tokens_hang_on_how_long_they_are_have_plans_of_their_own(
    encoder_input: Any, sampling: dict[str, Any]
) -> None:
    processor = VideoProcessor(encoder_input, **sampling)
    plans = {processor.plan(Media("video", numbered(count), rate_hz=2.0)).layout for count in (10, 40)}
    assert processor.reads_headers
    assert len(plans) == 2


def test_a_film_whose_header_has_no_duration_is_counted() -> None:
    whole = encoded(list(numbered(9)), [100 * i for i in range(9)])
    duration, tag = whole.index(b"\x44\x89\x88"), whole.index(b"DURATION")
    # Duration and the track's DURATION tag overwritten: EBML Void in place of the one, another name for the other.
    silent = whole[:duration] + b"\xec\x89" + bytes(9) + whole[duration + 11 :]
    silent = silent.replace(whole[tag : tag + 8], b"DURATIOX")
    media = Media("video", silent)
    processor = VideoProcessor(Picture(), frame_rate_hz=10.0)
    assert processor.plan(media).recipe.declared.num_frames == 9
    assert shown(processor, media) == list(range(9))
    once, by_header = (VideoProcessor(Picture(), num_frames=5, time_marks=marks) for marks in (False, True))
    np.testing.assert_array_equal(cells_of(once, media), cells_of(by_header, media))


@pytest.mark.parametrize("name", ["rotated_90.mp4", "rotation_90.mp4"])
def test_rotated_films_are_turned_upright(name: str, shared_data: Callable[[str], Path]) -> None:
    path = shared_data("corner/video") / name
    with av.open(io.BytesIO(path.read_bytes())) as container:
        frame = next(container.decode(video=0))
        flat = frame.to_ndarray(format="rgb24")
    upright = np.rot90(flat, k=-1)  # the matrix says: a quarter turn clockwise
    height, width = upright.shape[:2]
    processor = VideoProcessor(Picture((height, width), (height, width)), num_frames=1)
    plan = processor.plan(media := Media("video", path, clip=(0.0, 0.02)))
    cell = processor.decode(media, plan)[0].transpose(1, 2, 0)
    np.testing.assert_array_equal(cell, upright)


def test_every_film_of_the_collection_decodes_as_planned(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("video")
    rows = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    processor = VideoProcessor(CLIP)
    for row in rows:
        media = Media("video", folder / row["video"])
        plan = processor.plan(media)
        assert plan == processor.plan(media), row
        assert len(processor.decode(media, plan)) == plan.cells, row
    assert len(rows) == 49


CHILD = """
import sys
from pathlib import Path
from kosmos import Media, SampleError
from kosmos_video.frames import ClipInput, VideoProcessor
half = (0.5, 0.5, 0.5)
processor = VideoProcessor(ClipInput(8, 4, (16, 16), (48, 32), half, half))
media = Media("video", Path(sys.argv[1]))
try:
    plan = processor.plan(media)
    cells = processor.decode(media, plan)
    print("cells", len(cells), plan.cells)
except SampleError as error:
    print("refused", error)
"""


def test_every_corner_film_decodes_or_is_refused_with_a_reason(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("corner")
    rows = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    for row in rows:
        if "video" not in row:
            continue
        child = [sys.executable, "-c", CHILD, str(folder / row["video"])]
        run = subprocess.run(child, capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, (row["video"], run.returncode, run.stderr)  # -11 would be a crash of the decoder
        whole = row["decodes"] == "yes" and row["video"] != "video/audio_only.mp4"
        assert run.stdout == "cells 12 12\n" if whole else run.stdout.startswith("refused "), (row, run.stdout)


@pytest.mark.parametrize("how", HOW)
def test_a_sound_file_is_refused_by_what_it_holds(how: dict[str, Any], shared_data: Callable[[str], Path]) -> None:
    media = Media("video", shared_data("corner/video") / "audio_only.mp4")
    with pytest.raises(SampleError, match="no video, only: audio"):
        cells_of(VideoProcessor(CLIP, **how), media)


@pytest.mark.parametrize("how", HOW)
def test_a_sound_file_with_a_picture_on_its_cover_is_told_to_hold_no_more(how: dict[str, Any]) -> None:
    with av.open(file := io.BytesIO(), "w", format="mp4") as container:
        sound, cover = container.add_stream("aac", rate=16_000, layout="mono"), container.add_stream("png", rate=1)
        cover.height, cover.width, cover.pix_fmt = 8, 8, "rgb24"
        cover.disposition = av.stream.Disposition.attached_pic
        samples = av.AudioFrame.from_ndarray(np.zeros((1, 4096), np.float32), format="fltp", layout="mono")
        samples.sample_rate = 16_000
        container.mux([*cover.encode(av.VideoFrame(8, 8, "rgb24")), *cover.encode(None)])
        container.mux([*sound.encode(samples), *sound.encode(None)])
    message = r"file holds no video, only: audio, cover art \(an attached picture\)$"
    with pytest.raises(SampleError, match=message):
        cells_of(VideoProcessor(CLIP, **how), Media("video", file.getvalue()))


def test_truncated_films_are_never_silently_short(shared_data: Callable[[str], Path]) -> None:
    whole = (shared_data("corner/video") / "truncated_faststart.mp4").read_bytes()
    good = shared_data("video/grid") / "brbk7n.mp4"
    processor = VideoProcessor(CLIP)
    full = processor.decode(m := Media("video", good), processor.plan(m))
    refused = 0
    for source, share in [(whole, i / 12) for i in range(4, 13)] + [(good.read_bytes(), i / 12) for i in range(4, 13)]:
        media = Media("video", source[: int(len(source) * share)])
        try:
            cells = processor.decode(media, processor.plan(media))
        except SampleError:
            refused += 1
        else:
            np.testing.assert_array_equal(cells, full)
    assert refused >= 16
    with pytest.raises(
        SampleError, match=r"declares 75 frames, 3\.000 s, but its frames end at 1\.520 s \(38 frames\)"
    ):
        processor.decode(m := Media("video", whole), processor.plan(m))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_bytes": 1000}, "over max_bytes 1000"),
        ({"max_pixels": 100}, "max_pixels 100"),
        ({"max_source_frames": 40}, "75 frames, over max_source_frames 40"),
        ({"max_duration_s": 2.0}, "over max_duration_s 2"),
    ],
)
@pytest.mark.parametrize("how", HOW)
def test_limits_are_checked_before_decoding(
    how: dict[str, Any], limits: dict[str, Any], message: str, shared_data: Callable[[str], Path]
) -> None:
    media = Media("video", shared_data("video/grid") / "brbk7n.mp4")
    with pytest.raises(SampleError, match=message):
        cells_of(VideoProcessor(CLIP, **how, **limits), media)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("format", ["PNG", "JPEG", "WebP"])
def test_a_picture_is_told_to_be_no_film(how: dict[str, Any], format: str) -> None:
    Image.new("RGB", (8, 8)).save(file := io.BytesIO(), format)
    with pytest.raises(
        SampleError,
        match=r"not a film of a kind that is read \(MP4, .*; sound and single pictures are.*as several images",
    ):
        cells_of(VideoProcessor(CLIP, **how), Media("video", file.getvalue()))


@pytest.mark.parametrize("how", HOW)
def test_a_film_with_a_damaged_header_is_told_that_it_may_be_damaged(how: dict[str, Any]) -> None:
    film = encoded(list(numbered(8, 48, 32)), [*range(0, 320, 40)])
    with pytest.raises(SampleError, match=r"ASF\), or damaged; sound"):
        cells_of(VideoProcessor(CLIP, **how), Media("video", b"\0" + film[1:]))


@pytest.mark.parametrize("how", HOW)
def test_playlists_open_no_other_file(how: dict[str, Any], shared_data: Callable[[str], Path]) -> None:
    film = shared_data("video/asl") / "eat.mkv"
    for text in (f"ffconcat version 1.0\nfile '{film}'\n", f"#EXTM3U\n#EXTINF:1,\n{film}\n#EXT-X-ENDLIST\n"):
        with pytest.raises(SampleError, match="cannot be decoded"):
            cells_of(VideoProcessor(CLIP, **how), Media("video", text.encode()))


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((0, 4, 4, 3), np.uint8),
        np.zeros((2, 4, 4, 3)),
        np.zeros((2, 4, 4, 3), np.int64),
        np.zeros((2, 4, 4, 3), bool),
        np.zeros((4, 4, 3), np.uint8),
    ],
)
def test_arrays_of_another_form_are_refused(bad: np.ndarray, how: dict[str, Any]) -> None:
    with pytest.raises(SampleError, match=r"must be uint8 \[T, H, W, 3\]"):
        cells_of(VideoProcessor(CLIP, **how), Media("video", bad, rate_hz=8.0))


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("rate_hz", [None, 0.0, -8.0, float("inf"), float("nan")])
def test_an_array_without_a_rate_that_can_be_is_refused(rate_hz: float | None, how: dict[str, Any]) -> None:
    with pytest.raises(SampleError, match=f"positive, finite rate_hz, got {rate_hz}"):
        cells_of(VideoProcessor(CLIP, **how), Media("video", numbered(4), rate_hz=rate_hz))


def test_an_array_of_infinitely_many_seconds_is_refused() -> None:
    with pytest.raises(SampleError, match="rate_hz by which it ends, got 1e-310"):
        VideoProcessor(Picture()).plan(Media("video", numbered(4), rate_hz=1e-310))


def test_options_that_do_not_fit_the_encoder_are_refused() -> None:
    for encoder_input, options in (
        (CLIP, {"num_frames": 4}),
        (CLIP, {"size_px": (64, 64)}),
        (CLIP, {"frame_rate_hz": 0.0}),
        (CLIP, {"max_frames": 7}),
        (CLIP, {"num_clips": 3, "max_frames": 20}),
        (Picture(), {"num_frames": 9, "max_frames": 8}),
        (Picture(), {"num_clips": 2}),
        (Picture(), {"size_px": (8, 8)}),
        (Picture(), {"num_frames": 2, "frame_rate_hz": 1.0}),
        (Picture(size_px=None), {"size_px": (20, 16)}),
        ("sound", {}),
    ):
        with pytest.raises(ConfigError):
            VideoProcessor(encoder_input, **options)


def test_a_picture_encoder_of_any_size_gets_whole_patches() -> None:
    assert VideoProcessor(Picture((14, 16), None)).size_px == (224, 224)
    assert VideoProcessor(Picture((8, 8), None), size_px=(16, 32)).plan(
        Media("video", numbered(2), rate_hz=2.0)
    ).grids == (Grid(1, 2, 4),)


def test_plans_are_made_without_torch() -> None:
    code = (
        "import sys, numpy as np\n"
        "from kosmos import Media\n"
        "from kosmos_video.frames import ClipInput, VideoProcessor\n"
        "p = VideoProcessor(ClipInput(8, 4, (16, 16), (48, 32), (.5,) * 3, (.5,) * 3))\n"
        "m = Media('video', np.zeros((9, 8, 8, 3), np.uint8), rate_hz=8.0)\n"
        "p.decode(m, p.plan(m))\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_processor_and_plan_cross_to_spawned_workers() -> None:
    processor, media = VideoProcessor(CLIP), Media("video", numbered(9), rate_hz=8.0)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        plan = pool.apply(processor.plan, (media,))
    assert plan == processor.plan(media) == pickle.loads(pickle.dumps(plan))
