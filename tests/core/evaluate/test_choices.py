"""``kosmos eval --choices``: the answer that is held to be the likeliest is that of a plain forward pass over each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import Tensor

from kosmos import Mark, Media, Text, load_run, make_run
from kosmos.cli import main
from kosmos.commands.answers import AnswerLines
from kosmos.commands.by_value import ByValue
from kosmos.commands.choices import named_choices, opened_choices, scored_choices
from kosmos.commands.scored_answers import Wanted, write_answers
from kosmos.data.batch import ReadyDocument, assemble, to_tensors
from kosmos.data.choices import _space
from kosmos.data.decoding import decode_cells
from kosmos.data.document import Document
from kosmos.data.sources.choices import Offer
from kosmos.errors import DataError
from kosmos.evaluate.choices import NOT_FINITE, Chosen, score_choices
from kosmos.evaluate.score import score
from kosmos.run_choices import open_choices
from kosmos.runtime.parallel import Parallel
from kosmos.train.run import train_model
from support.runs import rows_of

CHAT = [{"role": "user", "content": "What colour?"}, {"role": "assistant", "content": "red"}]
SMALL = {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48}


@pytest.fixture(scope="module", params=["text", "chat"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of pictures and texts, and one of chats."""
    folder = tmp_path_factory.mktemp(request.param)
    Image.new("RGB", (32, 32), "red").save(folder / "red.png")
    row = {"messages": CHAT} if request.param == "chat" else {"image": "red.png", "text": "red is the colour"}
    (folder / "rows.jsonl").write_text(f"{json.dumps(row)}\n" * 8)
    layers = {"data": {"sources": [str(folder / "rows.jsonl")], "workers": 0, "lanes": 1, "tokens_per_pack": 128}}
    train = {"steps": 4, "warmup_steps": 0, "precision": "fp32"}
    output = {"backbone": SMALL, "modalities": ["image"], "trackers": [], "output": str(folder / "run"), "train": train}
    train_model(make_run(layers, output))
    return folder / "run"


ROWS: list[dict[str, Any]] = [
    {"query": "The ball is", "choices": ["red.", "a very long answer to it.", "blue"], "gold": 0},
    {"question": "What?", "options": ["no", "yes"], "answer": "B"},
    {"context": "A tale.", "question": "Who?", "choices": {"text": ["me", "you", "it"], "label": ["1", "2", "3"]},
     "answerKey": "2"},
    {"image": "red.png", "prompt": "It is ", "choices": ["red", "green"], "answer": "green"},
    {"messages": [{"role": "user", "content": "<image>Which?"}], "images": ["red.png"], "choices": ["a", "b"],
     "label": 1},
    {"query": "How many?", "choices": ["1", "10", "2"], "gold": 0},
]  # fmt: skip
QUESTIONS = ["The ball is", "What?", "A tale.\nWho?", "It is ", "Which?", "How many?"]
OFFERED = [
    ["red.", "a very long answer to it.", "blue"],
    ["no", "yes"],
    ["me", "you", "it"],
    ["red", "green"],
    ["a", "b"],
    ["1", "10", "2"],
]
RIGHT = [0, 1, 1, 1, 1, 0]
WITH_END = 5
"""The question of which an answer begins with another."""


def expected_document(number: int, answer: str, *, chat: bool, folder: Path) -> Document:
    """Written out by hand."""
    media = [Media("image", folder / "red.png")] if number in (3, 4) else []
    question = Text(QUESTIONS[number])
    if chat or number == 4:
        turn = [Mark("<|user|>"), *media, question, Mark("<|end|>"), Mark("<|assistant|>")]
        return Document("by hand", (*turn, Text(answer, train=True), Mark("<|end|>", train=True)))
    space = "" if number == 3 else " "
    return Document("by hand", (*media, question, Text(space + answer, train=True)))


