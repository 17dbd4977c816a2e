"""Metrics where several answers are right, and where one is."""

from __future__ import annotations

import json
import math
import re
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kosmos import Document, Text, generate_answers, load_run, score_answers, train_model
from kosmos.cli import main
from kosmos.commands.scored_answers import _generated
from kosmos.evaluate.answer import Generated
from kosmos.evaluate.answer_metrics import anls, plain_answer, relaxed_accuracy, vqa_accuracy
from kosmos.evaluate.answer_rows import answer_row
from kosmos.evaluate.answer_scores import without_several
from kosmos.evaluate.bleu import bleu
from kosmos.evaluate.cider import cider
from kosmos.evaluate.metrics import char_error_rate, exact_match, rouge_l, word_error_rate, words_of
from kosmos.evaluate.references import all_right
from support.command import install_plugin
from support.runs import rows_of, small_run

METRICS = (exact_match, word_error_rate, char_error_rate, bleu, rouge_l, cider, vqa_accuracy, anls, relaxed_accuracy)
ERRORS = (word_error_rate, char_error_rate)
TEXTS = st.text("ab1 .", max_size=6)
SEVERAL = st.lists(st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=4)), min_size=1, max_size=3)
few = settings(max_examples=25, deadline=None)


@pytest.mark.parametrize("metric", METRICS)
@few
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3))
def test_of_one_right_answer_each_a_metric_gives_what_its_call_gives(metric, pairs):
    said, right = map(list, zip(*pairs, strict=True))
    assert metric()(said, right) == metric().of_several(said, [[one] for one in right])


@pytest.mark.parametrize("metric", [exact_match, anls, relaxed_accuracy, rouge_l])
@few
@given(SEVERAL)
def test_more_right_answers_make_no_answer_worse(metric, pairs):
    said, right = map(list, zip(*pairs, strict=True))
    assert 0 <= metric()(said, [several[0] for several in right]) <= metric().of_several(said, right) <= 1


@pytest.mark.parametrize("metric", ERRORS)
@few
@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=4))
def test_errors_count_against_the_right_answer_with_the_fewest(metric, said, right):
    units = str.split if metric is word_error_rate else list
    found = metric().of_several([said], [right])
    rates = [metric()([said], [one]) for one in right]
    errors = [
        rate * len(units(one)) if units(one) else len(units(said)) for rate, one in zip(rates, right, strict=True)
    ]
    assert found in [rate for rate, count in zip(rates, errors, strict=True) if round(count) == round(min(errors))]


@few
@given(st.sampled_from("abc"), st.lists(st.sampled_from("abc"), min_size=2, max_size=10))
def test_vqa_accuracy_is_the_mean_over_all_subsets_without_one(said, right):
    subsets = list(combinations(right, len(right) - 1))
    expected = sum(min(subset.count(said) / 3, 1) for subset in subsets) / len(subsets)
    # "a" is an article, and so is as good as nothing: all are given another letter before them.
    found = vqa_accuracy().of_several([f"x{said}"], [[f"x{one}" for one in right]])
    assert found == pytest.approx(expected)


@few
@given(st.lists(st.text("abcde ", min_size=1, max_size=12), min_size=2, max_size=4), TEXTS)
def test_nothing_has_more_cider_than_the_right_answer_itself(right, other):
    said = [other, *right[1:]]
    score = cider()
    assert 0 <= score(said, right) <= score(right, right) + 1e-9 <= 10 + 1e-8


