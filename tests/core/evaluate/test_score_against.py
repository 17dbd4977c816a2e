"""``kosmos score FILE --against FILE`` compares answers to the same questions, by any metric."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kosmos.cli import main
from kosmos.evaluate.answer import Generated
from kosmos.evaluate.answer_metrics import anls, vqa_accuracy
from kosmos.evaluate.answer_scores import parts_of_each
from kosmos.evaluate.metrics import char_error_rate, exact_match, rouge_l, word_error_rate
from support.command import install_plugin

Line = dict[str, Any]


def write(file: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def question(number: int, **more: object) -> Line:
    """A line of ``kosmos eval --choices`` of which no key but the id tells it from others."""
    line = {
        "source": "mc", "document": f"mc.jsonl:{number}", "id": f"q{number}", "prompt": "<image>What is this?",
        "media": [f"{number}.png"], "expected": "cat", "answer": "cat", "choices": ["cat", "dog"], "is_right": True,
        "is_right_by_length": True,
    }  # fmt: skip
    return line | more


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "one.jsonl", [question(n) for n in range(4)]), tmp_path / "other.jsonl"


def compared(capsys: pytest.CaptureFixture[str], one: Path, other: Path, *more: str) -> tuple[dict[str, Any], str]:
    assert main(["score", str(one), "--against", str(other), "--json", *more]) == 0
    said = capsys.readouterr()
    return json.loads(said.out), said.err


def figures(found: Mapping[str, Any]) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(one["kind"], one["name"], one["figure"]): one for one in found["against"]["differences"]}


def test_rows_in_another_order_are_paired_by_their_ids(files: tuple[Path, Path], capsys) -> None:
    one, other = files
    # The row is at another place of the file, so that its document is called otherwise.
    lines = [question(n) | {"document": f"mc.jsonl:{9 - n}", "is_right": n != 2} for n in (3, 2, 1, 0)]
    found, said = compared(capsys, one, write(other, lines))
    assert said == "" and figures(found)["choices", "mc", "accuracy"]["only_first"] == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"choices": ["cat", "dog", "cow", "hen"]}, "choices is ['cat', 'dog'] in {one}:3 and ['cat', 'dog', 'cow',"),
        ({"media": ["7.png"]}, "media is ['2.png'] in {one}:3 and ['7.png'] in {other}:3; give answers to the same"),
        ({"prompt": "<image>What is that?"}, "prompt is '<image>What is this?' in {one}:3 and '<image>What is that?'"),
        ({"expected": "dog"}, "expected is 'cat' in {one}:3 and 'dog' in {other}:3"),
    ],
)
def test_other_questions_are_refused(files: tuple[Path, Path], capsys, change: Line, said: str) -> None:
    one, other = files
    write(other, [question(n) | (change if n == 2 else {}) for n in range(4)])
    assert main(["score", str(one), "--against", str(other)]) == 3
    told = capsys.readouterr().err
    assert told.startswith("error[data]: id q2: not the same question: ") and told.count("\n") == 1
    assert said.format(one=one, other=other) in told


def test_ids_tell_rows_apart_that_are_paired_by_their_place(tmp_path: Path, capsys) -> None:
    one = write(tmp_path / "one.jsonl", [question(0), question(1, id=None)])
    other = write(tmp_path / "other.jsonl", [question(0, id="q7"), question(1)])
    assert main(["score", str(one), "--against", str(other)]) == 3
    assert "mc.jsonl:0: not the same question: id is 'q0' in" in capsys.readouterr().err


def shots(number: int, examples: str, media: Sequence[str], **more: object) -> Line:
    line = question(number)
    return line | {"prompt": examples + line["prompt"], "media": [*media, *line["media"]]} | more


EXAMPLE, OTHER = "<image>What is this? dog\n\n", "<image>What is this? cow\n\n"
CHAT = "<|user|><image>What is this?<|end|><|assistant|>dog<|end|>"


@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
@pytest.mark.parametrize(("front", "media"), [("", []), (OTHER, ["8.png"]), (OTHER + EXAMPLE, ["8.png", "9.png"])])
def test_other_examples_in_front_are_compared_with_a_warning(tmp_path: Path, capsys, told, front, media) -> None:
    own = {"shots": 1, "question": {"prompt": "<image>What is this?"}} if told else {}
    one = [shots(n, EXAMPLE, ["9.png"], **own and _with_media(own, n)) for n in range(3)]
    its = {"shots": len(media), "question": {"prompt": "<image>What is this?"}} if told and media else {}
    other = [shots(n, front, media, **its and _with_media(its, n)) for n in range(3)]
    paths = [write(tmp_path / f"{name}.jsonl", lines) for name, lines in (("one", one), ("other", other))]
    _, said = compared(capsys, paths[0], paths[1])
    assert said.startswith("warning: ") and "other text stands in front of 3 of 3 questions" in said
    assert ("(1 and 2 shots)" in said) == (told and len(media) == 2)
    write(paths[1], [line | {"id": f"q{n}", "media": [*media, "no.png"]} for n, line in enumerate(other)])
    refused = not (told and media)
    assert main(["score", str(paths[0]), "--against", str(paths[1])]) == (3 if refused else 0)


def _with_media(line: Line, number: int) -> Line:
    return line | {"question": line["question"] | {"media": [f"{number}.png"]}}


def test_a_question_is_the_same_as_a_chat_and_other_text_is_not(tmp_path: Path, capsys) -> None:
    one = write(tmp_path / "one.jsonl", [question(0)])
    chat = question(0, prompt="<|user|><image>What is this?<|end|><|assistant|>")
    assert compared(capsys, one, write(tmp_path / "chat.jsonl", [chat]))[1] == ""
    shot = question(0, prompt=CHAT + chat["prompt"], media=["9.png", "0.png"])
    assert "in front of 1 of 1" in compared(capsys, one, write(tmp_path / "shot.jsonl", [shot]))[1]
    more = question(0, prompt="Look: <image>What is this?")
    assert main(["score", str(one), "--against", str(write(tmp_path / "more.jsonl", [more]))]) == 3


def test_sources_that_ask_the_same_are_not_taken_together(tmp_path: Path, capsys) -> None:
    def of(*sources: str) -> list[Line]:
        line = {"prompt": "What?", "expected": "a", "answer": "a"}
        return [line | {"source": s, "document": f"d:{n}"} for s in sources for n in range(3)]

    one = write(tmp_path / "one.jsonl", of("s", "s_1_shot"))
    found, said = compared(capsys, one, one)
    assert {kind for kind, *_ in figures(found)} == {"source"} and "sources ask the same questions" in said
    apart = [line | {"document": f"{line['source']}{line['document']}"} for line in of("s", "t")]
    found, said = compared(capsys, write(one, apart), one)
    assert {kind for kind, *_ in figures(found)} == {"source", "all"} and said == ""
    questions = [question(n, source=source) for source in ("mc", "mc_1_shot") for n in range(3)]
    found, said = compared(capsys, write(one, questions), one)
    assert {kind for kind, *_ in figures(found)} == {"choices"} and said == ""


def test_names_of_sources_are_those_of_the_scores(tmp_path: Path, capsys) -> None:
    line = {"expected": "a", "answer": "a"}
    found, _ = compared(capsys, write(tmp_path / "w1.jsonl", [line]), write(tmp_path / "w2.jsonl", [line]))
    assert [*found["generated"]] == ["w1"] and ("source", "w1", "exact_match") in figures(found)


METRICS = (word_error_rate(ignore_case=True), char_error_rate(), exact_match(), rouge_l(), anls(), vqa_accuracy())
ANSWERS = [
    Generated("d", "the cat sat", "the Cat sat down", references=("the cat sat", "a cat")),
    Generated("d", "a dog", "dig"),
    Generated("d", "", "oh"),
]  # fmt: skip


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: type(metric).__name__)
def test_what_answers_add_to_a_metric_comes_to_what_it_gives(metric: Any) -> None:
    parts = parts_of_each(ANSWERS, "it", metric)
    assert parts is not None
    right = [list(a.references) or [a.expected or ""] for a in ANSWERS]
    whole = metric.of_several([a.text for a in ANSWERS], right)
    assert sum(over for over, _ in parts) / sum(under for _, under in parts) == pytest.approx(whole, abs=1e-6)


def test_each_metric_is_compared_with_an_interval_where_answers_have_figures_of_their_own(
    tmp_path: Path, capsys
) -> None:
    def file(name: str, wrong: int) -> Path:
        said = ["one two three four six" if n < wrong else "one two three four five" for n in range(40)]
        right = "one two three four five"
        return write(
            tmp_path / name, [{"document": f"d{n}", "expected": right, "answer": a} for n, a in enumerate(said)]
        )

    one, other = file("one.jsonl", 5), file("other.jsonl", 20)
    more = ["--metric", "word_error_rate", "--metric", "anls", "--metric", "bleu"]
    found = figures(compared(capsys, one, other, *more)[0])
    rate, bleu = found["all", "", "word_error_rate"], found["all", "", "bleu"]
    assert rate["first"] == pytest.approx(5 / 200) and rate["second"] == pytest.approx(20 / 200)
    assert rate["low"] < rate["difference"] < rate["high"] < 0 and rate["p"] < 0.01 and rate["lower_is_better"]
    assert found["all", "", "anls"]["low"] > 0
    assert bleu["first"] > bleu["second"] > 0 and bleu["low"] is None and bleu["p"] is None
    assert main(["score", str(one), "--against", str(other), *more]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    better = {line.split(",")[1].split()[0]: line.split()[-1] for line in table if line.startswith("  all, ")}
    assert better == {"word_error_rate": "first", "anls": "first", "exact": "first", "bleu": "-"}
    assert last == "bleu has no interval: no answer has a figure of its own there"


PLUGIN = """
from kosmos import MetricSpec, hookimpl

