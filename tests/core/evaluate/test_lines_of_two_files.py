"""``kosmos score FILE --against FILE``: which lines are the same question, and what tables say of them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kosmos.cli import main
from kosmos.commands.unfinished import progress_of
from kosmos.errors import PluginError
from kosmos.evaluate.answer import Generated
from kosmos.evaluate.answer_scores import parts_of_each
from kosmos.evaluate.metrics import ErrorRate
from kosmos.evaluate.paired import Counted, Difference, Paired, differences

Line = dict[str, Any]


def write(file: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    if file.suffix == ".csv":
        with file.open("w", newline="") as stream:
            table = csv.DictWriter(stream, [*lines[0]])
            table.writeheader()
            table.writerows(lines)
    else:
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def said_of(capsys: pytest.CaptureFixture[str], one: Path, other: Path, status: int = 0) -> tuple[Any, str]:
    assert main(["score", str(one), "--against", str(other), "--json"]) == status
    said = capsys.readouterr()
    return (json.loads(said.out)["against"]["differences"] if status == 0 else None), said.err


def answers(**more: object) -> list[Line]:
    return [{"id": f"q{n}", "expected": "a", "answer": "a", **more} for n in range(4)]


def test_other_references_are_refused_and_those_of_one_file_alone_are_told(tmp_path: Path, capsys) -> None:
    one = write(tmp_path / "one.jsonl", answers(references=["a", "b"]))
    turned = write(tmp_path / "turned.jsonl", answers(references=["b", "a "]))
    assert said_of(capsys, one, turned)[1] == ""
    _, told = said_of(capsys, one, write(tmp_path / "other.jsonl", answers(references=["a", "c"])), 3)
    assert "not the same question: references is ['a', 'b'] in" in told and told.count("\n") == 1
    _, told = said_of(capsys, one, write(tmp_path / "none.jsonl", answers()))
    assert "one of them alone has several right answers (references) to 4 of 4 questions" in told


def of_sources(*sources: str, prompt: str | None = "{source}{n}?\nAnswer:", same: int = 0) -> list[Line]:
    lines = []
    for source in sources:
        for n in range(4):
            asked = {} if prompt is None else {"prompt": prompt.format(source="" if n < same else source, n=n)}
            lines.append({"source": source, "document": f"test.jsonl:{n}", **asked, "expected": "a", "answer": "a"})
    return lines


@pytest.mark.parametrize(
    ("lines", "again"),
    [
        (of_sources("a", "b"), False),  # the last line alone is the same
        (of_sources("a", "b", prompt=None), False),  # they do not say what they ask
        (of_sources("a", "b", same=2), False),
        (of_sources("a", "b", same=3), True),
        (of_sources("a", "b", prompt="{n}?\nAnswer:"), True),
    ],
    ids=["others", "unsaid", "few", "most", "all"],
)
def test_sources_of_which_most_ask_the_same_are_told(tmp_path: Path, capsys, lines: list[Line], again: bool) -> None:
    one = write(tmp_path / "one.jsonl", lines)
    found, told = said_of(capsys, one, one)
    assert ("sources ask the same questions" in told) == again == ("all" not in {each["kind"] for each in found})


def chosen(number: int, right: object, **more: object) -> Line:
    return {
        "id": f"q{number}", "prompt": "What?", "media": ["1.png"], "choices": ["cat", "dog"], "expected": "cat",
        "answer": "cat", "is_right": right, **more,
    }  # fmt: skip


@pytest.mark.parametrize("written", [json.dumps, str], ids=["JSON", "as Python shows them"])
def test_a_table_says_what_lines_of_json_do(tmp_path: Path, capsys, written) -> None:
    lines = [chosen(n, n > 0) for n in range(4)]
    one = write(tmp_path / "one.jsonl", lines)
    rows = [line | {key: written(line[key]) for key in ("media", "choices")} for line in lines]
    (found,), told = said_of(capsys, one, write(tmp_path / "other.csv", rows))
    assert told == "" and (found["figure"], found["first"], found["second"]) == ("accuracy", 0.75, 0.75)
    rows[2]["is_right"] = "perhaps"
    _, told = said_of(capsys, one, write(tmp_path / "other.csv", rows), 3)
    assert "other.csv:4: is_right: expected true or false, got 'perhaps'" in told


def test_a_number_of_shots_that_is_none_is_one_line(tmp_path: Path, capsys) -> None:
    one = write(tmp_path / "one.jsonl", answers(prompt="What?"))
    other = write(tmp_path / "other.jsonl", answers(prompt="Why? b\n\nWhat?", shots="five"))
    _, told = said_of(capsys, one, other, 3)
    assert "other.jsonl:1: shots: expected a number of examples, got 'five'" in told and told.count("\n") == 1


def test_lines_without_ids_that_do_not_pair_are_told_of_ids(tmp_path: Path, capsys) -> None:
    lines = [{"source": "s", "expected": "a", "answer": "a"} for _ in range(2)]
    one, other = write(tmp_path / "one.jsonl", lines), write(tmp_path / "other.csv", lines)
    assert "add an id of its own to each line" in said_of(capsys, one, other, 3)[1]
    named = [line | {"document": f"d{n}"} for n, line in enumerate(lines)]
    other = write(tmp_path / "named.jsonl", [line | {"document": f"e{n}"} for n, line in enumerate(lines)])
    assert "add an id" not in said_of(capsys, write(one, named), other, 3)[1]


def test_the_second_file_may_be_unfinished_as_the_first_may(tmp_path: Path, capsys) -> None:
    one = write(tmp_path / "one.jsonl", answers())
    other = write(tmp_path / "other.jsonl", answers())
    other.write_text(other.read_text() + '{"id": "q4", "exp')
    progress_of(other).touch()
    assert f"{other}: is not complete" in said_of(capsys, one, other)[1]


def told_of(*parts: tuple[tuple[float, float], tuple[float, float]]) -> Difference:
    pairs = {
        ("source", "s", str(n)): (Counted({"accuracy": one}), Counted({"accuracy": other}))
        for n, (one, other) in enumerate(parts)
    }
    found = differences(Paired(pairs))
    return next(one for one in found if one.kind == "all")


def test_an_accuracy_of_several_for_an_answer_is_a_ratio_of_sums() -> None:
    several = told_of(((1, 4), (3, 4)), ((0, 1), (1, 1)))
    assert (several.first, several.second) == (0.2, 0.8) and several.only_first is None
    assert told_of(((1, 1), (0, 1)), ((0, 1), (1, 1))).only_first == 1


class Endless:
    """A metric of which one answer has no finite part."""

    def __init__(self, part: tuple[float, float]) -> None:
        self.part = part

    def __call__(self, predictions: list[str], references: list[str]) -> float:
        return 0.0

    def of_each(self, predictions: list[str], references: list[list[str]]) -> list[tuple[float, float]]:
        return [self.part for _ in predictions]


@pytest.mark.parametrize("part", [(math.nan, 1.0), (1.0, math.inf)])
def test_parts_that_are_not_finite_are_refused(part: tuple[float, float]) -> None:
    with pytest.raises(PluginError, match=r"metric it: of_each gave .* expected two finite numbers"):
        parts_of_each([Generated("d", "a", "a")], "it", Endless(part))


def test_edits_to_a_single_reference_are_counted_once() -> None:
    calls: list[str] = []

    def compute(predictions: list[str], references: list[str]) -> float:
        calls.append(predictions[0])
        return 0.5

    rate = ErrorRate(compute, str.split)
    assert rate.of_each(["a c"], [["a b"]]) == [(1.0, 2.0)] and calls == ["a c"]
    assert rate.of_several(["a c"], [["a b"]]) == 0.5 and calls == ["a c", "a c"]
