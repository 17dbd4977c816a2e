"""Text of data, run files and errors cannot steer the terminal that it is shown in."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import sys
from pathlib import Path

import pytest

from kosmos.cli import main
from kosmos.errors import ConfigError
from kosmos.visible import in_a_line, visible
from support.command import SMALL

HIDES = "\x1b[2Jseen\rforged \x9b1A\u202eback"
SHOWN = r"\x1b[2Jseen\x0dforged \x9b1A\u202eback"
SHOWN_NAME = r"a\x0aforged\x09b"
STEERING = re.compile(r"[^\n\t -\x7e\xa0-\u061b\u061d-\u200d\u2010-\u2029\u202f-\u2065\u206a-\U0010ffff]")


def test_letters_of_all_scripts_line_feeds_and_tabs_stay() -> None:
    text = "a\tb\n\u00e4\u00a0\u4e2d \u05d0 \u0627 \U0001f600 \\x1b"
    assert visible(text) == text
    assert visible(HIDES) == visible(visible(HIDES)) == SHOWN


def test_all_that_steers_is_shown_as_an_escape() -> None:
    every = visible("".join(map(chr, range(0x3000))))
    assert not STEERING.search(every)
    assert every.count("\\x") + every.count("\\u") == 30 + 33 + 3 + 5 + 4


def test_a_name_with_line_ends_and_tabs_stays_in_its_line() -> None:
    assert in_a_line("a\nb\tc\u2028d\x1b[2J \u00e4") == r"a\x0ab\x09c\u2028d\x1b[2J \u00e4".replace(r"\u00e4", "\u00e4")


def test_a_listing_has_a_line_for_each_document_whatever_files_are_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a\nforged\tb.jsonl"
    file.write_text('{"text": "one"}\n{"messages": 1}\n')
    assert main([*text_data(file), "data.held_out=0", "--check"]) == 3
    assert main([*text_data(file), "data.held_out=0"]) == 0
    out = capsys.readouterr().out
    assert f"data      {SHOWN_NAME}: 2 documents, 0 held out\n" in out
    assert out.count(f"cannot be used: {tmp_path}/{SHOWN_NAME}.jsonl:2: ") == 2
    assert f"\n{tmp_path}/{SHOWN_NAME}.jsonl:1 (" in out
    assert "\nforged" not in out and "\t" not in out


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"text": HIDES}) + "\n")
    return file


def text_data(rows: Path, *more: str) -> list[str]:
    return ["data", "--modalities", "text", "--data", str(rows), *SMALL, *more]


def test_a_preview_shows_escapes_and_json_the_text_itself(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(text_data(rows)) == 0
    out = capsys.readouterr().out
    assert SHOWN in out
    assert not STEERING.search(out)
    assert main(text_data(rows, "--json")) == 0
    (document,) = json.loads(capsys.readouterr().out)["shown"]
    assert HIDES in [stretch["shown"] for stretch in document["stretches"]]


def test_colours_stay(rows: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert main(text_data(rows)) == 0
    out = capsys.readouterr().out
    plain = re.sub(r"\x1b\[[\d;]*m", "", out)
    assert plain != out
    assert SHOWN in plain
    assert not STEERING.search(plain)


def test_errors_and_tracebacks_show_escapes(rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ConfigError(HIDES).line() == "error[config]: " + SHOWN.replace(r"\x0d", " ")
    run_file = tmp_path / "run.yaml"
    run_file.write_text(json.dumps({HIDES: 1}))
    rows.write_text(json.dumps({HIDES: "a"}) + "\n")
    for arguments in (["train", str(run_file), "--debug"], text_data(rows, "--check"), [f"a{HIDES}"]):
        assert main(arguments) != 0
        out, err = capsys.readouterr()
        assert r"\x1b[2Jseen" in out + err
        assert not STEERING.search(out + err)


def test_lines_of_a_training_show_escapes(rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = rows.rename(tmp_path / f"{HIDES}.jsonl")
    given = ["--modalities", "text", "--data", str(named), "--output", str(tmp_path / "run"), "--steps", "1", *SMALL]
    assert main(["train", *given]) == 0
    out, err = capsys.readouterr()
    assert SHOWN in err
    assert not STEERING.search(out + err)


def test_an_answer_is_shown_with_escapes_and_piped_as_it_is(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    assert (
        main(["train", "--modalities", "text", "--data", str(rows), "--output", str(run), "--steps", "1", *SMALL]) == 0
    )
    capsys.readouterr()
    asked = ["generate", str(run), "--prompt", "a", "--temperature", "5", "--max-new-tokens", "60", "--seed", "1"]
    assert main(asked) == 0
    piped = capsys.readouterr().out
    assert STEERING.search(piped)  # of weights that have learned nothing
    ours, terminal = pty.openpty()
    with io.TextIOWrapper(os.fdopen(terminal, "wb", 0), encoding="utf-8", write_through=True) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(asked) == 0
    parts: list[bytes] = []  # what was written last may come a moment later
    with contextlib.suppress(OSError):  # which is how the end of a terminal that was closed reads
        while part := os.read(ours, 10_000):
            parts.append(part)
    os.close(ours)
    shown = b"".join(parts).decode()
    assert not STEERING.search(shown.replace("\r\n", "\n"))
    assert shown.replace("\r\n", "\n") == visible(piped)