def log_likelihood(composition: Any, document: Document, tokens: int) -> float:
    """Of so many learned tokens, by a forward pass over the one document."""
    (plan,) = composition.planner.plan(document)
    cells: dict[str, list[Any]] = {}
    for medium in plan.media:
        cells.setdefault(medium.stream, []).append(decode_cells(medium, composition.processors["image"]))
    row = assemble([ReadyDocument(plan, "s", cells)], composition.planner.routes, composition.streams)
    batch = to_tensors(row)
    with torch.no_grad():
        losses: Tensor = composition.model.eval()(batch).per_token
    assert len(losses) >= tokens  # the tokens for the end may follow
    return -float(losses[:tokens].sum())


def test_accuracies_are_those_of_every_answer_by_itself(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, chat = run.parent, "chat" in run.parent.name
    (folder / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    composition = load_run(run, device="cpu").composition
    likeliest, by_length, lines = [], [], []
    for number, answers in enumerate(OFFERED):
        each = [
            log_likelihood(
                composition,
                expected_document(number, answer, chat=chat, folder=folder),
                len(answer.encode()) + (not chat and number not in (3, 4)) + (number == WITH_END),  # bytes, space, end
            )
            for answer in answers
        ]
        per_byte = [value / len(answer.encode()) for value, answer in zip(each, answers, strict=True)]
        likeliest.append(each.index(max(each)) == RIGHT[number])
        by_length.append(per_byte.index(max(per_byte)) == RIGHT[number])
        lines.append((each, per_byte))
    capsys.readouterr()
    written = folder / "answers.jsonl"
    written.unlink(missing_ok=True)
    status = main(["eval", str(run), "--choices", str(folder / "asked.jsonl"), "--json", "--answers", str(written)])
    assert status == 0
    found = json.loads(capsys.readouterr().out)
    assert found["asked_as_chats"] == chat and "overall" not in found and not found["incidents"]
    assert found["choices"]["asked"] == {
        "documents": 6,
        "accuracy": pytest.approx(sum(likeliest) / 6, abs=1e-6),
        "accuracy_standard_error": error_of(sum(likeliest) / 6),
        "accuracy_by_length": pytest.approx(sum(by_length) / 6, abs=1e-6),
        "accuracy_by_length_standard_error": error_of(sum(by_length) / 6),
        "chance": pytest.approx((1 / 3 + 1 / 2 + 1 / 3 + 1 / 2 + 1 / 2 + 1 / 3) / 6, abs=1e-6),
    }
    for number, (line, (each, per_byte)) in enumerate(zip(rows_of(written), lines, strict=True)):
        assert line["document"] == f"asked.jsonl:{number + 1}" and line["choices"] == OFFERED[number]
        assert QUESTIONS[number] in line["prompt"] and line["media"] == ["red.png"] * (number in (3, 4))
        assert line["prompt"].startswith("<|user|>") == (chat or number == 4)
        assert line["log_probabilities"] == pytest.approx(each, abs=1e-3)  # measured: 5e-5
        assert line["log_probabilities_by_length"] == pytest.approx(per_byte, abs=1e-3)
        assert line["right"] == RIGHT[number] and line["expected"] == OFFERED[number][RIGHT[number]]
        assert line["chosen"] == each.index(max(each)) and line["answer"] == OFFERED[number][line["chosen"]]
        assert line["chosen_by_length"] == per_byte.index(max(per_byte))


@pytest.mark.parametrize("answers", [["1", "10", "2"], ["not sure", "no"], ["no", "no", "now"]])
@pytest.mark.parametrize("chat", [False, True])
def test_where_an_answer_begins_with_another_its_end_counts(run: Path, answers: list[str], chat: bool) -> None:
    each, composition = likelihoods(run, answers, chat=chat)
    documents = [expected_document(1, answer, chat=chat, folder=run.parent) for answer in answers]
    tokens = [len(answer.encode()) + (not chat) + 1 for answer in answers]
    expected = [log_likelihood(composition, *pair) for pair in zip(documents, tokens, strict=True)]
    assert each == pytest.approx(expected, abs=1e-4)  # measured: 2e-6


def error_of(share: float) -> Any:
    """The standard error of a share of six questions."""
    return pytest.approx((share * (1 - share) / 6) ** 0.5, abs=1e-6)


def test_a_share_is_printed_with_its_standard_error(run: Path, capsys) -> None:
    rows = [{"query": "It is", "choices": ["red", "b"], "gold": gold} for gold in (0, 0, 0, 1)]
    _, out, _ = asked(run, capsys, rows)
    share = 75 if " 75.00 " in out else 25  # whichever is likelier, it is so four times
    assert f"{share}.00 ± 21.65 %" in out.splitlines()[2]
    status, out, _ = asked(run, capsys, rows, "--data", str(run.parent / "rows.jsonl"), "--json")
    overall = json.loads(out)["overall"]
    assert status == 0 and overall["answers"] == overall["documents"]
    exact = overall["exact_match"]
    assert overall["exact_match_standard_error"] == pytest.approx((exact * (1 - exact) / overall["answers"]) ** 0.5)


def test_answers_are_of_what_is_generated_or_chosen(run: Path, capsys) -> None:
    answers, data = run.parent / "both.jsonl", str(run.parent / "rows.jsonl")
    answers.unlink(missing_ok=True)
    assert main(["eval", str(run), "--data", data, "--answers", str(answers)]) == 2
    assert "--answers: takes what --generate N writes and --choices FILE chooses" in capsys.readouterr().err
    rows = [{"query": "It is", "choices": ["a", "b"], "gold": 0}]
    both = ("--data", data, "--generate", "1", "--max-new-tokens", "2", "--answers", str(answers))
    assert asked(run, capsys, rows, *both)[0] == 0
    chosen, generated = rows_of(answers)
    assert list(chosen)[:5] == ["source", "document", "prompt", "media", "expected"]
    assert set(generated) <= {*list(chosen)[:6], "prompt_tokens", "tokens", "ended"}


def likelihoods(run: Path, answers: list[str], *, chat: bool) -> tuple[list[float], Any]:
    """Of each answer, as they are compared."""
    file = run.parent / "ends.jsonl"
    file.write_text(json.dumps({"question": "What?", "choices": answers, "gold": 0}) + "\n")
    composition = load_run(run, device="cpu").composition
    encode = composition.planner.tokenizer.encode
    asked = open_choices(composition.config, composition.registry, [str(file)], chat=chat, max_rows=9, encode=encode)
    found: dict[str, float] = {}
    score(
        composition, asked, device="cpu", max_documents=9, workers=0,
        told=lambda document, losses: found.__setitem__(document.origin, -float(losses.sum())),
    )  # fmt: skip
    return [found[asked[0].origin(number)] for number in range(len(answers))], composition


def asked(
    run: Path, capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]], *more: str
) -> tuple[int, str, str]:
    file = run.parent / "some.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    capsys.readouterr()
    status = main(["eval", str(run), "--choices", str(file), "--workers", "0", *more])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_questions_that_cannot_be_asked_are_named_and_cost_themselves_alone(run: Path, capsys) -> None:
    good = {"query": "It is", "choices": ["a", "b"], "gold": 0}
    (run.parent / "broken.png").write_bytes(b"no picture")
    bad = {
        "too long": ({**good, "query": "word " * 40}, "answer 1: with its question it takes more than the 128 tokens"),
        "no medium": ({**good, "image": "none.png"}, "some.jsonl:3: "),
        "broken": ({**good, "image": "broken.png"}, "some.jsonl:4: "),
        "one": ({**good, "choices": ["a"]}, "choices: expected a list of two answers or more, got a list of 1"),
        "none": ({**good, "choices": []}, "choices: expected a list of two answers or more, got an empty list"),
        "text": ({**good, "choices": "a or b"}, "choices: expected a list of two answers or more, got a string"),
        "one label": ({**good, "choices": {"A": "a", "B": None}}, "of two answers or more by their labels, got 1"),
        "one letter": ({"query": "?", "A": "a", "B": "", "gold": 0}, "A, B: expected two answers or more, got A alone"),
        "no letter": (
            {"query": "?", "A": None, "B": None, "gold": 0},
            "offers nothing (choices, options, endings, can",
        ),
        "nested": ({**good, "choices": {"A": "a", "B": ["b", []]}}, "choices.B: expected text, got a list"),
        "beyond": ({**good, "gold": 2}, "gold: 2 is none of its 2 answers"),
        "unsaid": ({**good, "gold": None}, "none of the answers is said to be right"),
        "empty": ({**good, "choices": ["a", ""]}, "choices[1] is empty"),
        "answered": ({"messages": CHAT, "choices": ["a", "b"], "gold": 0}, "its chat ends with no turn of the user"),
        "twice asked": ({**good, "messages": CHAT[:1]}, "query beside messages: write all of it as messages"),
        "system": ({**good, "system": "Be brief."}, "system beside a question: write all of it as messages"),
        "no question": ({**good, "query": ""}, "some.jsonl:18: holds no question"),
        "text alone": ({**good, "query": "", "text": "a", "image": "red.png"}, "ctx); text would stand before one"),
        "placed": (
            {**good, "query": "Is <image> <image>?", "image": "red.png"},
            "<image> stands 2 times, and the row holds 1 of its media",
        ),
    }
    status, out, err = asked(run, capsys, [good, *(row for row, _ in bad.values())])
    assert (status, err.partition(";")[0]) == (0, "warning: some questions are left out until columns are named")
    lines = out.splitlines()
    assert lines[0] == f"{run}, step 4" and lines[2].split()[:2] == ["some", "1"]
    left = [line for line in lines if line.startswith("left out: ")]
    assert len(left) == len(bad)
    assert [sum(said in line for line in left) for _, said in bad.values()] == [1] * len(bad)
    assert not any(line.count("some.jsonl") > 1 for line in left)


