"""What is put before a model: documents up to their answer, chats, and what the command is given."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import typer

from kosmos import ConfigError, Document, Media, Text
from kosmos.commands import generate as command
from kosmos.compose import compose
from kosmos.config import SourceConfig
from kosmos.data.asked import asked_of, prompt_of
from kosmos.data.chat import chat_prompt, holds_chats
from kosmos.data.document import Mark
from kosmos.run_sources import chats_among, open_sources
from support.backbones import SERIES
from support.runs import small_run, ticks_registry
from support.ticks import TicksSource


def test_a_document_is_split_at_its_last_trained_text():
    prompt, expected = prompt_of(TicksSource("train").document(0))
    assert [type(s) for s in prompt.segments] == [Media]
    assert expected in ("rising", "falling")
    turn = (Text("q"), Text("a", train=True), Mark("<end>", train=True))
    two_turns = Document("d", (*turn, Text("q2"), Text("a2", train=True), Mark("<end>", train=True)))
    prompt, expected = prompt_of(two_turns)
    assert prompt.segments == (*turn, Text("q2"))
    assert expected == "a2"
    parts = Document("d", (Text("q"), Text("a", train=True), Text("b", train=True), Mark("<end>", train=True)))
    prompt, expected = prompt_of(parts)
    assert (prompt.segments, expected) == ((Text("q"),), "ab")


@pytest.mark.parametrize(
    "segments", [(), (Text("a", train=True),), (Text("a"), Text("b")), (Text("a", train=True), Text("b", train=True))]
)
def test_a_document_without_question_and_answer_has_no_prompt(segments):
    assert prompt_of(Document("d", segments)) is None


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "ticks", "ticks": "a.npy"}, {"type": "text", "text": "Up or down?"}]},
    {"role": "assistant", "content": "Up <|end|>"},
    {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": " this?"}]},
    {"role": "assistant", "content": "Neither."},
]


class TicksOfFiles:
    """The processor of ticks, of files: a JSONL source gives paths."""

    def __init__(self, processor):
        self.processor = processor

    def __getattr__(self, name):
        return getattr(self.processor, name)

    def plan(self, media):
        return self.processor.plan(Media("ticks", np.load(media.source)))


@pytest.fixture(params=["bytes", "hf"])
def chats(request, tmp_path):
    """The planner of a run, and the documents of a JSONL file of chats as training reads it."""
    np.save(tmp_path / "a.npy", SERIES)
    rows = [{"messages": row, "split": "train"} for row in (CHAT[:3], CHAT, CHAT[1:], CHAT[3:])]
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"messages": CHAT, "split": "test"}]))
    tokenizer = "bytes"
    if request.param == "hf":
        from kosmos.data.tokenizer import train_tokenizer

        train_tokenizer(["Be brief. Up or down? And this? Neither."] * 9, vocab_size=300, folder=tmp_path / "bpe")
        tokenizer = str(tmp_path / "bpe")
    run = small_run(data={"sources": [str(file)], "workers": 0}, tokenizer=tokenizer)
    parts = compose(run, ticks_registry())
    route = parts.planner.routes["ticks"]
    object.__setattr__(route, "processor", TicksOfFiles(route.processor))
    (source,) = open_sources(run, ticks_registry(), "train")
    assert len(source) == 4
    return parts.planner, [source.document(i) for i in range(4)], tmp_path / "a.npy"


def before_the_answer(planner, document):
    """The tokens that training has in front of the last answer of the assistant."""
    (plan,) = planner.plan(document)
    trained = np.flatnonzero(plan.train)
    last = trained[np.flatnonzero(np.diff(trained, prepend=-9) > 1)[-1]]
    return plan.token_ids[:last].tolist()


def test_the_prompt_of_a_chat_is_token_for_token_what_training_has_in_front_of_the_answer(chats):
    planner, documents, file = chats
    first = [Media("ticks", file), Text("Up or down?")]
    then = [Text("And"), Text(" this?")]
    prompts = [
        chat_prompt(first, system="Be brief."),
        chat_prompt(then, system="Be brief.", history=[(first, "Up <|end|>")]),
        chat_prompt(then, history=[(first, "Up <|end|>")]),
        chat_prompt(then),
    ]
    lengths = set()
    for document, prompt in zip(documents, prompts, strict=True):
        ids = planner.prompt(prompt).token_ids.tolist()
        assert ids == before_the_answer(planner, document)
        lengths.add(len(ids))
    assert len(lengths) == 4


def test_a_string_is_one_text_of_a_chat():
    given = chat_prompt("And this?", history=[("Up or down?", "Up"), ["", "Down"]])
    same = chat_prompt([Text("And this?")], history=[([Text("Up or down?")], "Up"), ([], "Down")])
    assert given.segments == same.segments
    assert Text("And this?") in given.segments


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"content": {"text": "a"}}, r"content: expected a string or a list of Text and Media, got \{'text': 'a'\}"),
        ({"content": Text("a")}, r"content: expected a string or a list of Text and Media, got Text\(.*\)"),
        ({"content": None}, "content: expected a string or a list of Text and Media, got None"),
        ({"content": ["a"]}, r"content\[0\]: expected Text, Media or Codes, got 'a'"),
        (
            {"content": [Text("a"), {"type": "text"}]},
            r"content\[1\]: expected Text, Media or Codes, got \{'type': 'text'\}",
        ),
        ({"system": [Text("a")]}, r"system: expected a string, got \[Text\(.*\)\]"),
        ({"history": "ab"}, r"history: expected a list of pairs \(question, answer\), got 'ab'"),
        ({"history": ("a", "b")}, r"history\[0\]: expected a pair \(question, answer\), got 'a'"),
        (
            {"history": [{"role": "user", "content": "a"}]},
            r"history\[0\]: expected a pair \(question, answer\), got \{'role': .*\}",
        ),
        ({"history": [("a", "b", "c")]}, r"history\[0\]: expected a pair \(question, answer\), got \('a', 'b', 'c'\)"),
        ({"history": [("a", "b"), (3, "c")]}, r"history\[1\]\[0\]: expected a string or a list of .*, got 3"),
        ({"history": [("a", 3)]}, r"history\[0\]\[1\]: expected a string or a list of .*, got 3"),
    ],
)
def test_what_is_no_part_of_a_chat_is_refused_where_it_is_written(given, says):
    with pytest.raises(ConfigError, match=f"^{says}$"):
        chat_prompt(**{"content": "What?", **given})


def test_a_chat_that_ends_with_the_users_turn_opens_the_assistants(chats):
    planner, documents, _ = chats
    for document in documents:
        prompt, expected = prompt_of(document)
        *asked, opened = prompt.segments
        assert opened == Mark("<|assistant|>")
        open_chat, nothing = asked_of(Document("d", tuple(asked)))
        assert (nothing, planner.prompt(open_chat).token_ids.tolist()) == (None, before_the_answer(planner, document))
        again, said = asked_of(document)
        assert (again.segments, said) == (prompt.segments, expected)


def test_the_last_turn_of_the_assistant_is_the_answer_however_it_is_learned(chats):
    _, (document, *_), _ = chats
    prompt, expected = prompt_of(document)
    unlearned = [replace(s, train=False) if isinstance(s, Text | Mark) else s for s in document.segments]
    assert prompt_of(Document("d", tuple(unlearned))) is None
    again, said = asked_of(Document("d", tuple(unlearned)))
    assert (again.segments, said) == (prompt.segments, expected)


def test_a_document_without_an_answer_is_asked_as_a_whole():
    for segments in ((Text("a", train=True),), (Media("ticks", SERIES),), (Media("ticks", SERIES), Text("b"))):
        prompt, expected = asked_of(Document("d", segments))
        assert (prompt.segments, expected) == (segments, None)


def test_the_command_lays_out_a_chat_as_python_does(chats):
    planner, documents, file = chats
    given = read(["run", "--ticks", str(file), "--chat", "--prompt", "Up or down?", "--system", "Be brief."])
    assert planner.prompt(given).token_ids.tolist() == before_the_answer(planner, documents[0])
    empty = read(["run", "--prompt", "x", "--system", ""])
    assert empty.segments == chat_prompt([Text("x")]).segments


def read(arguments):
    """The document of a command line, by the command's own parser."""
    context = typer.main.get_command(command.app).make_context("generate", list(arguments))
    segments = command.read_segments(context.args, ["ticks"])
    return command.prompt_document(segments, chat=context.params["chat"], system=context.params["system"])


