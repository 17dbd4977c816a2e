"""Cohen's kappa of classes and of grades."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torchmetrics.functional.classification import multiclass_cohen_kappa

from kosmos import ConfigError
from kosmos.cli import main
from kosmos.evaluate.agreement import Weights, kappa

GRADES = ["none", "mild", "severe", "worst"]


@pytest.mark.parametrize("weights", ["none", "linear", "quadratic"])
def test_it_is_that_of_torchmetrics(weights: Weights) -> None:
    draw = torch.Generator().manual_seed(0)
    right = torch.randint(4, (60,), generator=draw)
    said = (right + torch.randint(-1, 2, (60,), generator=draw)).clamp(0, 3)
    expected = float(multiclass_cohen_kappa(said, right, num_classes=4, weights=None if weights == "none" else weights))
    numbers = ([str(number) for number in those.tolist()] for those in (said, right))
    assert kappa(weights=weights)(*numbers) == pytest.approx(expected, abs=1e-6)
    words = ([GRADES[number] for number in those.tolist()] for those in (said, right))
    grades = None if weights == "none" else tuple(GRADES)
    assert kappa(weights=weights, grades=grades)(*words) == pytest.approx(expected, abs=1e-6)


def test_grades_that_no_document_has_are_steps_where_they_are_stated() -> None:
    said, right = ["0", "2", "0", "4"], ["0", "4", "2", "4"]  # of 0 to 4 without 1 and 3
    close, far = kappa(weights="quadratic"), kappa(weights="quadratic", grades=(0, 1, 2, 3, 4))
    assert close(said, right) == pytest.approx(far(said, right))  # all steps are twice as long
    said, right = ["0", "1", "4"], ["0", "4", "4"]
    assert close(said, right) > far(said, right)


def test_numbers_are_in_the_order_of_their_size() -> None:
    assert kappa(weights="linear")(["10", "2"], ["10", "9"]) == kappa(weights="linear")(["3", "1"], ["3.0", "2"])


def test_an_answer_that_is_no_grade_is_as_far_off_as_can_be() -> None:
    right = ["0", "1", "2", "0"]
    score = kappa(weights="quadratic")
    assert score(["no idea", "1", "2", "0"], right) == pytest.approx(1 - 4 * 4 / (16 + 3 + 9 + 5))
    assert score(["no idea", "1", "2", "0"], right) < score(["1", "1", "2", "0"], right)
    assert score(["?", "?"], ["2", "2"]) == 0


def test_one_class_alone_and_case() -> None:
    assert kappa()(["cat", "cat"], ["cat", "cat"]) == 1
    assert kappa(weights="linear")(["2", "2"], ["2", "2"]) == 1
    assert kappa()(["Cat", "dog"], ["cat", "dog"]) < 1
    assert kappa(ignore_case=True)(["Cat", "dog"], ["cat", "dog"]) == 1
    assert kappa().of_several(["hound", "cat"], [["dog", "hound"], ["cat"]]) == 1


def test_what_has_no_order_is_refused_with_what_to_do(tmp_path: Path, capsys) -> None:
    rows = tmp_path / "own.jsonl"
    rows.write_text("".join(json.dumps({"answer": "mild", "expected": said}) + "\n" for said in ("mild", "none")))
    assert main(["score", str(rows), "--metric", "{name: kappa, weights: linear}"]) != 0
    assert "grades: [none, mild, severe]" in capsys.readouterr().err
    assert main(["score", str(rows), "--metric", "{name: kappa, weights: linear, grades: [none, mild]}"]) == 0
    assert "kappa" in capsys.readouterr().out
    with pytest.raises(ValueError, match="expected 'mild' is none of the grades none, severe"):
        kappa(weights="linear", grades=("none", "severe"))(["none"], ["mild"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"grades": ("a", "b")}, "no effect without weights"),
        ({"weights": "linear", "grades": ("a",)}, "at least two"),
        ({"weights": "linear", "grades": ("a", "A"), "ignore_case": True}, "each once"),
        ({"weights": "cubic"}, "none, linear or quadratic"),
    ],
)
def test_wrong_options_are_refused(options, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        kappa(**options)


def test_what_other_tools_call_it_is_told_and_what_cannot_be_says_why(tmp_path: Path, capsys) -> None:
    rows = tmp_path / "own.jsonl"
    rows.write_text(json.dumps({"answer": "a", "expected": "a"}) + "\n")
    for name, told in (("qwk", "did you mean kappa?"), ("auroc", "kosmos eval --choices FILE --answers FILE")):
        assert main(["score", str(rows), "--metric", name]) != 0
        assert told in capsys.readouterr().err
