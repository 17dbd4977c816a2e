"""Metrics of plugins: one that fails is named, and none changes what the others see."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kosmos.commands.metrics import metrics_of
from kosmos.commands.scored_answers import named_metrics
from kosmos.config import ComponentConfig
from kosmos.errors import ConfigError, PluginError
from kosmos.evaluate.answer import Generated
from kosmos.evaluate.answer_scores import score_answers, text_metrics
from kosmos.evaluate.score import Tally
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
    named = metrics_of(["word_error_rate", "bleu", "bleu"])
    metrics = text_metrics(registry, [ComponentConfig(name="bleu", order=2)], named)
    assert list(metrics) == ["exact_match", "bleu", "word_error_rate"]
    assert metrics["bleu"](["a b c"], ["a b d"]) > 0  # by four words it would be 0
    with pytest.raises(PluginError, match="metric 'word_error_rat': unknown; did you mean word_error_rate"):
        text_metrics(registry, [], metrics_of(["word_error_rat"]))


def test_a_metric_of_a_command_has_options_as_in_the_run_file_and_then_takes_the_place_of_the_run_s():
    registry = load_core()
    named = metrics_of(["{name: bleu, order: 1}", "[anls, {name: exact_match, ignore_case: true}]"])
    metrics = text_metrics(registry, [ComponentConfig(name="bleu", order=2)], named)
    assert list(metrics) == ["exact_match", "bleu", "anls"]
    assert metrics["bleu"](["a c"], ["a d"]) > 0
    assert metrics["exact_match"](["A"], ["a"]) == 1.0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["{name: bleu, ordr: 1}"], r"^--metric bleu\.ordr: unknown field; did you mean order\?"),
        (["{nam: bleu}"], r"^--metric \{nam: bleu\}: name: field required"),
        (["{name: bleu"], r"^--metric \{name: bleu: is not YAML; expected a name, or one with options as"),
        (["{name: bleu, name: anls}"], r"^--metric \{.*\}: name stands there twice$"),
        (["bleu", "{name: bleu, order: 1}"], r"^--metric: bleu stands there twice with other options"),
        ([" "], r"^--metric: the value is empty"),
    ],
)
def test_what_is_wrong_with_a_metric_of_a_command_is_told(given: list[str], said: str):
    with pytest.raises(ConfigError, match=said):
        text_metrics(load_core(), [], metrics_of(given))


@pytest.mark.parametrize("given", ["0.5", None, [0.5], torch.ones(2)])
def test_a_metric_that_gives_no_number_is_named(given: object):
    with pytest.raises(PluginError, match=f"metric odd gave {type(given).__name__}, expected a number"):
        score_answers(ANSWERS, {"odd": lambda texts, expected: given})


def test_of_nothing_there_is_no_loss():
    empty = Tally().score()
    assert empty.documents == 0 and math.isnan(empty.loss) and math.isnan(empty.perplexity)
    assert Tally(documents=1, loss=2.0, targets=2).score().loss == 1.0


@pytest.mark.parametrize("value", [True, np.bool_(True), torch.tensor(True)])
def test_a_truth_value_is_no_figure_of_many_answers(value: object):
    with pytest.raises(PluginError, match=r"^metric equal gave bool, expected a number$"):
        score_answers(ANSWERS, {"equal": lambda texts, expected: value})
    assert score_answers(ANSWERS, {"equal": lambda texts, expected: torch.tensor(1)}) == {"equal": 1.0}


def test_a_metric_of_the_run_that_is_absent_is_told_with_what_goes_on_without_it():
    own = [ComponentConfig(name="gone"), ComponentConfig(name="bleu", order=2), ComponentConfig(name="anls")]
    run: Any = SimpleNamespace(
        composition=SimpleNamespace(registry=load_core(), config=SimpleNamespace(evaluate=SimpleNamespace(metrics=own)))
    )
    with pytest.raises(PluginError) as caught:
        named_metrics(run, [])
    line = str(caught.value)
    assert line.startswith("metric 'gone': no installed plugin brings it")
    _, _, field = line.partition("; to score without it: 'evaluate.metrics=")
    assert metrics_of([field.removesuffix("'")]) == own[1:]
    del own[0]
    with pytest.raises(PluginError, match=r"^metric 'away': no installed plugin") as caught:
        named_metrics(run, metrics_of(["away"]))
    assert "without it" not in str(caught.value)
