"""``kosmos score``: metrics of answers that are in a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kosmos.cli import main
from support.command import install_plugin

LINES: list[dict[str, Any]] = [
    {"source": "a", "answer": "Hello, world.", "expected": "hello world", "meta": {"who": 1}},
    {"source": "a", "answer": "two words", "references": ["no words", "two words"], "meta": {"who": 2}},
    {"source": "b", "answer": "x", "expected": "y", "ended": "max_new_tokens"},
    {"source": "b", "answer": "nobody knows"},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return tmp_path / "answers.jsonl"


def test_answers_are_scored_by_source_and_by_a_key_of_the_lines(file: Path, capsys) -> None:
    rate = "{name: word_error_rate, ignore_case: true, ignore_punctuation: true}"
    assert main(["score", str(file), "--metric", rate, "--by", "meta.who", "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert said.err == f"warning: {file}: 1 of 4 lines are not scored: they have no expected answer\n"
    assert found["without_expected"] == 1
    a, b = found["generated"]["a"], found["generated"]["b"]
    assert (a["documents"], a["exact_match"], a["word_error_rate"]) == (2, 0.5, 0.0)
    assert (b["documents"], b["cut"], b["word_error_rate"]) == (1, 1, 1.0)
    by = {source: {v: f["exact_match"] for v, f in of.items()} for source, of in found["by_value"]["generated"].items()}
    assert by == {"a": {"1": 0.0, "2": 1.0}, "b": {"(none)": 0.0}}
    assert main(["score", str(file), "--by", "expected"]) == 0
    assert "generated, a by expected    documents  cut      exact match\n" in capsys.readouterr().out


def test_a_metric_that_raises_costs_its_own_figure(file: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.syspath_prepend(install_plugin(tmp_path, "smaller", None, module="support.smaller_plugin"))

    def broken(texts: list[str], expected: list[str]) -> float:
        raise ValueError("no number")

    monkeypatch.setenv("KOSMOS_PLUGINS", "smaller")
    monkeypatch.setattr("support.smaller.same_length", lambda: broken)
    asked = ["score", str(file), "--metric", "same_length", "--metric", "word_error_rate"]
    assert main(asked) == 3
    said = capsys.readouterr()
    assert "generated, b: documents 1, cut 1, exact_match 0.00 ± 0.00 %, same_length -, word_error_rate 1\n" in said.out
    assert said.err.count("error[plugin]: metric same_length raised ValueError: no number") == 1
    assert main([*asked, "--json", "--by", "expected"]) == 3
    assert json.loads(capsys.readouterr().out)["generated"]["a"]["same_length"] is None


def test_a_metric_that_gives_nan_is_warned_of(file: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.syspath_prepend(install_plugin(tmp_path, "smaller", None, module="support.smaller_plugin"))
    monkeypatch.setenv("KOSMOS_PLUGINS", "smaller")
    monkeypatch.setattr("support.smaller.same_length", lambda: lambda texts, expected: float("nan"))
    assert main(["score", str(file), "--metric", "same_length"]) == 0
    line = "warning: b: metric same_length gave nan, which is no figure to compare by\n"
    assert capsys.readouterr().err.count(line) == 1


def test_each_of_many_sources_has_its_figures(tmp_path: Path, capsys) -> None:
    lines = (f'{{"source": "s{n % 500}", "answer": "a", "expected": "a"}}\n' for n in range(1_000))
    (tmp_path / "many.jsonl").write_text("".join(lines))
    assert main(["score", str(tmp_path / "many.jsonl"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["generated"]
    assert {name: figures["documents"] for name, figures in found.items()} == {f"s{n}": 2 for n in range(500)}


def test_a_file_that_is_not_complete_is_scored_as_far_as_it_goes(file: Path, capsys) -> None:
    file.with_name("answers.jsonl.progress").touch()
    file.write_text(file.read_text()[:-20])
    assert main(["score", str(file)]) == 0
    assert f"warning: {file}: is not complete, as answers.jsonl.progress beside it says" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "more", "said"),
    [
        ('{"answer": "a"}', [], "data]: FILE: none of its 1 lines has an expected answer (expected, or references)"),
        (
            '{"text": "a"}',
            [],
            "data]: FILE:1: no answer; expected the keys answer, and expected or",
        ),
        ('{"answer": "a", "expected": [1, {}]}', [], "data]: FILE:1: expected[1]: expected text, got {}"),
        ('{"answer": ["a", "b"], "expected": "a"}', [], "data]: FILE:1: answer: expected text, got ['a', 'b']"),
        ('{"answer": NaN, "expected": "a"}', [], "data]: FILE:1: answer: expected text, got NaN"),
        ('{"answer": "a"', [], "data]: FILE:1: expected a line of JSON ("),
        ("[]", [], "data]: FILE:1: expected an object with answer and expected, got []"),
        (
            '{"answer": "a", "expected": "b", "who": 1}',
            ["--by", "wo"],
            "config]: --by: FILE: no line has 'wo'; did",
        ),
        (
            '{"answer": "a", "expected": "b"}',
            ["--metric", "blue"],
            "config]: metric 'blue': unknown; did you mean",
        ),
    ],
)
def test_what_cannot_be_scored_is_told(tmp_path: Path, capsys, line: str, more: list[str], said: str) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text(line + "\n")
    assert main(["score", str(file), *more]) in (2, 3)
    assert capsys.readouterr().err.startswith(f"error[{said.replace('FILE', str(file))}")


def scored(file: Path, capsys, *more: str) -> dict[str, Any]:
    assert main(["score", str(file), *more, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["generated"].values()
    return found


def test_numbers_are_texts_and_a_list_of_expected_ones_are_all_right(tmp_path: Path, capsys) -> None:
    lines = [
        {"answer": 4, "expected": ["4", "four"]},
        {"prediction": "four", "expected": ["4", "four"]},
        {"predictions": "1.5", "references": 1.5},
        {"answer": "no", "reference": 0, "references": [False, 1]},
        {"answer": "a", "prediction": "b", "reference": "a"},
    ]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = scored(tmp_path / "own.jsonl", capsys)
    assert (found["documents"], found["exact_match"]) == (5, 0.8)


def test_right_answers_count_as_often_as_they_are_given(tmp_path: Path, capsys) -> None:
    several = ["no", "no", "yes"]
    for line in ({"references": several}, {"expected": "no", "references": several}, {"expected": several}):
        (tmp_path / "vqa.jsonl").write_text(json.dumps({"answer": "no", **line}) + "\n")
        found = scored(tmp_path / "vqa.jsonl", capsys, "--metric", "vqa_accuracy")
        assert found["vqa_accuracy"] == pytest.approx(4 / 9, abs=1e-6), line


def test_tables_are_scored_as_lines_are(tmp_path: Path, capsys) -> None:
    (tmp_path / "own.csv").write_text('prediction,reference,references\n4,4,\n"a, b",c,"[""a, b"", ""d""]"\n,x,\ny,,\n')
    found = scored(tmp_path / "own.csv", capsys)
    assert (found["documents"], found["exact_match"]) == (3, pytest.approx(2 / 3, abs=1e-6))
    (tmp_path / "own.tsv").write_text("prediction\treference\n4\t4\t5\n")
    assert main(["score", str(tmp_path / "own.tsv")]) == 3
    assert f"{tmp_path / 'own.tsv'}:2: expected 2 columns, as in the first line, got 3" in capsys.readouterr().err


def test_exact_match_needs_no_torch(file: Path) -> None:
    code = f"import sys\nfrom kosmos.cli import main\nmain(['score', {str(file)!r}])\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        ([{"text": "one two", "pred_text": "one too", "audio_filepath": "a.wav"}], ""),
        ([{"reference": "one two", "hypothesis": "one too"}], ""),
        ([{"text": "one two", "hypothesis": "one too"}], ""),
        ([{"said": "one too", "meta": {"truth": "one two"}, "expected": "x"}], "{answer: said, expected: meta.truth}"),
        ([{"answer": "x", "said": "one too", "expected": "one two"}], "{answer: said}"),
        ([{"answer": "one too", "all": ["one two", "three"]}], "{references: all}"),
    ],
)
def test_keys_of_others_are_known_or_named(tmp_path: Path, capsys, lines, columns) -> None:
    path = tmp_path / "asr.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    file = f"{{path: {path}, columns: {columns}}}" if columns else str(path)
    assert main(["score", file, "--metric", "word_error_rate", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["file"], found["generated"]["asr"]["word_error_rate"]) == (str(path), 0.5)


@pytest.mark.parametrize(
    ("line", "of_all"),
    [
        ({"text": "one", "hypothesis": "one", "reference": None}, False),
        ({"premise": "a", "text": "one", "hypothesis": "one"}, False),
        ({"text": "one", "hypothesis": "one"}, True),
    ],
)
def test_a_text_is_right_where_no_line_of_a_file_says_what_is(tmp_path: Path, capsys, line, of_all) -> None:
    (tmp_path / "own.jsonl").write_text(json.dumps(line) + "\n")
    assert main(["score", str(tmp_path / "own.jsonl")]) == (0 if of_all else 3)
    said = capsys.readouterr().err
    assert ("own.jsonl: expected is read from text" if of_all else "has an expected answer") in said


def test_columns_of_a_table_are_named_and_an_empty_answer_is_one(tmp_path: Path, capsys) -> None:
    (tmp_path / "asr.csv").write_text("hyp,ref\n,one\ntwo,two\n")
    fields = f"{{path: {tmp_path / 'asr.csv'}, columns: {{answer: hyp, expected: ref}}}}"
    assert main(["score", fields]) == 0
    assert "documents 2, cut 0, exact_match 50.00" in capsys.readouterr().out
    for wrong in ("{path: a, columns: {said: hyp}}", "{columns: {answer: hyp}}", "{path: a, root: b}"):
        assert main(["score", wrong]) == 2
        assert "expected" in capsys.readouterr().err


def answered(file: Path, right: int, **more: object) -> Path:
    """Of 20 documents so many are right."""
    said = ["Yes" if number < right else "no" for number in range(20)]
    lines = ({"source": "s", "document": f"d:{n}", "expected": "yes", "answer": a} | more for n, a in enumerate(said))
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_answers_of_two_models_to_the_same_documents_are_compared(tmp_path: Path, capsys) -> None:
    one, other = answered(tmp_path / "one.jsonl", 14), answered(tmp_path / "other.jsonl", 8)
    case = ["--metric", "{name: exact_match, ignore_case: true}"]
    assert main(["score", str(one), "--against", str(other), *case, "--json"]) == 0
    against = json.loads(capsys.readouterr().out)["against"]
    assert against["file"] == str(other)
    whole, source = against["differences"]
    assert (whole["kind"], whole["figure"], source["name"]) == ("all", "exact_match", "s")
    assert (whole["documents"], whole["only_first"], whole["only_second"]) == (20, 6, 0)
    assert whole["difference"] == pytest.approx(0.3) and whole["p"] == pytest.approx(2 / 2**6)
    assert 0 < whole["low"] < 0.3 < whole["high"]
    assert main(["score", str(one), "--against", str(other)]) == 0  # "Yes" is not "yes"
    table = capsys.readouterr().out.splitlines()[1:]
    assert table[0] == f"first {one}, second {other}" and table[-1].split()[:5] == [
        "all,",
        "exact",
        "match",
        "20",
        "0.00",
    ]


def test_lines_of_choices_say_themselves_what_is_right_and_lines_of_ones_own_are_paired_by_number(
    tmp_path: Path, capsys
) -> None:
    one = answered(tmp_path / "one.jsonl", 0, is_right=True, is_right_by_length=False)
    other = answered(tmp_path / "other.jsonl", 20, is_right=False, is_right_by_length=False)
    for file in (one, other):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        own = ({name: v for name, v in line.items() if name not in ("source", "document")} for line in lines)
        file.write_text("".join(json.dumps(line) + "\n" for line in own))
    assert main(["score", str(one), "--against", str(other), "--json"]) == 0
    found = {
        (d["kind"], d["figure"]): d["difference"] for d in json.loads(capsys.readouterr().out)["against"]["differences"]
    }
    assert found == {("choices", "accuracy"): 1, ("choices", "accuracy_by_length"): 0}


def test_answers_to_other_documents_are_refused(tmp_path: Path, capsys) -> None:
    one = answered(tmp_path / "one.jsonl", 14)
    others = {
        "is of": answered(tmp_path / "few.jsonl", 3).read_text().split("\n", 1)[1],
        "d:0: ": answered(tmp_path / "else.jsonl", 3, expected="no").read_text(),
        "d:0 has several answers, and one of each document is compared": one.read_text() * 2,
    }
    for said, text in others.items():
        (tmp_path / "other.jsonl").write_text(text)
        assert main(["score", str(one), "--against", str(tmp_path / "other.jsonl")]) == 3
        assert said in (line := capsys.readouterr().err) and "Traceback" not in line
