"""Media that turns of chats name beside their content."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data.document import Mark, Text
from kosmos.data.sources import scan_cache
from kosmos.data.sources.since import opened_before
from kosmos.errors import SampleError
from kosmos.train.older_rules import as_begun, keep_older
from kosmos.train.order import PIECES, READ, READS

ANSWER = {"role": "assistant", "content": "A cat."}


def user(text, **media):
    return {"role": "user", "content": text, **media}


def taken(source, index=0):
    """The texts and media of a document, marks left out."""
    found = source.document(index).segments
    return [s.text if isinstance(s, Text) else s.source.name for s in found if not isinstance(s, Mark)]


PLACED = [
    (user("What?", images=["a.png"]), ["a.png", "What?"]),
    (user("What?", image="a.png"), ["a.png", "What?"]),
    (user("What?", images=[{"path": "a.png"}, None]), ["a.png", "What?"]),
    (user("", images=["a.png"]), ["a.png"]),
    (user("A <image> or\n<image>", images=["a.png", "c.png"]), ["A ", "a.png", " or", "c.png"]),
    (user("<audio>\nWhat?", audios=["b.wav"]), ["b.wav", "What?"]),
    (user("What?", images=["a.png"], audio="b.wav"), ["a.png", "b.wav", "What?"]),
    (user([{"type": "image"}, {"type": "text", "text": "What?"}], images=["a.png"]), ["a.png", "What?"]),
    (user([{"type": "text", "text": "What?"}], images=["a.png"]), ["a.png", "What?"]),
    (user("What?", image_url="a.png"), ["a.png", "What?"]),
    (user("What?", image_url={"url": "a.png"}), ["a.png", "What?"]),
    ({"from": "human", "value": "What?", "images": ["a.png"]}, ["a.png", "What?"]),
    ({"role": "tool", "content": "Seen.", "images": ["a.png"]}, None),
]


@pytest.fixture
def two(tmp_path):
    (tmp_path / "c.png").write_bytes(b"picture")


@pytest.mark.parametrize(("turn", "expected"), PLACED)
@pytest.mark.usefixtures("two")
def test_media_of_a_turn_find_their_places_in_it(open_, rows, turn, expected):
    answer = {"from": "gpt", "value": "A cat."} if "from" in turn else ANSWER
    found = taken(open_(rows({"messages": [turn, answer]})))
    assert found == ([*expected, "A cat."] if expected else ["<tool_response>\n", "a.png", *found[2:]])


@pytest.mark.usefixtures("two")
def test_each_turn_has_its_own(open_, rows):
    turns = [user("First", images=["a.png"]), ANSWER, user("<image> second", images=["c.png"]), ANSWER]
    assert taken(open_(rows({"messages": turns}))) == ["a.png", "First", "A cat.", "c.png", " second", "A cat."]
    text = [user("No picture"), ANSWER, *turns]
    assert taken(open_(rows({"messages": text, "audio": None})))[0] == "No picture"


def test_columns_of_a_table_are_null_in_turns_without_media(open_, tmp_path):
    turns = [[user("Hi <b>", images=None), ANSWER], [user("What?", images=["a.png"]), ANSWER]]
    (tmp_path / "a.png").write_bytes(b"picture")
    pq.write_table(pa.table({"messages": turns}), tmp_path / "chats.parquet")
    source = open_(tmp_path / "chats.parquet")
    assert [taken(source, index)[:-1] for index in (0, 1)] == [["Hi <b>"], ["a.png", "What?"]]
    assert source.modalities == {"image"}


REFUSED = [
    ({}, user("A <image> B <image>", images=["a.png"]), "is place 2 for image, and messages.0..images holds 1 medium"),
    ({}, user("A <image> B", images=["a.png"] * 2), r"messages.0..images holds 2 media, 1 placed; put <image>"),
    ({}, user("A <image>", images=[]), r"holds no medium, and the row has none in messages.0..images"),
    ({"images": ["a.png"]}, user("A", images=["a.png"]), r"messages.0..images and images of the row both hold media"),
    ({"audio": "b.wav"}, user("A", images=["a.png"]), r"audio holds 1 medium, 0 placed; put <audio>"),
    ({}, user("A", images=["a.png"], image="c.png"), r"messages.0..image and messages.0..images both hold media"),
    ({}, user("A", images=["a.png"], image_url="c.png"), r"messages.0..image_url and messages.0..images both hold"),
    ({}, user("A", image_url={"url": "https://x.org/a.png"}), "URLs of kind 'https' are never opened"),
    ({}, user("A", images=["gone.png"]), r"image: .*gone.png: no such file"),
    ({}, user("A", images=3), r"image: expected a path, bytes or a data: URL, got a number"),
    ({}, user("A", audio="b.wav", clip=[3, 1]), "clip: expected"),
]


@pytest.mark.parametrize(("beside", "turn", "says"), REFUSED)
@pytest.mark.usefixtures("two")
def test_media_of_a_turn_that_cannot_be_placed_cost_the_row(open_, rows, beside, turn, says):
    source = open_(rows({"messages": [turn, ANSWER], **beside}))
    with pytest.raises(SampleError, match=says):
        source.document(0)


def test_a_turn_says_which_stretch_of_its_medium_is_meant(open_, rows):
    source = open_(rows({"messages": [user("A", audio="b.wav", clip=[1, 2.5]), ANSWER]}))
    assert [medium.clip for medium in source.document(0).media] == [(1.0, 2.5)]


def test_rows_whose_turns_hold_media_of_another_modality_are_left_out(open_, rows):
    film = user("A", videos=["film.mp4"])
    source = open_(rows({"messages": [film, ANSWER]}, {"messages": [user("Hi"), ANSWER]}))
    assert len(source) == 1
    assert source.left_out == {"video": 1}
    plain = open_(rows({"messages": [user("Hi"), ANSWER]}, {"messages": [user("A", images=["a.png"]), ANSWER]}))
    assert plain.modalities == {"image"}


def test_a_run_that_was_begun_before_goes_on_without_them(open_, rows):
    source = open_(rows({"messages": [user("What?", images=["a.png"]), ANSWER]}))
    older = {"data": {"sources": [{"name": source.name}]}, PIECES: "lengths"}
    newer = {**older, READS: READ}
    as_begun(newer, [source])
    assert taken(source) == ["a.png", "What?", "A cat."]
    keep_older(older, newer, [source])
    assert newer == older
    assert taken(source) == ["What?", "A cat."]


def test_one_of_other_modalities_has_those_rows_as_documents_still(open_, rows):
    pictured = {"role": "user", "content": "What?", "images": ["a.png"]}
    path = rows(*({"messages": [turn, ANSWER]} for turn in (user("Hi"), pictured, user("You"))))
    assert [len(open_(path, modalities=modalities)) for modalities in ((), ("audio",), ("image",))] == [2, 2, 3]
    with opened_before(reads_more=False):
        older = [open_(path, modalities=modalities) for modalities in ((), ("audio",), ("image",))]
    assert [len(source) for source in older] == [3, 3, 3]
    with opened_before():
        assert len(open_(path, modalities=())) == 2
    older[0].reads_more = False
    assert taken(older[0], 1) == ["What?", "A cat."]


def test_a_record_of_an_older_runs_rows_is_not_that_of_todays(tmp_path, monkeypatch):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"{}")
    monkeypatch.setattr(scan_cache, "LEAST_BYTES", 0)
    today = scan_cache.record_name("rows", [file])
    with opened_before(reads_more=False):
        assert scan_cache.record_name("rows", [file]) != today
    with opened_before():
        assert scan_cache.record_name("rows", [file]) == today
