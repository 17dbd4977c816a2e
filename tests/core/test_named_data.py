"""What ``--data`` names: a path, a pattern, or the fields of a source."""

from __future__ import annotations

import pytest

from kosmos.commands.answer_columns import named_file
from kosmos.commands.arguments import short_options
from kosmos.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("{path: a.jsonl, columns: {text: said}}", {"path": "a.jsonl", "columns": {"text": "said"}}),
        ("{a,b}.jsonl", {"path": "{a,b}.jsonl"}),
        ("{00..12}", {"path": "{00..12}"}),
        ("org/set:config", {"path": "org/set:config"}),
    ],
)
def test_fields_of_a_source_stand_in_place_of_its_path(text, entry) -> None:
    assert short_options(data=[text]) == {"data": {"sources": [entry]}}


def test_a_file_that_is_called_so_is_a_path(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "{path: a}").write_text("text")
    assert short_options(data=["{path: a}"]) == {"data": {"sources": [{"path": "{path: a}"}]}}


@pytest.mark.parametrize("text", ["{columns: {text: said}}", "{path: [a: b}", "{path: 1}"])
def test_fields_without_a_path_are_refused(text) -> None:
    with pytest.raises(ConfigError, match=r"--data .*expected a path, or fields as '{path: FILE, columns"):
        short_options(data=[text])


def test_a_pattern_among_fields_needs_quotes() -> None:
    with pytest.raises(ConfigError, match=r"a pattern needs quotes there \(path: \"{a,b}.jsonl\"\)"):
        short_options(data=["{path: {a,b}.jsonl, columns: {text: said}}"])
    assert named_file("{a,b}.jsonl") == ("{a,b}.jsonl", {})
