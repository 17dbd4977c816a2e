"""Pairs whose columns are named otherwise, mistyped, or lack one of the two."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data.document import Mark, Text
from kosmos.data.sources.pairs_of_answers import without_prompt
from kosmos.data.sources.unnamed import warnings_of
from kosmos.errors import ConfigError, DataError, KosmosError, SampleError

ASKED = [{"role": "user", "content": "Q"}]
GOOD, BAD = ([{"role": "assistant", "content": said}] for said in ("Cats.", "Dogs."))
NAMED = {"chosen": "good", "rejected": "bad"}


def learned(segments):
    return "".join(s.text for s in segments if isinstance(s, Text) and not isinstance(s, Mark) and s.train)


ROWS = {
    "texts": ({"prompt": "Q: ", "good": "Cats.", "bad": "Dogs."}, NAMED),
    "whole chats": ({"good": ASKED + GOOD, "bad": ASKED + BAD}, NAMED),
    "a chat named, too": (
        {"dialog": ASKED, "good": GOOD[0], "bad": BAD[0]}, {**NAMED, "messages": "dialog"}
    ),
    "a query named, too": (
        {"question": "Q", "response_j": "Cats.", "response_k": "Dogs.", "chosen": "j"},
        {"query": "question", "chosen": "response_j", "rejected": "response_k"},
    ),
    "paths": (
        {"prompt": "Q: ", "answers": [{"text": "Cats."}, {"text": "Dogs."}]},
        {"chosen": "answers[0].text", "rejected": "answers[1].text"},
    ),
    "one of the two": ({"prompt": "Q: ", "chosen": "Cats.", "bad": "Dogs."}, {"rejected": "bad"}),
    "an answer in place": (
        {"query": "Q", "response": "Cats.", "bad": "Dogs."}, {"chosen": "response", "rejected": "bad"}
    ),
    "where others have something else": (
        {"prompt": "Q: ", "text": "Cats.", "completion": "Dogs."}, {"chosen": "text", "rejected": "completion"}
    ),
}  # fmt: skip


@pytest.mark.parametrize(("row", "columns"), ROWS.values(), ids=ROWS)
def test_the_two_answers_are_named(open_, rows, tmp_path, row, columns):
    pq.write_table(pa.table({name: [value] for name, value in row.items()}), tmp_path / "table.parquet")
    for file in (rows(row), tmp_path / "table.parquet"):
        document = open_(file, columns=columns).document(0)
        assert (learned(document.segments), learned(document.rejected)) == ("Cats.", "Dogs.")


def test_pictures_of_named_chats_are_known_before_a_row_is_read(open_, rows):
    seen = [{"role": "user", "content": [{"type": "image", "image": "a.png"}]}]
    with pytest.raises(DataError, match="needs a run with image"):
        open_(rows({"good": seen + GOOD, "bad": seen + BAD}), columns=NAMED, modalities=())


WRONG = [
    (NAMED | {"rejected": "worst"}, {}, r"columns\.rejected: no column 'worst'"),
    ({"chosen": "good"}, {}, r"columns\.rejected: no column 'rejected'"),
    (NAMED | {"completion": "good"}, {}, r"columns\.chosen: columns\.completion says what is learned, too"),
    (NAMED, {"template": "{prompt} → {good}"}, r"columns\.chosen: template says what is learned, too"),
]


@pytest.mark.parametrize(("columns", "more", "says"), WRONG)
def test_what_does_not_go_with_named_answers_is_refused(open_, rows, columns, more, says):
    with pytest.raises((ConfigError, DataError), match=says):
        open_(rows({"prompt": "Q: ", "good": "Cats.", "bad": "Dogs."}), columns=columns, **more)


NO_ANSWER = [
    ({"prompt": "Q", "chosen": "a", "rejected": ""}, "rejected is empty; a pair has two answers"),
    ({"prompt": "Q", "chosen": "a", "rejected": None}, r"rejected is empty \(null\); a pair"),
    ({"messages": ASKED, "chosen": GOOD[0], "rejected": []}, "rejected is empty; a pair"),
    ({"chosen": [], "rejected": ASKED + BAD}, "chosen is empty; a pair"),
    ({"instruction": "Q", "chosen": "a", "rejected": 3}, "rejected is no text and no turn, but a number; a pair"),
    ({"prompt": "Q", "chosen": 0, "rejected": 3}, "chosen is no text .* but a number and rejected is no text"),
    ({"prompt": "Q", "chosen": "a", "rejectd": "b"}, "did you mean rejectd to be rejected, beside chosen"),
    ({"messages": ASKED, "chosen": GOOD[0], "rejectd": BAD[0]}, "columns: {rejected: rejectd}"),
    ({"prompt": "Q", "choosen": "a", "rejected": "b"}, "did you mean choosen to be chosen, beside rejected"),
]


@pytest.mark.parametrize(("row", "says"), NO_ANSWER, ids=[says[:30] for _, says in NO_ANSWER])
def test_which_of_the_two_is_no_answer_is_said(open_, rows, row, says):
    with pytest.raises(KosmosError, match=says):
        open_(rows(row)).document(0)


def test_a_named_answer_that_is_empty_is_called_by_its_column(open_, rows):
    with pytest.raises(SampleError, match="bad is empty"):
        open_(rows({"prompt": "Q", "good": "a", "bad": " "}), columns=NAMED).document(0)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Q", "completion": "Cats.", "chosen": "a", "rejected": None},
        {"messages": ASKED + GOOD, "chosen": "a", "rejected": ""},
        {"text": "Cats.", "chosen": "a", "rejected": None},
    ],
)
def test_rows_that_say_what_is_learned_need_no_pair(open_, rows, row):
    document = open_(rows(row)).document(0)
    assert (learned(document.segments), document.rejected) == ("Cats.", ())


@pytest.mark.parametrize(
    ("prompt", "texts", "expected"),
    [
        ("Q:", ("Q: a", "Q: b"), (" a", " b")),
        ("Q: ", ("Q: a", "b"), ("Q: a", "b")),
        ("a", ("a cat", "all"), ("a cat", "all")),
        (" ", (" a", " b"), (" a", " b")),
    ],
)
def test_a_prompt_that_both_texts_repeat_is_cut(prompt, texts, expected):
    assert without_prompt(prompt, *texts) == expected


@pytest.mark.parametrize(
    "row", [{"messages": ASKED, "chosen": GOOD[0], "rejected": BAD[0]}, {"messages": ASKED + GOOD}]
)
def test_media_of_the_worse_answer_are_told_of_by_the_row_alone(open_, rows, tmp_path, row):
    """Neither as media that belong into another column, nor as a reason to leave the row out unseen."""
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"picture")
    for more in ({"images": ["a.png"]}, {}):
        source = open_(rows({**row, **more, "rejected_images": ["b.png"]}))
        assert not [*warnings_of(source)]
        with pytest.raises(SampleError, match="rejected_images: "):
            source.document(0)
