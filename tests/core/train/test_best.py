"""The checkpoint of the lowest held-out loss: which it is, that it is kept, and that it can be asked for."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from kosmos import load_run
from kosmos.checkpoint.folder import committed, step_of
from kosmos.checkpoint.saver import Saver
from kosmos.cli import main
from kosmos.errors import CheckpointError, ConfigError
from kosmos.runtime.parallel import Parallel
from kosmos.train.best import best_step, ranked, values, worse_than_begun
from kosmos.train.progress import Reporter
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of, small_run, ticks_registry

GOOD = {
    "train": {"steps": 6, "learning_rate": 0.01, "warmup_steps": 0, "schedule": "constant"},
    "checkpoint": {"every_steps": 50, "keep_last": 1, "keep_best": True},
    "evaluate": {"every_steps": 1, "max_documents": 8},
}
"""Its loss falls."""
WORSE = {"train": {"steps": 12, "learning_rate": 3.0}}
"""After six more such steps it is far above."""


class Said(Reporter):
    """Keeps the lines."""

    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)


def row(step, loss, documents=4, source="a", unread=0):
    """Of a scoring; an old one where nothing was left unread."""
    more = {"unread": {source: unread}} if unread else {}
    told = {"overall": {"documents": documents, "loss": loss}, "source": {source: {"documents": documents}}, **more}
    return {"step": step, "held_out": told}


def steps_of(run):
    return [step_of(checkpoint) for checkpoint in committed(run / "checkpoints")]


def lowest(run):
    """Of the scorings behind a step, by the ledger."""
    scored = {r["step"]: r["held_out"]["overall"]["loss"] for r in rows_of(run / "held_out.jsonl") if r["step"]}
    return min(scored, key=lambda step: (scored[step], step))


def test_the_best_is_the_first_of_the_lowest_among_those_that_compare():
    rows = [row(1, 0.1, documents=9), row(2, 3.0), row(3, 2.0), row(4, None), row(5, 2.0), {"step": 6}, row(7, 9.0)]
    assert values(rows) == {2: 3.0, 3: 2.0, 5: 2.0, 7: 9.0}
    assert best_step(rows) == 3
    assert best_step(rows, [5, 7]) == 5
    assert best_step(rows, [1, 4, 6]) is None
    assert best_step([*rows, row(8, float("nan")), row(9, 5.0, documents=0)], [7, 8, 9]) == 7
    assert best_step([]) is None


def test_scorings_compare_where_the_same_was_tried_and_as_much_was_read():
    flaky = [row(1, 2.0), row(2, 0.5, documents=3, unread=1), row(3, 3.0)]
    assert values(flaky) == {1: 2.0, 3: 3.0}  # what one document less gives wins nothing
    assert values(flaky[:2]) == {1: 2.0}  # nor does it make what was before incomparable
    always = [row(1, 2.0, documents=3, unread=1), row(2, 1.0, documents=3, unread=1)]
    assert best_step(always) == 2
    others = [row(1, 0.5, source="easy"), row(2, 3.0), row(3, 2.5)]
    assert values(others) == {2: 3.0, 3: 2.5}


def test_scorings_of_before_cut_documents_counted_once_compare_by_their_pieces():
    def cut(step, loss):
        part = {"documents": 3, "pieces": 9, "loss": loss}
        return {"step": step, "held_out": {"overall": part, "source": {"a": part}}}

    rows = [row(1, 1.0, documents=9), cut(2, 2.0), cut(3, 1.5)]
    assert values(rows) == {1: 1.0, 2: 2.0, 3: 1.5}
    assert best_step(rows) == 1


@pytest.fixture(scope="module")
def worse(tmp_path_factory):
    """A run that was good and became worse, and what it said."""
    run, said = tmp_path_factory.mktemp("best") / "run", Said()
    train_model(small_run(run, **GOOD), registry=ticks_registry())
    resume_run(run, WORSE, registry=ticks_registry(), reporter=said)
    return run, said.lines


def test_the_best_checkpoint_outlives_newer_ones_until_a_better_one(worse, tmp_path, capsys):
    registry, run = ticks_registry(), tmp_path / "run"
    shutil.copytree(worse[0], run)
    best = lowest(run)
    assert best <= 6  # else this would show nothing
    assert steps_of(run) == [12, best]
    assert f"of what is saved step {best} has the lowest held-out loss; --step best takes it" in worse[1]
    assert load_run(run, step="best", device="cpu", registry=registry).step == best
    assert load_run(run, device="cpu", registry=registry).step == 12

    assert main(["checkpoint", "ls", str(run), "--json"]) == 0
    told = {one["step"]: one["held_out_loss"] for one in json.loads(capsys.readouterr().out)}
    assert min(told, key=told.get) == best
    assert main(["checkpoint", "ls", str(run)]) == 0
    assert [" best " in line for line in capsys.readouterr().out.splitlines()] == [True, False]
    assert main(["checkpoint", "prune", str(run)]) == 0
    assert steps_of(run) == [12, best]
    assert main(["checkpoint", "prune", str(run), "--no-keep-best"]) == 0
    assert steps_of(run) == [12]


def test_a_best_that_the_last_scoring_beats_is_not_left_behind(tmp_path):
    train_model(
        small_run(tmp_path, **{**GOOD, "evaluate": {"every_steps": 4, "max_documents": 8}}), registry=ticks_registry()
    )
    assert [r["step"] for r in rows_of(tmp_path / "held_out.jsonl")] == [0, 4, 6]
    assert lowest(tmp_path) == 6
    assert steps_of(tmp_path) == [6]


def test_who_saves_nothing_deletes_nothing(tmp_path):
    """A run that is asked for fewer steps than it has takes none, and its newest checkpoint may be damaged."""
    config = small_run(tmp_path, **{**GOOD, "checkpoint": {"every_steps": 2, "keep_last": 9, "keep_best": True}})
    train_model(config, registry=ticks_registry())
    (tmp_path / "checkpoints" / "step-00000006" / "state.json").write_text("{}")
    before = steps_of(tmp_path)
    resume_run(tmp_path, {"train": {"steps": 3}, "checkpoint": {"keep_last": 1}}, registry=ticks_registry())
    assert steps_of(tmp_path) == before


def test_the_best_stays_while_a_run_is_resumed_and_one_that_is_lost_is_passed_over(worse, tmp_path):
    registry, run = ticks_registry(), tmp_path / "run"
    shutil.copytree(worse[0], run)
    resume_run(run, {"train": {"steps": 14}}, registry=registry)
    best = best_step(rows_of(run / "held_out.jsonl"), range(1, 14))
    assert steps_of(run) == [14, best]
    shutil.rmtree(run / "checkpoints" / f"step-{best:08d}")
    resume_run(run, {"train": {"steps": 16}}, registry=registry)
    assert steps_of(run) == [16, best_step(rows_of(run / "held_out.jsonl"), {14, 15})]  # none before is there


def test_a_damaged_best_is_passed_over_by_who_takes_it_and_by_who_prunes(worse, tmp_path, capsys):
    registry, run = ticks_registry(), tmp_path / "run"
    shutil.copytree(worse[0], run)
    resume_run(run, {"train": {"steps": 13}, "checkpoint": {"keep_last": 3}}, registry=registry)
    best, saved = lowest(run), steps_of(run)
    (run / "checkpoints" / f"step-{best:08d}" / "state.json").write_text("{}")
    next_best = ranked(rows_of(run / "held_out.jsonl"), set(saved) - {best})[0]
    with pytest.warns(UserWarning, match=rf"damaged checkpoint: .*step-{best:08d}: state\.json does not match") as told:
        found = load_run(run, step="best", device="cpu", registry=registry)
    assert found.step == next_best and found.warnings() == [str(told[-1].message)]
    assert main(["checkpoint", "ls", str(run)]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines() if " best " in line] == [str(next_best)]
    assert main(["checkpoint", "prune", str(run), "--keep-last", "1"]) == 0
    assert next_best in steps_of(run)


def test_a_damaged_best_that_a_run_went_on_from_before_takes_the_place_of_no_whole_one(tmp_path):
    rows = [row(step, loss) for step, loss in ((1, 2.0), (2, 3.0), (3, 1.0))]

    def saver(keep_last):
        return Saver(tmp_path, Parallel(), keep_last=keep_last, best=lambda steps: best_step(rows, steps))

    first = saver(3)
    for step in (1, 2, 3):
        first.save(step, {"model.w": torch.ones(2)}, {"step": step})
    first.wait()
    (tmp_path / "step-00000003" / "state.json").write_text("{}")
    second = saver(1)
    second.went_on_from(2)
    second.save(4, {"model.w": torch.ones(2)}, {"step": 4})
    second.wait()
    assert [step_of(checkpoint) for checkpoint in committed(tmp_path)] == [4, 1]


def test_without_it_only_the_last_are_kept_and_best_is_among_them(tmp_path, capsys):
    registry, run = ticks_registry(), tmp_path / "run"
    train_model(small_run(run, checkpoint={"every_steps": 2, "keep_last": 1}), registry=registry)
    assert steps_of(run) == [6]
    assert load_run(run, step="best", device="cpu", registry=registry).step == 6
    (run / "held_out.jsonl").unlink()
    with pytest.raises(CheckpointError, match="no whole checkpoint is of a step that was scored; checkpoints: 6; scor"):
        load_run(run, step="best", device="cpu", registry=registry)
    assert main(["export", str(run), str(tmp_path / "model.safetensors"), "--step", "bset"]) == 2
    assert "--step: expected the number of a step, or best, got 'bset'" in capsys.readouterr().err


def test_it_is_refused_where_nothing_scores_in_between(tmp_path):
    line = "checkpoint.keep_best: keeps what scored best during training: set evaluate.every_steps too"
    with pytest.raises(ConfigError, match=line):
        train_model(small_run(tmp_path / "run", checkpoint={"keep_best": True}), registry=ticks_registry())
    assert not (tmp_path / "run").exists()


def test_a_run_that_only_gets_worse_says_so_and_so_does_who_takes_its_best(tmp_path, recwarn):
    good = small_run(tmp_path / "good", train={"steps": 12, "learning_rate": 3e-3})
    train_model(good, registry=ticks_registry())
    harms = {"steps": 6, "learning_rate": 0.5, "warmup_steps": 0, "schedule": "constant"}
    more = {"evaluate": {"every_steps": 1, "patience": 2}, "checkpoint": {"keep_best": True}}
    run = small_run(tmp_path / "run", init=str(tmp_path / "good"), train=harms, **more)
    result = train_model(run, registry=ticks_registry())
    assert result.step == 2
    (said,) = (line for line in result.warnings if line.startswith("no scoring was better than"))
    before, after = (rows_of(result.output / "held_out.jsonl")[i]["held_out"]["overall"]["loss"] for i in (0, 1))
    assert f"before the first step: the held-out loss was {before:.4f}, and since then " in said and after > before
    assert f"; what it began with ({tmp_path / 'good'}) is better than what it saved: lower" in said
    recwarn.clear()
    load_run(result.output, registry=ticks_registry())
    assert not list(recwarn)
    with pytest.warns(UserWarning, match="no scoring was better than the one before the first step"):
        load_run(result.output, step="best", registry=ticks_registry())


def test_equal_scores_and_other_documents_are_no_worse_ones():
    assert worse_than_begun([row(0, 1.0), row(2, 1.0)]) is None
    assert worse_than_begun([row(0, 1.0), row(2, 1.5), row(4, 0.9)]) is None
    assert worse_than_begun([row(0, 1.0, documents=5), row(2, 1.5)]) is None
    assert worse_than_begun([row(2, 1.5)]) is worse_than_begun([row(0, 1.0)]) is worse_than_begun([]) is None
    assert "was 1.0000, and since then 1.5000 at best (step 4);" in worse_than_begun(
        [row(0, 1), row(2, 2), row(4, 1.5)]
    )
