"""Chats in which the assistant calls tools: what rows say of it becomes texts that published models have learned."""

from __future__ import annotations

import datetime
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data.document import Mark, Text
from kosmos.data.sources.chat_turns import turns_of
from kosmos.data.sources.tools import CALL, OFFER, told
from kosmos.errors import DataError, SampleError

TOOL = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
WRAPPED = {"type": "function", "function": TOOL}
OFFERED = f"{OFFER[0]}\n{json.dumps(WRAPPED)}{OFFER[1]}"
ASKS = {"role": "user", "content": "Is it cold?"}
SAYS = {"role": "assistant", "content": "It is."}
CALLS = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
ANSWERED = "<tool_response>\n2 degrees\n</tool_response>"
CALL_JSON = '{"name": "weather", "arguments": {"city": "Köln"}}'


def openai(*, content=None, arguments='{"city": "Köln"}'):
    calls = [{"id": "1", "type": "function", "function": {"name": "weather", "arguments": arguments}}]
    return {"role": "assistant", "content": content, "tool_calls": calls}


FORMS = {
    "openai": [openai(), {"role": "tool", "tool_call_id": "1", "content": "2 degrees"}],
    "arguments as an object": [openai(arguments={"city": "Köln"}), {"role": "tool", "content": "2 degrees"}],
    "one function": [
        {"role": "assistant", "content": "", "function_call": {"name": "weather", "arguments": '{"city": "Köln"}'}},
        {"role": "function", "name": "weather", "content": "2 degrees"},
    ],
    "sharegpt": [{"from": "function_call", "value": CALL_JSON}, {"from": "observation", "value": "2 degrees"}],
    "ms-swift": [{"role": "tool_call", "content": CALL_JSON}, {"role": "tool_response", "content": "2 degrees"}],
    "parts": [openai(), {"role": "tool", "content": [{"type": "text", "text": "2 degrees"}]}],
}


def spelled(source, index=0):
    """A document as one text, with what is learned between brackets."""
    segments = source.document(index).segments
    texts = (s.name if isinstance(s, Mark) else f"[{s.text}]" if s.train else s.text for s in segments)
    return "".join(texts).replace("][", "")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tools", [[TOOL], [WRAPPED], json.dumps([TOOL]), [json.dumps(WRAPPED)], TOOL])
def test_calls_answers_and_tools_are_the_same_texts_in_every_form(open_, rows, form, tools):
    source = open_(rows({"messages": [ASKS, *FORMS[form], SAYS], "tools": tools}))
    assert spelled(source) == (
        f"<|system|>{OFFERED}<|end|><|user|>Is it cold?<|end|><|assistant|>[{CALLS}]<|end|>"
        f"<|user|>{ANSWERED}<|end|><|assistant|>[It is.]<|end|>"
    )


def test_tools_stand_behind_what_the_system_says(open_, rows):
    own = [{"role": "system", "content": "Be brief. <image>"}, ASKS, SAYS]
    expected = f"<|system|>Be brief. <image>\n\n{OFFERED}<|end|><|user|>Is it cold?<|end|><|assistant|>[It is.]<|end|>"
    assert spelled(open_(rows({"messages": own, "tools": [TOOL]}))) == expected
    assert spelled(open_(rows({"messages": own[1:], "system": "Be brief. <image>", "functions": [TOOL]}))) == expected
    asked = {"query": "Is it cold?", "response": "It is.", "system": "Be brief. <image>", "tools": [TOOL]}
    assert spelled(open_(rows(asked))) == expected


def test_calls_go_with_what_is_said_before_them_and_answers_in_a_row_are_one_turn(open_, rows):
    called = f"Let me see.\n{CALLS}\n{CALLS}"
    twice = [{"from": "function_call", "value": f"[{CALL_JSON}, {CALL_JSON}]"}]
    each = [{"from": "function_call", "value": CALL_JSON}] * 2
    both = {**openai(content="Let me see."), "tool_calls": openai()["tool_calls"] * 2}
    answers = [{"role": "tool", "content": text} for text in ("2 degrees", "3 degrees")]
    for turns in (
        [{"from": "gpt", "value": "Let me see."}, *twice],
        [{"role": "assistant", "content": "Let me see."}, *each],
        [both],
    ):
        source = open_(rows({"messages": [ASKS, *turns, *answers, SAYS]}))
        assert f"<|assistant|>[{called}]<|end|><|user|>{ANSWERED}\n{ANSWERED.replace('2', '3')}<|end|>" in spelled(
            source
        )


def test_a_picture_that_a_tool_gives_takes_the_next_of_the_row(open_, rows):
    shown = {"role": "tool", "content": [{"type": "image"}, {"type": "text", "text": " of the sky"}]}
    row = {"messages": [ASKS, openai(), shown, SAYS], "images": ["a.png"]}
    (medium,) = open_(rows(row)).document(0).media
    assert medium.source.name == "a.png"
    assert open_(rows({"messages": [ASKS, openai(), SAYS]}), modalities=("audio",))  # no other modality is needed


