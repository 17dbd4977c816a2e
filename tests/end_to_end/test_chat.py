"""``kosmos chat``: what is asked by a pipe, of a run of one step on pictures and texts of chats."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from kosmos import Media, Text, chat_prompt, generate_text, load_run
from kosmos.cli import main
from kosmos.visible import visible
from support.command import SMALL

Ask = Callable[..., tuple[int, list[str], list[str]]]
FEW = ("--max-new-tokens", 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat")
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "a photo.png")
    (folder / "words.png").write_text("these are words")
    turns = [{"role": "user", "content": "<image>What?"}, {"role": "assistant", "content": "Noise."}]
    rows = [{"image": "a photo.png", "messages": turns}] * 8
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    few = (*SMALL, "--steps", 1, "data.workers=0", "evaluate.max_documents=2", "--data", folder / "chats.jsonl")
    assert main([str(a) for a in ("train", "--modalities", "image", "--output", folder / "run", *few)]) == 0
    return folder


@pytest.fixture
def ask(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Pipe lines into the command: exit status, and the lines of both streams."""
    monkeypatch.chdir(folder)
    capsys.readouterr()

    def run(said: bytes, *args: object) -> tuple[int, list[str], list[str]]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(said), encoding="utf-8"))
        status = main([str(a) for a in ("chat", "run", *args)])
        captured = capsys.readouterr()
        return status, captured.out.split("\n")[:-1], captured.err.splitlines()

    return run


def test_each_answer_is_that_of_the_whole_chat(ask: Ask, folder: Path) -> None:
    saved = load_run(folder / "run")
    given = {"max_new_tokens": 6, "temperature": 1.5, "dtype": saved.dtype}
    picture = Media("image", Path("a photo.png"))
    turns: list[tuple[list[Text | Media], str]] = []
    expected = []
    for seed, content in enumerate([[picture, Text("What?")], [Text("Two\nlines")], [picture]], start=7):
        answer = generate_text(
            saved.composition, chat_prompt(content, system="Be brief.", history=turns), seed=seed, **given
        )
        expected.append(answer)
        turns.append((content, answer))
    said = b"/image 'a photo.png'\nWhat?\nTwo\\\nlines\n/image a photo.png\n\n/exit\nnever asked\n"
    sampled = (*FEW, "--temperature", 1.5, "--seed", 7, "--system", "Be brief.")
    status, answers, told = ask(said, *sampled)
    assert (status, told) == (0, [])
    assert "\n".join(answers) == "\n".join(map(visible, expected))


def test_the_largest_seed_is_followed_by_the_first(ask: Ask) -> None:
    status, answers, told = ask(b"One\nTwo\n", *FEW, "--temperature", 1, "--seed", 2**64 - 1)
    assert (status, told) == (0, []) and answers


def test_what_is_taken_back_was_never_said(ask: Ask) -> None:
    status, answers, told = ask(b"One\nTwo\n/undo\nTwo\n/new\nOne\n/undo\n/undo\n", *FEW)
    assert status == 0
    once = ask(b"One\nTwo\n", *FEW)[1]
    assert answers == [*once, *once[1:], *once[:1]]
    assert told == ["there is no turn to take back"]


@pytest.mark.parametrize(
    ("said", "status", "line"),
    [
        (b"/image none.png\nWhat?\n", 3, "error[sample]: none.png: no such file"),
        (b"/image .\n", 3, "error[sample]: .: is a folder; give one file"),
        (b"/image words.png\n", 3, "error[sample]: words.png: not a picture that can be read"),
        (b"/image\n", 2, "error[config]: /image: the value is empty"),
        (b"/imag a photo.png\n", 2, "error[config]: /imag: unknown; did you mean /image?; a space in front makes it"),
        (
            b"/what is it\n",
            2,
            "error[config]: /what: unknown; there are /image, /new, /undo, /help, /exit; a space in front makes it",
        ),
        (b"caf\xe9\n", 3, "error[sample]: not UTF-8 text, from character 4 on"),
    ],
)
def test_what_a_pipe_says_amiss_ends_the_chat_with_a_line(ask: Ask, said: bytes, status: int, line: str) -> None:
    found, answers, told = ask(said + b"never asked\n", *FEW)
    assert (found, answers) == (status, [])
    assert told[0].startswith(line) and len(told) == 1


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("What?",), "error[config]: What?: belongs to no option; what is asked is typed once the model is loaded"),
        (("--sytem", "x"), "error[config]: --sytem: unknown option; did you mean --system?"),
        (
            ("--stop-words", "x"),
            "error[config]: --stop-words: unknown option; --stop TEXT, and the end token of the run's",
        ),
        (
            ("--image", "a.png"),
            "error[config]: --image: unknown option; a medium is put into a turn as it is typed: /image FILE (",
        ),
        (("--top-p", "0.5"), "error[config]: top_k, top_p: say what is sampled from"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(ask: Ask, args: tuple[str, ...], line: str) -> None:
    status, answers, told = ask(b"", *args)
    assert (status, answers, len(told)) == (2, [], 1) and told[0].startswith(line)


class Interrupting(io.StringIO):
    """Standard output, whose reader presses Ctrl-C once, at its third piece."""

    pieces = 0

    def write(self, text: str) -> int:
        self.pieces += 1
        count = super().write(text)
        if self.pieces == 3:
            signal.raise_signal(signal.SIGINT)
        return count


def test_an_answer_that_is_stopped_counts_as_far_as_it_came(
    ask: Ask, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = Interrupting()
    monkeypatch.setattr(sys, "stdout", output)
    status, _, told = ask(b"One\nTwo\n", "--max-new-tokens", 40, "--temperature", 1.5)
    assert (status, told) == (0, [])
    saved, pieces = load_run(folder / "run"), list[str]()
    how: dict[str, Any] = {"max_new_tokens": 40, "temperature": 1.5, "dtype": saved.dtype}
    generate_text(saved.composition, chat_prompt([Text("One")]), on_text=pieces.append, **how)
    came = "".join(pieces[:3])
    after = chat_prompt([Text("Two")], history=[([Text("One")], came)])
    answer = generate_text(saved.composition, after, seed=1, **how)
    assert len(pieces) > 3
    assert output.getvalue() == f"{visible(came)}\n{visible(answer)}\n"


def test_a_run_of_other_data_says_that_it_has_learned_no_chats(ask: Ask, folder: Path) -> None:
    (folder / "captions.jsonl").write_text(json.dumps({"image": "a photo.png", "text": "noise"}) + "\n")
    status, _, told = ask(b"/exit\n", "data.sources.0.path=captions.jsonl")
    assert (status, len(told)) == (0, 1)
    assert told[0].startswith("warning: no chats are found among the run's data; kosmos generate --prompt")
