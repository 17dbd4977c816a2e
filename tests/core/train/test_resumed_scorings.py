"""Scorings of a run that goes on: which are taken again, and which count."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from kosmos import ConfigError
from kosmos.checkpoint.folder import digest
from kosmos.lock import LockedPlugin, PluginLock
from kosmos.train.progress import Reporter
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of, small_run, ticks_registry


class Said(Reporter):
    """Keeps the lines."""

    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)


def cut_off(run, step, early):
    """As a stop in the scoring of a step leaves a run, whose checkpoint knows nothing of the scoring."""
    for newer in [folder for folder in (run / "checkpoints").iterdir() if int(folder.name[5:]) > step]:
        shutil.rmtree(newer)
    state = run / "checkpoints" / f"step-{step:08d}" / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "early": early}))
    manifest = json.loads((state.parent / "manifest.json").read_text())
    manifest["sha256"]["state.json"] = digest(state)
    (state.parent / "manifest.json").write_text(json.dumps(manifest))


def test_a_scoring_that_was_stopped_is_taken_as_the_run_goes_on(tmp_path):
    registry, run = ticks_registry(), tmp_path / "run"
    every = {"evaluate": {"every_steps": 3, "patience": 9}, "checkpoint": {"every_steps": 3, "keep_last": 9}}
    whole = train_model(small_run(run, **every), registry=registry)
    cut_off(run, 3, {"best": None, "best_step": 0, "since": 0, "looked": 0})
    rows = rows_of(run / "held_out.jsonl")
    (run / "held_out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows if row["step"] != 3))
    said = Said()
    result = resume_run(run, registry=registry, reporter=said)
    assert [row["step"] for row in rows] == [0, 3, 6]
    assert rows_of(run / "held_out.jsonl") == rows
    assert [line for line in said.lines if line.startswith("step 3  held out: loss ")]
    assert result.before == whole.before
    assert result.after == whole.after


NO_GAIN = {"train": {"steps": 12, "schedule": "constant"}, "checkpoint": {"every_steps": 2, "keep_last": 9}}
NO_GAIN["evaluate"] = {"every_steps": 2, "patience": 4, "least_gain": 99.0, "max_documents": 4}
"""Ends at step 8: no scoring is a gain on the one before the first step."""


def test_a_scoring_that_was_taken_again_counts_though_the_run_is_killed_before_it_saves(tmp_path):
    registry, run = ticks_registry(), tmp_path / "run"
    assert train_model(small_run(run, **NO_GAIN), registry=registry).step == 8
    first = json.loads((run / "checkpoints" / "step-00000002" / "state.json").read_text())["early"]
    cut_off(run, 4, first)  # its row stands in held_out.jsonl: it was taken again, and then the run was killed
    assert resume_run(run, registry=registry).step == 8


def test_a_run_that_was_begun_without_counting_the_scoring_before_its_first_step_goes_on_so(tmp_path):
    """As of versions before: their checkpoints do not say that it counts, and no later one says that it does."""
    registry, run = ticks_registry(), tmp_path / "run"
    assert train_model(small_run(run, **NO_GAIN), registry=registry).step == 8
    losses = {row["step"]: row["held_out"]["overall"]["loss"] for row in rows_of(run / "held_out.jsonl")}
    cut_off(run, 4, {"best": losses[2], "best_step": 2, "since": 1, "looked": 4, "documents": 4, "by": None})
    assert resume_run(run, registry=registry).step == 10
    state = json.loads((run / "checkpoints" / "step-00000010" / "state.json").read_text())
    assert (state["early"]["best_step"], state["early"]["from_first"]) == (2, False)
    cut_off(run, 4, {"best": losses[2], "best_step": 2, "since": 1, "looked": 4, "documents": 4, "by": "ticks"})
    assert resume_run(run, registry=registry).step == 10  # counted anew, as it compares by something else


def test_a_run_that_is_resumed_at_its_end_is_not_scored_again(tmp_path):
    registry, run, said = ticks_registry(), tmp_path / "run", Said()
    whole = train_model(small_run(run), registry=registry)
    written = (run / "held_out.jsonl").read_bytes()
    result = resume_run(run, {"data": {"workers": 1}}, registry=registry, reporter=said)
    assert (result.before, result.after, result.step) == (whole.before, whole.after, 6)
    assert (run / "held_out.jsonl").read_bytes() == written
    assert "step 6 was scored already, as held_out.jsonl tells" in said.lines


@pytest.mark.parametrize("what", ["settings", "plugins", "the row"])
def test_a_run_that_is_resumed_at_its_end_is_scored_where_its_row_may_not_tell(tmp_path, what):
    registry, run, given = ticks_registry(), tmp_path / "run", {}
    before = train_model(small_run(run), registry=registry).after
    if what == "settings":
        given = {"evaluate": {"max_documents": 2}}
    elif what == "plugins":
        lock = PluginLock((LockedPlugin("gone", "acme-gone", "1.0", {}),))
        (run / "plugins.lock.json").write_text(lock.text())
    else:
        rows = rows_of(run / "held_out.jsonl")
        (run / "held_out.jsonl").write_text(json.dumps(rows[0]) + "\n")
    after = resume_run(run, given, registry=registry, accept_plugins=True).after
    rows = rows_of(run / "held_out.jsonl")
    assert [row["step"] for row in rows] == ([0, 6] if what == "the row" else [0, 6, 6])
    assert rows[-1]["held_out"]["overall"]["documents"] == after.overall.documents
    assert (after.overall.documents < before.overall.documents) == (what == "settings")
    again = resume_run(run, registry=registry)  # what it was scored with is kept
    assert again.after == after and rows_of(run / "held_out.jsonl") == rows


def test_the_scoring_that_ends_a_run_early_is_its_last(tmp_path):
    registry, run = ticks_registry(), tmp_path / "run"
    result = train_model(small_run(run, **NO_GAIN), registry=registry)
    rows = rows_of(run / "held_out.jsonl")
    assert [row["step"] for row in rows] == [0, 2, 4, 6, 8]
    assert rows[-1]["held_out"]["overall"]["loss"] == result.after.overall.loss


def test_the_scoring_after_the_last_step_counts_where_the_run_gets_more_steps(tmp_path):
    registry, run = ticks_registry(), tmp_path / "run"
    train_model(small_run(run, **{**NO_GAIN, "train": {"steps": 4, "schedule": "constant"}}), registry=registry)
    assert resume_run(run, {"train": {"steps": 12}}, registry=registry).step == 8


def test_a_run_that_is_resumed_for_fewer_steps_than_it_took_keeps_its_own(tmp_path):
    registry, run, said = ticks_registry(), tmp_path / "run", Said()
    train_model(small_run(run), registry=registry)
    before = (run / "run.yaml").read_bytes()
    result, line = resume_run(run, {"train": {"steps": 2}}, registry=registry, reporter=said), "step 6 of 2 was taken"
    assert result.step == 6
    assert f"warning: {line} already: nothing is trained" in said.lines
    assert f"{line} already: nothing is trained" in result.warnings
    assert (run / "run.yaml").read_bytes() == before


def test_scores_between_steps_are_said_once(tmp_path):
    registry, said = ticks_registry(), Said()
    every = {"evaluate": {"every_steps": 2}, "checkpoint": {"every_steps": 2, "keep_last": 9}}
    train_model(small_run(tmp_path / "run", **every), registry=registry, reporter=said)
    told = [line for line in said.lines if "held out: loss" in line]
    assert [line.split("  ")[0] for line in told] == ["step 2", "step 4"]
    assert all(re.fullmatch(r"step \d  held out: loss \d\.\d{4}, \d+\.\d % right", line) for line in told)
    (tmp_path / "run" / "checkpoints" / "step-00000006").rename(tmp_path / "gone")
    again = Said()
    resume_run(tmp_path / "run", registry=registry, reporter=again)
    assert not [line for line in again.lines if line.startswith("step 4  held out")]


def test_a_run_begun_when_every_nth_document_was_scored_goes_on_so(tmp_path):
    registry, run, scored = ticks_registry(), tmp_path / "run", {"evaluate": {"max_documents": 5, "spread": "even"}}
    whole = train_model(small_run(run, **scored), registry=registry)
    drawn = train_model(small_run(tmp_path / "drawn", evaluate={"max_documents": 5}), registry=registry)
    assert whole.before != drawn.before
    file = run / "run.yaml"
    assert "\n  spread: even\n" in file.read_text()
    file.write_text(file.read_text().replace("\n  spread: even\n", "\n"))  # as earlier versions wrote it
    (run / "held_out.jsonl").write_text(json.dumps(rows_of(run / "held_out.jsonl")[0]) + "\n")
    assert resume_run(run, registry=registry).after == whole.after
    with pytest.raises(ConfigError, match=r"evaluate\.spread: the run in \S+ keeps even, since .*; leave it out"):
        resume_run(run, {"evaluate": {"spread": "drawn"}}, registry=registry)
