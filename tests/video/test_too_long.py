"""Films that need more frames than are taken of one are refused, or shown evenly spread."""

from __future__ import annotations

import json

import pytest

from kosmos import ConfigError, Media, SampleError
from kosmos_video.frames import VideoProcessor
from support.films import CLIP, Picture, numbered, shown


def of(num_frames, clip=None):
    return Media("video", numbered(num_frames), clip=clip, rate_hz=8.0)


def test_a_film_that_needs_too_many_frames_is_refused():
    said = r"needs 8 frames, over max_frames 4; .* raise modalities\.video\.processor\.max_frames or set .*too_long=spr"
    with pytest.raises(SampleError, match=said):
        VideoProcessor(Picture(), frame_rate_hz=8.0, max_frames=4).plan(of(8))


def test_of_a_film_that_needs_too_many_frames_the_most_are_spread_evenly():
    processor = VideoProcessor(Picture(), frame_rate_hz=4.0, max_frames=4, too_long="spread")
    assert shown(processor, of(4)) == [0, 2]
    assert shown(processor, of(8)) == [0, 2, 4, 6]
    assert shown(processor, of(16)) == [2, 6, 10, 14]
    assert shown(processor, of(32, clip=(2.0, 4.0))) == [18, 22, 26, 30]
    evenly = VideoProcessor(Picture(), num_frames=4)
    assert processor.plan(of(16)) == evenly.plan(of(16))


def test_of_frames_that_are_decoded_already_a_clip_counts_as_long_as_it_is():
    processor = VideoProcessor(Picture(), num_frames=2, max_duration_s=1.0)
    assert shown(processor, of(32, clip=(3.0, 4.0))) == [26, 30]
    with pytest.raises(SampleError, match="over max_duration_s 1; raise"):
        processor.plan(of(32))


def test_short_and_long_real_films_are_read_at_one_rate(shared_data):
    folder = shared_data("video")
    rows = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    processor = VideoProcessor(Picture(), frame_rate_hz=2.0, max_frames=6, too_long="spread")
    counts = {}
    for row in rows[::3]:
        media = Media("video", folder / row["video"])
        plan = processor.plan(media)
        assert plan == processor.plan(media), row
        assert len(processor.decode(media, plan)) == plan.cells, row
        counts[len(plan.grids)] = media
    assert max(counts) == 6
    assert min(counts) < 6
    with pytest.raises(SampleError, match="over max_frames 6"):
        VideoProcessor(Picture(), frame_rate_hz=4.0, max_frames=6).plan(counts[6])


@pytest.mark.parametrize(
    ("encoder_input", "options"), [(Picture(), {"num_frames": 4}), (CLIP, {}), (CLIP, {"frame_rate_hz": 8.0})]
)
def test_where_all_films_take_the_same_number_of_frames_none_is_too_long(encoder_input, options):
    with pytest.raises(ConfigError, match="too_long: every film takes the same number of frames"):
        VideoProcessor(encoder_input, too_long="spread", **options)


def test_a_rate_and_the_most_frames_are_asked_for_by_their_names():
    with pytest.raises(ConfigError, match="are frame_rate_hz, max_frames and too_long: spread"):
        VideoProcessor(Picture(), num_frames=64, frame_rate_hz=1.0)
