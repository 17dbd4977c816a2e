"""Two processes never train in one folder, and its ledgers are read as they were written."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from kosmos import ConfigError, TrainingError, train_model
from kosmos.compose import compose
from kosmos.train import holding
from kosmos.train.branch import branch
from kosmos.train.holding import Lock
from kosmos.train.json_lines import as_json, printed_json
from kosmos.train.output import RunFolder
from kosmos.train.run import resume_run
from support.runs import rows_of, small_run, ticks_registry

HOLD = """
import sys, time
from pathlib import Path
from kosmos.train.output import RunFolder
folder = RunFolder(Path(sys.argv[1]))
folder.hold()
print("held", flush=True)
time.sleep(600)
"""


def test_a_folder_in_which_another_process_trains_is_refused_until_that_one_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    train_model(small_run(run, train={"steps": 2}), registry=ticks_registry())
    more = {"train": {"steps": 3}}
    monkeypatch.setattr(holding, "DYING_S", 0.3)
    with subprocess.Popen([sys.executable, "-c", HOLD, run], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        try:
            with pytest.raises(ConfigError, match=rf"{run}: process {other.pid} on \S+ trains here already; stop it"):
                resume_run(run, more, registry=ticks_registry())
        finally:
            other.kill()
    assert resume_run(run, more, registry=ticks_registry()).step == 3


def test_of_two_starts_in_one_new_folder_the_later_writes_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setattr(holding, "DYING_S", 0.3)
    with subprocess.Popen([sys.executable, "-c", HOLD, run], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"  # its run file comes a little later
        try:
            with pytest.raises(ConfigError, match=rf"{run}: process {other.pid} on \S+ trains here already; stop it"):
                train_model(small_run(run), registry=ticks_registry())
        finally:
            other.kill()
    assert [file for file in run.rglob("*") if file.is_file()] == [run / ".in-use"]
    assert train_model(small_run(run, train={"steps": 1}), registry=ticks_registry()).step == 1


def all_of(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder of one, with its content."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


@pytest.mark.parametrize(
    "file",
    [
        "metrics.jsonl", "held_out.jsonl", "quarantine.jsonl", "guards.jsonl", "goodput.jsonl", "changes.jsonl",
        "parts.json", "begun.json", "model.yaml", "parameters.json", "plugins.lock.json", "tokenizer/tokenizer.json",
        "profile/mine.txt",
        "checkpoints/step-00000500/w.bin", "checkpoints/.partial-mine/w.bin",
    ],
)  # fmt: skip
def test_a_folder_with_files_of_the_names_of_a_run_is_refused_and_stays_as_it_was(tmp_path: Path, file: str) -> None:
    own = tmp_path / file
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("precious")
    before = all_of(tmp_path)
    with pytest.raises(ConfigError, match=rf"{tmp_path}: holds {file.split('/')[0]} and no run.yaml: a new run would"):
        train_model(small_run(tmp_path), registry=ticks_registry())
    assert all_of(tmp_path) == before


@pytest.mark.parametrize("what", ["file", "pattern", "pattern of folders", "scored", "media"])
def test_the_folder_of_the_data_is_no_folder_of_a_run(tmp_path: Path, what: str) -> None:
    data, media = tmp_path / "data", tmp_path / "media"
    for folder in (data, media):
        folder.mkdir()
    (data / "rows-1.jsonl").write_text('{"text": "a b"}\n' * 8)
    paths = {"pattern": "data/rows-*.jsonl", "pattern of folders": "*/rows-1.jsonl"}
    source = {"path": str(tmp_path / paths.get(what, "data/rows-1.jsonl")), "root": str(media)}
    scored = {"evaluate": {"sources": [source]}} if what == "scored" else {"data": {"sources": [source]}}
    output = media if what == "media" else data
    before = all_of(tmp_path)
    with pytest.raises(ConfigError, match=rf"^{output}: holds the data, whose files those of the run would lie among"):
        train_model(small_run(output, **scored), registry=ticks_registry())
    assert all_of(tmp_path) == before
    assert train_model(small_run(data / "run", train={"steps": 1}, **scored), registry=ticks_registry()).step == 1


def test_no_folder_of_a_run_is_one_in_which_a_pattern_would_find_data(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.jsonl").write_text('{"text": "a b"}\n' * 8)
    data = {"data": {"sources": [{"path": str(tmp_path / "*" / "*.jsonl")}]}, "train": {"steps": 1}}
    with pytest.raises(ConfigError, match=r"run: .*\*\.jsonl would find the files of the run as data; name another"):
        train_model(small_run(tmp_path / "run", **data), registry=ticks_registry())
    assert not (tmp_path / "run").exists()
    assert train_model(small_run(tmp_path / "runs" / "a", **data), registry=ticks_registry()).step == 1


def test_the_folder_tells_how_many_parameters_there_are_and_are_trained_by_part(tmp_path: Path) -> None:
    frozen = {"streams": {"ticks": {"freeze": True}}}
    train_model(small_run(tmp_path / "run", train={"steps": 1}, **frozen), registry=ticks_registry())
    found = json.loads((tmp_path / "run" / "parameters.json").read_text())
    parts, backbone = found["parts"], compose(small_run(), ticks_registry()).model.backbone
    assert list(parts) == ["backbone", "streams.ticks.encoder", "streams.ticks.connector"]
    assert parts["backbone"]["parameters"] == sum(p.numel() for p in backbone.parameters())
    assert (parts["backbone"]["component"], parts["backbone"]["how"]) == ("decoder", "trained")
    encoder = parts["streams.ticks.encoder"]
    assert (encoder["trained"], encoder["how"]) == (0, "frozen") and encoder["parameters"] > 0
    for name in ("parameters", "trained"):
        assert found[name] == sum(part[name] for part in parts.values())
    branch(RunFolder.open(tmp_path / "run"), 1, tmp_path / "other")
    assert json.loads((tmp_path / "other" / "parameters.json").read_text()) == found


def test_what_else_lies_in_the_folder_outlives_a_start_that_fails_and_one_that_works(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for file in ("notes.txt", "checkpoints/lost+found/1", "tensorboard/old", ".seen-by-me"):
        (run / file).parent.mkdir(parents=True, exist_ok=True)
        (run / file).write_text(file)
    before = all_of(run)
    with pytest.raises(ConfigError, match="init"):
        train_model(small_run(run, init=str(tmp_path / "nowhere")), registry=ticks_registry())
    assert all_of(run) == before
    train_model(small_run(run, train={"steps": 2}, checkpoint={"every_steps": 1}), registry=ticks_registry())
    assert before.items() <= all_of(run).items()


def test_a_start_that_fails_leaves_the_empty_folders_that_it_found(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    for output in ("run", "new"):
        with pytest.raises(ConfigError, match="init"):
            train_model(small_run(tmp_path / output, init=str(tmp_path / "nowhere")), registry=ticks_registry())
    assert all_of(tmp_path) == {"run": None, "run/checkpoints": None}


KILLED = """
import os, sys
from pathlib import Path
from kosmos import train_model
from kosmos.train.output import RunFolder
from support.runs import rows_of, small_run, ticks_registry
def begun(folder, *given):
    os._exit(9)

