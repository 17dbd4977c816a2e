"""How parts of chats want their media sampled is found, and told of a source as a whole."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data.sources import scan_cache

ANSWER = {"role": "assistant", "content": "y"}


def asks(*parts, **beside):
    return {"messages": [{"role": "user", "content": list(parts)}, ANSWER], **beside}


def sound(**said):
    return {"type": "audio", "audio": "b.wav", **said}


@pytest.mark.parametrize(
    ("rows_", "found"),
    [
        ([asks(sound(fps=2.0, max_frames=None)), asks(sound(nframes=8))], {"audio": ["fps", "nframes"]}),
        ([asks({"type": "image_url", "image_url": {"url": "a.png", "detail": "low"}})], {"image": ["detail"]}),
        ([asks({"type": "image_url", "image_url": {"url": "a.png", "detail": "auto"}})], {}),
        ([asks(sound(), fps=2.0), {"audio": "b.wav", "fps": 2.0, "text": "x"}], {}),
        ([asks({"type": "text", "text": "x", "fps": 2.0})], {}),
        ([{"text": "x"}, asks({"type": "video", "video": "a.mp4", "fps": 2.0})], {}),
        (
            [{"conversations": [{"from": "human", "value": [sound(fps=1)]}, {"from": "gpt", "value": "y"}]}],
            {"audio": ["fps"]},
        ),
    ],
)
def test_a_source_knows_the_wishes_of_its_usable_rows(open_, rows, rows_, found):
    source = open_(rows(*rows_))
    assert source.wishes == found
    assert len(source.document(0).segments) > 0


def test_wishes_are_recorded_with_what_else_was_found(open_, rows, tmp_path, monkeypatch):
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scan_cache, "LEAST_BYTES", 0)
    path = rows(asks(sound(fps=2.0)))
    assert open_(path).wishes == open_(path).wishes == {"audio": ["fps"]}


def test_parts_in_a_parquet_table_have_every_key_and_wish_what_is_not_null(open_, rows, tmp_path):
    rows()
    chat = asks(sound(fps=2.0, nframes=None), {"type": "text", "text": "What?"})
    turns = [{"role": turn["role"], "content": turn["content"]} for turn in chat["messages"]]
    turns[1]["content"] = [{"type": "text", "text": "y"}]
    pq.write_table(pa.table({"messages": [turns]}), tmp_path / "a.parquet")
    assert open_(tmp_path / "a.parquet").wishes == {"audio": ["fps"]}
