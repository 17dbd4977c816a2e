"""Prompts that are longer than what a run was trained on, and why a text ended."""

from __future__ import annotations

import warnings

import pytest

from kosmos import (
    Composition,
    ConfigError,
    Document,
    Documents,
    SampleError,
    Text,
    generate_answers,
    generate_text,
    generate_texts,
)
from kosmos.commands.writing import LongPrompts
from kosmos.evaluate.answer import Generated
from support.backbones import composed

ROW = 128
SHORT, LONG = Document("short", (Text("a" * 9),)), Document("long", (Text("a" * ROW),))
WARNED = rf"^long: the prompt takes {ROW + 1:,} tokens, and a row of the run held {ROW:,}: it was trained on no docum"
ONE = {"max_new_tokens": 1}


@pytest.fixture(scope="module")
def parts() -> Composition:
    made = composed("decoder")
    assert made.planner.max_tokens == ROW
    return made


@pytest.mark.parametrize(
    "ask",
    [
        lambda parts, documents, **how: [generate_text(parts, document, **how) for document in documents],
        lambda parts, documents, **how: generate_texts(parts, documents, **how),
        lambda parts, documents, **how: [*generate_answers(parts, Documents("asked", documents), **how)],
    ],
)
def test_one_that_is_longer_than_any_row_is_warned_of_where_it_is_asked(parts: Composition, ask) -> None:
    with pytest.warns(UserWarning, match=WARNED) as found:
        assert len(ask(parts, [SHORT, LONG], **ONE)) == 2
    assert [warning.filename for warning in found] == [__file__]
    with warnings.catch_warnings(action="error"):
        ask(parts, [SHORT], **ONE)
        ask(parts, [SHORT, LONG], max_prompt_tokens=ROW + 1, **ONE)  # somebody means them


def test_what_is_longer_than_a_caller_takes_is_refused_by_both_numbers(parts: Composition) -> None:
    refused = rf"the prompt takes {ROW + 1:,} tokens, and max_prompt_tokens is 10$"
    with pytest.raises(SampleError, match=f"^{refused}"):
        generate_text(parts, LONG, max_prompt_tokens=10, **ONE)
    with pytest.raises(SampleError, match=rf"^documents\[1\] \(long\): {refused}"):
        generate_texts(parts, [SHORT, LONG], max_prompt_tokens=10, **ONE)
    source = Documents("asked", [SHORT, LONG])
    assert [one.origin for one in generate_answers(parts, source, max_prompt_tokens=10, **ONE)] == ["short"]
    with pytest.raises(ConfigError, match=r"^max_prompt_tokens: expected "):
        generate_text(parts, SHORT, max_prompt_tokens=0)


def test_why_a_text_ended_and_what_it_took_is_told_behind_its_last_piece(parts: Composition) -> None:
    told: list[str | Generated] = []
    text = generate_text(parts, SHORT, on_text=told.append, on_end=told.append, max_new_tokens=6)
    *pieces, end = told
    assert isinstance(end, Generated) and "".join(map(str, pieces)) == text == end.text
    assert (end.origin, end.prompt_tokens, end.tokens, end.ended) == ("short", 10, 6, "max_new_tokens")
    ends: list[Generated] = []
    assert generate_texts(parts, [SHORT] * 2, on_end=ends.append, max_new_tokens=6) == [text, text]
    assert ends == [end, end]
    with pytest.raises(ConfigError, match=r"^on_end: expected a function that takes what was generated, got 3"):
        generate_texts(parts, [SHORT], on_end=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ([ROW, 2], []),
        ([2, ROW + 1], [f"1: the prompt takes {ROW + 1:,} tokens, and a row of the run held {ROW:,}: it was trained"]),
        ([2, ROW + 4, ROW + 9], [f"2 prompts take more tokens than a row of the run held ({ROW:,}): it was trained"]),
    ],
)
def test_of_many_one_line_tells(lengths: list[int], said: list[str]) -> None:
    long = LongPrompts(ROW)
    for number, length in enumerate(lengths):
        long.see([Generated(f"{number}", None, "", prompt_tokens=length)])
    found = [*long.told()]
    assert [line[: len(begin)] for line, begin in zip(found, said, strict=True)] == said
    assert all("; the first is 1, with" in line for line in found if " prompts " in line)
