"""Metrics of plugins: one that fails is named, and none changes what the others see."""

from __future__ import annotations

import math

import pytest
import torch

from kosmos.config import ComponentConfig
from kosmos.errors import PluginError
from kosmos.evaluate.answer_scores import score_answers, text_metrics
from kosmos.evaluate.generated import Generated
from kosmos.evaluate.score import _Tally
from kosmos.plugins import load_core

ANSWERS = [Generated("one", "b", "b"), Generated("two", "a", "c")]


def same(texts: list[str], expected: list[str]) -> float:
    return sum(text == wanted for text, wanted in zip(texts, expected, strict=True)) / len(texts)


def sorts(texts: list[str], expected: list[str]) -> float:
    texts.sort(reverse=True)
    expected.clear()
    return 0.0


def divides(texts: list[str], expected: list[str]) -> float:
    return 1 / (len(texts) - 2)


def test_a_metric_that_changes_its_lists_changes_no_others():
    assert score_answers(ANSWERS, {"sorts": sorts, "same": same}) == {"sorts": 0.0, "same": 0.5}


def test_a_metric_that_raises_is_named():
    with pytest.raises(
        PluginError, match=r"metric divides raised ZeroDivisionError: .* \(test_metrics_of_plugins\.py:"
    ):
        score_answers(ANSWERS, {"same": same, "divides": divides})


def test_metrics_are_named_beside_those_of_the_run_whose_options_stay():
    registry = load_core()
    metrics = text_metrics(registry, [ComponentConfig(name="bleu", order=2)], ["word_error_rate", "bleu", "bleu"])
    assert list(metrics) == ["exact_match", "bleu", "word_error_rate"]
    assert metrics["bleu"](["a b c"], ["a b d"]) > 0  # by four words it would be 0
    with pytest.raises(PluginError, match="metric 'word_error_rat': unknown; did you mean word_error_rate"):
        text_metrics(registry, [], ["word_error_rat"])


@pytest.mark.parametrize("given", ["0.5", None, [0.5], torch.ones(2)])
def test_a_metric_that_gives_no_number_is_named(given: object):
    with pytest.raises(PluginError, match=f"metric odd gave {type(given).__name__}, expected a number"):
        score_answers(ANSWERS, {"odd": lambda texts, expected: given})


def test_of_nothing_there_is_no_loss():
    empty = _Tally().score()
    assert empty.documents == 0 and math.isnan(empty.loss) and math.isnan(empty.perplexity)
    assert _Tally(documents=1, loss=2.0, targets=2).score().loss == 1.0