KOSMOS_API = 1

class Letters:
    def __call__(self, predictions, references):
        parts = self.of_each(predictions, [[one] for one in references])
        return sum(a for a, _ in parts) / sum(b for _, b in parts)

    def of_each(self, predictions, references):
        return [(len(said), len(right[0])) for said, right in zip(predictions, references)]

class Broken(Letters):
    def of_each(self, predictions, references):
        return [(1, 1)]

@hookimpl
def kosmos_metrics():
    yield MetricSpec(name="letters", target=f"{__name__}:Letters", summary="s", lower_is_better=True)
    yield MetricSpec(name="broken", target=f"{__name__}:Broken", summary="s")
"""


def test_metrics_of_plugins_are_compared_as_well_and_one_that_fails_costs_itself(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.syspath_prepend(install_plugin(tmp_path, "letters", PLUGIN))
    monkeypatch.setenv("KOSMOS_PLUGINS", "letters")
    lines = [{"document": f"d{n}", "expected": "abcd", "answer": "ab" * (1 + n % 2)} for n in range(40)]
    one = write(tmp_path / "one.jsonl", lines)
    other = write(tmp_path / "other.jsonl", [line | {"answer": "abcd"} for line in lines])
    found = figures(compared(capsys, one, other, "--metric", "letters")[0])["all", "", "letters"]
    assert (found["first"], found["second"], found["lower_is_better"]) == (0.75, 1.0, True) and found["p"] < 1e-6
    assert main(["score", str(one), "--against", str(other), "--metric", "broken"]) == 3
    said = capsys.readouterr()
    assert "metric broken: of_each gave 1 pairs for 40 answers" in said.err and "all, exact match" in said.out
