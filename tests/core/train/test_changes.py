"""What a run that goes on does otherwise than before, and what it keeps of that."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kosmos import ScheduleSpec, hookimpl
from kosmos.checkpoint.folder import committed
from kosmos.cli import main
from kosmos.train.branch import branch
from kosmos.train.output import RunFolder
from kosmos.train.progress import Reporter
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of, small_run, ticks_registry


class Said(Reporter):
    """Keeps the lines, and is gone after a step if it is told to."""

    def __init__(self, gone_after: int | None = None) -> None:
        self.lines: list[str] = []
        self.gone_after = gone_after

    def say(self, line: str) -> None:
        self.lines.append(line)

    def step(self, row: Any, steps: int) -> None:
        if row["step"] == self.gone_after:
            raise Gone


class Gone(BaseException):
    """As of a process that is killed: behind a reporter's mistake the run is saved."""


def stairs(steps: int, warmup_steps: int) -> Callable[[int], float]:
    """Twice as much from the sixth step on."""
    return lambda step: 0.5 if step < 5 else 1.0


class Stairs:
    KOSMOS_API = 1

    @hookimpl
    def kosmos_schedules():
        return [ScheduleSpec(name="stairs", target=f"{__name__}:stairs", summary="Rises by itself.")]


REGISTRY = ticks_registry(stairs=Stairs)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps, with checkpoints of the third and the last."""
    output = tmp_path_factory.mktemp("changes") / "run"
    train_model(small_run(output, checkpoint={"every_steps": 3}), registry=REGISTRY)
    return output


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def resume(
    run: Path,
    over: dict[str, Any] | None = None,
    gone_after: int | None = None,
    of: str | tuple[str, ...] = "changed: ",
) -> list[str]:
    """Lines that it said of changes."""
    said = Said(gone_after)
    try:
        resume_run(run, over, registry=REGISTRY, reporter=said)
    except Gone:
        assert gone_after is not None
    return [line for line in said.lines if line.startswith(of)]


def changes(run: Path) -> list[tuple[int, Any]]:
    return [(row["step"], row["changed"]) for row in rows_of(run / "changes.jsonl")]


MORE = {"train": {"steps": 8, "weight_decay": 50.0, "optimizer": {"betas": [0.8, 0.9]}}, "trackers": []}
CHANGED = {"train.steps": [6, 8], "train.optimizer.betas": [None, [0.8, 0.9]], "train.weight_decay": [0.1, 50.0]}


def test_a_run_that_goes_on_with_other_settings_says_and_keeps_which(run: Path, capsys) -> None:
    words = "train.steps 6 -> 8, train.optimizer.betas null -> [0.8, 0.9], train.weight_decay 0.1 -> 50.0"
    assert resume(run, MORE) == [f"changed: {words}"]
    (row,) = rows_of(run / "changes.jsonl")
    launches = {found["launch"] for found in rows_of(run / "goodput.jsonl")}
    assert (row["step"], row["changed"]) == (7, CHANGED) and row["launch"] in launches
    assert resume(run, MORE) == resume(run) == []
    assert changes(run) == [(7, CHANGED)]
    assert main(["report", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] == [row]
    assert main(["report", str(run)]) == 0
    assert f"changed    from step 7 on: {words}" in capsys.readouterr().out.splitlines()


def test_a_run_that_goes_on_as_it_was_keeps_and_lists_no_changes(run: Path, capsys) -> None:
    shutil.rmtree(committed(run / "checkpoints")[0])
    assert resume(run) == []
    assert not (run / "changes.jsonl").exists()
    assert main(["report", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] == []


def test_changes_stay_as_the_run_file_does_where_their_steps_are_taken_again(run: Path) -> None:
    resume(run, {"train": {"steps": 9, "weight_decay": 0.2}}, gone_after=8)  # no step of it was saved
    assert changes(run) == [(7, {"train.steps": [6, 9], "train.weight_decay": [0.1, 0.2]})]
    shutil.rmtree(run / "checkpoints" / "step-00000006")
    assert resume(run, {"train": {"steps": 8}}) == ["changed: train.steps 9 -> 8"]
    assert [step for step, _ in changes(run)] == [4, 4]


def test_what_no_step_was_taken_with_is_no_change(run: Path) -> None:
    assert resume(run, {"train": {"steps": 5}}) == []
    resume(run, {"train": {"steps": 5, "weight_decay": 0.2}})
    assert not (run / "changes.jsonl").exists()


def test_a_run_that_is_done_takes_nothing_but_what_it_is_scored_by(run: Path) -> None:
    written = (run / "run.yaml").read_bytes()
    other = {"train": {"weight_decay": 0.2, "max_time": "1d"}, "guard": {"spike": 3.0}}
    for rate in ({"backbone": {"learning_rate": 1e-3}}, {"streams": {"ticks": {"connector_learning_rate": 1e-3}}}):
        (line,) = resume(run, {**other, **rate}, of="step 6 of 6 was taken already: nothing is trained")
        assert "its settings stay, without " in line and "train.weight_decay 0.1 -> 0.2" in line
        assert "0.001" in line and "guard.spike null -> 3.0" in line
        assert line.endswith("go on with more train.steps, or train a run of its own in another --output")
        assert (run / "run.yaml").read_bytes() == written
    assert not (run / "changes.jsonl").exists()
    assert resume(run, {**other, "evaluate": {"max_documents": 2}}) == ["changed: evaluate.max_documents 512 -> 2"]
    assert changes(run) == [(7, {"evaluate.max_documents": [512, 2]})]
    assert resume(run, {"train": {"steps": 7, "weight_decay": 0.2}}) == [
        "changed: train.steps 6 -> 7, train.weight_decay 0.1 -> 0.2"
    ]


def test_a_run_that_stopped_early_takes_nothing_that_it_takes_no_step_with(tmp_path: Path) -> None:
    run, never = tmp_path / "run", {"every_steps": 1, "patience": 1, "least_gain": 99.0, "max_documents": 4}
    stopped = train_model(small_run(run, evaluate=never), registry=REGISTRY).step
    written = (run / "run.yaml").read_bytes()
    (line,) = resume(run, {"train": {"weight_decay": 0.2}}, of="the run had stopped early at step ")
    assert line.startswith(f"the run had stopped early at step {stopped} of 6: nothing is trained, and its settings ")
    assert "without train.weight_decay 0.1 -> 0.2; go on with more evaluate.patience, or train" in line
    assert (run / "run.yaml").read_bytes() == written
    (line,) = resume(run, {"train": {"learning_rate": 1.0}}, of=("the run had stopped early at step ", RATE))
    assert "without train.learning_rate" in line
    over = {"train": {"weight_decay": 0.2}, "evaluate": {"patience": 2}}
    assert resume(run, over) == ["changed: train.weight_decay 0.1 -> 0.2, evaluate.patience 1 -> 2"]


RATE = "warning: the learning rate"
WSD = {"steps": 10, "warmup_steps": 2, "schedule": "wsd", "learning_rate": 3e-4}


def rates(run: Path) -> list[float]:
    return [row["learning_rate"] for row in rows_of(run / "metrics.jsonl")]


def test_a_learning_rate_that_jumps_up_as_a_run_goes_on_is_warned_of_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_model(small_run(run, train=WSD), registry=REGISTRY)
    (line,) = resume(run, {"train": {"steps": 13, "learning_rate": 5e-4}}, of=RATE)
    assert (rates(run)[9], rates(run)[10]) == pytest.approx((1.5e-4, 5e-4))
    assert line == (
        "warning: the learning rate was 1.50e-04 at step 10 and is 5.00e-04 at step 11: wsd over 13 steps now has 100% "
        "of the peak 5.00e-04 there, and the loss may rise. To go on evenly set train.learning_rate=1.50e-04; if the "
        "rate had come down before, begin from a checkpoint from before that (kosmos checkpoint branch)"
    )


def test_the_part_whose_learning_rate_jumps_is_named(tmp_path: Path) -> None:
    run, own = tmp_path / "run", {"streams": {"ticks": {"learning_rate": 1e-4}}}
    train_model(small_run(run, train={**WSD, "schedule": "constant"}, **own), registry=REGISTRY)
    (line,) = resume(run, {"train": {"steps": 11}, "streams": {"ticks": {"learning_rate": 2e-4}}}, of=RATE)
    assert line.startswith(f"{RATE} of streams.ticks was 1.00e-04 at step 10 and is 2.00e-04 at step 11: constant over")
    assert "set streams.ticks.learning_rate=1.00e-04;" in line


def test_a_warmup_that_grows_with_the_steps_is_over_at_once_where_it_was_over(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_model(small_run(run, train={"steps": 10, "warmup_steps": 0.2, "learning_rate": 5e-4}), registry=REGISTRY)
    assert rates(run)[9] < 1e-4
    (line,) = resume(run, {"train": {"steps": 100}}, gone_after=12, of=RATE)
    assert line.startswith("warning: the learning rate was")


@pytest.fixture(scope="module")
def plateau(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ten steps, two of them warmup, cut off behind the fifth."""
    folder = tmp_path_factory.mktemp("warm")
    run, branched = folder / "run", folder / "branched"
    train = {"steps": 10, "warmup_steps": None, "schedule": "wsd", "learning_rate": 1e-3}
    train_model(small_run(run, train=train, checkpoint={"keep_every": 1}, data={"lanes": 1}), registry=REGISTRY)
    branch(RunFolder.open(run), 5, branched)
    return branched


