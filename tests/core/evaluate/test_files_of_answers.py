"""A file of answers and what stands beside it: neither is ever made of, or in the place of, somebody's own file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kosmos import ConfigError
from kosmos.commands import unfinished
from kosmos.commands.answers import AnswerLines
from kosmos.commands.unfinished import check_answers, progress_of

BY: dict[str, Any] = {"sources": [{"name": "rows"}], "step": 2}


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"source": "rows", "document": f"rows.jsonl:{number}", "answer": "x"} for number in numbers]


def interrupted(file: Path, *groups: tuple[int, ...]) -> bytes:
    """Leave what a call leaves that was killed behind these groups; gives what it has written."""
    lines = AnswerLines(str(file))
    lines.begin(BY)
    for group in groups:
        lines.write(rows(*group), 0, group[-1], left_out=1)
    with lines:
        pass
    return file.read_bytes()


def go_on(file: Path) -> AnswerLines:
    check_answers(str(file), resume=True)
    lines = AnswerLines(str(file), resume=True)
    lines.begin(BY)
    return lines


OWN = {
    "a shorter file": b"mine\n",
    "one without a line": b"m",
    "answers of other data": b'{"source": "others", "document": "others.jsonl:0", "answer": "x"}\n',
    "lines of another kind": b'{"source": "rows", "loss": 1.0}\n',
    "more lines than the group had": b'{"source": "rows", "answer": ""}\n' * 3,
    "no UTF-8": b"\xff\xfe\n",
}


@pytest.mark.parametrize("what", OWN)
def test_a_file_of_somebody_in_the_place_of_answers_stays(tmp_path: Path, what: str) -> None:
    file = tmp_path / "c.jsonl"
    assert len(interrupted(file, (0, 1), (2,))) > len(OWN[what])
    file.write_bytes(OWN[what])
    with pytest.raises(ConfigError, match=r"c\.jsonl is not the file of which c\.jsonl\.progress tells; name"):
        go_on(file)
    assert file.read_bytes() == OWN[what]


def test_answers_are_known_by_what_they_hold(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    written = interrupted(file, (0, 1), (2,))
    for other in (written.replace(b"x", b"y"), written + b"a line of mine\n", written + b"mine"):
        file.write_bytes(other)
        with pytest.raises(ConfigError, match="is not the file of which"):
            go_on(file)
        assert file.read_bytes() == other


def test_a_group_that_was_cut_short_is_written_anew(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    written = interrupted(file, (0, 1), (2,))
    (size,) = (len(json.dumps(row)) + 1 for row in rows(2))
    noted = progress_of(file).read_bytes()
    for length in (0, 5, len(written) - 2 * size, len(written) - size - 1):  # of the first group
        file.write_bytes(written[:length])
        lines = go_on(file)
        assert (lines.count, lines.answered(0), lines.left_out) == (0, -1, 0)
    file.write_bytes(written + written[:size] + b'{"sour')
    progress_of(file).write_bytes(noted + b'{"source": 0, "ro')
    lines = go_on(file)
    assert (lines.count, lines.answered(0), lines.left_out) == (3, 2, 1)
    with lines:
        lines.write(rows(3), 0, 3)
        lines.finish()
    assert file.read_bytes() == interrupted(tmp_path / "whole.jsonl", (0, 1), (2,), (3,))
    assert not progress_of(file).exists()


def test_a_second_call_leaves_alone_what_the_first_one_writes(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    first, second = AnswerLines(str(file)), AnswerLines(str(file))
    first.begin(BY)
    second.begin({**BY, "step": 3})
    with first:
        first.write(rows(0), 0, 0)
        before = file.read_bytes(), progress_of(file).read_bytes()
        with second, pytest.raises(ConfigError, match=r"cannot write \(File exists\); name another file"):
            second.write(rows(0), 0, 0)
        assert (file.read_bytes(), progress_of(file).read_bytes()) == before
        first.write(rows(1), 0, 1)
    assert go_on(file).count == 2


@pytest.mark.parametrize("resume", [False, True])
def test_what_stands_beside_is_overwritten_where_a_call_has_left_it_alone(tmp_path: Path, resume: bool) -> None:
    file = tmp_path / "c.jsonl"
    beside = progress_of(file)
    interrupted(tmp_path / "other.jsonl", (0,))
    for own in ("my notes", '{"mine": 1}\n', '{"made_by": 5}\n', ""):
        beside.write_text(own)
        with pytest.raises(ConfigError, match=r"c\.jsonl\.progress: exists already, and says how far"):
            check_answers(str(file), resume=resume)
        lines = AnswerLines(str(file), resume=resume)  # where it has come since
        lines.begin(BY)
        with lines, pytest.raises(ConfigError, match="cannot write"):
            lines.write(rows(0), 0, 0)
        assert beside.read_text() == own and not file.exists()
        beside.unlink()
    beside.symlink_to(progress_of(tmp_path / "other.jsonl"))
    with pytest.raises(ConfigError, match="exists already, and says how far"):
        check_answers(str(file), resume=resume)
    beside.unlink()
    interrupted(file, (0,))
    file.unlink()
    check_answers(str(file), resume=resume)
    assert interrupted(file, (7,)) and go_on(file).answered(0) == 7


def test_what_stands_beside_may_say_anything(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    interrupted(file, (0,))
    beside = progress_of(file)
    first = beside.read_bytes().split(b"\n")[0]
    for broken in (b'{"made_by": 5}', b"[1]", b"null", b"", b"\xff", b'{"made_by": null}'):
        beside.write_bytes(broken + b"\n")
        with pytest.raises(ConfigError, match=r"c\.jsonl\.progress cannot be read; name another file than"):
            go_on(file)
    noted = {"source": 0, "row": 0, "bytes": 0, "answers": 0, "left_out": 0, "hash": ""}
    for name in ("source", "row", "bytes", "answers", "hash"):
        for value in (None, [1], True, 0.5):
            beside.write_bytes(first + b"\n" + json.dumps({**noted, name: value}).encode() + b"\n")
            assert go_on(file).count == 0
    file.write_bytes(b"mine")
    with pytest.raises(ConfigError, match="is not the file of which"):
        go_on(file)


def test_a_name_that_none_can_be_written_under_is_refused_before_the_work(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for resume in (False, True):
        for folder in (".", "..", "/"):
            with pytest.raises(ConfigError, match=r"^--answers [./]+: is a folder; name a file$"):
                check_answers(folder, resume=resume)
        with pytest.raises(ConfigError, match=r"a\.progress: cannot write \(File name too long\); name another file"):
            check_answers("a" * 250, resume=resume)
    assert not list(tmp_path.iterdir())


def test_a_folder_of_rows_is_known_by_what_they_hold(tmp_path: Path) -> None:
    for name, word in (("a", "is"), ("b", "be"), ("c", "is")):
        (tmp_path / name / "more").mkdir(parents=True)
        (tmp_path / name / "rows.jsonl").write_text(json.dumps({"text": word}))
        (tmp_path / name / "more" / "picture.png").write_bytes(b"x")
    held = {name: unfinished._held(tmp_path / name) for name in "abc"}
    assert held["a"] == held["c"] != held["b"]
    (tmp_path / "c" / "more" / "picture.png").rename(tmp_path / "c" / "more" / "other.png")
    assert unfinished._held(tmp_path / "c") != held["a"]
    assert unfinished._held(tmp_path / "none") is None
