"""``kosmos report``: the figures of a run from the files that it left."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kosmos.cli import main
from kosmos.commands.compared import differences
from kosmos.commands.report import _steps
from kosmos.errors import Interrupted, TrainingError
from kosmos.train.goodput import Goodput
from kosmos.train.json_lines import rounded
from kosmos.train.output import RunFolder
from kosmos.train.progress import Reporter
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of, small_run, ticks_registry


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps."""
    output = tmp_path_factory.mktemp("report") / "run"
    train_model(small_run(output, checkpoint={"every_steps": 3}), registry=ticks_registry())
    return output


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def report(run: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["report", str(run), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def lines(run: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["report", str(run)]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_number_of_processes_is_told_where_there_were_several(run: Path, capsys) -> None:
    file = run / "metrics.jsonl"
    rows = rows_of(file)
    assert report(run, capsys)["steps"]["processes"] == [1]
    assert not any(line.startswith("processes") for line in lines(run, capsys))
    rows = [{**row, "processes": 2 if row["step"] > 3 else 4} for row in rows]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert "processes  4, then 2" in lines(run, capsys)


LOSSES = {"all": "loss", "by_modality": "loss_by_modality", "by_source": "loss_by_source"}


def test_steps_tokens_and_losses_are_those_of_the_metrics(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, rows = report(run, capsys), rows_of(run / "metrics.jsonl")
    assert found["steps"]["last"] == 6
    for name in ("tokens", "text_tokens", "media_tokens", "documents"):
        assert found["steps"][name] == sum(row[name] for row in rows)
    assert found["steps"]["tokens_by_source"] == {"ticks": found["steps"]["tokens"]}
    assert found["steps"]["tokens_per_s"] == pytest.approx(
        sum(row["tokens"] for row in rows) / sum(row["step_s"] for row in rows), rel=1e-5
    )
    last = {name: rows[-1][key] for name, key in LOSSES.items()}
    assert found["last_losses"] == rounded({"step": 6, **last})
    scored = rows_of(run / "held_out.jsonl")[-1]
    assert found["held_out"] == rounded({"step": 6, **scored["held_out"]})


def test_the_epoch_is_that_of_the_last_step(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run / "metrics.jsonl"
    rows = [{**row, "epoch": row["step"] / 4} for row in rows_of(file)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert report(run, capsys)["steps"]["epoch"] == 1.5
    assert "epoch      1.50" in lines(run, capsys)
    other = Path(shutil.copytree(run, run.with_name("weighted")))  # whose rows have none
    bare = {name: value for name, value in rows[-1].items() if name != "epoch"}
    (other / "metrics.jsonl").write_text(f"{json.dumps(bare)}\n")
    assert report(other, capsys)["steps"]["epoch"] is None
    assert not any(line.startswith("epoch") for line in lines(other, capsys))
    assert main(["report", str(run), str(other)]) == 0
    assert ["epoch", "1.50", "-"] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_shares_of_sources_are_those_of_their_tokens(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"step": 1, "loss": 1.0, "tokens": 60, "tokens_by_source": {"few": 10, "much": 50}},
        {"step": 2, "loss": 1.0, "tokens": 40, "tokens_by_source": {"much": 40}},
    ]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    first, second = lines(run, capsys)[6:8]
    assert (first, second) == ("drawn      few: 10.0 % of the tokens", "           much: 90.0 % of the tokens")
    rows[0] |= {"documents_by_source": {"few": 2, "much": 4}, "epoch_by_source": {"few": 2.0, "much": 0.5}}
    rows[1] |= {"documents_by_source": {"much": 4}, "epoch_by_source": {"few": 2.0, "much": 1.0}}
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    said = lines(run, capsys)
    assert "drawn      few: 10.0 % of the tokens, 2 documents, 2 passes over it" in said
    assert "           much: 90.0 % of the tokens, 8 documents, 1 pass over it" in said
    found = report(run, capsys)["steps"]
    assert (found["documents_by_source"], found["epoch_by_source"]) == (
        {"few": 2, "much": 8},
        {"few": 2.0, "much": 1.0},
    )
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0, "tokens": 60}\n')  # as earlier versions wrote it
    assert not [line for line in lines(run, capsys) if line.startswith("drawn")]


def test_meters_are_those_of_the_metrics(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(run / "metrics.jsonl")
    rows[0] |= {"step_s": 60.0, "mfu": 0.001}  # as a first step that compiles
    rows[5]["peak_flops"] *= 2  # as of a run that goes on in twice as many processes
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = report(run, capsys)["steps"]["meters"]
    assert found["fill"] == pytest.approx(sum(row["fill"] for row in rows) / 6, rel=1e-5)
    seconds = sum(row["step_s"] for row in rows)
    assert found["samples_per_s"] == pytest.approx(sum(r["samples_per_s"] * r["step_s"] for r in rows) / seconds)
    could = [row["step_s"] * row["peak_flops"] for row in rows]
    for name in ("mfu", "mfu_half_causal"):  # what was computed over what could have been
        computed = sum(row[name] * most for row, most in zip(rows, could, strict=True))
        assert found[name] == pytest.approx(computed / sum(could), rel=1e-5)
    cells = [row["cells_by_stream"]["ticks"] for row in rows]
    most = [row["imbalance_by_stream"]["ticks"] * n for row, n in zip(rows, cells, strict=True)]
    assert found["imbalance_by_stream"] == {"ticks": pytest.approx(sum(most) / sum(cells), rel=1e-5)}
    assert found["peak_memory_bytes"] == max(row["peak_memory_bytes"] for row in rows)
    assert found["compilations"] is found["last_compilation"] is None
    said = [line.split("  ")[0] for line in lines(run, capsys)]
    assert {"fill", "imbalance", "MFU", "data wait", "memory"} <= set(said)
    assert "compiled" not in said


def test_programs_and_the_step_of_the_last_are_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run / "metrics.jsonl"
    rows = [{**row, "compilations": n} for row, n in zip(rows_of(file), (0, 2, 3, 3, 1, 1), strict=True)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = report(run, capsys)["steps"]["meters"]
    assert (found["compilations"], found["last_compilation"]) == (1, 5)  # a run that goes on has none at first
    assert "compiled   1 programs, the last at step 5" in lines(run, capsys)
    file.write_text("".join(json.dumps({**row, "compilations": 0}) + "\n" for row in rows))
    assert "compiled   0 programs" in lines(run, capsys)


def test_rows_of_older_versions_have_no_meters(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, kept = run / "metrics.jsonl", ("step", "loss", "tokens", "loss_by_modality", "loss_by_source")
    rows = [{name: row[name] for name in kept} for row in rows_of(file)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    meters = report(run, capsys)["steps"]["meters"]
    assert {name: value for name, value in meters.items() if value} == {}
    assert "throughput not timed" in lines(run, capsys)


def test_a_loss_that_is_not_finite_is_null(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last, no_number = rows_of(run / "metrics.jsonl")[-1], float("nan")
    of_source = dict.fromkeys(last["loss_by_source"], no_number)
    row = {**last, "step": 7, "loss": no_number, "loss_by_source": of_source, "skipped": True}
    folder = RunFolder(run)
    folder.append(folder.metrics, [row])
    assert report(run, capsys)["last_losses"]["all"] is None
    assert any(line.split()[:2] == ["all", "-"] for line in lines(run, capsys))


def test_checkpoints_are_listed_with_their_size_and_one_without_a_manifest_is_damaged(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = report(run, capsys)["checkpoints"]
    assert [(c["step"], c["manifest"]) for c in whole] == [(3, True), (6, True)]
    folder = run / "checkpoints" / "step-00000006"
    assert whole[1]["bytes"] == sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    (folder / "manifest.json").unlink()
    assert [c["manifest"] for c in report(run, capsys)["checkpoints"]] == [True, False]
    assert any(line.endswith("no manifest: damaged") for line in lines(run, capsys))


def test_saves_that_failed_are_counted_over_launches_until_one_was_written(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(run, capsys)["saves"] == {"newest": 6, "failed": 0, "problem": None}
    assert not [line for line in lines(run, capsys) if line.startswith("saves")]
    now = time.time()
    for later, failed in enumerate((["quota"], ["No space left on device"] * 2, [])):  # the last has saved nothing yet
        clock = Goodput(age_s=0.0, wall=lambda later=later: now + 60 * later)  # type: ignore[misc]
        clock.open(run / "goodput.jsonl", 6)
        for step, problem in enumerate(failed, 7):
            clock.note_save(step, problem)
        clock.close()
    assert report(run, capsys)["saves"] == {"newest": 6, "failed": 3, "problem": "No space left on device"}
    said = (
        "saves      the last 3 failed (No space left on device); the newest checkpoint is of step 6, the last step is 6"
    )
    assert lines(run, capsys)[-1] == said
    (run / "checkpoints" / "step-00000006" / "manifest.json").unlink()
    assert report(run, capsys)["saves"]["newest"] == 3
    assert main(["report", str(run), str(run)]) == 0
    assert ["saves", "that", "failed", "in", "a", "row", "3", "3"] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]
    clock = Goodput(age_s=0.0, wall=lambda: now + 600)
    clock.open(run / "goodput.jsonl", 6)
    clock.note_save(7)
    clock.note_save(8, "quota")
    clock.close()
    assert report(run, capsys)["saves"]["failed"] == 1


def test_a_run_without_goodput_says_so(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "goodput.jsonl").unlink(missing_ok=True)
    assert report(run, capsys)["goodput"] is None
    assert "goodput    not recorded: the run has no goodput.jsonl" in lines(run, capsys)


def test_goodput_is_shown_by_class(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "goodput.jsonl").unlink(missing_ok=True)
    now = iter([0.0, 2.0, 2.0, 10.0, 10.0, 10.0, 10.0, 10.0]).__next__
    clock = Goodput(age_s=0.0, now=now, wall=lambda: 100.0)
    clock.open(run / "goodput.jsonl", 0)
    with clock.spending("productive"):
        pass
    clock.finish_step(1)
    clock.close()
    found = report(run, capsys)["goodput"]
    assert (found["goodput"], found["wall_s"], found["steps"]) == (0.8, 10.0, 1)
    shown = lines(run, capsys)
    assert "goodput    80.0 % of 10.0 s, 1 step kept in 1 launch" in shown
    assert [line.split()[:2] for line in shown if line.startswith("  ") and line.endswith("%")] == [
        ["productive", "8.0"],
        ["start_up", "2.0"],
    ]


def test_bad_samples_are_counted_once_by_cause(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"step": 1, "source": "ticks", "code": "sample", "cause": "is broken"}
    incidents = [{**row, "origin": "a"}, {**row, "origin": "b"}, {**row, "origin": "b"}]
    incidents.append({**row, "origin": "c", "cause": "is empty"})
    incidents += [{**row, "origin": name, "cause": f"{name}.png: has {len(name)} bytes"} for name in ("d", "ee", "fff")]
    text = "".join(json.dumps(incident) + "\n" for incident in incidents)
    (run / "quarantine.jsonl").write_text(text + '{"step": 2, "ori')
    bad = report(run, capsys)["bad_samples"]
    assert bad["samples"] == 6
    assert [(c["cause"], c["samples"]) for c in bad["causes"]] == [
        ("...: has ... bytes", 3), ("is broken", 2), ("is empty", 1),
    ]  # fmt: skip
    assert "       2  ticks: is broken" in lines(run, capsys)


def test_steps_that_went_wrong_are_counted_by_what_was_done(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"step": n, "kind": "spike", "action": "skip", "documents": []} for n in (2, 4)]
    (run / "guards.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert report(run, capsys)["guards"] == [{"kind": "spike", "action": "skip", "steps": 2}]
    assert "guard      2 steps: spike, skip" in lines(run, capsys)


def test_a_run_that_has_taken_no_step_has_a_report(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("metrics.jsonl", "held_out.jsonl", "quarantine.jsonl"):
        (run / name).unlink()
    shutil.rmtree(run / "checkpoints")
    found = report(run, capsys)
    assert (found["steps"], found["last_losses"], found["checkpoints"]) == (None, None, [])
    assert "steps      none yet" in lines(run, capsys)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("held_out.jsonl", {"step": 1, "held_out": {"overall": {"loss": "x"}}}),
        ("held_out.jsonl", {"step": 1, "held_out": [1]}),
        ("metrics.jsonl", {"step": 1, "loss": [1]}),
        ("quarantine.jsonl", {"step": 1, "origin": []}),
    ],
)
def test_a_ledger_of_other_values_is_named(run: Path, capsys: pytest.CaptureFixture[str], name: str, row: Any) -> None:
    (run / name).write_text(f"{json.dumps(row)}\n{'[' * 9999}\n")
    assert main(["report", str(run)]) == TrainingError.exit_status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error[training]: ")
    assert f"{run / name}: damaged, or changed by others than kosmos train (" in line


def test_a_folder_without_a_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"error[config]: {tmp_path}: no run is here")
    assert said.err.count("\n") == 1


def test_a_report_needs_no_torch(run: Path) -> None:
    script = f"import sys; from kosmos.cli import main; print(main({['report', str(run)]!r}), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False"


def test_throughput_is_that_of_the_last_steps():
    rows = [{"step": n + 1, "tokens": 1, "step_s": 1.0, "tokens_per_s": float(n)} for n in range(300)]
    assert _steps(rows)["tokens_per_s_recent"] == 249.5


def test_what_is_no_checkpoint_is_none(tmp_path, capsys):
    run = RunFolder.create(small_run(tmp_path / "run"))
    run.release()
    run.write_config(small_run(run.path))
    for name in (".partial-step-00000003", "step-00000002", "step-00000001"):
        (run.checkpoints / name).mkdir()
    assert main(["report", str(run.path), "--json"]) == 0
    assert [c["step"] for c in json.loads(capsys.readouterr().out)["checkpoints"]] == [1, 2]


def test_runs_stand_side_by_side_with_the_settings_in_which_they_differ(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other run"
    train_model(
        small_run(other, train={"steps": 4, "learning_rate": 0.01}, backbone={"lora": {"rank": 2}},
                  evaluate={"every_steps": 2}),
        registry=ticks_registry(),
    )  # fmt: skip
    assert main(["report", str(run), str(other), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == [report(run, capsys), report(other, capsys)]
    told = found["differences"]
    assert told["train.steps"] == [6, 4] and told["train.learning_rate"] == [0.0003, 0.01]
    assert told["backbone.lora.rank"] == [None, 2] and told["evaluate.every_steps"] == [None, 2]
    assert "output" not in told and "data.lanes" not in told and "backbone.lora" not in told

    assert main(["report", str(run), str(other)]) == 0
    rows = [re.split(" {2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["run", str(run), str(other)]
    assert ["train.steps", "6", "4"] in rows and ["backbone.lora.rank", "-", "2"] in rows
    assert ["steps", "6", "4"] in rows and ["held out, step", "6", "4"] in rows
    scores = rows_of(other / "held_out.jsonl")
    best = min(scores, key=lambda row: row["held_out"]["overall"]["loss"])
    assert ["at step", "6", str(best["step"])] in rows
    lowest = next(row for row in rows if row[0] == "lowest held-out loss")
    assert lowest[2] == f"{best['held_out']['overall']['loss']:.4f}"


def test_runs_stand_side_by_side_with_what_limits_the_speed_of_their_last_steps(run: Path, capsys) -> None:
    def written(folder: Path, **more: Any) -> None:
        rows = [{"step": step, "loss": 1.0, "tokens": 9, "step_s": 9.0, "data_wait_s": 9.0} for step in (1, 2)]
        rows += [{"step": step, "loss": 1.0, "tokens": 9, "step_s": 2.0, **more} for step in range(3, 103)]
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    other = Path(shutil.copytree(run, run.with_name("bare")))  # as of a version without meters
    meters = {"data_wait_s": 0.5, "fill": 0.9, "mfu": 0.4, "mfu_half_causal": 0.3}
    written(run, **meters, imbalance_by_stream={"ticks": 1.5}, cells_by_stream={"ticks": 10})
    written(other)
    assert main(["report", str(run), str(other)]) == 0
    told = [re.split(" {2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]
    expected = {
        "MFU": "40.00 %", "causal attention halved": "30.00 %", "data wait": "25.00 %", "fill": "90.00 %",
        "imbalance of ticks": "1.50",
    }  # fmt: skip
    assert [row for row in told if row[0].endswith(", last steps")] == [
        [f"{name}, last steps", value, "-"] for name, value in expected.items()
    ]
    assert report(run, capsys)["steps"]["recent"] == {
        "steps": 100, "data_wait_share": 0.25, "fill": 0.9, "imbalance_by_stream": {"ticks": 1.5}, "mfu": 0.4,
        "mfu_half_causal": 0.3,
    }  # fmt: skip


def test_what_became_of_runs_stands_in_their_table_and_what_is_none_hides_no_other(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path(shutil.copytree(run, run.with_name("cut")))
    rows = rows_of(other / "metrics.jsonl")[:-2]
    (other / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (other / "changes.jsonl").write_text(json.dumps({"step": 3, "changed": {"train.learning_rate": [1, 2]}}) + "\n")
    (other / "guards.jsonl").write_text(json.dumps({"step": 5, "kind": "spike", "action": "stop"}) + "\n")
    assert main(["report", str(run), str(tmp_path / "none"), str(other)]) == 2
    said = capsys.readouterr()
    told = [re.split(" {2,}", line.strip()) for line in said.out.splitlines()]
    assert ["steps", "6", "4 of 6"] in told and ["settings changed from step", "-", "3"] in told
    assert ["steps that went wrong", "-", "1"] in told
    assert said.err.startswith("error[config]: ") and str(tmp_path / "none") in said.err


class Ending(Reporter):
    """Behind the first step raises what it is given, or wants to stop."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.taken = error, False

    def step(self, row: Any, steps: int) -> None:
        self.taken = True
        if self.error is not None:
            raise self.error

    def wants_stop(self) -> bool:
        return self.taken


@pytest.mark.parametrize(
    ("settings", "reporter", "how", "problem"),
    [
        ({"train": {"max_time": "0.001s"}}, None, "out of time", None),
        ({"evaluate": {"every_steps": 1, "patience": 1, "least_gain": 99.0}}, None, "stopped early", None),
        ({}, Ending(), "stopped", None),
        ({}, Ending(TrainingError("out of luck")), "failed", "out of luck"),
        ({}, Ending(RuntimeError("no luck")), "failed", "RuntimeError: no luck"),
    ],
)
def test_how_a_run_ended_is_told(tmp_path: Path, capsys, settings: Any, reporter: Any, how: str, problem: Any) -> None:
    run = tmp_path / "run"
    with suppress(TrainingError, RuntimeError, Interrupted):
        train_model(small_run(run, **settings), registry=ticks_registry(), reporter=reporter)
    assert report(run, capsys)["ended"] == {"how": how, "problem": problem}
    assert f"ended      {how}" + (f": {problem}" if problem else "") in lines(run, capsys)
    resume_run(run, {"train": {"max_time": None}, "evaluate": {"patience": None}}, registry=ticks_registry())
    assert report(run, capsys)["ended"] == {"how": "done", "problem": None}


def test_a_stopped_run_is_not_done_where_it_is_asked_for_fewer_steps_than_it_took(tmp_path: Path, capsys) -> None:
    class After(Ending):
        def step(self, row: Any, steps: int) -> None:
            self.taken = row["step"] == 3

    run = tmp_path / "run"
    with suppress(Interrupted):
        train_model(small_run(run), registry=ticks_registry(), reporter=After())
    resume_run(run, {"train": {"steps": 2}}, registry=ticks_registry())
    assert report(run, capsys)["ended"] == {"how": "stopped", "problem": None}


def test_a_run_that_was_killed_or_goes_on_now_is_told_from_one_that_ended(run: Path, capsys) -> None:
    rows = [{name: value for name, value in row.items() if name != "ended"} for row in rows_of(run / "goodput.jsonl")]
    (run / "goodput.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert report(run, capsys)["ended"]["how"] == "done"  # as of a version that did not note it
    steps = rows_of(run / "metrics.jsonl")
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in steps[:-1]))
    assert report(run, capsys)["ended"]["how"] == "unknown"
    held = RunFolder(run)
    held.hold()
    assert report(run, capsys)["ended"]["how"] == "running"
    held.release()
    assert report(run, capsys)["ended"]["how"] == "unknown"


def test_runs_are_rows_of_a_table_in_the_order_of_their_scores(run: Path, tmp_path: Path, capsys) -> None:
    other, bare, file = tmp_path / "other, run", tmp_path / "bare", tmp_path / "runs.csv"
    train_model(small_run(other, train={"steps": 4, "learning_rate": 0.02}), registry=ticks_registry())
    train_model(small_run(bare, data={"held_out": 0}, train={"steps": 1}), registry=ticks_registry())
    assert main(["report", str(bare), str(run), str(other), "--csv", str(file), "--best-first"]) == 0
    assert capsys.readouterr().out == f"{file}: 3 runs\n"
    found = list(csv.DictReader(file.read_text().splitlines()))
    scores = {str(one): report(one, capsys) for one in (run, other, bare)}
    order = sorted((run, other), key=lambda one: scores[str(one)]["held_out_best"]["loss"])
    assert [row["output"] for row in found] == [*map(str, order), str(bare)]
    for row in found:
        one = scores[row["output"]]
        assert (row["ended.how"], row["ended.problem"]) == ("done", "")
        assert int(row["train.steps"]) == int(row["steps.last"]) == one["steps"]["last"]
        assert float(row["last_losses.all"]) == one["last_losses"]["all"]
        assert float(row["steps.tokens_per_s"]) == one["steps"]["tokens_per_s"]
        assert float(row["goodput.wall_s"]) == one["goodput"]["wall_s"]
        assert int(row["parameters.trained"]) == one["parameters"]["trained"] > 0
        assert row["held_out.overall.loss"] == (str(one["held_out"]["overall"]["loss"]) if one["held_out"] else "")
    assert {row["output"]: row["train.learning_rate"] for row in found}[str(other)] == "0.02"
    assert main(["report", str(run), str(other), "--best-first"]) == 0
    assert re.split(" {2,}", capsys.readouterr().out.splitlines()[0])[1:] == [*map(str, order)]


def test_scores_of_different_kinds_make_no_order_and_a_table_goes_where_it_can(run: Path, tmp_path, capsys) -> None:
    other = Path(shutil.copytree(run, tmp_path / "accurate"))
    settings = (other / "run.yaml").read_text()
    (other / "run.yaml").write_text(settings.replace("  best: null\n", "  best: exact_match\n", 1))
    assert main(["report", str(run), str(other), "--best-first"]) == 2
    assert "scored by held-out exact match, held-out loss (evaluate.best)" in capsys.readouterr().err
    assert main(["report", str(run), "--csv", str(tmp_path / "nowhere" / "runs.csv")]) == 2
    assert "nowhere/runs.csv: cannot write (No such file or directory); name another --csv" in capsys.readouterr().err
    assert main(["report", str(run), "--csv", str(tmp_path / "runs.csv"), "--json"]) == 2


def test_a_table_never_goes_into_a_run_and_is_printed_where_it_is_asked_for(run: Path, tmp_path, capsys) -> None:
    ledger, link, file = run / "metrics.jsonl", tmp_path / "link.csv", tmp_path / "runs.csv"
    before = ledger.read_bytes()
    link.symlink_to(ledger)
    for within in (ledger, link, run / "new.csv"):
        assert main(["report", str(run), "--csv", str(within)]) == 2
        assert f"--csv {within}: is within the run {run}, whose files are its own" in capsys.readouterr().err
    assert ledger.read_bytes() == before and not (run / "new.csv").exists()
    assert main(["report", str(run), "--csv", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: 1 run\n"
    assert main(["report", str(run), "--csv", "-"]) == 0
    assert capsys.readouterr().out == file.read_text()
    assert main(["report", str(run), "--csv", "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device() and sorted(tmp_path.glob("*.csv")) == [link, file]


def test_runs_differ_in_their_modalities_though_these_have_no_settings() -> None:
    bare = {"stream": None, "processor": {}}
    runs = [{"modalities": {"image": bare, "audio": bare}}, {"modalities": {"image": bare}}]
    assert differences(runs) == {"modalities": ["image, audio", "image"]}


def test_a_run_that_scored_lower_before_says_when(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(run / "held_out.jsonl")
    rows[0]["held_out"]["overall"]["loss"] = 0.125
    (run / "held_out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "lowest held-out loss 0.1250, at step 0" in lines(run, capsys)
    assert report(run, capsys)["held_out_best"] == {"step": 0, "loss": 0.125}


def test_a_default_that_one_run_states_is_no_difference(run: Path, tmp_path: Path, capsys) -> None:
    stated = {
        "train": {"optimizer": {"name": "lion", "betas": [0.9, 0.99]}},
        "streams": {"ticks": {"connector": {"name": "mlp", "norm": True}, "freeze": False}},
        "checkpoint": {"every_steps": 3},
        "backbone": {"norm": "layer"},
    }
    train_model(small_run(tmp_path / "other", **stated), registry=ticks_registry())
    capsys.readouterr()
    assert main(["report", str(run), str(tmp_path / "other"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == {"backbone.norm": [None, "layer"]}


@pytest.mark.parametrize("noted", [None, 3, [], {"backbone": None, "train.loss": []}])
def test_runs_that_noted_no_options_are_told_apart_by_their_run_files(run: Path, tmp_path: Path, capsys, noted) -> None:
    for name in ("a", "b"):
        shutil.copytree(run, tmp_path / name)
        figures = json.loads((run / "parameters.json").read_text()) | {"options": noted}
        (tmp_path / name / "parameters.json").write_text(json.dumps(figures))
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == {}
