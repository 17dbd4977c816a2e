"""Rows that tell good answers from bad ones."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data.document import Mark, Text
from kosmos.errors import DataError, SampleError

ANSWER = {"role": "assistant", "content": "A cat that meows."}


def chat(text):
    return [{"role": "user", "content": text}, ANSWER]


def taken(source, index=0):
    return [s.text for s in source.document(index).segments if isinstance(s, Text) and not isinstance(s, Mark)]


@pytest.mark.parametrize("label", ["label", "kto_tag"], ids=["TRL", "LLaMA-Factory"])
@pytest.mark.parametrize("held", [{"messages": chat("Q")}, {"query": "Q", "response": "Cats."}], ids=["chat", "form"])
def test_a_bad_answer_is_not_learned_as_a_good_one(open_, rows, held, label):
    with pytest.raises(SampleError, match=f"{label}: false says that the answer is a bad one.*no training by such lab"):
        open_(rows({**held, label: False})).document(0)
    named = {name: name for name in held if name != "query"}
    expected = open_(rows(held)).document(0).segments
    for said, columns in ((True, {}), (False, named)):  # who names the answers means them
        assert open_(rows({**held, label: said}), columns=columns).document(0).segments == expected


def test_other_media_to_which_an_answer_would_be_a_bad_one_are_not_passed_over(open_, rows):
    row = {"messages": chat("<image>Q"), "images": ["a.png"]}
    with pytest.raises(SampleError, match="rejected_images: is not read here: a pair is chosen and rejected, or"):
        open_(rows({**row, "rejected_images": ["a.png"]})).document(0)
    assert taken(open_(rows({**row, "rejected_images": []})))


def test_what_is_no_preference_costs_no_row(open_, rows):
    texts = {"texts": [{"user": "Q", "assistant": "A"}], "label": False}
    flagged = {"messages": chat("Q"), "rejected": True, "label": 0}
    source = open_(rows(texts, flagged, {"text": "plain", "label": False, "rejected": "no"}))
    assert [taken(source, n) for n in range(3)] == [["Q", "A"], ["Q", ANSWER["content"]], ["plain"]]
    with pytest.raises(SampleError, match=r"name what holds them: columns: \{response: response\}"):
        open_(rows({"query": "Q", "response": "A", "label": False})).document(0)


def test_rejected_answers_beside_a_chat_are_seen_in_tables(open_, tmp_path):
    columns = {"messages": [chat("Q")] * 3, "label": [False, True, True], "rejected_images": [None, None, ["a.png"]]}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    source = open_(tmp_path / "rows.parquet")
    with pytest.raises(SampleError, match="label: false"):
        source.document(0)
    assert taken(source, 1)
    with pytest.raises(SampleError, match="rejected_images: "):
        source.document(2)


def test_chosen_answers_alone_say_how_they_are_learned(open_, rows):
    with pytest.raises(DataError, match=r"of chosen beside rejected; to learn the chosen .*completion: chosen"):
        open_(rows({"prompt": "Q: ", "chosen": "Cats."}))
    with pytest.raises(SampleError, match="rejected: is not read here: a pair is chosen and rejected"):
        open_(rows({"query": "Q", "response": "Cats.", "rejected": "Dogs."})).document(0)


@pytest.mark.parametrize(
    ("asks", "answers"), [("instruction", "output"), ("query", "response"), ("prompt", "completion")]
)
def test_a_list_of_a_better_and_a_worse_answer_is_not_learned_as_one(open_, rows, asks, answers):
    both = {asks: "Q", answers: ["Cats.", "Dogs."]}
    with pytest.raises(
        SampleError, match=rf"{answers}: a list of 2 answers, of which one may be the better; write that"
    ):
        open_(rows(both)).document(0)
    assert taken(open_(rows({asks: "Q", answers: ["Cats."]})))[-1] == "Cats."
    assert taken(open_(rows(both), columns={answers: answers}))[-1] == "Cats., Dogs."
