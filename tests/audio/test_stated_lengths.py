"""Rows that state a shorter sound than their file holds are told of: their text is one of a piece, most likely."""

from __future__ import annotations

import json

import pytest
import soundfile

from kosmos import load_plugins, make_run, open_sources
from kosmos.data.plan import Route
from kosmos.data.stated_lengths import longer_than_stated
from kosmos_audio.waveform import AudioProcessor
from support.sounds import WAVEFORM, tone


@pytest.fixture
def told(tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(3.0, 8000), 8000)

    def told(*, of=3, **said):
        rows = [{"audio": "a.wav", "text": f"row {number}", **(said if number < of else {})} for number in range(3)]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        data = {"sources": [str(tmp_path / "rows.jsonl")], "held_out": 0.0}
        sources = open_sources(make_run({"modalities": ["audio"], "data": data}), load_plugins(), "train")
        routes = {"audio": Route(AudioProcessor(WAVEFORM), "audio", len, frozenset())}
        return list(longer_than_stated(routes, sources))

    return told


@pytest.mark.parametrize("name", ["duration", "duration_s", "dur"])
def test_a_file_that_is_longer_than_its_row_states_is_told_of_once(told, name):
    (line,) = told(**{name: "1.0"})
    assert line.startswith(f"rows: its rows state a {name}, and files are longer (")
    assert line.endswith(
        "offset: 0 beside duration" if name == "duration" else f"columns: {{offset: offset, duration: {name}}})"
    )


@pytest.mark.parametrize(
    "said",
    [
        *({"duration": value} for value in (3.0, 2.1, 2, 0.05, 60, 2000, 0, "long")),
        *({**said, "duration": 1.0} for said in ({"offset": 0}, {"clip": [0, 1]})),
        {"duration_ms": 1},
        {"duration": 1.0, "of": 1},
    ],
)
def test_what_is_about_as_long_or_a_piece_is_not(told, said):
    assert told(**said) == []
