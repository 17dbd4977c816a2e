"""``--resume`` of ``kosmos generate --data`` and ``kosmos eval``: a file that was cut anywhere ends alike."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from kosmos import train_model
from kosmos.cli import main
from kosmos.commands.unfinished import progress_of
from kosmos.evaluate.generated import Writing
from support.command import Started, lines_in
from support.runs import rows_of, small_run

ROWS = 80


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on texts, beside documents to continue and questions."""
    folder = tmp_path_factory.mktemp("unfinished")
    rows = [{"prompt": f"{number} is", "completion": " a number", "kind": number % 3} for number in range(ROWS)]
    rows[3] = {"completion": " of nothing"}
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "others.jsonl").write_text((folder / "rows.jsonl").read_text())  # of the other the run holds a part out
    (folder / "asked.jsonl").write_text('{"query": "It is", "choices": ["a", "b"], "gold": 0}\n' * 3)
    data = {"sources": [str(folder / "rows.jsonl")], "tokens_per_pack": 128, "workers": 0}
    train_model(small_run(folder / "run", modalities=[], data=data, train={"steps": 2, "precision": "fp32"}))
    return folder


SAMPLED = ("--max-new-tokens", "40", "--temperature", "1", "--seed", "3")


def generate(run: Path, answers: str, *more: str, sampled: tuple[str, ...] = SAMPLED) -> list[str]:
    return [
        "generate", str(run / "run"), "--data", str(run / "rows.jsonl"), "--answers", str(run / answers), *sampled,
        *more,
    ]  # fmt: skip


def score(run: Path, answers: str, *more: str) -> list[str]:
    return [
        "eval", str(run / "run"), "--data", str(run / "others.jsonl"), "--choices", str(run / "asked.jsonl"),
        "--workers", "0", "--generate", str(ROWS), "--max-new-tokens", "8", "--answers", str(run / answers), "--json",
        "--by", "kind", *more,
    ]  # fmt: skip


def stopped(arguments: list[str], answers: Path, number: signal.Signals, *, at_least: int) -> tuple[int, str]:
    started = Started(*arguments)
    started.wait_for(lambda: lines_in(answers) >= at_least)
    started.send(number)
    return started.end()


