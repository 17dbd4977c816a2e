"""Questions with examples in front of them: ``shots`` of ``evaluate.choices`` and ``kosmos eval --choices``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from kosmos import Mark, Media, Text, load_run, make_run
from kosmos.cli import main
from kosmos.data.choices import ChoiceSource
from kosmos.data.shots import drawn, in_front
from kosmos.run_choices import open_choices
from kosmos.run_file import with_absolute_sources
from kosmos.train.run import train_model
from support.runs import rows_of

ASKED = [{"question": f"{n} + 1?", "choices": [str(n + 1), str(n + 2)], "answer": "AB"[n % 2]} for n in range(6)]
SAID = [ASKED[n]["choices"][n % 2] for n in range(6)]


def lines(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shots")
    lines(folder / "rows.jsonl", [{"text": f"{n} + 1? {n + 1}"} for n in range(8)])
    config = {
        "modalities": ["image"], "data": {"sources": [str(folder / "rows.jsonl")], "tokens_per_pack": 96, "workers": 0},
        "backbone": {"name": "decoder", "width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
        "train": {"steps": 2, "warmup_steps": 1, "precision": "fp32"}, "trackers": [], "output": str(folder / "run"),
    }  # fmt: skip
    train_model(make_run(config))
    lines(folder / "asked.jsonl", ASKED)
    return folder


def opened(run: Path, entry: Mapping[str, Any], *, chat: bool = False) -> ChoiceSource:
    parts = load_run(run / "run", device="cpu").composition
    (source,) = open_choices(parts.config, parts.registry, [entry], encode=parts.tokenizer.encode, chat=chat)
    return source


def told(capsys: pytest.CaptureFixture[str], run: Path, entry: object, *more: object) -> dict[str, Any]:
    named = entry if isinstance(entry, str) else json.dumps(entry)
    assert main(["eval", str(run / "run"), "--choices", named, "--json", "--workers", "0", *map(str, more)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_other_questions_of_the_file_stand_in_front_with_their_right_answers(run: Path) -> None:
    source = opened(run, {"path": str(run / "asked.jsonl"), "shots": 3})
    assert source.name == "asked_3_shot"
    orders = set()
    for place in range(6):
        (text,) = source.question(place).segments
        assert isinstance(text, Text) and not text.train
        *examples, question = text.text.split("\n\n")
        numbers = [int(example[0]) for example in examples]
        assert examples == [f"{n} + 1? {SAID[n]}" for n in numbers] and question == f"{place} + 1?"
        assert len({*numbers, place}) == 4
        orders.add(tuple(numbers))
        for answer in (0, 1):
            before, said, _ = source.document(source.number(place, answer)).segments
            assert before == text and said == Text(f" {place + 1 + answer}", train=True)
    assert len(orders) > 2  # each question has its own
    again = opened(run, {"path": str(run / "asked.jsonl"), "shots": 3})
    assert [again.question(n).segments for n in range(6)] == [source.question(n).segments for n in range(6)]


def test_an_answer_is_as_likely_as_behind_the_same_text_written_by_hand(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"path": str(run / "asked.jsonl"), "shots": 2}
    source = opened(run, entry)
    texts = [source.question(n).segments[0].text for n in range(6)]
    by_hand = [{**row, "context": text.rpartition("\n")[0]} for row, text in zip(ASKED, texts, strict=True)]
    written = []
    for name, given in (("shots", entry), ("hand", {"path": str(lines(run / "by_hand.jsonl", by_hand))})):
        found = told(capsys, run, given, "--answers", run / f"{name}.answers")
        written.append(rows_of(run / f"{name}.answers"))
    assert found["choices"]["by_hand"]["documents"] == 6
    for one, other in zip(*written, strict=True):
        assert one["prompt"] == other["prompt"]
        assert one["log_probabilities"] == pytest.approx(other["log_probabilities"], abs=1e-4)  # measured: 0
    plain = told(capsys, run, str(run / "asked.jsonl"), "--answers", run / "plain.answers")
    assert [*plain["choices"]] == ["asked"]
    assert [row["prompt"] for row in rows_of(run / "plain.answers")] == [row["question"] for row in ASKED]


def test_examples_are_of_what_is_to_be_trained_on_or_of_another_file_and_never_the_question(run: Path) -> None:
    split = [{**row, "split": "test" if n < 3 else "train"} for n, row in enumerate(ASKED)]
    source = opened(run, {"path": str(lines(run / "split.jsonl", split)), "shots": 3})
    assert len(source.offers) == 3
    for place in range(3):
        assert {text[0] for text in source.question(place).segments[0].text.split("\n\n")[:-1]} == {"3", "4", "5"}
    others = lines(run / "others.jsonl", [ASKED[0], ASKED[5]])
    source = opened(run, {"path": str(run / "split.jsonl"), "shots": 1, "shots_from": str(others), "name": "mine"})
    assert source.question(0).segments == (Text(f"5 + 1? {SAID[5]}\n\n0 + 1?"),) and source.name == "mine"


def test_examples_of_chats_are_earlier_turns_behind_the_system_s_of_the_question(run: Path) -> None:
    chats = [
        {"messages": [{"role": "system", "content": f"s{n}"}, {"role": "user", "content": f"q{n}"}],
         "choices": ["yes", "no"], "answer": n} for n in range(2)
    ]  # fmt: skip
    source = opened(run, {"path": str(lines(run / "chats.jsonl", chats)), "shots": 1})
    end, user, assistant = Mark("<|end|>"), Mark("<|user|>"), Mark("<|assistant|>")
    assert source.question(0).segments == (
        Mark("<|system|>"), Text("s0"), end, user, Text("q1"), end, assistant, Text("no"), end,
        user, Text("q0"), end, assistant,
    )  # fmt: skip
    asked = opened(run, {"path": str(run / "asked.jsonl"), "shots": 1}, chat=True).question(0).segments
    assert [part for part in asked if isinstance(part, Mark)] == [user, end, assistant, end, user, end, assistant]


@pytest.fixture
def pictures(run: Path) -> Path:
    """Rows of the same words about pictures of one size, of which the second is not there."""
    folder = run / "pictures"
    folder.mkdir(exist_ok=True)
    for number in range(5):
        Image.new("RGB", (8, 8), (40 * number, 9, 9)).save(folder / f"{number}.png")
    rows = [
        {"id": f"p{n}", "image": f"{n}.png", "question": "Dark?", "choices": ["yes", "no"], "answer": n % 2}
        for n in range(5)
    ]
    return lines(folder / "asked.jsonl", rows)


def shown(source: ChoiceSource, place: int) -> list[str]:
    return [medium.source.name for medium in source.question(place).media if isinstance(medium.source, Path)]


@pytest.mark.parametrize("how", ["copied", "renamed", "saved anew"])
def test_a_copy_of_a_question_is_no_example_of_it(run: Path, pictures: Path, tmp_path: Path, how: str) -> None:
    rows = rows_of(pictures)
    for number, row in enumerate(rows):
        old = pictures.parent / row["image"]
        row["image"] = {"copied": "{}.png", "renamed": "photo{}.png", "saved anew": "{}.bmp"}[how].format(number)
        if how == "saved anew":
            Image.open(old).save(tmp_path / row["image"])
        else:
            shutil.copy(old, tmp_path / row["image"])
            row["id"] = None if how == "renamed" else row["id"]
    pool = lines(tmp_path / "asked.jsonl", rows)
    source = opened(run, {"path": str(pictures), "shots": 4, "shots_from": str(pool)})
    for place in range(5):
        *examples, own = shown(source, place)
        assert own == f"{place}.png" and rows[place]["image"] not in examples and len({*examples}) == 4


def test_an_id_that_several_rows_have_tells_no_question_from_another(run: Path, pictures: Path, tmp_path: Path) -> None:
    rows = [row | {"id": "p0", "image": str(n + 1) + ".png"} for n, row in enumerate(rows_of(pictures)[:4])]
    pool = lines(pictures.parent / "pool.jsonl", rows)
    source = opened(run, {"path": str(pictures), "shots": 4, "shots_from": str(pool)})
    assert sorted(shown(source, 0)[:4]) == ["1.png", "2.png", "3.png", "4.png"]


@pytest.mark.parametrize("shots_from", [None, "pool.jsonl"])
def test_a_broken_picture_among_the_examples_costs_no_question(
    run: Path, pictures: Path, capsys: pytest.CaptureFixture[str], shots_from: str | None
) -> None:
    folder = pictures.parent
    (folder / "broken.png").write_bytes((folder / "1.png").read_bytes()[:50])
    bad = {"image": "broken.png", "question": "Bright?", "choices": ["yes", "no"], "answer": 0}
    own = lines(folder / "some.jsonl", [*rows_of(pictures), *([] if shots_from else [bad])])
    entry: dict[str, Any] = {"path": str(own), "shots": 2}
    if shots_from:
        entry["shots_from"] = str(lines(folder / shots_from, [bad, *rows_of(pictures)]))
    found = told(capsys, run, entry, "--answers", run / f"broken{shots_from}.answers")
    (incident,) = found["incidents"]  # of the file itself it is a question, too, and named once
    where = "pool.jsonl:1" if shots_from else "some.jsonl:6"
    assert found["choices"]["some_2_shot"]["documents"] == 5 and incident["origin"].endswith(where)
    assert ("is no example in front of other questions" in incident["cause"]) == bool(shots_from)
    for row in rows_of(run / f"broken{shots_from}.answers"):
        assert len({*row["media"]}) == 3 and "broken.png" not in row["media"]
        assert row["shots"] == 2 and row["question"] == {"prompt": "<image>Dark?", "media": row["media"][-1:]}


def test_media_of_examples_are_called_as_their_rows_have_it(
    run: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row | {"image": f"pictures/{row['image']}"} for row in rows_of(pictures)[2:]]
    asked, answers = lines(run / "named.jsonl", rows), tmp_path / "answers.jsonl"
    told(capsys, run, {"path": str(asked), "shots": 1}, "--answers", answers)
    for line, row in zip(rows_of(answers), rows, strict=True):
        example, own = line["media"]
        assert own == row["image"] and example in {other["image"] for other in rows} - {own}
        assert line["question"]["media"] == [own]


def test_media_stay_where_they_are() -> None:
    red, green = (Media("image", Path(f"{name}.png")) for name in ("red", "green"))
    found = in_front([(red, Text("It is"), Text(" red\n\n"))], (green, Text("It is")))
    assert found == (red, Text("It is red\n\n"), green, Text("It is"))


def test_a_draw_has_every_number_once_and_hangs_on_the_question_alone() -> None:
    assert sorted(drawn(9, 3)) == list(range(9)) and list(drawn(9, 3)) == list(drawn(9, 3)) != list(drawn(9, 4))


def test_a_question_that_is_too_long_with_its_examples_is_left_out_and_named(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = [*ASKED, {"question": "long " * 16, "choices": ["a", "b"], "answer": "A"}]
    entry = {"path": str(lines(run / "long.jsonl", long)), "shots": 2}
    found = told(capsys, run, entry)
    assert found["choices"]["long_2_shot"]["documents"] < 7
    assert "with its question and its 2 examples it takes more than the 96 tokens of a row" in str(found["incidents"])


@pytest.mark.parametrize(
    ("fields", "line", "status"),
    [
        ({"shots": 6}, "6 examples are to stand in front of it, and there are 5", 3),
        ({"shots": 7}, "expected 7 questions to be examples (shots) or more, got 6", 3),
        ({"shots": 1, "path": "wrong.jsonl"}, "got 0; 6 rows cannot be used, the first: ", 3),
        ({"shots": 1, "path": "wrong.jsonl"}, "wrong.jsonl:1: answer: 'X' is none of its 2 answers: '1', '2'", 3),
        ({"shots_from": "x.jsonl"}, "shots_from: says where examples are drawn from; say how many", 2),
        ({"shots": -1}, "shots", 2),
        ({"shots": 1, "path": "held.jsonl"}, "all of it is held out; name a file of others (shots_from)", 3),
    ],
)
def test_examples_that_are_not_there_are_refused(
    run: Path, capsys: pytest.CaptureFixture[str], fields: dict[str, Any], line: str, status: int
) -> None:
    lines(run / "held.jsonl", [{**row, "split": "test"} for row in ASKED])
    lines(run / "wrong.jsonl", [{**row, "answer": "X"} for row in ASKED])
    entry = {"path": "asked.jsonl", **fields}
    named = json.dumps({**entry, "path": str(run / entry["path"])})
    assert main(["eval", str(run / "run"), "--choices", named, "--workers", "0"]) == status
    said = capsys.readouterr()
    assert line in said.err + said.out


def test_a_run_asks_with_examples_and_keeps_where_they_are(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    choices = ["asked.jsonl", {"path": "asked.jsonl", "shots": 2, "shots_from": "asked.jsonl"}]
    config = make_run(
        load_run(run / "run", device="cpu").composition.config,
        {"evaluate": {"choices": choices}, "output": str(run / "asking"), "train": {"steps": 1, "warmup_steps": 0}},
    )
    train_model(config)
    (row, *_) = rows_of(run / "asking" / "held_out.jsonl")
    assert {"asked", "asked_2_shot"} <= {*row["held_out"]["source"]}
    kept = with_absolute_sources(config, ()).evaluate.choices
    assert [one.shots_from for one in kept] == [None, str(run / "asked.jsonl")]


def test_the_rows_of_some_values_are_asked_and_are_examples(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{**row, "subject": "odd" if n % 2 else "even"} for n, row in enumerate(ASKED)]
    file, pool = lines(run / "subjects.jsonl", rows), lines(run / "other.jsonl", [{**ASKED[0], "question": "0 - 1?"}])
    entry = {"path": str(file), "rows": {"subject": "odd"}}
    source = opened(run, {**entry, "shots": 2})
    assert [question.answers[question.right] for question in source.offers] == [SAID[1], SAID[3], SAID[5]]
    texts = ["".join(getattr(part, "text", "") for part in source.question(place).segments) for place in range(3)]
    assert all(f"{n} + 1?" not in text for text in texts for n in (0, 2, 4))
    assert len(opened(run, {**entry, "shots": 1, "shots_from": str(pool)}).offers) == 3  # without such a column
    assert told(capsys, run, entry)["choices"]["subjects"]["documents"] == 3
    named = json.dumps({**entry, "rows": {"subject": "od"}})
    assert main(["eval", str(run / "run"), "--choices", named]) == 3
    assert "rows: no row has subject 'od'; there are: even, odd" in capsys.readouterr().err