@pytest.mark.parametrize("share", [{}, {"warmup_steps": 0.2}], ids=["default", "share"])
def test_a_longer_run_does_not_begin_its_warmup_again(plateau: Path, tmp_path: Path, share: dict[str, float]) -> None:
    run = Path(shutil.copytree(plateau, tmp_path / "run"))
    if share:  # as the file of a run has it that is always started with --auto-resume
        file = run / "run.yaml"
        file.write_text(file.read_text().replace("warmup_steps: null", "warmup_steps: 0.2"))
    longer = {"train": {"steps": 100, "schedule": "wsd", **share}}
    (changed,) = resume(run, longer, gone_after=7, of="changed: train.")
    assert changed.endswith(f"train.steps 10 -> 100, train.warmup_steps {share.get('warmup_steps', 'null')} -> 2")
    assert resume(run, longer, gone_after=8, of=("warning: the learning rate", "changed: train.")) == []
    assert rates(run)[4:] == pytest.approx([1e-3] * len(rates(run)[4:])) and rates(run)[0] < 5e-4


def test_a_warmup_that_begins_again_is_warned_of(plateau: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(plateau, tmp_path / "run"))
    (line,) = resume(run, {"train": {"warmup_steps": 9}}, gone_after=6, of=RATE)
    assert line == (
        "warning: the learning rate was 1.00e-03 at step 5 and is 6.00e-04 at step 6, since the warmup now takes 9 "
        "steps, 2 before; to go on evenly set train.warmup_steps=2"
    )


