"""``kosmos eval`` and ``kosmos generate --data`` in several processes give what one gives, and end as one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.testing
from hypothesis import given
from hypothesis import strategies as st

from kosmos import train_model
from kosmos.cli import main
from kosmos.commands.several import as_given
from kosmos.commands.unfinished import progress_of
from kosmos.evaluate.dealt import chunks
from support.command import Started, command, environment, install_plugin, lines_in
from support.runs import small_run
from support.torchrun import LOOPBACK, torchrun

ROWS = 200
BROKEN = (3, 70)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on texts of many lengths in bf16, where what is continued together rounds together, and its data."""
    home = tmp_path_factory.mktemp("several")
    rows: list[dict[str, str]] = [
        {"prompt": f"{number} {'and more ' * (number % 9)}is", "completion": " a number"} for number in range(ROWS)
    ]
    for number in BROKEN:
        rows[number] = {"completion": " of nothing"}
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "others.jsonl").write_text((home / "rows.jsonl").read_text())
    asked = [{"query": f"{n} is", "choices": [" a number", " none"], "gold": n % 2} for n in range(11)]
    (home / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    data = {"sources": [str(home / "rows.jsonl")], "tokens_per_pack": 256, "workers": 0}
    config = small_run(home / "run", modalities=[], data=data, train={"steps": 2, "precision": "bf16"})
    train_model(config)
    return home


def scored(folder: Path, answers: str, *more: object) -> list[str]:
    named = ["--data", "others.jsonl", "--choices", "asked.jsonl", "--answers", answers]
    paths = [str(folder / part) if part[0] != "-" else part for part in named]
    many = ["--workers", "0", "--generate", str(ROWS), "--max-new-tokens", "4", "--json"]
    return ["eval", str(folder / "run"), *paths, *many, *map(str, more)]


def continued(folder: Path, answers: str, *more: object, tokens: int = 4) -> list[str]:
    paths = ["--data", str(folder / "rows.jsonl"), "--answers", str(folder / answers)]
    return ["generate", str(folder / "run"), *paths, "--max-new-tokens", str(tokens), *map(str, more)]


def ended(run: Started) -> tuple[int, str, str]:
    printed, said = run.process.communicate(timeout=90)
    return run.process.returncode, printed, said


def in_two(arguments: list[str], **variables: str) -> Started:
    return Started(*arguments, "--nproc=2", **LOOPBACK, **variables)


LOUD = """
import os
from collections.abc import Iterator
from kosmos import MetricSpec, hookimpl

KOSMOS_API = 1

@hookimpl
def kosmos_metrics() -> Iterator[MetricSpec]:
    yield MetricSpec(name="loud", target="acme_loud:loud", summary="Writes to descriptor 1.")

def loud():
    os.write(1, b"loud\\n")
    return lambda written, expected: 1.0
"""


def test_scores_and_answers_are_those_of_one_process(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what a metric of any process writes is not on standard output."""
    assert main(scored(folder, "one.jsonl")) == 0
    expected = json.loads(capsys.readouterr().out)
    site = install_plugin(tmp_path / "site", "loud", LOUD)
    two = Started(*scored(folder, "two.jsonl"), "--metric=loud", "--nproc=2", path=[site], **LOOPBACK)
    status, printed, said = ended(two)
    assert (status, said) == (0, "loud\n" * 2)
    found = json.loads(printed)  # one object: the other process is not heard
    assert (folder / "two.jsonl").read_bytes() == (folder / "one.jsonl").read_bytes()
    assert lines_in(folder / "two.jsonl") == 11 + ROWS - len(BROKEN)
    by_row = [sorted(result.pop("incidents"), key=str) for result in (found, expected)]
    assert by_row[0] == by_row[1] and len(by_row[0]) == len(BROKEN)
    scores = {path: value for path, value in flat(found).items() if not path.endswith(".loud")}
    assert scores == pytest.approx(flat(expected), rel=1e-2)  # rows are packed otherwise, and round otherwise
    assert len(scores) < len(flat(found))
    counts = ("documents", "answers", "torn", "pieces")
    assert all(scores[path] == value for path, value in flat(expected).items() if path.endswith(counts))


def test_two_runs_are_compared_on_the_documents_of_all_processes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / "run", folder / "copy")
    named = ["--data", str(folder / "others.jsonl"), "--choices", str(folder / "asked.jsonl"), "--workers", "0"]
    compared = ["eval", str(folder / "run"), "--against", str(folder / "copy"), *named, "--json"]
    assert main(compared) == 0
    expected = json.loads(capsys.readouterr().out)["against"][0]
    status, printed, said = ended(in_two(compared))
    assert (status, said) == (0, "")
    (found,) = json.loads(printed)["against"]
    assert found["documents"] == expected["documents"] == 11 + ROWS - len(BROKEN)
    for one, other in zip(found["differences"], expected["differences"], strict=True):
        assert one["documents"] == other["documents"] and one["difference"] == 0
        assert one["first"] == pytest.approx(other["first"], rel=1e-2)


def flat(result: dict[str, Any], before: str = "") -> dict[str, float]:
    """The numbers by their paths."""
    found: dict[str, float] = {}
    for name, value in result.items():
        if isinstance(value, dict):
            found |= flat(value, f"{before}{name}.")
        elif isinstance(value, int | float):
            found[before + name] = value
    return found


def test_texts_and_what_is_left_out_are_those_of_one_process(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sampled = ("--temperature", 1, "--seed", 3, "--json")
    assert main(continued(folder, "alone.jsonl", *sampled)) == 0
    alone = capsys.readouterr()
    status, printed, said = ended(torchrun(2, ["-m", "kosmos", *continued(folder, "torchrun.jsonl", *sampled)]))
    assert status == 0 and [line for line in said.splitlines() if line.startswith("left out")] == alone.err.splitlines()
    assert json.loads(printed) == {**json.loads(alone.out), "answers": str(folder / "torchrun.jsonl")}
    assert (folder / "torchrun.jsonl").read_bytes() == (folder / "alone.jsonl").read_bytes()


def test_one_process_goes_on_where_several_were_stopped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, cut = folder / "whole.jsonl", folder / "cut.jsonl"
    assert main(continued(folder, whole.name)) == 0
    run = in_two(continued(folder, cut.name))
    run.wait_for(lambda: lines_in(cut) > 0)
    run.send(signal.SIGINT)
    status, _, said = ended(run)
    assert status == 130
    (line,) = (line for line in said.splitlines() if line.startswith("error["))
    assert line.endswith(f"answers are in {cut}; --resume goes on there")
    assert 0 < lines_in(cut) < ROWS - len(BROKEN) and not run.processes()
    assert main(continued(folder, cut.name, "--resume")) == 0
    assert cut.read_bytes() == whole.read_bytes() and not progress_of(cut).exists()


def test_what_is_typed_once_is_asked_by_all(folder: Path) -> None:
    run = continued(folder, "typed.jsonl", "--prompt", "-", "--max-documents", "40", "--nproc=2")
    environ = environment(**LOOPBACK)
    done = subprocess.run(command(*run), input=" and on", env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("39 answers in ")
    rows = [json.loads(line) for line in (folder / "typed.jsonl").read_text().splitlines()]
    assert len(rows) == 39 and all(row["prompt"].endswith(" and on") for row in rows)


def test_options_are_handed_on_as_they_were_given() -> None:
    seen: list[str] = []
    told = typer.Typer()

    @told.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def command(
        context: typer.Context, output: str, data: list[str] | None = None, workers: int | None = None,
        seed: int = 7, chat: bool = False, nproc: int | None = None, name: str = "x",
    ) -> None:  # fmt: skip
        seen.extend(as_given(context))

    typer.testing.CliRunner().invoke(
        told, ["run", "--data", "a", "--data", "-b", "--workers", "0", "--seed", "0", "--chat", "--nproc", "2", "a.b=1"]
    )
    assert seen == ["run", "--data=a", "--data=-b", "--workers=0", "--seed=0", "--chat", "a.b=1"]


def test_what_is_wrong_is_said_once(folder: Path, monkeypatch) -> None:
    """A file that is there, which the first process alone looks at."""
    monkeypatch.chdir(folder)
    wrong = ["eval", "run", "--data", "rows.jsonl", "--generate", "2", "--answers", "rows.jsonl"]
    status, printed, said = ended(in_two(wrong))
    assert status == 2 and not printed
    assert said.startswith("error[config]: rows") and said.count("\n") == 1, said


def test_where_one_process_dies_all_end(folder: Path) -> None:
    run = in_two(continued(folder, "killed.jsonl", tokens=64))
    run.wait_for(lambda: lines_in(folder / "killed.jsonl") > 0)
    (second,) = (p for p in run.processes() if b"RANK=1" in Path(f"/proc/{p}/environ").read_bytes().split(b"\0"))
    os.kill(second, signal.SIGKILL)
    status, _, said = ended(run)
    assert status == 137 and "rank 1 was killed (SIGKILL)" in said
    assert said.count("error[") == 1 and not run.processes()


def test_what_several_processes_cannot_share_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(folder / "run"), "--prompt", "x", "--nproc", "2"]) == 2
    assert "--nproc: is for the documents of --data PATH" in capsys.readouterr().err
    assert main(["eval", str(folder / "run"), "--nproc", "0"]) == 2
    assert "--nproc 0: expected the number of processes, 1 or more" in capsys.readouterr().err


@given(st.sets(st.integers(0, 500), min_size=1), st.integers(1, 40), st.integers(-1, 500))
def test_where_an_earlier_call_ended_chunks_are_those_of_one_that_did_not(rows: set[int], size: int, behind: int):
    whole = chunks(sorted(rows), size, -1)
    assert all(len(part) == size for part in whole[:-1]) and [row for part in whole for row in part] == sorted(rows)
    rest = chunks(sorted(rows), size, behind)
    assert [list(part) for part in rest] == [left for part in whole if (left := [row for row in part if row > behind])]