def failed(folder):
    if folder.run_file.exists():
        folder.run_file.unlink()
        os._exit(9)

more = {}
if sys.argv[2] == "before its run file":
    RunFolder.write_config = begun
else:
    RunFolder._remove_own = failed
    more = {"init": sys.argv[1] + "-nowhere"}
    Path(more["init"]).mkdir()  # which is no run, as is seen late
train_model(small_run(Path(sys.argv[1]), **more), registry=ticks_registry())
"""


@pytest.mark.parametrize("moment", ["before its run file", "as it failed"])
def test_a_start_that_was_killed_is_no_obstacle_to_the_next(tmp_path: Path, moment: str) -> None:
    run = tmp_path / "run"
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    program = [sys.executable, "-c", KILLED, run, moment]
    assert subprocess.run(program, check=False, env={**os.environ, "PYTHONPATH": path}, timeout=60).returncode == 9
    assert (run / "tokenizer").is_dir() and not (run / "run.yaml").exists()
    assert train_model(small_run(run, train={"steps": 1}), registry=ticks_registry()).step == 1
    (run / "run.yaml").unlink()  # a run was here, which is no start any more
    with pytest.raises(ConfigError, match=r"holds metrics.jsonl, held_out.jsonl, .*, checkpoints and no run.yaml"):
        train_model(small_run(run), registry=ticks_registry())


def test_a_lock_that_its_holder_took_away_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, later = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    first.path.mkdir()
    first.hold()
    (first.path / "notes.txt").touch()  # for which the folder stays
    monkeypatch.setattr(holding.time, "sleep", lambda seconds: first.discard())  # as the later one waits
    later.hold()
    assert (later.path / ".in-use").read_text()
    later.release()


def test_who_waited_for_a_lock_that_was_taken_away_waits_for_the_one_that_took_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, later, third = (RunFolder(tmp_path / "run") for _ in range(3))
    first.path.mkdir()
    first.hold()
    (first.path / "notes.txt").touch()

    def meanwhile(seconds: float) -> None:
        monkeypatch.setattr(holding.time, "sleep", lambda seconds: None)
        monkeypatch.setattr(holding, "DYING_S", 0.0)
        first.discard()
        third.hold()

    monkeypatch.setattr(holding.time, "sleep", meanwhile)
    with pytest.raises(ConfigError, match="trains here already"):
        later.hold()
    third.release()


def test_a_run_that_failed_or_ended_holds_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.hold()
    assert (tmp_path / ".in-use").read_text().startswith(f"process {os.getpid()} on ")
    folder.release()
    again = RunFolder(tmp_path)
    again.hold()
    again.release()


def test_a_run_whose_folder_cannot_be_written_to_says_so_before_it_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_model(small_run(run, train={"steps": 2}), registry=ticks_registry())
    (run / ".in-use").unlink()
    (run / ".in-use").mkdir()  # which refuses as a disk that is mounted to be read alone does
    with pytest.raises(ConfigError, match=rf"{run}/.in-use: cannot write \(Is a directory\)"):
        resume_run(run, {"train": {"steps": 3}}, registry=ticks_registry())


@pytest.mark.skipif(not Path("/sys").is_dir(), reason="needs a folder of Linux")
def test_who_may_not_write_to_a_run_is_told_how_to_go_on_from_it() -> None:
    lock = Lock(Path("/sys"))  # where nobody makes a file, whoever they are
    with pytest.raises(ConfigError) as told:
        lock.take(print)
    assert re.fullmatch(
        r"/sys/\.in-use: cannot write \((Permission denied|Read-only file system)\); to go on from a run that may only "
        r"be read, branch it off \(kosmos checkpoint branch /sys NEW --step STEP\), or copy its folder",
        str(told.value),
    )


def test_a_folder_on_a_full_disk_is_held_all_the_same(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        folder.hold()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / ".in-use").read_text() == ""
    folder.release()


@pytest.mark.parametrize("kind", ["a link", "a link to nothing"])
def test_a_link_in_the_place_of_the_lock_is_refused_and_what_it_leads_to_stays(tmp_path: Path, kind: str) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    train_model(small_run(run, train={"steps": 1}), registry=ticks_registry())
    if kind == "a link":
        victim.write_text("precious")
    for folder in (run, tmp_path / "new"):
        folder.mkdir(exist_ok=True)
        (folder / ".in-use").unlink(missing_ok=True)
        (folder / ".in-use").symlink_to(victim)
    said = r"/.in-use: cannot write \(is a link; remove it, or put a file in its place\)"
    with pytest.raises(ConfigError, match=str(run) + said):
        resume_run(run, {"train": {"steps": 2}}, registry=ticks_registry())
    with pytest.raises(ConfigError, match=str(tmp_path / "new") + said):
        train_model(small_run(tmp_path / "new"), registry=ticks_registry())
    assert victim.exists() == (kind == "a link")
    assert kind != "a link" or victim.read_text() == "precious"


@pytest.mark.parametrize("kind", ["symbolic", "hard", "dangling"])
def test_a_run_that_goes_on_writes_to_no_file_that_its_ledgers_are_links_of(tmp_path: Path, kind: str) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    train_model(small_run(run, train={"steps": 1}), registry=ticks_registry())
    elsewhere.mkdir()
    names = {"symbolic": ["metrics.jsonl", "quarantine.jsonl", "goodput.jsonl", "guards.jsonl"]}
    names |= {"hard": [*names["symbolic"], ".in-use"], "dangling": ["goodput.jsonl"]}
    for name in names[kind]:
        file, victim = run / name, elsewhere / name
        victim.write_bytes(file.read_bytes() if file.exists() else b"")
        file.unlink(missing_ok=True)
        file.hardlink_to(victim) if kind == "hard" else file.symlink_to(victim)
        if kind == "dangling":
            victim.unlink()
    before = all_of(elsewhere)
    resume_run(run, {"train": {"steps": 2}}, registry=ticks_registry())
    assert all_of(elsewhere) == before
    assert [row["step"] for row in rows_of(run / "metrics.jsonl")] == [1, 2]
    assert rows_of(run / "goodput.jsonl")[-1]["steps"][1] == 2


def test_a_ledger_that_is_a_link_is_not_written_to(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.guards.symlink_to(tmp_path / "victim")
    with pytest.raises(TrainingError, match=r"guards.jsonl: cannot write \(is a link; remove it, or"):
        folder.append(folder.guards, [{"step": 1}])
    assert not (tmp_path / "victim").exists()


def test_a_pipe_in_the_place_of_the_lock_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".in-use")
    with pytest.raises(ConfigError, match=r".in-use: cannot write \(is no plain file\)"):
        RunFolder(tmp_path).hold()


@pytest.mark.parametrize("character", ["\u0085", "\u2028", "\u2029"])
def test_a_ledger_keeps_rows_whose_documents_have_line_ends_of_unicode_in_their_names(
    tmp_path: Path, character: str
) -> None:
    row = {"step": 1, "origin": f"a{character}b.png", "cause": "broken"}
    RunFolder(tmp_path).note_bad([row])
    later = RunFolder(tmp_path)
    assert (later.count_bad(), later.noted()["quarantine.jsonl"]) == (1, 1)
    later.note_bad([row])  # it is known
    later.truncate(1, same_data=True)
    assert [json.loads(line) for line in later.quarantine.read_text().split("\n")[:-1]] == [row]


def test_a_row_that_ends_within_a_character_is_passed_over(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.note_bad([{"step": 1, "origin": "a.png", "cause": "broken"}])
    whole = folder.quarantine.read_bytes()
    folder.quarantine.write_bytes(whole + '{"step": 2, "origin": "ü'.encode()[:-1])  # as the machine went off
    later = RunFolder(tmp_path)
    assert later.count_bad() == 1
    later.truncate(2, same_data=True)
    assert later.quarantine.read_bytes() == whole


@pytest.mark.parametrize("end", ["", "\n", "\n{half"])
def test_rows_of_a_ledger_are_counted_as_they_are_read_within_little_memory(tmp_path: Path, end: str) -> None:
    folder = RunFolder(tmp_path)
    folder.quarantine.write_text("\n".join(["{\u2028}" * 100] * 20_000) + end, encoding="utf-8")
    tracemalloc.start()
    counted = folder.noted()["quarantine.jsonl"]
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counted == len(folder._lines(folder.quarantine))
    assert taken < folder.quarantine.stat().st_size / 2


def test_what_is_printed_as_json_has_six_digits_and_ledgers_have_all() -> None:
    row = {
        "sum": 0.1 + 0.2, "rate": 1 / 3e9, "flops": 44748139680.0, "wall_s": 10499.916000002, "many": 1234567.89,
        "none": math.nan, "zero": 0.0, "count": 123456789, "nested": [{"minus": -2 / 3}],
    }  # fmt: skip
    assert printed_json(row) == (
        '{"sum": 0.3, "rate": 3.33333e-10, "flops": 44748139680.0, "wall_s": 10499.9, "many": 1234568.0, '
        '"none": null, "zero": 0.0, "count": 123456789, "nested": [{"minus": -0.666667}]}'
    )
    assert json.loads(as_json(row))["sum"] == 0.1 + 0.2


def test_empty_files_of_those_names_are_no_obstacle(tmp_path: Path) -> None:
    """As a start leaves them that was killed before it wrote who it was."""
    for name in ("metrics.jsonl", "quarantine.jsonl"):
        (tmp_path / name).touch()
    train_model(small_run(tmp_path, train={"steps": 1}), registry=ticks_registry())
    assert (tmp_path / "run.yaml").exists()
