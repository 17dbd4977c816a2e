"""What a row counts for in the loss, by a column that is named for it."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from kosmos import load_plugins, make_run, open_held_out
from kosmos.data.document import Document
from kosmos.errors import DataError, NoSuchPart, SampleError

WEIGHTS = [0.5, 2, -1, 0]


def weights(source):
    return [source.document(n).weight for n in range(len(source))]


@pytest.mark.parametrize("given", [{}, {"template": "{text}"}], ids=["by its form", "template"])
def test_a_named_column_says_it_in_files_of_any_kind(open_, rows, table, tmp_path, given):
    lines = rows(*({"text": "a", "reward": weight} for weight in WEIGHTS))
    columns = table({"text": ["a"] * 4, "reward": [float(weight) for weight in WEIGHTS]})
    decimals = table({"text": ["a"] * 4, "reward": [Decimal(str(weight)) for weight in WEIGHTS]}, "decimals.parquet")
    cells = tmp_path / "rows.csv"
    cells.write_text("text,reward\n" + "".join(f"a,{weight}\n" for weight in WEIGHTS))
    for path in (lines, columns, decimals, cells):
        assert weights(open_(path, columns={"weight": "reward"}, **given)) == WEIGHTS


def test_it_may_lie_within_an_object(open_, rows):
    source = open_(rows({"text": "a", "meta": {"score": 0.25}}), columns={"weight": "meta.score"})
    assert weights(source) == [0.25]


def test_a_column_of_that_name_means_nothing_by_itself(open_, rows, table):
    for path in (rows({"text": "an apple", "weight": "70 g"}), table({"text": ["an apple"], "weight": ["70 g"]})):
        assert weights(open_(path)) == [1.0]


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (None, "null"),
        ("much", "'much'"),
        (True, "a boolean"),
        ([1], r"\[1\]"),
        (10**400, "a number"),
        ("nan", "'nan'"),
        (1e39, r"1e\+39"),
        (-1_000_001, "a number"),
    ],
)
def test_what_is_no_finite_number_is_a_bad_sample(open_, rows, value, got):
    source = open_(rows({"text": "a", "reward": value}), columns={"weight": "reward"})
    with pytest.raises(
        SampleError, match=f"reward: expected the row's weight, a number from -1,000,000 to 1,000,000, got {got}"
    ):
        source.document(0)


def test_a_table_without_the_column_is_refused_unless_its_rows_are_there_to_be_asked(open_, table):
    path = table({"text": ["a"], "rewards": [1.0]})
    with pytest.raises(DataError, match=r"columns\.weight: no column 'reward'; did you mean rewards\?"):
        open_(path, columns={"weight": "reward"})
    assert weights(open_(path, columns={"weight": "reward"}, asked=True)) == [1.0]


@pytest.mark.parametrize("weight", [None, "2", False, True, math.nan, math.inf, 1e39])
def test_a_document_says_which_weight_is_none(weight):
    with pytest.raises(NoSuchPart, match=r"the weight of a Document is .*; expected a number from"):
        Document("d", (), weight=weight)


def test_rows_that_are_only_scored_are_not_asked_what_they_weigh(open_, rows):
    path = rows({"text": "a", "w": 2}, {"text": "b", "w": None, "split": "held_out"})
    assert weights(open_(path, columns={"weight": "w"})) == [2]
    assert weights(open_(path, columns={"weight": "w"}, split="held_out")) == [1.0]
    path = rows({"text": "a"}, {"text": "b", "w": "?"}, name="scored.jsonl")
    sources = [{"path": str(path), "columns": {"weight": "w"}}]
    config = make_run({"modalities": [], "data": {"sources": ["sums"]}, "evaluate": {"sources": sources}})
    (scored,) = [source for source in open_held_out(config, load_plugins()) if source.name == "scored"]
    assert weights(scored) == [1.0, 1.0]
