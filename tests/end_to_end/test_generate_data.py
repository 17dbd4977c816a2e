"""``kosmos generate --data`` and the answers of ``kosmos eval``: a run of one step on pictures, and its lines."""

from __future__ import annotations

import io
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from kosmos.cli import main
from kosmos.evaluate.generated import Writing
from kosmos_vision.images import ImageProcessor
from support.command import SMALL, Started, lines_in
from support.full_disk import room_for
from support.runs import rows_of

Call = Callable[..., tuple[int, list[str], list[str]]]
FEW = ("--max-new-tokens", 6)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("trained") / "run"
    few = (*SMALL, "--steps", 1, "data.workers=0", "evaluate.max_documents=2", "evaluate.metrics=[word_error_rate]")
    assert main([str(a) for a in ("train", "--modalities", "image", "--output", output, *few)]) == 0
    return output


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Run the command in this process beside two pictures: exit status, and the lines of both streams."""
    monkeypatch.chdir(tmp_path)
    for name, seed in (("a", 0), ("b", 1)):
        (tmp_path / "photos").mkdir(exist_ok=True)
        noise = np.random.default_rng(seed).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / "photos" / f"{name}.png")

    def run(*args: object) -> tuple[int, list[str], list[str]]:
        status = main([str(a) for a in args])
        captured = capsys.readouterr()
        return status, captured.out.splitlines(), captured.err.splitlines()

    return run


def write(*rows: dict[str, Any], name: str = "rows.jsonl") -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


PICTURE = {"id": "first", "image": "photos/a.png"}
QUESTION = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]}]
CHAT = {"id": 2, "image": "photos/b.png", "messages": QUESTION, "split": "test"}
CAPTION = {"image": "photos/b.png", "text": "a cat", "split": "train"}


@pytest.mark.parametrize("how", [(), ("--temperature", "0.9", "--top-p", "0.9", "--seed", "4")])
def test_answers_are_those_of_one_call_each_and_what_cannot_be_read_is_named(
    call: Call, trained: Path, how: tuple[str, ...]
) -> None:
    (Path("photos") / "words.png").write_text("these are words")
    bad = {"image": "photos/none.png"}, {"image": "photos/words.png"}
    rows = write(PICTURE, bad[0], CHAT, bad[1], CAPTION, {"prompt": "Once"}, {"audio": "x.wav"})
    status, said, named = call("generate", trained, "--data", rows, "--answers", "answers.jsonl", *FEW, *how)
    assert (status, said) == (0, ["4 answers in answers.jsonl"])
    assert named[0] == "left out: rows: 1 row holds audio; the run has image"
    assert [line.partition(": image: ")[0] for line in named[1:2]] == ["left out: rows.jsonl:2"]
    assert named[2].startswith("left out: rows.jsonl:4: ") and "not a picture that can be read" in named[2]
    assert len(named) == 3
    alone = [
        ("--image", "photos/a.png"),
        ("--chat", "--image", "photos/b.png", "--prompt", "What is this?"),
        ("--image", "photos/b.png"),
        ("--prompt", "Once"),
    ]
    seeds = [Writing(seed=4).seed_of(row) for row in (0, 2, 4, 5)]
    hows = [how and (*how[:-1], str(seed)) for seed in seeds]
    answers = ["\n".join(call("generate", trained, *one, *FEW, *its)[1]) for one, its in zip(alone, hows, strict=True)]
    found = rows_of(Path("answers.jsonl"))
    for line, seed in zip(found, seeds, strict=True):
        assert 0 <= line.pop("tokens") <= 6 and line.pop("ended") in ("end", "max_new_tokens")
        assert line.pop("seed", None) == (seed if how else None) and line.pop("prompt_tokens") > 4
    assert ["\n".join(line.pop("answer").splitlines()) for line in found] == answers
    chat = "<|user|><image>What is this?<|end|><|assistant|>"
    caption = {"prompt": "<image>", "media": ["photos/b.png"], "expected": "a cat"}
    assert found == [
        {"source": "rows", "document": "rows.jsonl:1", "id": "first", "prompt": "<image>", "media": ["photos/a.png"]},
        {"source": "rows", "document": "rows.jsonl:3", "id": 2, "prompt": chat, "media": ["photos/b.png"]},
        {"source": "rows", "document": "rows.jsonl:5", **caption},
        {"source": "rows", "document": "rows.jsonl:6", "prompt": "Once", "media": []},
    ]


def test_one_prompt_as_json_has_the_keys_of_a_line(call: Call, trained: Path) -> None:
    asked = ("--image", "photos/a.png", "--prompt", "What is this?", "--json")
    status, (line,), _ = call("generate", trained, *asked, *FEW)
    found = json.loads(line)
    prompt = {"prompt": "<image>What is this?", "media": ["photos/a.png"]}
    text = "\n".join(call("generate", trained, *asked[:-1], *FEW)[1])
    assert status == 0 and "\n".join(found["answer"].splitlines()) == text
    written = {name: found[name] for name in ("answer", "prompt_tokens")}
    assert found == {**prompt, **written, "tokens": 6, "ended": "max_new_tokens"}
    sampled = json.loads(call("generate", trained, *asked, *FEW, "--temperature", 1, "--seed", 4)[1][0])
    rows = write({"image": "photos/a.png", "prompt": "What is this?"})
    of_data = json.loads(
        call("generate", trained, "--data", rows, "--json", *FEW, "--temperature", 1, "--seed", 4)[1][0]
    )
    assert {**sampled, "source": "rows", "document": "rows.jsonl:1"} == of_data and of_data["seed"] == 4
    status, (line,), _ = call("generate", trained, "--data", rows, "--json", *FEW, "--answers", "a.jsonl")
    assert json.loads(line) == {"answers": "a.jsonl", "documents": 1, "left_out": 0}


def test_a_folder_of_pictures_is_asked_one_thing(call: Call, trained: Path, tmp_path: Path) -> None:
    asked = ("--chat", "--prompt", "What is this?", *FEW)
    status, lines, named = call("generate", trained, "--data", tmp_path / "photos", "--max-documents", 1, *asked)
    assert (status, len(lines), named) == (0, 1, [])
    alone = call("generate", trained, "--image", "photos/a.png", *asked)[1]
    found = json.loads(lines[0])
    assert found.pop("answer").splitlines() == alone
    assert found.pop("tokens") == 6 and found.pop("ended") == "max_new_tokens" and found.pop("prompt_tokens") > 9
    prompt = "<|user|><image>What is this?<|end|><|assistant|>"
    assert found == {"source": "photos", "document": "photos/a.png", "prompt": prompt, "media": ["a.png"]}
    assert str(tmp_path) not in lines[0]


@pytest.mark.parametrize("is_absolute", [False, True])
def test_media_may_be_elsewhere(call: Call, trained: Path, is_absolute: bool) -> None:
    Path("set").mkdir()
    name = str(Path("photos/a.png").absolute()) if is_absolute else "a.png"
    rows = write({"image": name}, name="set/rows.jsonl")
    status, _, named = call("generate", trained, "--data", rows, *FEW, "--answers", "a.jsonl")
    assert (status, len(named)) == (3, 2)
    assert named[1] == (
        "error[data]: set/rows.jsonl: no document could be continued; those left out are named with why; if their "
        "media are in another folder, name it with --root"
    )
    assert not Path("a.jsonl").exists()
    assert call("generate", trained, "--data", rows, *FEW, "--answers", "a.jsonl", "--root", "photos")[0] == 0
    assert [line["media"] for line in rows_of(Path("a.jsonl"))] == [[name]]


MISTAKES = {
    "--answers a.jsonl --prompt x": "--answers: is for the documents of --data PATH",
    "--root photos --prompt x": "--root: is for the documents of --data PATH",
    "--data rows.jsonl --answers rows.jsonl": "rows.jsonl: exists already; name another file, or remove it",
    "--data rows.jsonl --image photos/a.png": "--image: beside --data the media are those of the documents",
    "--data rows.jsonl --answers no/a.jsonl": "no/a.jsonl: no is no folder; make it first",
    f"--data rows.jsonl --answers {'a' * 300}": f"--answers {'a' * 300}: cannot write (File name too long)",
    "--data rows.jsonl --data rows.jsonl": "--data rows.jsonl: is given twice; give each source once",
    "--data rows.jsonl --top-k 3": "top_k, top_p: say what is sampled from",
    "--data=": "--data: the value is empty",
}


def test_each_line_of_a_text_file_is_a_prompt(call: Call, trained: Path) -> None:
    Path("prompts.txt").write_bytes("\ufeffWhat is this?\r\n\n  Und – jetzt?\n \nlast".encode())
    status, lines, named = call("generate", trained, "--data", "prompts.txt", *FEW)
    assert (status, named) == (0, ["hint: prompts: 3 prompts, one a line"])
    found = [json.loads(line) for line in lines]
    assert [line["prompt"] for line in found] == ["What is this?", "  Und – jetzt?", "last"]
    assert [line["document"] for line in found] == ["prompts.txt:1", "prompts.txt:3", "prompts.txt:5"]
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("one\ntwo\n")
    status, lines, named = call("generate", trained, "--data", "texts", *FEW)
    assert named == ["hint: texts: 1 piece of text, cut as in training; of a file alone each line is a prompt"]
    assert json.loads(lines[0])["prompt"] == "one\ntwo\n"


@pytest.mark.parametrize("option", ["--prompt", "--system"])
def test_a_chat_among_others_that_are_asked_something_is_left_out(call: Call, trained: Path, option: str) -> None:
    rows = write(PICTURE, CHAT, CAPTION)
    status, said, named = call("generate", trained, "--data", rows, *FEW, option, "x")
    assert (status, len(said)) == (0, 2)
    assert named == [f"left out: rows.jsonl:2: a chat says itself what is asked; continue it without {option}"]


def test_lines_are_json_where_no_utf8_can_be_written(
    call: Call, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kosmos.commands.answers.is_utf8", lambda stream: False)
    status, (line,), _ = call("generate", trained, "--data", write({"prompt": "é 两"}), *FEW)
    assert status == 0 and line.isascii() and json.loads(line)["prompt"] == "é 两"


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_one_line(call: Call, trained: Path, arguments: str) -> None:
    write(CHAT)
    status, said, lines = call("generate", trained, *arguments.split())
    assert (status, said, len(lines)) == (2, [], 1)
    assert lines[0].startswith(f"error[config]: {MISTAKES[arguments]}")


def test_an_interrupted_file_keeps_what_is_finished(call: Call, trained: Path, tmp_path: Path) -> None:
    rows, answers = tmp_path / write(*[{"prompt": str(number)} for number in range(20_000)]), tmp_path / "a.jsonl"
    run = Started("generate", trained, "--data", rows, "--answers", answers, "--max-new-tokens", 2)
    run.wait_for(lambda: lines_in(answers) > 0)
    run.send(signal.SIGINT)
    status, said = run.end()
    found = rows_of(answers)
    assert 0 < len(found) < 20_000
    are = "1 answer is" if len(found) == 1 else f"{len(found):,} answers are"
    assert (status, said) == (
        130,
        f"error[interrupted]: stopped (SIGINT); {are} in {answers}; --resume goes on there\n",
    )
    assert [line["prompt"] for line in found] == [str(number) for number in range(len(found))]


def test_scoring_says_how_much_is_written_and_by_what_it_is_scored(call: Call, trained: Path) -> None:
    rows = write(CAPTION, {**CAPTION, "id": "second", "text": "a dog"})
    scored = ("eval", trained, "--data", rows, "--workers", 0, "--generate", 2, "--json")
    status, (line,), _ = call(*scored, "--max-new-tokens", 1, "--metric", "bleu", "--answers", "a.jsonl")
    assert status == 0
    assert list(json.loads(line)["generated"]["rows"]) == [
        "documents", "cut", "exact_match", "word_error_rate", "bleu", "exact_match_standard_error",
    ]  # fmt: skip

    found = rows_of(Path("a.jsonl"))
    fewer = json.loads(call(*scored, "--max-documents", 1)[1][0])["generated"]["rows"]["documents"]
    assert fewer == 1  # of what is scored, no more are generated
    assert all(len(line["answer"]) <= 1 for line in found)
    assert [(line.get("id"), line["expected"], line["media"]) for line in found] == [
        (None, "a cat", ["photos/b.png"]), ("second", "a dog", ["photos/b.png"]),
    ]  # fmt: skip
    status, said, lines = call(*scored, "--metric", "blue")
    assert (status, said, len(lines)) == (2, [], 1)
    assert lines[0].startswith("error[config]: metric 'blue': unknown; did you mean bleu?")
    for option in ("--max-new-tokens=3", "--metric=bleu"):
        status, _, (line,) = call("eval", trained, option)
        assert (status, line) == (
            2, f"error[config]: {option.partition('=')[0]}: is for what --generate N writes; say how many, such as "
            "--generate 100",
        )  # fmt: skip


def test_scores_are_told_though_the_answers_cannot_be_written(call: Call, trained: Path) -> None:
    rows = write(CAPTION)
    with room_for(16):
        scored = call(
            "eval", trained, "--data", rows, "--workers", 0, "--generate", 1, "--answers", "a.jsonl", "--json"
        )
    status, (line,), errors = scored
    assert status == 4 and json.loads(line)["overall"]["documents"] == 1
    assert errors == ["error[training]: --answers a.jsonl: cannot write (File too large); name another file"]
    assert not list(Path().glob("a.jsonl*"))


def test_no_empty_file_is_left_where_nothing_was_written(call: Call, trained: Path) -> None:
    given = ("--workers", 0, "--generate", 5, "--answers", "a.jsonl")
    assert call("eval", trained, "--data", write({"messages": QUESTION[:1], "image": "photos/a.png"}), *given)[0] == 3
    assert not Path("a.jsonl").exists()
    turns = [{"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "yes", "loss": False}]
    masked = {"messages": [QUESTION[0], {"role": "assistant", "content": "a cat"}, *turns], "image": "photos/a.png"}
    status, _, lines = call("eval", trained, "--data", write({"text": "no answer in it"}, masked), *given)
    assert status == 0
    assert lines[0].startswith("warning: rows: 2 of 2 documents have no answer to generate, as nothing is learned at ")
    assert lines[1:] == [
        "warning: --answers a.jsonl: not written: no document has an answer that is there to be generated"
    ]
    assert not Path("a.jsonl").exists()


def test_a_prompt_comes_from_a_pipe(call: Call, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = call("generate", trained, "--prompt", "What is – this?", *FEW)
    for piped in ("What is – this?\n", "What is – this?\r\n", "What is – this?"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(piped.encode())))
        assert call("generate", trained, "--prompt", "-", *FEW) == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\xff")))
    status, _, (line,) = call("generate", trained, "--prompt", "-", *FEW)
    assert (status, line) == (2, "error[config]: --prompt -: not UTF-8 text, from byte 2 on; convert it first")


def test_a_prompt_that_is_longer_than_a_row_of_the_run_is_told(call: Call, trained: Path) -> None:
    status, _, (line,) = call("generate", trained, "--prompt", "x" * 600, *FEW)
    assert status == 0
    assert line.startswith("warning: the prompt takes 601 tokens, and a row of the run held 256: it was trained on no")


def test_a_run_of_chats_says_that_plain_documents_are_none(call: Call, trained: Path, tmp_path: Path) -> None:
    chats = tmp_path / write({"messages": [{"role": "user", "content": "x"}]}, name="chats.jsonl")
    config = shutil.copytree(trained, tmp_path / "run") / "run.yaml"
    config.write_text(config.read_text().replace("sources: []", f"sources: [{chats}]"))
    _, _, (hint,) = call("generate", "run", "--data", write({"prompt": "x"}), *FEW)
    assert hint == f"hint: {chats} holds chats; with --chat the run is asked as they ask"
    assert call("generate", "run", "--data", write(CHAT), *FEW)[2] == []
    photo = "--image", tmp_path / "photos" / "a.png"
    assert call("generate", "run", *photo, *FEW)[2] == [hint]
    captions = tmp_path / write({"image": "a.png", "text": "a cat"}, name="captions.jsonl")
    config.write_text(config.read_text().replace(f"sources: [{chats}]", f"sources: [{captions}, {chats}]"))
    assert call("generate", "run", *photo, *FEW)[2] == []  # as captions were learned
    assert call("generate", "run", "--data", write({"image": "photos/a.png"}), *FEW)[2] == []
    assert call("generate", "run", *photo, "--prompt", "What is this?", *FEW)[2] == [hint]


def test_what_plugins_print_is_no_part_of_the_answer(
    call: Call, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = ImageProcessor.decode
    monkeypatch.setattr(ImageProcessor, "decode", lambda *given: print("decoding") or decode(*given))
    rows = write(CAPTION)
    commands = [
        ("eval", trained, "--data", rows, "--workers", 0, "--generate", 1, "--json"),
        ("generate", trained, "--data", rows, *FEW),
        ("data", "--modalities", "image", "--data", rows, "--check", "--workers", 0, "--json"),
    ]
    for command in commands:
        status, said, errors = call(*command)
        assert status == 0 and "decoding" in errors
        assert [type(json.loads(line)) for line in said] == [dict]
    _, said, errors = call("generate", trained, "--image", "photos/a.png", *FEW)
    assert "decoding" in errors and "decoding" not in said


def test_scores_of_a_run_whose_data_have_changed_come_with_a_warning(call: Call, tmp_path: Path) -> None:
    data = [{"text": f"line {number}"} for number in range(40)]
    rows, few = write(*data), (*SMALL, "--steps", 1, "data.workers=0", "evaluate.max_documents=2")
    assert call("train", "--modalities", "text", "--data", rows, "--output", "run", *few)[0] == 0
    assert not call("eval", "run", "--workers", 0)[2]
    write(*data[:30])
    (warning,) = call("eval", "run", "--workers", 0)[2]
    assert warning == (
        "warning: rows: 28 documents to train on, 38 when the run was trained; unless the data state a split, others "
        "are held out now, and some that are scored may have been trained on"
    )


def test_data_are_named_with_their_columns_and_the_names_of_folders_are_told_to_be_expected(
    call: Call, trained: Path
) -> None:
    Path("rows.csv").write_text("file,caption\nphotos/a.png,a cat\n")
    fields = "{path: rows.csv, columns: {image: file, text: caption}}"
    for command in ("generate", "eval"):
        status, said, named = call(command, trained, "--data", fields, *(FEW if command == "generate" else ()))
        assert (status, named) == (0, [])
        assert "a cat" in said[0] if command == "generate" else any("rows" in line for line in said)
    status, _, (line,) = call("generate", trained, "--data", "{path: rows.csv, colums: {}}", *FEW)
    assert status == 2 and line.endswith("colums: unknown field; did you mean columns?")
    Path("rows.csv").unlink()
    asked = call("generate", trained, "--data", ".", "--max-documents", 1, "--prompt", "What?", *FEW)
    assert asked[2][0].startswith("hint: .: expected is the name of each file's folder (such as photos), as nothing")
    assert call("generate", trained, "--data", ".", "--max-documents", 1, *FEW)[2] == []