def test_a_line_says_whether_an_answer_that_is_offered_twice_is_right(run: Path, capsys) -> None:
    file = run.parent / "twice.jsonl"
    twice = {"question": "What is red?", "choices": ["a tomato", "a tomato"], "gold": 1}
    file.write_text(json.dumps(twice) + "\n" + json.dumps({**twice, "choices": ["a", "a very long answer"]}) + "\n")
    written = run.parent / "twice_answers.jsonl"
    assert main(["eval", str(run), "--choices", str(file), "--workers", "0", "--answers", str(written), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["choices"]["twice"]
    first, other = rows_of(written)
    assert (first["chosen"], first["right"], first["is_right"], first["is_right_by_length"]) == (0, 1, True, True)
    assert other["is_right"] == (other["chosen"] == 1)
    assert found["accuracy"] == (first["is_right"] + other["is_right"]) / 2
    assert found["chance"] == (1 + 1 / 2) / 2  # whichever tomato is guessed is right


def test_media_may_be_all_that_is_asked(run: Path) -> None:
    composition = load_run(run, device="cpu").composition
    rows = [
        {"image": "red.png", "choices": ["red", "green"], "answer": "green"} | asks for asks in ({}, {"question": ""})
    ]
    (run.parent / "alone.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run.parent / "alone too.csv").write_text("file_name,A,B,answer\nred.png,red,green,B\n")
    paths = [run.parent / name for name in ("alone.jsonl", "alone too.csv")]
    opened = open_choices(
        composition.config, composition.registry, paths, encode=composition.tokenizer.encode, chat=False
    )
    for source in opened:
        assert source.incidents == []
        for number in range(len(source)):
            media, answer, _ = source.document(number).segments
            assert (media.source, answer.text) == (run.parent / "red.png", ("red", "green")[number % 2])


def test_questions_may_stand_in_a_table(run: Path, capsys) -> None:
    file = run.parent / "table.csv"
    file.write_text('question,choices,answer\nIs it?,"[""no"", ""yes""]",B\nWho?,"[""a"", ""b"", ""c""]",c\n')
    capsys.readouterr()
    assert main(["eval", str(run), "--choices", str(file), "--workers", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["choices"]["table"]
    assert (found["documents"], found["chance"]) == (2, pytest.approx((1 / 2 + 1 / 3) / 2))


def test_a_table_may_have_a_column_for_each_answer_or_an_object_of_them(run: Path) -> None:
    composition = load_run(run, device="cpu").composition
    asked = ("Is it?", "Which is it?")
    letters: dict[str, list[Any]] = {"A": ["no", "a"], "B": ["yes", "b"], "C": [None, "c"], "D": [None, None]}
    offered = [Offer(("no", "yes"), 1), Offer(("a", "b", "c"), 2)]
    objects = [{"A": "no", "B": "yes"}, {"A": "a", "B": "b", "C": "c"}]
    (run.parent / "tsv.tsv").write_text(
        f"question\tA\tB\tC\tD\tanswer\n{asked[0]}\tno\tyes\t\t\tB\n{asked[1]}\ta\tb\tc\t\tC\n"
    )
    both = {"question": asked, "answer": ["B", "C"]}
    pq.write_table(pa.table({**both, **letters}), run.parent / "letters.parquet")
    pq.write_table(pa.table({**both, "choices": objects}), run.parent / "objects.parquet")
    paths = [run.parent / name for name in ("tsv.tsv", "letters.parquet", "objects.parquet")]
    for source in open_choices(composition.config, composition.registry, paths, encode=composition.tokenizer.encode):
        assert (source.offers, source.incidents) == (offered, []), source.name
        assert next(part.text for part in source.document(2).segments if isinstance(part, Text)) == asked[1]


def test_a_file_without_one_usable_question_is_an_error(run: Path, capsys) -> None:
    status, out, err = asked(run, capsys, [{"query": "It is", "choices": ["a", "b"], "gold": 2}])
    assert status == 3 and "no document could be scored" in err and "gold: 2 is none of its 2 answers" in out
    status, out, err = asked(run, capsys, [{"context": "It is", "continuation": "a"}])
    assert (
        status == 3
        and "no column says what is offered (choices, options, endings, candidates, or A, B and so on); there" in err
    )
    assert err.endswith("columns are named as --choices '{path: FILE, columns: {answer: truth}}'\n")
    status, out, err = asked(run, capsys, [{"choices": ["a", "b"], "gold": 0}])
    assert status == 3 and "no column holds the question (question, query, prompt" in err


def test_columns_are_named_with_the_file(run: Path, capsys, tmp_path: Path) -> None:
    file, answers = tmp_path / "asked.jsonl", tmp_path / "answers.jsonl"
    row = {"picture": "red.png", "q": "Which?", "candidates": ["red", "blue"], "truth": 0}
    file.write_text(f"{json.dumps(row)}\n" * 3)
    fields = f"path: {file}, root: {run.parent}, name: mine, columns: {{image: picture, question: q}}"
    more = ["--answers", str(answers), "--json"]
    assert main(["eval", str(run), "--choices", f"{{{fields}}}", "--workers", "0", *more]) == 0
    assert json.loads(capsys.readouterr().out)["choices"]["mine"]["documents"] == 3
    assert [row["media"] for row in rows_of(answers)] == [["red.png"]] * 3

    layer = f"evaluate.choices=[{{{fields}}}]"
    assert main(["eval", str(run), layer, "--workers", "0", "--json"]) == 0  # as the run file says it
    assert json.loads(capsys.readouterr().out)["choices"]["mine"]["documents"] == 3
    assert main(["eval", str(run), layer.replace("question:", "qestion:")]) == 2
    said = capsys.readouterr().err
    assert "evaluate.choices.0: columns.qestion: no modality and no role; did you mean question?" in said


def test_questions_that_are_asked_without_what_they_are_about_are_told(run: Path, capsys) -> None:
    row = {"imageID": "17", "question": "Which?", "options": ["red", "blue"], "answer": "A"}
    (run.parent / "blind.jsonl").write_text('{"imageID": 17, "text": "red"}\n')
    status, _, err = asked(run, capsys, [row], "--data", str(run.parent / "blind.jsonl"))
    assert status == 0
    first, second = (line for line in err.splitlines() if "imageID may name" in line)
    assert first.startswith("warning: blind: no document holds") and first.endswith("columns: ...}' names them")
    assert second.startswith("warning: some: no question holds a medium") and second.endswith("{answer: truth}}'")
    status, _, err = asked(run, capsys, [{**row, "imageID": None}])
    assert (status, err) == (0, "")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("{path: a.jsonl, colums: {answer: a}}", "colums: unknown field; did you mean columns?"),
        ("{path: a.jsonl, columns: [answer]}", "columns: "),
        ("{path: a.jsonl, path: b.jsonl}", "path stands there twice"),
        ("{path: a.jsonl", "is not YAML; expected a file, or fields as '{path: FILE, columns: {answer: truth}}'"),
        ("{columns: {answer: a}}", "path: "),
    ],
)
def test_fields_of_choices_that_cannot_be_read(run: Path, capsys, given: str, line: str) -> None:
    assert main(["eval", str(run), "--choices", given]) == 2
    assert f"--choices {given}: {line}" in capsys.readouterr().err


def test_questions_that_want_their_columns_named_say_how(run: Path, capsys) -> None:
    (run.parent / "film.wav").write_bytes(b"a sound")
    good = {"query": "It is", "choices": ["a", "b"], "gold": 0}
    timed = {**good, "audio": "film.wav", "start": 1, "end": 2}
    audio = run.parent.parent / f"{run.parent.name}-audio"
    if not audio.exists():
        layers = {"data": {"sources": [str(run.parent / "rows.jsonl")], "workers": 0, "tokens_per_pack": 128}}
        train = {"steps": 1, "precision": "fp32"}
        over = {"backbone": SMALL, "modalities": ["image", "audio"], "trackers": [], "output": str(audio)}
        train_model(make_run(layers, over, {"train": train}))
    file = run.parent / "timed.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in (good, timed)))
    assert main(["eval", str(audio), "--choices", str(file), "--workers", "0"]) == 0
    out, err = capsys.readouterr()
    assert "name the columns of seconds (columns: {start: start, end: end})" in out
    how = "on the command line columns are named as --choices '{path: FILE, columns: {answer: truth}}'"
    assert f"warning: some questions are left out until columns are named; {how}" in err.splitlines()


def test_a_file_of_which_nothing_is_scored_is_an_error_beside_others(run: Path, capsys) -> None:
    unusable, rows = str(run.parent / "unusable.jsonl"), str(run.parent / "rows.jsonl")
    Path(unusable).write_text('{"query": "It is", "choices": ["a", "b"], "gold": 2}\n')
    good = [{"query": "It is", "choices": ["a", "b"], "gold": 0}]
    status, out, err = asked(run, capsys, good, "--choices", unusable)
    says = "no document could be scored; those left out are named with why\n"
    assert (status, err) == (3, f"error[data]: {unusable}: {says}")
    table = [line.split()[:2] for line in out.splitlines()[2:4]]
    assert table == [["some", "1"], ["unusable", "0"]] and "gold: 2 is none of its 2 answers" in out
    status, out, err = asked(run, capsys, [{**good[0], "gold": 2}], "--choices", unusable, "--json", "--data", rows)
    assert (status, err) == (3, f"error[data]: {run.parent / 'some.jsonl'}, {unusable}: {says}")
    assert json.loads(out)["overall"]["documents"] > 0

    broken = run.parent / "other.jsonl"
    broken.write_text('{"image": "none.png", "text": "red"}\n')
    assert main(["eval", str(run), "--data", str(broken), "--data", rows, "--workers", "0"]) == 3
    said = capsys.readouterr()
    assert said.err.endswith(
        f"error[data]: {broken}: {says[:-1]}; if their media are in another folder, name it with --root\n"
    )


def test_questions_stand_beside_what_else_is_scored(run: Path, capsys) -> None:
    rows = [{"query": "It is", "choices": ["a", "b"], "gold": 0}] * 9
    status, out, _ = asked(
        run, capsys, rows, "--data", str(run.parent / "rows.jsonl"), "--max-documents", "4", "--json"
    )
    found = json.loads(out)
    assert status == 0 and found["choices"]["some"]["documents"] == 4 and found["overall"]["documents"] > 0
    status, _, err = asked(run, capsys, rows, "--generate", "3")
    assert status == 2 and "--generate: continues documents, and --choices has none; name some with --data" in err
    status, _, err = asked(run, capsys, rows, "--choices", str(run.parent / "some.jsonl"))
    assert status == 2 and "is given twice" in err
    (run.parent / "other").mkdir()
    (run.parent / "other" / "some.jsonl").write_text(json.dumps(rows[0]) + "\n")
    status, _, err = asked(run, capsys, rows, "--choices", str(run.parent / "other" / "some.jsonl"))
    told = "two sources are called 'some'; give one another name (--choices '{path: FILE, name: other}')"
    assert status == 2 and told in err
    assert main(["eval", str(run), "--choices", "sums"]) == 3
    assert "a registered dataset has no rows with choices" in capsys.readouterr().err


def test_what_is_passed_over_is_told_and_held_out_parts_are_taken(run: Path, capsys) -> None:
    good = {"query": "It is", "choices": ["a", "b"], "gold": 0}
    status, out, err = asked(run, capsys, [{**good, "split": s} for s in ("train", "test", "test")], "--json")
    assert (status, err, json.loads(out)["choices"]["some"]["documents"]) == (0, "", 2)
    status, out, err = asked(run, capsys, [good, {**good, "video": "v.mp4"}])
    assert status == 0 and err.startswith("left out: some: 1 row holds video") and out.splitlines()[2].split()[1] == "1"


@pytest.mark.parametrize(
    ("question", "answers", "space"),
    [
        ("It is", ["-5", "5"], " "),
        ("It is", ["$5", '"five"'], " "),
        ("It is", [", he said", ". No"], ""),
        ("It is", [", he said", "red"], " "),
        ("It is ", ["red", "blue"], ""),
        ("它是", ["红", "蓝"], ""),
    ],
)
def test_all_answers_stand_alike_behind_their_question(question: str, answers: list[str], space: str) -> None:
    assert _space([Text(question)], answers) == space


def test_what_was_scored_stays_where_a_question_cannot_be_read_again(run: Path) -> None:
    asked, answers = run.parent / "gone.jsonl", run.parent / "gone_answers.jsonl"
    asked.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    saved = load_run(run, device="cpu")
    chosen: list[Chosen] = []
    scored_choices(saved, opened_choices(saved, named_choices([str(asked)]), None, 100), 0, chosen.append, Parallel())
    asked.write_bytes(b"x" * asked.stat().st_size)
    lines, result = AnswerLines(str(answers)), {"choices": "scored"}
    error = write_answers(saved, [], chosen, Wanted(0, 1, {}, ByValue(None, print)), lines, result, Parallel(), print)
    assert isinstance(error, DataError) and result == {"choices": "scored"} and not answers.exists()
    assert str(error).startswith(f"--answers {answers}: not written, as a question can no more be read: ")


def test_weights_that_are_no_numbers_choose_nothing(run: Path) -> None:
    file = run.parent / "asked.jsonl"
    file.write_text(json.dumps({"query": "It is", "choices": ["a", "b"], "gold": 0}) + "\n")
    composition = load_run(run, device="cpu").composition
    with torch.no_grad():
        composition.model.backbone.output_weight().fill_(torch.nan)
    encode = composition.planner.tokenizer.encode
    asked = open_choices(composition.config, composition.registry, [str(file)], chat=False, max_rows=9, encode=encode)
    scores, (left_out,) = score_choices(composition, asked, device="cpu", workers=0)
    assert (scores["asked"].documents, scores["asked"].accuracy, left_out.cause) == (0, None, NOT_FINITE)