def test_within_the_warmup_it_is_reckoned_by_the_steps_that_there_are(plateau: Path, tmp_path: Path) -> None:
    early = tmp_path / "early"
    branch(RunFolder.open(plateau.parent / "run"), 1, early)
    (line,) = resume(early, {"train": {"steps": 100}}, gone_after=2, of=RATE)
    assert line.endswith("since the warmup now takes 20 steps, 2 before; to go on evenly set train.warmup_steps=2")


@pytest.mark.parametrize(
    ("schedule", "step", "over"),
    [
        ("wsd", 1, {}), ("wsd", 3, {}), ("wsd", 8, {}), ("wsd", 8, {"steps": 9, "learning_rate": 2e-4}),
        ("wsd", 10, {"learning_rate": 9.0}), ("stairs", 5, {}),
    ],
    ids=["in the warmup", "as it was", "on the way down", "lower", "after the last step", "a schedule that rises"],
)  # fmt: skip
def test_of_other_learning_rates_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str, step: int, over: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(stairs=stairs))
    run = tmp_path / "run"
    train = {**WSD, "schedule": schedule}
    config = small_run(run, train=train, checkpoint={"keep_every": 1}, data={"lanes": 1})
    train_model(config, registry=REGISTRY)
    for checkpoint in committed(run / "checkpoints")[: 10 - step]:
        shutil.rmtree(checkpoint)
    before = rates(run)
    assert resume(run, {"train": over}, gone_after=min(step + 1, 10), of=RATE) == []
    assert over or rates(run)[: step + 1] == before[: step + 1]


def test_a_rate_that_no_part_is_trained_at_is_warned_of_where_it_is_stated(tmp_path: Path) -> None:
    run, said = tmp_path / "run", Said()
    own = {"backbone": {"learning_rate": 1e-3}, "streams": {"ticks": {"learning_rate": 1e-3}}}
    train_model(small_run(run, train={"steps": 1, "learning_rate": 0.5}, **own), registry=REGISTRY, reporter=said)
    of = "warning: train.learning_rate"
    counts = "no part is trained at it, since each has a rate of its own (backbone.learning_rate, "
    counts += "streams.ticks.learning_rate); set these, or leave"
    assert [line for line in said.lines if line.startswith(of)] == [f"{of} 0.5: {counts} them out"]
    assert resume(run, {"train": {"steps": 2}}, of=of) == []
    assert resume(run, {"train": {"steps": 3, "learning_rate": 0.1}}, of=of) == [f"{of} 0.1: {counts} them out"]
