"""Texts that end what is written: ``stop`` and ``--stop``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kosmos import ConfigError, generate_answers, generate_text, generate_texts, train_model
from kosmos.cli import main
from kosmos.data.document import Document, Text
from kosmos.data.text_stream import StoppedText, before_stop
from kosmos.data.tokenizer import load_tokenizer
from support.backbones import composed, documents
from support.runs import rows_of, small_run
from support.ticks import TicksSource

TOKENIZER = load_tokenizer("bytes", ())


@given(st.text("abé", max_size=12), st.lists(st.text("abé", min_size=1, max_size=3), max_size=3))
@example("baa", ["a", "baa"])
def test_what_is_told_is_what_stands_before_the_first_text_that_stops(text: str, stop: list[str]) -> None:
    told: list[str] = []
    stopped, read = StoppedText(TOKENIZER, stop, told.append), b""
    for token in text.encode():
        read += bytes([token])
        if stopped.add(token):
            break
    early, whole = "".join(told), read.decode()
    stopped.end()
    assert "".join(told) == before_stop(whole, stop) == whole[: min(_places(whole, stop), default=len(whole))]
    assert not _places(early, stop) and all(told)
    assert stopped.is_over == bool(_places(text, stop))  # as soon as one has come
    assert not _places(whole[:-1], stop) and (not stopped.is_over or early == before_stop(whole, stop))


def _places(text: str, stop: Sequence[str]) -> list[int]:
    return [place for one in stop if (place := text.find(one)) >= 0]


@pytest.mark.parametrize("how", [{}, {"temperature": 1.5, "seed": 4}])
def test_a_text_ends_where_it_would_have_said_something(how) -> None:
    parts = composed("decoder")
    asked, tokens = [*documents()], {"max_new_tokens": 24, **how}
    whole = generate_texts(parts, asked, **tokens)
    longest = max(whole, key=len)
    stop = [longest[5:7], "never \N{SNOWMAN}"]
    cut = [before_stop(text, stop) for text in whole]
    assert len(before_stop(longest, stop)) <= 5 < len(longest)
    assert generate_texts(parts, asked, stop=stop, **tokens) == cut
    pieces: list[str] = []
    document, expected = asked[whole.index(longest)], before_stop(longest, stop)
    assert generate_text(parts, document, stop=stop, on_text=pieces.append, **tokens) == expected == "".join(pieces)
    assert generate_text(parts, document, stop=stop[0], **tokens) == expected


def test_no_more_is_written_behind_it() -> None:
    parts, source = composed("decoder"), TicksSource("train", 6)
    whole = [*generate_answers(parts, source, max_new_tokens=24)]
    longest = max(whole, key=lambda answer: len(answer.text))
    stop = [longest.text[2:4]]
    for answer, found in zip(whole, generate_answers(parts, source, max_new_tokens=24, stop=stop), strict=True):
        assert found.text == before_stop(answer.text, stop)
        if found.text == answer.text:
            assert (found.tokens, found.ended) == (answer.tokens, answer.ended)
        else:
            assert found.tokens < answer.tokens and found.ended == "stop"


@pytest.mark.parametrize("stop", [[""], ["a", 3], 3, None])
def test_what_is_no_text_is_refused(stop: object) -> None:
    parts = composed("decoder")
    with pytest.raises(ConfigError, match=r"^stop: expected a list of texts, none of them empty, such as"):
        generate_text(parts, Document("p", (Text("a"),)), stop=stop)


def test_the_command_stops_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"prompt": f"{number} is", "completion": " one. And more"} for number in range(9)] * 8
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"sources": [str(tmp_path / "rows.jsonl")], "workers": 0}
    train = {"steps": 40, "learning_rate": 0.01, "precision": "fp32"}
    train_model(small_run(tmp_path / "run", modalities=[], data=data, train=train))
    capsys.readouterr()
    run, asked = str(tmp_path / "run"), ["--data", str(tmp_path / "rows.jsonl"), "--max-new-tokens", "12"]
    assert main(["generate", run, "--prompt", "1 is", "--max-new-tokens", "12", "--stop", ". A"]) == 0
    assert capsys.readouterr().out == " one\n"
    answers = tmp_path / "answers.jsonl"
    assert main(["generate", run, *asked, "--max-documents", "2", "--answers", str(answers), "--stop", ". A"]) == 0
    assert {(row["answer"], row["ended"]) for row in rows_of(answers)} == {(" one", "stop")}
    capsys.readouterr()
    assert main(["eval", run, *asked, "--generate", "2", "--stop", "\\n", "--stop", ".", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["generated"]["rows"]["documents"] == 2
    assert told.err.startswith("hint: --stop '\\\\n': a backslash and an n, as they stand")
    for wrong, line in {
        ("generate", run, "--prompt", "x", "--stop", ""): "--stop: the value is empty",
        ("eval", run, "--stop", "."): "--stop: is for what --generate N writes",
        ("generate", run, "--prompt", "x", "--stop-words", "."): "unknown option; --stop TEXT",
    }.items():
        assert main([*wrong]) == 2
        assert line in capsys.readouterr().err
