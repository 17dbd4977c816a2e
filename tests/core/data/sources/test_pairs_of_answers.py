"""Rows of preferences become pairs of documents."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data.asked import asked_of
from kosmos.data.document import Mark, Media, Text
from kosmos.data.plan import Planner
from kosmos.data.sources.pairs_of_answers import shared_prompt
from kosmos.data.tokenizer import load_tokenizer
from kosmos.errors import DataError, SampleError


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def human(text):
    return {"from": "human", "value": text}


def gpt(text):
    return {"from": "gpt", "value": text}


def told(segments):
    """Segments in a line: what is learned between « and », marks by their names, media by their modality."""
    found = []
    for part in segments:
        said = part.text if isinstance(part, Text) else part.name if isinstance(part, Mark) else f"[{part.modality}]"
        found.append(f"«{said}»" if getattr(part, "train", False) else said)
    return "".join(found)


def turn(role, text, *, learned=False):
    return f"<|{role}|>«{text}»«<|end|>»" if learned else f"<|{role}|>{text}<|end|>"


def both(source, index=0):
    document = source.document(index)
    return told(document.segments), told(document.rejected)


ASKED = turn("user", "Q")
BOTH = ASKED + turn("assistant", "Cats.", learned=True), ASKED + turn("assistant", "Dogs.", learned=True)
ONCE = turn("user", "A") + turn("assistant", "B") + ASKED
EARLIER = tuple(ONCE + turn("assistant", said, learned=True) for said in ("Cats.", "Dogs."))
HISTORY = [user("A"), assistant("B"), user("Q")]
TEXTS = {"chosen": "Cats.", "rejected": "Dogs."}
TURNS = {"chosen": [assistant("Cats.")], "rejected": [assistant("Dogs.")]}
WHOLE = {name: [user("Q"), *turns] for name, turns in TURNS.items()}
LONGER = {name: [*HISTORY, *turns] for name, turns in TURNS.items()}
OF_FACTORY = {"chosen": gpt("Cats."), "rejected": gpt("Dogs.")}
HH = "\n\nHuman: A\n\nAssistant: B\n\nHuman: Q\n\nAssistant:"

FORMS = {
    "TRL, texts": ({"prompt": "Q: ", **TEXTS}, ("Q: «Cats.»", "Q: «Dogs.»")),
    "TRL, a chat and answers": ({"prompt": [user("Q")], **TURNS}, BOTH),
    "TRL, a longer chat and answers": ({"prompt": HISTORY, **TURNS}, EARLIER),
    "TRL, a chat and texts": ({"prompt": [user("Q")], **TEXTS}, BOTH),
    "a text and answers": ({"prompt": "Q", **TURNS}, BOTH),
    "a text and a turn": ({"prompt": "Q", "chosen": assistant("Cats."), "rejected": assistant("Dogs.")}, BOTH),
    "whole chats": (WHOLE, BOTH),
    "whole chats, longer": (LONGER, EARLIER),
    "whole chats, of ShareGPT": ({n: [human("Q"), gpt(t[1]["content"])] for n, t in WHOLE.items()}, BOTH),
    "whole chats beside their prompt": ({"prompt": HISTORY, **LONGER}, EARLIER),
    "UltraFeedback": ({"prompt": "Q", "messages": WHOLE["chosen"], "score_chosen": 8.0, **WHOLE}, BOTH),
    "hh-rlhf beside its prompt": (
        {"prompt": HH, **{n: f"{HH} {t}" for n, t in TEXTS.items()}}, (f"{HH}« Cats.»", f"{HH}« Dogs.»")
    ),
    "ms-swift, an answer as messages": (
        {"messages": [*HISTORY, assistant("Cats.")], "rejected_messages": TURNS["rejected"]}, EARLIER
    ),
    "ms-swift, a query and messages": (
        {"query": "Q", "response": "Cats.", "rejected_messages": TURNS["rejected"]}, BOTH
    ),
    "hh-rlhf": ({n: f"{HH} {t}" for n, t in TEXTS.items()}, (f"{HH}« Cats.»", f"{HH}« Dogs.»")),
    "texts with a common beginning": ({n: f"Oh {t}" for n, t in TEXTS.items()}, ("Oh« Cats.»", "Oh« Dogs.»")),
    "texts with none": (TEXTS, ("«Cats.»", "«Dogs.»")),
    "LLaMA-Factory, ShareGPT": ({"conversations": [human("Q")], **OF_FACTORY}, BOTH),
    "LLaMA-Factory, OpenAI": ({"messages": HISTORY, **{n: t[0] for n, t in TURNS.items()}}, EARLIER),
    "LLaMA-Factory, Alpaca": (
        {"instruction": "Q", "input": "I", **TEXTS},
        tuple(told.replace("Q", "Q\nI") for told in BOTH),
    ),
    "Alpaca with a history": ({"instruction": "Q", "history": [["A", "B"]], **TEXTS}, EARLIER),
    "Alpaca, the answer twice": ({"instruction": "Q", "output": "Cats.", **TEXTS}, BOTH),
    "Alpaca, a turn": ({"instruction": "Q", **OF_FACTORY}, BOTH),
    "a question": ({"question": "Q", "system": None, **TEXTS}, BOTH),
    "ms-swift": ({"messages": [*HISTORY, assistant("Cats.")], "rejected_response": "Dogs."}, EARLIER),
    "ms-swift, messages": ({"messages": LONGER["chosen"], "rejected_messages": LONGER["rejected"]}, EARLIER),
    "ms-swift, a query": ({"query": "Q", "response": "Cats.", "rejected_response": "Dogs."}, BOTH),
    "a chat that ends with what was chosen": ({"messages": WHOLE["chosen"], **TURNS}, BOTH),
    "what is told of both": ({"prompt": [user("Q")], **TURNS, "rejected_model": "m", "chosen_model": "n"}, BOTH),
}  # fmt: skip


@pytest.mark.parametrize(("row", "expected"), FORMS.values(), ids=FORMS)
def test_rows_of_preferences_are_pairs(open_, rows, row, expected):
    assert both(open_(rows(row))) == expected


@pytest.mark.parametrize(("row", "expected"), FORMS.values(), ids=FORMS)
def test_tables_of_preferences_are_pairs(open_, tmp_path, row, expected):
    pq.write_table(pa.table({name: [value, value] for name, value in row.items()}), tmp_path / "rows.parquet")
    assert both(open_(tmp_path / "rows.parquet"), 1) == expected


def test_a_csv_of_texts_holds_pairs(open_, tmp_path):
    (tmp_path / "rows.csv").write_text("prompt,chosen,rejected\nQ,[1] cats,[2] dogs\n")
    assert both(open_(tmp_path / "rows.csv")) == ("Q«[1] cats»", "Q«[2] dogs»")


REFUSED = [
    ({"prompt": "Q", "chosen": "a", "rejected": ["b", "c"]}, "rejected: a list of 2 answers; a pair has one"),
    ({"messages": WHOLE["chosen"], "rejected_response": ["a", "b"]}, "rejected_response: a list of 2 answers"),
    ({"messages": WHOLE["chosen"], "rejected_response": "a", "rejected_messages": WHOLE["rejected"]}, "keep one"),
    ({"messages": HISTORY, "rejected_response": "a"}, "rejected_response: messages ends with no answer"),
    ({"messages": WHOLE["chosen"], "rejected_messages": "a"}, "rejected_messages: expected a list of turns, got a str"),
    ({"chosen": "a", "rejected": [assistant("b")]}, "expected two texts or two chats where there is no prompt"),
    ({"prompt": "Other", **WHOLE}, "chosen is a whole chat, no turn of which says what prompt does; leave that out"),
    ({"prompt": HISTORY, **WHOLE}, "neither answers nor chats that begin with prompt"),
    ({"messages": WHOLE["chosen"], "chosen": "a", "rejected": "b"}, "messages ends with an answer, and chosen is anot"),
    ({"instruction": "Q", "output": "O", **TEXTS}, "output is another answer than chosen; leave it out"),
    ({"prompt": [user("Q")], "chosen": "a", "rejected": {"role": "robot", "content": "b"}}, "neither answers nor"),
    ({"prompt": [user("Q")], **TURNS, "label": False}, "chosen: label: false says that the answer is a bad one"),
    ({"prompt": "Q", "image": "a.png", **TEXTS, "rejected_images": ["a.png"]}, "rejected_images: media of the worse"),
    ({"chosen": f"{HH} a", "rejected": HH}, "rejected: completion is empty"),
    ({n: f"{HH} {t}\n\nHuman: {t}\n\nAssistant: {t}" for n, t in TEXTS.items()}, "other prompts: they differ before"),
    ({"prompt": "Q: ", "chosen": "a", "rejected": "a"}, "chosen and rejected are the same: there is"),
    ({"prompt": [user("Q")], "chosen": TURNS["chosen"], "rejected": TURNS["chosen"]}, "are the same: there is"),
    ({"messages": [*HISTORY, {**assistant("Good"), "loss": False}], "rejected_response": "Bad"}, "chosen: nothing "),
]  # fmt: skip


@pytest.mark.parametrize(("row", "says"), REFUSED, ids=[says[:30] for _, says in REFUSED])
def test_what_is_no_pair_is_a_bad_sample(open_, rows, row, says):
    with pytest.raises(SampleError, match=says):
        open_(rows(row)).document(0)


NAMED = [
    ({"prompt": "Q: ", **TEXTS}, {"completion": "chosen"}, "Q: «Cats.»"),
    (WHOLE, {"messages": "chosen"}, BOTH[0]),
    ({"instruction": "Q", **TEXTS}, {"output": "chosen"}, BOTH[0]),
    ({"messages": WHOLE["chosen"], "rejected_response": "Dogs."}, {"messages": "messages"}, BOTH[0]),
    ({"query": "Q", "response": "Cats.", "rejected_response": "Dogs."}, {"response": "response"}, BOTH[0]),
    (TEXTS, {"text": "chosen"}, "«Cats.»"),
]


@pytest.mark.parametrize(("row", "columns", "expected"), NAMED)
def test_who_names_what_is_learned_learns_that_alone(open_, rows, row, columns, expected):
    assert both(open_(rows(row), columns=columns)) == (expected, "")


PICTURED = [user([{"type": "image", "image": "a.png"}]), assistant("Cats.")]


@pytest.mark.parametrize(
    "row", [{"text": "T", **TEXTS}, {"text": "T", "prompt": "Q", **TEXTS}, {"text": "T", **WHOLE, "rejected": PICTURED}]
)
def test_a_text_beside_such_columns_is_learned_as_before(open_, rows, row):
    assert both(open_(rows(row), modalities=())) == ("«T»", "")


CONTINUED = {
    "TRL, texts": ({"prompt": "Q: ", **TEXTS}, "Q: "),
    "TRL, a chat": ({"prompt": HISTORY, **TURNS}, f"{ONCE}<|assistant|>"),
    "whole chats": (LONGER, f"{ONCE}<|assistant|>"),
    "hh-rlhf": ({n: f"{HH} {t}" for n, t in TEXTS.items()}, HH),
    "Alpaca": ({"instruction": "Q", **TEXTS}, f"{ASKED}<|assistant|>"),
    "ms-swift": ({"messages": WHOLE["chosen"], "rejected_response": "Dogs."}, f"{ASKED}<|assistant|>"),
    "no answers": ({"prompt": "Q: ", "chosen": None, "rejected": None}, "Q: "),
    "the same": ({"prompt": "Q: ", "chosen": "Cats.", "rejected": "Cats."}, "Q: "),
}


@pytest.mark.parametrize(("row", "prompt"), CONTINUED.values(), ids=CONTINUED)
def test_prompts_to_be_continued_expect_the_better_answer(open_, rows, row, prompt):
    document = open_(rows(row), asked=True).document(0)
    asked, expected = asked_of(document)
    assert (told(replace(s, train=False) for s in asked.segments), document.rejected) == (prompt, ())
    assert (expected or "").strip() == ("" if row.get("chosen", "") is None else "Cats.")


def test_named_prompts_without_answers_are_continued(open_, rows):
    source = open_(rows({"prompt": "Q: "}), asked=True, columns={"chosen": "good", "rejected": "bad"})
    assert told(source.document(0).segments) == "Q: "


def test_columns_name_the_prompt(open_, rows):
    assert both(open_(rows({"q": "Q", **TEXTS}), columns={"query": "q"})) == BOTH
    with pytest.raises(DataError, match=r"columns\.query: no column 'p'"):
        open_(rows({"q": "Q", **TEXTS}), columns={"query": "p"})


PLACED = {
    "a chat": {"messages": [user("<image>Q")], "images": ["a.png"], **TURNS},
    "whole chats": {"images": ["a.png"], **{n: [user("<image>Q"), t[1]] for n, t in WHOLE.items()}},
    "parts": {
        n: [user([{"type": "image", "image": "a.png"}, {"type": "text", "text": "Q"}]), t[1]] for n, t in WHOLE.items()
    },
    "ms-swift": {"messages": [user("<image>Q"), assistant("Cats.")], "images": ["a.png"], "rejected_response": "Dogs."},
    "Alpaca": {"instruction": "Q", "images": ["a.png"], **TEXTS},
}


@pytest.mark.parametrize("row", PLACED.values(), ids=PLACED)
def test_media_stand_in_both_where_the_prompt_has_them(open_, rows, row):
    expected = tuple(said.replace("Q", "[image]Q") for said in BOTH)
    source = open_(rows(row))
    assert both(source) == expected
    assert [m.source.name for m in source.document(0).media] == ["a.png", "a.png"]
    with pytest.raises(DataError, match="needs a run with image"):  # it is known before a row is read
        open_(rows(row), modalities=("audio",))


def test_media_before_a_plain_prompt(open_, rows):
    assert both(open_(rows({"prompt": "Q: ", "image": "a.png", **TEXTS}))) == ("[image]Q: «Cats.»", "[image]Q: «Dogs.»")


def test_media_of_a_table_are_those_of_both(open_, tmp_path):
    picture = {"bytes": b"picture", "path": None}
    columns = {"prompt": [[user("<image>Q")]], "images": [[picture]], **{n: [t] for n, t in TURNS.items()}}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    document = open_(tmp_path / "rows.parquet").document(0)
    assert told(document.rejected) == BOTH[1].replace("Q", "[image]Q")
    assert all(isinstance(m, Media) and bytes(m.source) == b"picture" for m in document.media)
    assert len(list(document.media)) == 2


def test_beside_pairs_stand_systems_tools_and_weights(open_, rows):
    row = {"instruction": "Q", "system": "S", "weight": 0.5, **TEXTS}
    source = open_(rows(row), columns={"weight": "weight"})
    assert both(source) == tuple(turn("system", "S") + said for said in BOTH)
    assert source.document(0).weight == 0.5
    called = [{"role": "tool_call", "content": json.dumps({"name": "look", "arguments": {}})}]
    better, worse = both(
        open_(rows({"messages": [user("Q")], "tools": [{"name": "look"}], "chosen": called, "rejected": "No."}))
    )
    assert better.endswith("</tool_call>»«<|end|>»")
    assert worse.endswith("«No.»«<|end|>»")
    assert better.split("<|user|>")[0] == worse.split("<|user|>")[0]


def test_what_one_turn_of_several_says_alike_is_not_learned(open_, rows):
    more = {name: [assistant("B"), user("Q"), *turns] for name, turns in TURNS.items()}
    assert both(open_(rows({"prompt": [user("A")], **more}))) == EARLIER


def test_texts_of_both_are_limited(open_, rows):
    with pytest.raises(SampleError, match="over the limit of 10"):
        open_(rows({"prompt": "Q", "chosen": "a", "rejected": "b" * 20}), options={"max_text_bytes": 10}).document(0)


@pytest.mark.parametrize(
    ("chosen", "rejected", "prompt"),
    [
        ("a b c", "a b d", "a b"),
        ("a b", "a b c", "a"),
        ("a\nb", "a\nc", "a\n"),
        ("ab", "ac", ""),
        ("a ", "a b", ""),
        ("", "a", ""),
        (f"{HH} x", f"{HH} xy z", HH),
    ],
)
def test_the_prompt_of_two_texts_is_what_both_begin_with(chosen, rejected, prompt):
    assert chosen[: shared_prompt(chosen, rejected)] == prompt


def test_media_within_rows_are_read_for_both(open_, rows):
    held = "data:image/png;base64," + base64.b64encode(b"picture").decode()
    document = open_(rows({"messages": [user("<image>Q")], "images": [held], **TURNS})).document(0)
    assert [bytes(m.source) for m in document.media] == [b"picture"] * 2


PLANNER = Planner(load_tokenizer("bytes"), {}, 512, {}, pairs=True)
OTHER = {"chosen": WHOLE["chosen"], "rejected": [user("Other"), assistant("Dogs.")]}


@pytest.mark.parametrize(
    "row",
    [
        OTHER,
        {"messages": WHOLE["chosen"], "rejected_messages": OTHER["rejected"]},
        {"prompt": [user("A")], **OTHER} | {"chosen": [user("A"), *WHOLE["chosen"]]},
        {"chosen": f"{HH} a", "rejected": f"{HH.replace('A', 'C', 1)} a"},
    ],
)
def test_answers_to_other_prompts_are_no_pair(open_, rows, row):
    with pytest.raises(SampleError, match=r"begin with other prompts|nor chats that begin with prompt"):
        PLANNER.plan(open_(rows(row)).document(0))


def test_chats_that_part_at_an_earlier_answer_are_a_pair(open_, rows):
    """What both say before is learned of neither, and from there on all of both."""
    better, worse = ([*HISTORY[:1], assistant(said), user(said), assistant(said)] for said in ("Cats.", "Dogs."))
    assert PLANNER.plan(open_(rows({"chosen": better, "rejected": worse})).document(0))
    assert PLANNER.plan(open_(rows(LONGER)).document(0))
