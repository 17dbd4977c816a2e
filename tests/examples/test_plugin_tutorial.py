"""docs/plugin-tutorial.md followed to the letter: the package is made, its lines put in, and its commands run."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from kosmos.cli import main
from support.command import kosmos
from support.made import add_metadata
from support.pages import ROOT, Block, blocks

PAGE = ROOT / "docs" / "plugin-tutorial.md"
AT_MOST_LINES = 60


class Made(NamedTuple):
    """The package with the lines of the page, and how many of them the new package did not have."""

    folder: Path
    lines_by_hand: int

    @property
    def path(self) -> list[Path]:
        return [self.folder / "src"]


def changed(text: str, block: Block) -> str:
    """A file as a block of the page leaves it: the block is the whole file, or a diff whose hunks stand once in it."""
    if block.language != "diff":
        return block.text
    for hunk in re.split(r"^@@\n", block.text, flags=re.MULTILINE)[1:]:
        lines = hunk.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] != other) for other in "+-")
        assert text.count(old) == 1, f"{block}: stands {text.count(old)} times in the new package:\n{old}"
        text = text.replace(old, new)
    return text


def lines_by_hand(before: str, after: str) -> int:
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0)
    return len([line for line in list(diff)[2:] if line.startswith("+") and line[1:].strip()])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    place = tmp_path_factory.mktemp("tutorial")
    done = kosmos("plugin", "new", "board", "--defaults", cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout in PAGE.read_text(encoding="utf-8")
    by_hand = 0
    for block in blocks("", "board: ", PAGE):
        file = place / "kosmos-board" / block.marker.removeprefix("board: ")
        before = file.read_text(encoding="utf-8")
        after = changed(before, block)
        file.write_text(after, encoding="utf-8")
        by_hand += lines_by_hand(before, after)
    add_metadata(place / "kosmos-board")
    return Made(place / "kosmos-board", by_hand)


@pytest.fixture(scope="module")
def transcript() -> list[tuple[str, str]]:
    """(command, what it said) in their order."""
    (block,) = blocks("console", "board transcript", PAGE)
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [(command, said) for command, _, said in (part.partition("\n") for part in parts)]


def said_to(command: str, transcript: list[tuple[str, str]]) -> str:
    (said,) = [said for told, said in transcript if told == command]
    return said


def test_it_takes_under_sixty_lines_by_hand_and_the_page_says_how_many(made: Made) -> None:
    assert 20 < made.lines_by_hand < AT_MOST_LINES
    assert f"It took {made.lines_by_hand} lines by hand" in PAGE.read_text(encoding="utf-8")


def test_it_is_listed_as_the_page_says(made: Made, transcript: list[tuple[str, str]]) -> None:
    assert kosmos("plugins", "board", path=made.path).stdout == said_to("kosmos plugins board", transcript)


def test_it_keeps_the_promises_that_the_page_shows(
    made: Made,
    transcript: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for folder in made.path:
        monkeypatch.syspath_prepend(str(folder))
    status = main(["plugin", "test", "kosmos-board", "--fast", "--json", "--plugins", "board"])
    printed = capsys.readouterr().out
    assert status == 0, printed
    kept = {(promise["component"], promise["id"]): promise["outcome"] for promise in json.loads(printed)["promises"]}
    said = said_to("kosmos plugin test kosmos-board", transcript)
    shown = re.findall(r"^(\w+ [\w-]+) +([\w-]+) +passed", said, re.MULTILINE)
    assert shown
    assert {kept[component, promise] for component, promise in shown} == {"passed"}
    assert len(kept) == sum(int(count) for count in re.findall(r"(\d+) (?:passed|failed|skipped)", said))


@pytest.fixture(scope="module")
def trained(
    made: Made, transcript: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """Where the run of the page was trained, in the steps that it names, and what was said."""
    folder = tmp_path_factory.mktemp("trained")
    (command,) = [command for command, _ in transcript if command.startswith("kosmos train")]
    done = kosmos(*shlex.split(command)[1:], "trackers=[]", path=made.path, cwd=folder, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout + done.stderr


@pytest.mark.slow
def test_it_trains_and_refuses_a_bad_position_as_the_page_says(
    made: Made,
    trained: tuple[Path, str],
    transcript: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place, said = trained
    told = dict(transcript)
    assert told["kosmos train --modalities board --steps 300"].splitlines()[0] in said
    assert (place / "runs/board-001/quarantine.jsonl").read_text() == ""
    monkeypatch.chdir(place)
    for folder in made.path:
        monkeypatch.syspath_prepend(str(folder))
    for name in ("ends.fen", "bad.fen"):
        Path(name).write_text(told[f"cat {name}"])
        command = f"kosmos generate runs/board-001 --board {name}"
        # The name has this process look anew at what is installed.
        status = main([*shlex.split(command)[1:], "--max-new-tokens", "2", "--plugins", "board"])
        refused = name == "bad.fen"
        assert (status, capsys.readouterr().err) == ((3, told[command]) if refused else (0, ""))


@pytest.mark.slow
def test_it_learns_in_the_steps_that_the_page_names(
    trained: tuple[Path, str], transcript: list[tuple[str, str]]
) -> None:
    _, said = trained
    (told,) = [told for command, told in transcript if command.startswith("kosmos train")]
    for head in ("backbone ", "stream "):
        (line,) = [line for line in told.splitlines() if line.startswith(head)]
        assert line in said
    row = next(line for line in said.splitlines() if line.startswith("board "))
    assert float(row.split()[-2]) >= 90, row