def test_the_command_keeps_media_and_prompts_in_the_order_given(tmp_path):
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, SERIES)
    a, b = str(tmp_path / "a.npy"), str(tmp_path / "b.npy")
    given = ["run", "--ticks", b, "--seed", "3", "--prompt", "one", f"--ticks={a}", "--chat", "--prompt=two"]
    shown = [getattr(s, "text", None) or str(s.source) for s in read(given).segments[1:-2]]
    assert shown == [b, "one", a, "two"]
    shown = [getattr(s, "text", None) or str(s.source) for s in read(["run", "--prompt", "p", "--ticks", a]).segments]
    assert shown == ["p", a]


def test_a_prompt_that_is_no_text_is_refused():
    with pytest.raises(ConfigError, match="--prompt: not UTF-8 text, from character 2 on"):
        read(["run", "--prompt", "a\udcff"])


def test_sources_of_chats_are_known_for_the_hint(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (tmp_path / "folder").mkdir()
    chat = json.dumps({"messages": CHAT})
    (tmp_path / "folder" / "part-0.jsonl").write_text(chat + "\n")
    (tmp_path / "plain.jsonl").write_text('{"text": "messages"}\n')
    (tmp_path / "broken.jsonl").write_text("{\n")
    parquet.write_table(pyarrow.table({"talk": ["x"]}), tmp_path / "talk.parquet")
    (tmp_path / "shared.jsonl").write_text('{"conversations": [{"from": "human", "value": "hi"}]}\n')
    assert holds_chats(tmp_path / "folder") and holds_chats(tmp_path / "shared.jsonl")
    assert holds_chats(tmp_path / "talk.parquet", columns={"messages": "talk"})
    for name in ("plain.jsonl", "broken.jsonl", "talk.parquet", "absent.jsonl"):
        assert not holds_chats(tmp_path / name)
    plain = SourceConfig(path=str(tmp_path / "plain.jsonl"))
    talk = SourceConfig(path=str(tmp_path / "talk.parquet"), columns={"messages": "talk"})
    laid_out = SourceConfig(path=str(tmp_path / "folder"), template="{messages[0].content}")
    assert chats_among([SourceConfig(path="ticks"), plain, talk]) == talk.path
    assert chats_among([plain, laid_out]) is None


ASKED, SAID = [{"role": "user", "content": "Q"}], [{"role": "assistant", "content": "a"}]
PAIRS_OF_CHATS = [
    {"prompt": ASKED, "chosen": SAID, "rejected": SAID},
    {"chosen": ASKED + SAID, "rejected": ASKED + SAID},
    {"instruction": "Q", "chosen": "a", "rejected": "b"},
    {"conversations": ASKED, "chosen": SAID[0], "rejected": SAID[0]},
    {"query": "Q", "response": "a", "rejected_response": "b"},
]
PAIRS_OF_TEXTS = [
    {"prompt": "Q", "chosen": "a", "rejected": "b"},
    {"chosen": "\n\nHuman: Q\n\nAssistant: a", "rejected": "\n\nHuman: Q\n\nAssistant: b"},
    {"text": "T", "chosen": ASKED + SAID, "rejected": ASKED + SAID},
    {"chosen": ASKED + SAID},
    {"chosen": 3, "rejected": None},
]


@pytest.mark.parametrize(
    ("row", "expected"), [*((row, True) for row in PAIRS_OF_CHATS), *((row, False) for row in PAIRS_OF_TEXTS)]
)
def test_pairs_of_chats_are_chats(tmp_path, row, expected):
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    assert holds_chats(tmp_path / "rows.jsonl") is expected
    assert not holds_chats(tmp_path / "rows.jsonl", columns={"text": "chosen", "conversations": "none"})


def test_named_pairs_of_chats_are_chats(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"good": ASKED + SAID, "bad": ASKED + SAID}) + "\n")
    assert holds_chats(tmp_path / "rows.jsonl", columns={"chosen": "good", "rejected": "bad"})
    (tmp_path / "rows.csv").write_text("instruction,chosen,rejected\nQ,a,b\n")
    assert holds_chats(tmp_path / "rows.csv")