def test_calls_that_are_not_learned_are_not(open_, rows):
    wrong = {**openai(), "loss": False}
    assert f"<|assistant|>{CALLS}<|end|>" in spelled(
        open_(rows({"messages": [ASKS, wrong, *FORMS["openai"][1:], SAYS]}))
    )
    said = [{**SAYS, "loss": False}, {"role": "tool_call", "content": CALL_JSON}]
    assert f"It is.<|end|><|assistant|>[{CALLS}]<|end|>" in spelled(open_(rows({"messages": [ASKS, *said]})))


def test_tables_have_null_where_no_tool_is_called(open_, tmp_path):
    plain = {"role": "user", "content": "Is it cold?", "tool_calls": None}
    answer = {"role": "assistant", "content": "It is.", "tool_calls": []}
    table = {
        "messages": [[plain, {**openai(), "content": None}, answer], [plain, answer]],
        "tools": [json.dumps([TOOL]), None],
    }
    pq.write_table(pa.table(table), tmp_path / "chats.parquet")
    source = open_(tmp_path / "chats.parquet")
    assert CALLS in spelled(source)
    assert spelled(source, 1) == "<|user|>Is it cold?<|end|><|assistant|>[It is.]<|end|>"


WRONG = {
    "tool_calls": ([ASKS, {**SAYS, "tool_calls": [{"id": "f"}]}], r"\[1\]\.tool_calls\[0\]: expected a call"),
    "arguments": ([ASKS, openai(arguments="city=x")], r"\[1\]\.tool_calls\[0\]\.arguments: expected an object, as"),
    "list": ([ASKS, openai(arguments="[1]")], r"\[1\]\.tool_calls\[0\]\.arguments: expected an object, got a list"),
    "text": ([ASKS, {"role": "tool_call", "content": "weather()"}], r"\[1\]\.content: expected calls of tools, as"),
    "user": ([{**openai(), "role": "user"}, SAYS], r"\[0\]: calls of tools in a turn of 'user'"),
    "null": ([ASKS, openai(), {"role": "tool", "content": None}, SAYS], r"\[2\]\.content: expected text or a list"),
    "python": ([ASKS, {**SAYS, "function_calls": "f()"}], r"\[1\]\.function_calls: calls of tools as a text are"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_calls_that_are_none_cost_their_row(open_, rows, what):
    turns, says = WRONG[what]
    with pytest.raises((SampleError, DataError), match=f"messages{says}"):
        open_(rows({"messages": turns})).document(0)


@pytest.mark.parametrize("tools", ["def f(): ...", [{"description": "x"}], [1], {"f": "()"}])
def test_tools_that_are_none_cost_their_row(open_, rows, tools):
    with pytest.raises(SampleError, match=r"tools(\[0\])?: expected (a list of tools, as JSON|an object with a name)"):
        open_(rows({"messages": [ASKS, SAYS], "tools": tools})).document(0)


def test_chats_without_tools_are_left_as_they_are():
    turns = [{"role": "system", "content": "x"}, ASKS, {**SAYS, "tool_calls": None}, {"from": "gpt", "value": CALL[0]}]
    found = list(turns_of(turns, "messages"))
    assert list(told(found)) == found


def test_times_and_bytes_of_a_table_are_no_json_and_cost_their_row_alone(open_, tmp_path):
    calls = [{"function": {"name": "f", "arguments": {"when": datetime.datetime(2026, 1, 2)}}}]
    turns = [ASKS, {"role": "assistant", "content": "See.", "tool_calls": calls}]
    pq.write_table(pa.table({"messages": [turns, [ASKS, SAYS]]}), tmp_path / "chats.parquet")
    source = open_(tmp_path / "chats.parquet")
    with pytest.raises(SampleError, match=r"arguments: cannot be written as JSON \(Object of type datetime is not"):
        source.document(0)
    assert spelled(source, 1) == "<|user|>Is it cold?<|end|><|assistant|>[It is.]<|end|>"


@pytest.mark.parametrize("said", ["<image>", "<image>ok", "ok<image>", "ok\n<image>\nok"])
def test_a_place_of_a_medium_takes_no_line_end_of_the_frame_around_an_answer(open_, rows, said):
    row = {"messages": [ASKS, openai(), {"role": "tool", "content": said}, SAYS], "images": ["a.png"]}
    segments = open_(rows(row)).document(0).segments
    texts = [s.text if isinstance(s, Text) else "<image>" for s in segments if not isinstance(s, Mark)]
    frame = "".join(texts)[len(ASKS["content"]) + len(CALLS) : -len(SAYS["content"])]
    assert frame == f"<tool_response>\n{said.replace(chr(10), '')}\n</tool_response>"