@pytest.mark.parametrize(("metric", "said", "right", "expected"), [
    (exact_match(), "b ", ["a", "b"], 1.0),
    (exact_match(), "B", ["a", "b"], 0.0),
    (exact_match(ignore_case=True), "B", ["a", "b"], 1.0),
    (word_error_rate(), "a b c", ["x y z", "a b d"], 1 / 3),
    (word_error_rate(), "a", ["", "b c d"], math.inf),  # one error each: the first
    (char_error_rate(), "abc", ["xyz", "abcd"], 1 / 4),
    (char_error_rate(), "", [""], 0.0),
    (bleu(order=1), "the cat", ["a cat", "the dog"], 1.0),
    (rouge_l(), "police killed the gunman", ["Police kill the gunman!"], 3 / 4),  # from the paper, section 3.1
    (rouge_l(), "the gunman kill police", ["police killed the gunman"], 2 / 4),
    (rouge_l(), "a b", ["a x y z", "b"], 2 / 3),
    (vqa_accuracy(), "yes", ["yes"] * 10, 1.0),
    (vqa_accuracy(), "yes", ["yes"] * 3 + ["no"] * 7, (3 * 2 / 3 + 7 * 1) / 10),  # 0.9, as VQA's page has it
    (vqa_accuracy(), "yes", ["yes"] + ["no"] * 9, 0.3),
    (vqa_accuracy(), "The Two dogs.", ["2 dogs"], 1.0),
    (anls(), "Graduate  school", ["graduate school"], 1.0),
    (anls(), "abcd", ["abcx", "wxyz"], 3 / 4),
    (anls(), "ab", ["ax"], 0.0),  # half of it is wrong
    (anls(threshold=0.6), "ab", ["ax"], 0.5),
    (anls(), "", [""], 1.0),
    (relaxed_accuracy(), "105", ["100"], 1.0),
    (relaxed_accuracy(), "106", ["100"], 0.0),
    (relaxed_accuracy(tolerance=0.1), "-109", ["-100"], 1.0),
    (relaxed_accuracy(), "5%", ["0.051"], 1.0),
    (relaxed_accuracy(), "0.01", ["0"], 0.0),
    (relaxed_accuracy(), "Norway ", ["Sweden", "norway"], 1.0),
    (relaxed_accuracy(), "nan", ["NaN"], 1.0),
])  # fmt: skip
def test_by_hand(metric, said, right, expected):
    assert metric.of_several([said], [right]) == pytest.approx(expected)


@pytest.mark.parametrize(("text", "plain"), [
    ("The answer: A  cat.", "answer: cat"), ("100,978", "100978"), ("$1.50, 2:50 pm", "1.50 2:50 pm"),
    ("dont", "don't"), ("the girl's", "girl's"), ("None", "0"), ("ten-fold", "10 fold"), ("snow_board?", "snow board"),
    ("e.g.", "eg"), ("an", ""),
])  # fmt: skip
def test_answers_are_compared_as_vqa_compares_them(text, plain):
    assert plain_answer(text) == plain


def test_cider_by_hand():
    """Two documents of one reference each share no n-gram: each weighs log 2, and cosines are shares of n-grams."""
    right = [["a b"], ["c d"]]
    assert cider(order=2).of_several(["a b", "c d"], right) == pytest.approx(10)
    assert cider()(["a b", "c d"], ["a b", "c d"]) == pytest.approx(10 * 2 / 4)  # there are no 3-grams and no 4-grams
    one_word = 1 / (1 * math.sqrt(2))  # the cosine of (1) and (1, 1)
    assert cider(order=1).of_several(["a", "x"], right) == pytest.approx(10 * one_word * math.exp(-1 / 72) / 2)
    assert cider(order=1).of_several(["a a", "x"], right) == pytest.approx(10 / (2 * math.sqrt(2)) / 2)  # clipped
    assert cider(order=1).of_several(["a b", "x"], [["a b", "e f"], ["c d"]]) == pytest.approx(10 / 2 / 2)
    assert cider()(["a b"], ["a b"]) == 0  # of one document none is rare


def first_word(said: list[str], right: list[str]) -> float:
    return sum(p.split()[:1] == r.split()[:1] for p, r in zip(said, right, strict=True)) / len(said)


def test_a_metric_that_takes_one_right_answer_gets_that_which_is_expected():
    answers = [Generated("one", "a", "b", references=("a", "b")), Generated("two", "c", "c")]
    metrics = {"exact_match": exact_match(), "first_word": first_word}
    assert score_answers(answers, metrics) == {"exact_match": 1.0, "first_word": 0.5}
    assert without_several(answers, metrics) == ["first_word"]
    assert without_several(answers[1:], metrics) == []


@pytest.mark.parametrize(("expected", "references", "right"), [
    (" b", ("a", "b"), ("a", "b")), ("c", ("a", "b"), ("c", "a", "b")), ("a", ("a",), ()), ("a", ("b",), ("a", "b")),
    (None, ("a", "b"), ("a", "b")), ("a", (), ()), ("a", ("a", "a"), ("a", "a")),
])  # fmt: skip
def test_what_is_expected_is_one_of_the_all_right(expected, references, right):
    assert all_right(expected, references) == right


