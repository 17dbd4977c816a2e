"""``kosmos plugin new``: what it makes works at once, and what it cannot make it says in one line."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from kosmos.compose import compose
from kosmos.data.sources import open_source
from kosmos.errors import ConfigError, SampleError
from kosmos.plugins import Registry
from kosmos.run_file import make_run
from kosmos.templates import check_name, make_plugin
from kosmos.testing import promises_of
from support import ticks
from support.command import command, environment, kosmos

DEAR = "two-ranks or hostile-input or runs-no-code or spawn or torch-free"
"""Promises that start processes; they are checked elsewhere."""
REGISTRY = Registry.from_modules({"ticks": ticks})


def test_it_makes_a_complete_package(tmp_path: Path) -> None:
    done = kosmos("plugin", "new", "sonar-deep", "--defaults", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "made kosmos-sonar-deep. Now:"
    made = tmp_path / "kosmos-sonar-deep"
    files = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
    source = {f"src/kosmos_sonar_deep/{n}.py" for n in "__init__ plugin processor encoder samples conditions".split()}
    tests = {"tests/test_promises.py", "tests/test_kosmos_sonar_deep.py"}
    assert files == source | tests | {
        *("pyproject.toml", "README.md", "LICENSE", ".gitignore", ".github/workflows/test.yml"),
        "src/kosmos_sonar_deep/py.typed",
    }
    assert not any("{{" in (made / f).read_text().replace("${{ matrix.python }}", "") for f in files)
    project = tomllib.loads((made / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert project["entry-points"]["kosmos"] == {"sonar-deep": "kosmos_sonar_deep.plugin"}


def test_what_it_makes_trains_in_two_processes_as_in_one(registry: Registry) -> None:
    """The promises that need no training are checked in ``test_kit``, by the command."""
    (promise,) = (promise for promise in promises_of(registry) if promise.id == "two-ranks")
    promise.check()


def test_its_own_tests_pass(good: Path) -> None:
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", f"not ({DEAR})", str(good.parent)]
    done = subprocess.run(run, cwd=good.parent, env=environment([good]), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_it_trains_at_once_and_learns(good: Path, tmp_path: Path) -> None:
    done = kosmos("train", "--modalities", "sonar", "--steps", 150, "trackers=[]", path=[good], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    row = next(line for line in (done.stdout + done.stderr).splitlines() if line.startswith("sonar "))
    assert float(row.split()[-2]) >= 90, row


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Depth", "lower-case"),
        ("9lives", "a letter first"),
        ("a_b", "hyphens"),
        ("a--b", "single hyphens"),
        ("../up", "lower-case"),
        ("", "lower-case"),
        ("class", "reserved"),
        ("text", "reserved"),
        ("seed", "'seed' is reserved \\(--seed is an option of kosmos generate or kosmos train\\); choose another"),
        ("max-new-tokens", "reserved"),
        ("tick", "rows of data mean the modality 'ticks' by this name"),
        ("kosmos-depth", "kosmos plugin new depth"),
        ("ticks", "brings the modality 'ticks' already"),
    ],
)
def test_a_name_that_cannot_be_is_refused_with_why(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_name(name, REGISTRY)


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kosmos-sonar").mkdir()
    done = kosmos("plugin", "new", "sonar", "--defaults", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error[config]: kosmos-sonar: exists already; ")
    assert done.stderr.count("\n") == 1
    assert list((tmp_path / "kosmos-sonar").iterdir()) == []


def test_the_folder_to_make_it_in_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        make_plugin("sonar", tmp_path / "nowhere", ask=False, registry=REGISTRY)


def test_without_a_terminal_it_asks_nothing_and_says_so(tmp_path: Path) -> None:
    done = kosmos("plugin", "new", "sonar", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error[config]: the questions need a terminal; --defaults asks none\n"
    assert not (tmp_path / "kosmos-sonar").exists()


def test_on_a_terminal_it_asks_and_return_takes_the_default(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("plugin", "new", "sonar"),
        cwd=tmp_path, env=environment(TERM="dumb"), stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    for question, answer in (("in one line", b""), ("channels", b"\b5"), ("Author", b""), ("Licence", b"")):
        while question.encode() not in said:
            said += os.read(ours, 4096)
        os.write(ours, answer + b"\r")
    assert process.wait(timeout=60) == 0, said
    os.close(ours)
    made = tmp_path / "kosmos-sonar"
    assert "channels: int = 5" in (made / "src/kosmos_sonar/encoder.py").read_text()
    assert 'license = "Apache-2.0"' in (made / "pyproject.toml").read_text()


def test_rows_may_hold_the_numbers_of_its_media(registry: Registry, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    moment = [0.5] * 3
    rows.write_text(json.dumps({"sonar": [moment, moment], "text": "a"}) + "\n")
    source = open_source(str(rows), registry=registry, split="train", modalities=("sonar",), held_out=0.0)
    (media,) = source.document(0).media
    assert media.load().source.shape == (2, 3)


def test_a_clip_of_its_media_is_a_bad_sample_until_they_have_time(registry: Registry, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 3), np.float32))
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"sonar": {"path": "a.npy", "clip": [50, 55]}, "text": "a"}) + "\n")
    source = open_source(str(rows), registry=registry, split="train", modalities=("sonar",), held_out=0.0)
    composition = compose(make_run({"modalities": ["sonar"], "backbone": {"width": 32, "layers": 1}}), registry)
    with pytest.raises(SampleError, match="sonar has no seconds, but a clip was asked for"):
        composition.planner.plan(source.document(0))
