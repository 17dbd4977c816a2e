"""Steps that go wrong, and a disk that is full: what the user sees, what is noted, and what the run goes on with."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from kosmos.checkpoint.folder import committed, verify
from kosmos.checkpoint.tensors import MODEL, read_whole
from kosmos.compose import compose, make_feed
from kosmos.config import RunConfig
from kosmos.data.feeder import open_feeder
from kosmos.errors import Interrupted, TrainingError
from kosmos.run_sources import open_sources
from kosmos.train.goodput_report import read_rows, summary
from kosmos.train.optim.lion import Lion
from kosmos.train.progress import Reporter
from kosmos.train.run import resume_run, train_model
from kosmos.train.session import Session
from support.runs import rows_of, small_run, ticks_registry

NAN = "loss nan, gradient norm nan: not finite"


class Lines(Reporter):
    """Keeps what is said, and calls ``after`` with every row of metrics."""

    def __init__(self, after: Callable[[Mapping[str, Any]], None] = lambda row: None) -> None:
        self.said: list[str] = []
        self.after = after

    def say(self, line: str) -> None:
        self.said.append(line)

    def step(self, row: Mapping[str, Any], steps: int) -> None:
        self.after(row)


def documents_by_step(config: RunConfig) -> list[list[str]]:
    """Which documents each step takes, were nothing wrong."""
    registry = ticks_registry()
    feed = make_feed(compose(config, registry), open_sources(config, registry, "train"))
    feeder = open_feeder(feed, range(config.data.lanes), workers=0)
    steps = [[d.origin for row in feeder.next_step() for d in row.arrays.documents] for _ in range(config.train.steps)]
    feeder.close()
    return steps


def broken_at(output: Path, kind: str, steps: list[int], **over: Any) -> tuple[RunConfig, list[list[str]]]:
    """A run in which the first document of each of these steps is of this kind, and the documents of all steps."""

    def run(**options: Any) -> RunConfig:
        source = {"path": "ticks", "options": {"size": 600, **options}}
        return small_run(output, **{**over, "data": {**over.get("data", {}), "sources": [source]}})

    clean = documents_by_step(run())
    return run(**{kind: [int(clean[step - 1][0].split()[1]) for step in steps]}), clean


def _ten_steps(config: RunConfig) -> Any:
    return config.train.model_copy(update={"steps": 10})


def weights(output: Path, step: int) -> dict[str, Any]:
    return read_whole(output / "checkpoints" / f"step-{step:08d}" / "tensors", MODEL)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(tensor.equal(other[name]) for name, tensor in one.items())


def test_a_loss_that_is_no_number_stops_the_run_before_the_update(tmp_path: Path) -> None:
    config, documents = broken_at(tmp_path / "run", "infinite", [4], checkpoint={"every_steps": 1, "keep_last": 9})
    with pytest.raises(TrainingError) as caught:
        train_model(config, registry=ticks_registry())
    ledger = tmp_path / "run" / "guards.jsonl"
    named = ", ".join(documents[3][:3])
    assert caught.value.line().startswith(
        f"error[training]: step 4: {NAN} (streams.ticks.encoder: ticks (TicksEncoder): its features are not finite); "
        f"parameters were not changed. Lower train.learning_rate or look at the documents ({ledger}): {named}"
    )
    assert caught.value.exit_status == 4
    (row,) = rows_of(ledger)
    told = {"step": 4, "kind": "non_finite", "action": "stop", "loss": "nan", "grad_norm": "nan"}
    assert row == {**told, "documents": documents[3]}
    assert [c.name[-1] for c in committed(tmp_path / "run" / "checkpoints")] == ["3", "2", "1"]


def test_a_skipped_step_changes_no_weight_and_the_run_goes_on(tmp_path: Path) -> None:
    config, documents = broken_at(
        tmp_path / "run", "infinite", [4], guard={"non_finite": "skip"}, checkpoint={"every_steps": 1, "keep_last": 9}
    )
    lines = Lines()
    assert train_model(config, registry=ticks_registry(), reporter=lines).step == 6
    assert f"warning: step 4: {NAN}; left out" in lines.said
    (row,) = rows_of(tmp_path / "run" / "guards.jsonl")
    assert (row["step"], row["action"], row["documents"]) == (4, "skip", documents[3])
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows if row.get("skipped")] == [4]
    assert [row["step"] for row in rows if math.isfinite(row["loss"] or math.nan)] == [1, 2, 3, 5, 6]
    saved = {step: weights(tmp_path / "run", step) for step in (3, 4, 5)}
    assert same(saved[3], saved[4])
    assert not same(saved[4], saved[5])


def test_a_run_clips_by_the_norm_that_it_logs_and_only_steps_that_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factors: list[float] = []

    def noted(optimizer: Lion, factor: float) -> bool:
        factors.append(factor)
        return False

    monkeypatch.setattr(Lion, "scale_next", noted)
    train = {"optimizer": "lion", "clip_norm": 0.01}
    config, _ = broken_at(tmp_path / "run", "infinite", [4], guard={"non_finite": "skip"}, train=train)
    train_model(config, registry=ticks_registry(), reporter=Lines())
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")
    norms = [row["grad_norm"] for row in rows if "grad_norm" in row and not row.get("skipped")]
    assert len(norms) == 5 and min(norms) > 0.01
    assert factors == pytest.approx([0.01 / norm for norm in norms], rel=1e-3)


def test_an_incident_that_comes_again_after_a_resume_is_noted_once(tmp_path: Path) -> None:
    config, _ = broken_at(
        tmp_path / "run", "infinite", [4], guard={"non_finite": "skip"}, checkpoint={"every_steps": 2, "keep_last": 9}
    )
    train_model(config, registry=ticks_registry())
    for checkpoint in committed(tmp_path / "run" / "checkpoints")[:-1]:
        shutil.rmtree(checkpoint)
    going_on = Lines()
    resume_run(tmp_path / "run", registry=ticks_registry(), reporter=going_on)
    assert f"warning: step 4: {NAN}; left out" in going_on.said
    assert [row["step"] for row in rows_of(tmp_path / "run" / "guards.jsonl")] == [4]


def test_ledgers_are_json_to_every_reader(tmp_path: Path) -> None:
    config, _ = broken_at(tmp_path / "run", "infinite", [4], guard={"non_finite": "skip"})
    train_model(config, registry=ticks_registry())
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert [row["step"] for row in rows if row["loss"] is None] == [4]


def test_a_run_that_rolls_back_takes_the_steps_again_with_the_data_that_follow(tmp_path: Path) -> None:
    encoder = {"name": "ticks", "ledger": str(tmp_path / "ledger")}
    config, documents = broken_at(
        tmp_path / "run", "infinite", [4], guard={"non_finite": "roll_back"}, checkpoint={"every_steps": 2},
        train={"steps": 8}, streams={"ticks": {"encoder": encoder}},
    )  # fmt: skip
    lines = Lines()
    assert train_model(config, registry=ticks_registry(), reporter=lines).step == 8
    assert f"warning: step 4: {NAN}; back to the newest checkpoint" in lines.said
    (row,) = rows_of(tmp_path / "run" / "guards.jsonl")
    assert (row["step"], row["action"], row["documents"]) == (4, "roll_back", documents[3])
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 9))
    assert all(math.isfinite(row["loss"]) for row in rows)
    drawn = sum(len(step) for step in documents_by_step(config.model_copy(update={"train": _ten_steps(config)})))
    (newest, *_) = committed(tmp_path / "run" / "checkpoints")
    assert json.loads((newest / "state.json").read_text())["budget"]["drawn"] >= drawn  # those of all 10 steps
    trained = [row["documents"] for row in rows_of(tmp_path / "ledger")]
    by_step = [trained[i] + trained[i + 1] for i in range(0, len(trained), 2)]
    assert by_step[:8] == documents[:8]  # 1 to 4, and what follows as 3 to 6
    assert len(by_step) == 10


def test_a_roll_back_without_a_checkpoint_is_one_line(tmp_path: Path) -> None:
    config, _ = broken_at(tmp_path / "run", "infinite", [2], guard={"non_finite": "roll_back"})
    with pytest.raises(TrainingError, match=r"^guard: no checkpoint to go back to yet; lower checkpoint\.every_steps$"):
        train_model(config, registry=ticks_registry())


@pytest.mark.parametrize("action", ["skip", "roll_back"])
def test_too_many_bad_steps_in_turn_stop_the_run(tmp_path: Path, action: str) -> None:
    config, _ = broken_at(
        tmp_path / "run", "infinite", [3, 4, 5, 6], guard={"non_finite": action, "at_most": 2},
        checkpoint={"every_steps": 1},
    )  # fmt: skip
    with pytest.raises(
        TrainingError, match=rf"{NAN}, 3 steps in turn \(guard\.at_most\) \(.*\); parameters were not changed"
    ):
        train_model(config, registry=ticks_registry())
    assert [row["action"] for row in rows_of(tmp_path / "run" / "guards.jsonl")] == [action, action, "stop"]


def test_going_back_to_one_checkpoint_again_and_again_stops_the_run(tmp_path: Path) -> None:
    """Though steps between are good: they are taken again each time."""
    config, _ = broken_at(
        tmp_path / "run", "infinite", [4, 6, 8, 10], guard={"non_finite": "roll_back", "at_most": 2},
        checkpoint={"every_steps": 2}, train={"steps": 12},
    )  # fmt: skip
    line = r"^guard: something is wrong again after going back to step 2 2 times \(guard\.at_most\); look at"
    with pytest.raises(TrainingError, match=line):
        train_model(config, registry=ticks_registry())
    assert [row["step"] for row in rows_of(tmp_path / "run" / "guards.jsonl")] == [4, 4, 4]


def test_a_loss_spike_is_left_out_and_named(tmp_path: Path) -> None:
    over = {
        "train": {"steps": 50, "learning_rate": 5e-3, "schedule": "constant"},
        "guard": {"spike": 2.0},
        "data": {"look_ahead": 4},
    }
    config, documents = broken_at(tmp_path / "run", "odd", [49], **over)
    lines = Lines()
    train_model(config, registry=ticks_registry(), reporter=lines)
    (row,) = rows_of(tmp_path / "run" / "guards.jsonl")
    assert (row["step"], row["kind"], row["action"]) == (49, "spike", "skip")
    assert row["documents"] == documents[48]
    (line,) = (line for line in lines.said if "spike" in line)
    assert line.startswith(f"warning: step 49: loss {float(row['loss']):g}, usually ")
    assert line.endswith(": a spike; left out")
    losses = [r["loss"] for r in rows_of(tmp_path / "run" / "metrics.jsonl")]
    usual = median(losses[:48])
    assert losses[48] > 2 * usual > 2 * losses[49]
    assert f"usually {usual:g}" in line


# a full disk

FAILED = "cannot write the checkpoint of step 4 ("


def assert_went_on(output: Path, lines: Lines, seen: list[str]) -> None:
    """One warning with path, needed and free; the checkpoint before was whole meanwhile; the next one came to be."""
    (warning,) = (line for line in lines.said if FAILED in line)
    assert warning.startswith(f"warning: {output / 'checkpoints'}: {FAILED}")
    needed, free = (
        int(warning.split(what)[0].split()[-1].replace(",", "")) for what in (" bytes are n", " bytes are f")
    )
    (file,) = (output / "checkpoints" / "step-00000006" / "tensors").iterdir()
    assert 0.8 * file.stat().st_size < needed < file.stat().st_size
    assert free >= 0
    assert "older checkpoints are intact" in warning and warning.endswith("; the run goes on")
    assert seen == ["step-00000002"]
    assert [c.name for c in committed(output / "checkpoints")] == ["step-00000006", "step-00000002"]
    assert [row["step"] for row in rows_of(output / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", place], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a file system: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_run_goes_on_when_the_disk_is_full_and_saves_again_when_it_is_not(small_disk: Path) -> None:
    output, filler = small_disk / "run", small_disk / "filler"
    whole: list[str] = []

    def fill(row: Mapping[str, Any]) -> None:
        if row["step"] == 3:
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(bytes(4096)):
                    continue
        if row["step"] == 5:
            whole.extend(c.name for c in committed(output / "checkpoints") if verify(c) is None)
            filler.unlink()

    lines = Lines(fill)
    train_model(small_run(output, checkpoint={"every_steps": 2}), registry=ticks_registry(), reporter=lines)
    assert_went_on(output, lines, whole)


def test_rows_of_metrics_that_a_full_disk_does_not_take_are_written_once_it_does(small_disk: Path) -> None:
    output, filler = small_disk / "run", small_disk / "filler"
    held: list[int] = []

    def fill(row: Mapping[str, Any]) -> None:
        if row["step"] == 3:
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(bytes(4096)):
                    continue
        if row["step"] == 25:
            held.append(len(rows_of(output / "metrics.jsonl")))
            filler.unlink()

    lines = Lines(fill)
    config = small_run(output, train={"steps": 30}, checkpoint={"every_steps": 100})
    train_model(config, registry=ticks_registry(), reporter=lines)
    assert held[0] < 25
    (warning,) = (line for line in lines.said if "metrics.jsonl" in line)
    assert warning.startswith(f"warning: {output / 'metrics.jsonl'}: cannot write (No space left on device); ")
    assert warning.endswith("and 0 bytes are free; its rows wait for room and the run goes on")
    assert [row["step"] for row in rows_of(output / "metrics.jsonl")] == list(range(1, 31))


def test_a_run_goes_on_when_files_may_not_grow_as_large_as_a_checkpoint(tmp_path: Path) -> None:
    output = tmp_path / "run"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    whole: list[str] = []

    def limit(row: Mapping[str, Any]) -> None:
        if row["step"] == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, limits[1]))
        if row["step"] == 5:
            whole.extend(c.name for c in committed(output / "checkpoints") if verify(c) is None)
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    lines = Lines(limit)
    try:
        train_model(small_run(output, checkpoint={"every_steps": 2}), registry=ticks_registry(), reporter=lines)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_went_on(output, lines, whole)


def test_a_step_that_was_made_already_is_not_said_to_be_left_out(tmp_path):
    over = {"train": {"release_gradients": True, "clip_norm": None, "steps": 6}, "guard": {"non_finite": "skip"}}
    config, _ = broken_at(tmp_path / "run", "infinite", [4], **over)
    config = config.model_copy(update={"data": config.data.model_copy(update={"lanes": 1})})
    with pytest.raises(TrainingError, match="parameters may have been changed"):
        train_model(config, registry=ticks_registry())


@pytest.mark.parametrize("action", ["roll_back", "skip"])
def test_steps_that_a_guard_takes_away_are_not_productive(tmp_path, action):
    config, _ = broken_at(
        tmp_path / "run",
        "infinite",
        [4],
        guard={"non_finite": action},
        checkpoint={"every_steps": 2},
        train={"steps": 8},
    )
    train_model(config, registry=ticks_registry())
    report = summary(read_rows(tmp_path / "run" / "goodput.jsonl"))
    assert report.steps == 8
    assert report.seconds["lost_work" if action == "roll_back" else "skipped_steps"] > 0
    assert report.lost_steps == (1 if action == "roll_back" else 0)


def test_scorings_of_steps_that_were_rolled_back_do_not_count_for_an_early_stop(tmp_path: Path) -> None:
    over = {
        "train": {"steps": 12, "schedule": "constant"},
        "guard": {"non_finite": "roll_back"},
        "checkpoint": {"every_steps": 4, "keep_last": 9},
        "evaluate": {"every_steps": 1, "patience": 8, "least_gain": 99.0, "max_documents": 4},
    }
    config, _ = broken_at(tmp_path / "run", "infinite", [8], **over)
    assert train_model(config, registry=ticks_registry()).step == 8  # without a gain on the scoring before the first


def test_after_a_roll_back_a_stop_saves_where_the_data_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, _ = broken_at(
        tmp_path / "run", "infinite", [3], guard={"non_finite": "roll_back"}, checkpoint={"every_steps": 2}
    )
    back = Session._roll_back

    def then_stop(session: Session) -> None:
        back(session)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Session, "_roll_back", then_stop)
    with pytest.raises(Interrupted, match="stopped at step 2 of 6"):
        train_model(config, registry=ticks_registry())
    lines = Lines()
    resume_run(tmp_path / "run", registry=ticks_registry(), reporter=lines)
    assert not [line for line in lines.said if "not finite" in line]


def test_what_was_wrong_before_a_roll_back_stays_noted_after_a_stop_and_resume(tmp_path: Path) -> None:
    config, _ = broken_at(
        tmp_path / "run", "infinite", [4], guard={"non_finite": "roll_back"}, checkpoint={"every_steps": 2}
    )
    seen: list[int] = []

    def stop(row: Mapping[str, Any]) -> None:
        seen.append(row["step"])
        if seen == [1, 2, 3, 3]:  # once more, with the documents that followed
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="stopped at step 3"):
        train_model(config, registry=ticks_registry(), reporter=Lines(stop))
    before = rows_of(tmp_path / "run" / "guards.jsonl")
    assert [row["step"] for row in before] == [4]
    resume_run(tmp_path / "run", registry=ticks_registry())
    assert rows_of(tmp_path / "run" / "guards.jsonl") == before