def test_a_line_of_answers_has_them_where_there_are_several():
    answer = Generated("a.jsonl:1", "b", "c", references=("b", "d"))
    row = answer_row(answer, "a")
    assert list(row)[-6:] == ["expected", "references", "answer", "prompt_tokens", "tokens", "ended"]
    assert _generated(json.loads(json.dumps(row))) == Generated("a.jsonl:1", "b", "c", references=("b", "d"))
    assert "references" not in answer_row(Generated("a.jsonl:1", "b", "c"), "a")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on questions of VQA, beside it the part that is scored."""
    folder = tmp_path_factory.mktemp("several")
    rows = [{"question": f"{n}?", "answers": [{"answer": "yes"}, {"answer": "no"}, {"answer": "no"}]} for n in range(4)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    one = {"question": "Which?", "answers": ["maybe"]}
    (folder / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (*rows[:2], one)))
    data = {"sources": [str(folder / "rows.jsonl")], "held_out": 0}
    train_model(small_run(folder / "run", modalities=[], data=data, train={"steps": 1}))
    return folder


def test_eval_and_generate_write_all_right_answers_and_score_by_them(run: Path, capsys, monkeypatch) -> None:
    monkeypatch.syspath_prepend(install_plugin(run / "site", "smaller", None, module="support.smaller_plugin"))
    asked, answers = str(run / "asked.jsonl"), run / "answers.jsonl"
    named = ["--metric", "vqa_accuracy", "--metric", "same_length", "plugins=[smaller]"]
    scored = ["eval", str(run / "run"), "--data", asked, "--generate", "9", "--max-new-tokens", "2", "--workers", "0"]
    assert main([*scored, *named, "--answers", str(answers), "--json"]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)["generated"]["asked"]
    assert (
        list(told)[:5] == ["documents", "cut", "exact_match", "vqa_accuracy", "same_length"] and told["documents"] == 3
    )
    assert said.err.count("warning: metric same_length gets the expected answer alone, where several are right") == 1
    lines = rows_of(answers)
    assert [line["expected"] for line in lines] == ["no", "no", "maybe"]
    assert [line.get("references") for line in lines] == [["yes", "no", "no"], ["yes", "no", "no"], None]
    written = run / "written.jsonl"
    assert (
        main(["generate", str(run / "run"), "--data", asked, "--answers", str(written), "--max-new-tokens", "2"]) == 0
    )
    assert [line.get("references") for line in rows_of(written)] == [line.get("references") for line in lines]


def test_a_metric_that_raises_costs_its_own_figure(run: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.syspath_prepend(install_plugin(tmp_path, "smaller", None, module="support.smaller_plugin"))

    def broken(texts: list[str], expected: list[str]) -> float:
        raise ValueError("no number")

    monkeypatch.setattr("support.smaller.same_length", lambda: broken)
    scored = ["eval", str(run / "run"), "--data", str(run / "asked.jsonl"), "--generate", "9", "--max-new-tokens", "2"]
    options = [*scored, "--workers", "0", "--metric", "same_length", "--metric", "bleu", "plugins=[smaller]"]
    assert main(options) == 3
    said = capsys.readouterr()
    assert re.search(r"generated, asked: documents 3, cut 3, exact_match .*, same_length -, bleu 0", said.out)
    assert said.out.startswith(f"{run / 'run'}, step 1\n")
    line = "asked: has several right answers; exact match in the table is of the expected one, that of generated counts"
    assert f"{line} any of them\n" in said.out
    assert "error[plugin]: metric same_length raised ValueError: no number" in said.err
    assert main([*options, "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    told = found["generated"]["asked"]
    assert told["same_length"] is None and told["bleu"] == 0 and found["several_right_answers"] == ["asked"]


def test_python_scores_by_all_right_answers_of_a_document(run: Path) -> None:
    parts = load_run(run / "run", device="cpu").composition

    class Asked:
        name = "asked"

        def __len__(self) -> int:
            return 1

        def document(self, index: int) -> Document:
            return Document("here", (Text("1?"), Text("x", train=True)), ("x", "y"))

    (answer,) = generate_answers(parts, Asked(), max_new_tokens=1)
    assert (answer.expected, answer.references) == ("x", ("x", "y"))
    right = Generated(answer.origin, answer.expected, "y", references=answer.references)
    assert score_answers([right], {"exact_match": exact_match()}) == {"exact_match": 1.0}


def test_marks_on_letters_are_parts_of_words_in_any_script() -> None:
    assert words_of("हिन्दी भाषा, cafe\u0301!") == ["हिन्दी", "भाषा", "café"]
    assert vqa_accuracy()(["किताब"], ["कीताब"]) == rouge_l()(["किताब"], ["कीताब"]) == 0.0
