"""Scores of texts where there is little to score."""

from __future__ import annotations

import math
import unicodedata

import pytest
import torch

from kosmos.compose import compose
from kosmos.evaluate import generated
from kosmos.evaluate.answer_metrics import anls, relaxed_accuracy, vqa_accuracy
from kosmos.evaluate.bleu import bleu
from kosmos.evaluate.class_metrics import macro_f1
from kosmos.evaluate.meters import perplexity
from kosmos.evaluate.metrics import char_error_rate, exact_match, rouge_l, word_error_rate
from support.runs import small_run, ticks_registry
from support.ticks import TicksSource


@pytest.mark.parametrize(
    ("predictions", "references", "expected"),
    [
        (["a b"], ["a c"], 0.5),
        ([""], [""], 0.0),
        ([" "], ["", " "][:1], 0.0),
        ([""], ["a b"], 1.0),
        (["a"], [""], math.inf),
    ],
)
def test_word_error_rate(predictions, references, expected):
    assert word_error_rate()(predictions, references) == expected


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("hello world", "“Hello,   world.”"),
        ("Don\u2019t stop", "don't   stop!"),
        ("the dogs tail", "the dogs' tail"),
        ("twenty one 5", "Twenty-one, $5"),
        ("CAFE\u0301", "caf\u00e9"),
        ("नमस्ते", "नमस्ते।"),
    ],
)
def test_error_rates_of_texts_that_differ_in_case_and_punctuation_alone(said, right):
    for rate in (word_error_rate, char_error_rate):
        assert rate()([said], [right]) > 0
        plain = rate(ignore_case=True, ignore_punctuation=True)
        assert plain([said], [right]) == plain.of_several([said], [["x y z", right]]) == 0.0


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_how_accents_are_composed_makes_no_difference(form):
    said, right = (unicodedata.normalize(one, "Käse für Ängström") for one in (form, "NFD" if form == "NFC" else "NFC"))
    for rate in (word_error_rate(), char_error_rate()):
        assert rate([said], [right]) == rate.of_several([said], [["x", right]]) == 0.0
    for score in (exact_match(), exact_match(ignore_case=True), anls(), relaxed_accuracy(), rouge_l(), vqa_accuracy()):
        assert score([said], [right]) == score.of_several([said], [[right]]) == 1.0
    # An edit is counted over the characters that a reader sees.
    assert char_error_rate()([unicodedata.normalize(form, "Käsé")], ["Käse"]) == 0.25


def test_one_option_of_error_rates_leaves_what_the_other_is_of():
    assert word_error_rate(ignore_case=True)(["hello world"], ["Hello, world"]) == 0.5
    assert word_error_rate(ignore_punctuation=True)(["hello world"], ["Hello, world!"]) == 0.5
    assert word_error_rate(ignore_punctuation=True)(["wont"], ["won't"]) == 1.0
    assert char_error_rate(ignore_case=True)(["A  b"], ["a b"]) == pytest.approx(1 / 3)


def test_letters_without_case_are_those_of_unicode():
    for said, right in (("STRASSE", "straße"), ("İSTANBUL", "istanbul"), ("ΟΔΟΣ", "οδος")):
        for score in (exact_match(ignore_case=True), macro_f1(ignore_case=True)):
            assert score([said], [right]) == 1.0
        assert word_error_rate(ignore_case=True)([said], [right]) == 0.0
        assert word_error_rate()([said], [right]) == 1.0


def test_a_reference_without_words_counts_by_what_was_inserted():
    assert word_error_rate()(["oh no", "a b c d"], ["", "a b c d"]) == 0.5
    assert word_error_rate(ignore_punctuation=True)(["oh"], ["..."]) == math.inf


CPU = torch.device("cpu")


def test_options_of_metrics_are_heard():
    assert exact_match()(["A "], ["a"]) == 0.0
    assert exact_match(ignore_case=True)(["A "], ["a"]) == 1.0
    pair = ["a b c d e"], ["a b c d f"]
    assert bleu()(*pair) < 0.7 < bleu(smooth=True)(*pair)


def test_bleu_is_that_of_sacrebleu():
    """By hand, and as sacrebleu 2.6 gives them."""
    pair = ["the cat sat on the mat"], ["the cat is on the mat"]
    # 5 of 6 words, 3 of 5, 1 of 4 and none of 3, which counts as a half
    assert bleu()(*pair) == pytest.approx((5 / 6 * 3 / 5 * 1 / 4 * 0.5 / 3) ** 0.25)  # 0.3799
    assert bleu(smooth="none")(*pair) == bleu(smooth="add_one")(*pair) == 0.0
    # neither three nor four words in a row are right: a half and a quarter, shorter by one word
    assert bleu()(["a b x c d"], ["a b c d e f"]) == pytest.approx(
        math.exp(1 - 6 / 5) * (4 / 5 * 2 / 4 * 0.5 / 3 * 0.25 / 2) ** 0.25
    )
    # orders of which no answer has any give 0, whatever the smoothing
    assert bleu()(["a b c"], ["a b c"]) == 0.0 and bleu(order=3)(["a b c"], ["a b c"]) == 1.0
    assert bleu()(["x y z w"], ["a b c d"]) == 0.0
    # of two references as near in length the shorter one counts for the brevity
    assert bleu(order=1).of_several(["a b c"], [["a b c d", "a b"]]) == 1.0
    # signs are words of their own, but for periods and commas between digits
    assert bleu(order=1)(["It's 1,000.5 (so)."], ["It's 1,000.5 ( so ) ."]) == 1.0


def test_a_document_that_cannot_be_read_costs_itself_alone():
    parts = compose(small_run(), ticks_registry())
    parts.model.eval()
    groups = generated.answer_documents(
        parts,
        TicksSource("train", 6, broken=(0, 3)),
        device=CPU,
        dtype=torch.float32,
        max_documents=6,
        how=generated.Writing(max_new_tokens=1),
    )
    assert [a.origin for group in groups for a in group] == [f"ticks {n}" for n in (1, 2, 4, 5)]


def test_perplexity_has_no_end():
    assert perplexity(1e4) == float("inf")