def test_a_file_that_was_killed_within_a_line_ends_as_one_that_was_not(run: Path, capsys, monkeypatch) -> None:
    whole, cut = run / "whole.jsonl", run / "cut.jsonl"
    assert main(generate(run, whole.name, "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"answers": str(whole), "documents": ROWS - 1, "left_out": 1}
    assert stopped(generate(run, cut.name), cut, signal.SIGKILL, at_least=5)[0] == -signal.SIGKILL
    assert 5 <= lines_in(cut) < ROWS - 1  # behind what is left out
    cut.write_bytes(cut.read_bytes() + b'{"source": "rows", "docu')
    capsys.readouterr()

    assert main(generate(run, cut.name)) == 2
    assert "exists already, unfinished; go on with it by --resume" in capsys.readouterr().err
    for other, said in {
        "--seed=4": "was begun with seed 3, and this is 4; go on with what",
        "--max-documents=7": "was begun with max_documents null, and this is 7",
        "--prompt=x": "was begun with prompts [], and this is ['x']",
    }.items():
        sampled = SAMPLED[:-2] if other.startswith("--seed") else SAMPLED
        assert main(generate(run, cut.name, "--resume", other, sampled=sampled)) == 2
        assert f"error[config]: --resume: {cut} {said}" in capsys.readouterr().err

    rows = run / "rows.jsonl"
    before, progress = rows.read_text(), progress_of(cut).read_bytes()
    rows.write_text(before + '{"prompt": "one more"}\n')
    assert main(generate(run, cut.name, "--resume")) == 2
    rows.write_text(before.replace(" a number", " A number"))
    assert main(generate(run, cut.name, "--resume")) == 2
    rows.write_text(before)
    said = capsys.readouterr().err
    size = len(before)
    changes = f"from {size:,} to {size + 23:,} bytes", f"of {size:,} bytes as before, but with another content"
    assert said.splitlines()[-2:] == [
        f"error[config]: --resume: {rows} has changed ({change}) since {cut} was begun; go on with the data as they "
        "were, or name another file for the answers"
        for change in changes
    ]
    progress_of(cut).write_text("no JSON")
    assert main(generate(run, cut.name, "--resume")) == 2
    assert f"{progress_of(cut)} cannot be read; name another file than {cut}, or remove it" in capsys.readouterr().err
    progress_of(cut).write_bytes(progress + b'{"source": 0, "ro')
    answers = cut.read_bytes()
    cut.write_bytes(b"somebody's own file " * 1000)
    assert main(generate(run, cut.name, "--resume")) == 2
    assert f"{cut} is not the file of which {progress_of(cut).name} tells; name another" in capsys.readouterr().err
    assert len(cut.read_bytes()) == 20_000
    cut.write_bytes(answers)

    monkeypatch.chdir(run)  # where data lie does not count
    moved = [argument.removeprefix(f"{run}/") for argument in generate(run, cut.name, "--resume", "--json")]
    assert main([*moved, "--root", "."]) == 0
    assert json.loads(capsys.readouterr().out) == {**told, "answers": cut.name}
    assert cut.read_bytes() == whole.read_bytes() and not progress_of(cut).exists()
    assert {row["seed"] for row in rows_of(cut)} <= {Writing(seed=3).seed_of(number) for number in range(ROWS)}
    assert main(generate(run, cut.name, "--resume")) == 2
    assert f"--resume: {cut} is finished: its {ROWS - 1} answers are whole, and nothing is " in capsys.readouterr().err
    cut.write_text("somebody's own file")
    assert main(generate(run, cut.name, "--resume")) == 2
    assert f"--resume: {cut} was written by something else (" in capsys.readouterr().err


def test_scores_of_an_interrupted_file_are_those_of_one_that_was_not(run: Path, capsys, monkeypatch) -> None:
    whole, cut = run / "scored.jsonl", run / "stopped.jsonl"
    assert main(score(run, whole.name)) == 0
    expected = capsys.readouterr().out
    status, said = stopped(score(run, cut.name), cut, signal.SIGINT, at_least=4)
    assert status == 130 and said.endswith(f"answers are in {cut}; --resume goes on there\n")
    assert 3 < lines_in(cut) < ROWS + 2
    cut.write_bytes(cut.read_bytes()[:-30])  # within a group of those that are continued together
    monkeypatch.chdir(run)
    asked = [a.replace(f"{run}/asked", "./asked") for a in score(run, cut.name, "--resume")]
    assert main(asked) == 0
    assert capsys.readouterr().out == expected
    assert cut.read_bytes() == whole.read_bytes() and not progress_of(cut).exists()
    told = json.loads(expected)
    assert told["generated"]["others"]["documents"] == ROWS - 1
    by_value = told["by_value"]["generated"]["others"]
    assert {value: figures["documents"] for value, figures in by_value.items()} == {"0": 26, "1": 27, "2": 26}


def test_there_need_be_nothing_to_go_on_with(run: Path, capsys) -> None:
    few = ("--max-documents", "2", "--resume")
    assert main(generate(run, "new.jsonl", *few)) == 0 and lines_in(run / "new.jsonl") == 2
    arguments = generate(run, "", "--resume")
    del arguments[arguments.index("--answers") : arguments.index("--answers") + 2]
    assert main(arguments) == 2
    assert "--resume: goes on where the file of --answers ends; name it, or leave" in capsys.readouterr().err
    assert main(["eval", str(run / "run"), "--resume"]) == 2
    assert "--resume: goes on where the file of --answers ends" in capsys.readouterr().err
