"""F1 of classes by their names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torchmetrics.functional.classification import multiclass_f1_score, multiclass_recall

from kosmos.cli import main
from kosmos.evaluate.answer import Generated
from kosmos.evaluate.class_metrics import MOST_CLASSES, OTHER, balanced_accuracy, figures_by_class, macro_f1

CLASSES = ["cat", "dog", "bird"]


def test_it_is_the_macro_f1_of_torchmetrics_where_each_answer_is_a_class() -> None:
    draw = torch.Generator().manual_seed(0)
    said, right = torch.randint(3, (2, 40), generator=draw)
    expected = multiclass_f1_score(said, right, num_classes=3, average="macro")
    words = ([CLASSES[number] for number in numbers.tolist()] for numbers in (said, right))
    assert macro_f1()(*words) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize(
    ("said", "right", "expected"),
    [
        (["cat", " dog "], ["cat", "dog"], 1.0),
        (["cat", "cat", "cat", "cat"], ["cat", "cat", "cat", "dog"], (6 / 7 + 0) / 2),
        (["cat", "fish"], ["cat", "dog"], 0.5),  # fish is wrong, and no third class
        (["Cat"], ["cat"], 0.0),
        (["a\u0308"], ["\u00e4"], 1.0),
    ],
)
def test_by_hand(said: list[str], right: list[str], expected: float) -> None:
    assert macro_f1()(said, right) == pytest.approx(expected)
    assert macro_f1().of_several(said, [[one] for one in right]) == pytest.approx(expected)


def test_case_may_be_left_out_and_any_of_several_right_answers_is_right() -> None:
    assert macro_f1(ignore_case=True)(["Cat"], ["cat"]) == 1
    assert macro_f1().of_several(["hound", "cat"], [["dog", "hound"], ["cat"]]) == 1
    assert macro_f1().of_several(["fish", "cat"], [["dog", "hound"], ["cat"]]) == 0.5


def test_balanced_accuracy_is_the_mean_recall_of_torchmetrics() -> None:
    draw = torch.Generator().manual_seed(1)
    said, right = torch.randint(3, (2, 40), generator=draw)
    expected = multiclass_recall(said, right, num_classes=3, average="macro")
    words = ([CLASSES[number] for number in numbers.tolist()] for numbers in (said, right))
    assert balanced_accuracy()(*words) == pytest.approx(float(expected), abs=1e-6)
    assert balanced_accuracy()(["cat", "cat", "fish"], ["cat", "cat", "dog"]) == 0.5
    assert balanced_accuracy(ignore_case=True)(["Cat", "cat"], ["cat", "dog"]) == 0.5


LINES = [("cat", "cat"), ("cat", "cat"), ("dog", "cat"), ("dog", "dog"), ("fish", "dog")]


def test_a_command_tells_each_class_and_what_was_answered(tmp_path: Path, capsys) -> None:
    lines = (json.dumps({"answer": said, "expected": right}) + "\n" for said, right in LINES)
    (tmp_path / "own.jsonl").write_text("".join(lines))
    asked = ["score", str(tmp_path / "own.jsonl"), "--metric", "macro_f1"]
    assert main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["generated"]["own"]["macro_f1"] == pytest.approx((0.8 + 0.5) / 2)
    assert told["by_class"]["own"] == {
        "cat": {"documents": 3, "precision": 1, "recall": pytest.approx(2 / 3, abs=1e-6), "f1": 0.8,
                "answered": {"cat": 2, "dog": 1}},
        "dog": {"documents": 2, "precision": 0.5, "recall": 0.5, "f1": 0.5, "answered": {"dog": 1, OTHER: 1}},
    }  # fmt: skip
    assert main(asked) == 0
    head, cat, dog = (line.split() for line in capsys.readouterr().out.splitlines()[1:])
    assert head == ["classes,", "own", "documents", "precision", "recall", "F1", "answered"]
    assert cat == "cat 3 100.00 % 66.67 % 80.00 % cat 2, dog 1".split()
    assert dog == "dog 2 50.00 % 50.00 % 50.00 % dog 1, (other) 1".split()


def test_what_needs_other_classes_is_left_out_of_those_of_one(tmp_path: Path, capsys) -> None:
    kinds = ["left", "right", "left", "left", "right"]
    lines = (
        json.dumps({"answer": said, "expected": right, "side": side}) + "\n"
        for (said, right), side in zip(LINES, kinds, strict=True)
    )
    (tmp_path / "own.jsonl").write_text("".join(lines))
    named = [part for name in ("macro_f1", "kappa", "balanced_accuracy") for part in ("--metric", name)]
    asked = ["score", str(tmp_path / "own.jsonl"), *named]
    assert main([*asked, "--by", "expected", "--json"]) == 0
    out, err = capsys.readouterr()
    by = json.loads(out)["by_value"]["generated"]["own"]
    kept = {"documents", "cut", "exact_match", "exact_match_standard_error", "balanced_accuracy"}
    assert {value: set(one) for value, one in by.items()} == {"cat": kept, "dog": kept}
    assert by["cat"]["balanced_accuracy"] == pytest.approx(2 / 3, abs=1e-6)
    assert err.count("warning: --by: left out of 2 of 2 values: macro_f1, kappa, which takes") == 1
    assert main([*asked, "--by", "expected"]) == 0
    assert "macro_f1" not in capsys.readouterr().out.split("own by expected")[1]
    assert main([*asked, "--by", "side", "--json"]) == 0  # each side has both classes
    out, err = capsys.readouterr()
    assert {"macro_f1", "kappa"} <= set(json.loads(out)["by_value"]["generated"]["own"]["left"])
    assert err == ""


def test_free_text_is_no_classes() -> None:
    answers = [Generated(str(number), str(number), "") for number in range(MOST_CLASSES + 1)]
    assert figures_by_class(answers, {"macro_f1": macro_f1()}) is None
    assert figures_by_class(answers[1:], {"other": len}) is None
    assert len(figures_by_class(answers[1:], {"macro_f1": macro_f1()}) or ()) == MOST_CLASSES