def test_captions_are_no_chats_whatever_lies_beside_them(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    chat = json.dumps({"messages": CHAT})
    for name in ("manifest", "pairs", "metadata"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "chats.jsonl").write_text(f"{chat}\n")
        assert holds_chats(tmp_path / name)
    (tmp_path / "manifest" / "manifest.jsonl").write_text('{"image": "a.png", "text": "a cat"}\n')
    (tmp_path / "metadata" / "metadata.jsonl").write_text('{"file_name": "a.png", "text": "a cat"}\n')
    for name in ("a.png", "a.txt"):
        (tmp_path / "pairs" / name).write_text("a cat")
    (tmp_path / "null.jsonl").write_text('{"image": "a.png", "text": "a cat", "messages": null, "query": null}\n')
    table = pyarrow.table({"text": ["a cat"], "messages": pyarrow.array([None], pyarrow.list_(pyarrow.string()))})
    parquet.write_table(table, tmp_path / "null.parquet")
    (tmp_path / "segments.jsonl").write_text('{"segments": [{"text": "a cat"}], "messages": []}\n')
    (tmp_path / "in_turn.jsonl").write_text('{"texts": ["a cat", null], "images": [null, "a.png"]}\n')
    for name in ("manifest", "pairs", "metadata", "null.jsonl", "null.parquet", "segments.jsonl", "in_turn.jsonl"):
        assert not holds_chats(tmp_path / name), name


@pytest.mark.parametrize(
    ("row", "columns", "chat"),
    [
        ('{"instruction": "Add.", "input": "1 2", "output": "3"}', {}, True),
        ('{"query": "Hi?", "response": "Yes."}', {}, True),
        ('{"texts": [{"user": "Hi?", "assistant": "Yes."}]}', {}, True),
        ('{"q": "Hi?", "a": "Yes."}', {"query": "q", "response": "a"}, True),
        ('{"instruction": "Add.", "text": "1 2"}', {}, False),
        ('{"query": "Hi?", "response": "Yes."}', {"text": "response"}, False),
        ('{"prompt": "One, ", "completion": "two."}', {}, False),
    ],
)
def test_questions_and_answers_in_columns_are_chats_where_training_makes_chats_of_them(tmp_path, row, columns, chat):
    file = tmp_path / "rows.jsonl"
    file.write_text(f"{row}\n")
    found = chats_among([SourceConfig(path=str(file), columns=columns)])
    assert found == (str(file) if chat else None)
