"""What a guard holds to be wrong, from step to step and over a resume."""

from __future__ import annotations

import math

import pytest

from kosmos.config import EvaluateConfig, GuardConfig
from kosmos.evaluate.meters import perplexity
from kosmos.evaluate.score import Score, Scores
from kosmos.train.early import EarlyStopping
from kosmos.train.guards import Guard
from kosmos.train.held_out import row_of
from kosmos.train.output import RunFolder
from kosmos.train.scorings import Scorings
from support.runs import small_run


def guard(**over):
    return Guard(GuardConfig(**over))


def test_a_good_step_between_ends_the_turn():
    one = guard(non_finite="skip", at_most=1)
    found = [one.look(loss, 1.0) for loss in (float("nan"), 1.0, float("nan"))]
    assert [f and f.action for f in found] == ["skip", None, "skip"]


def test_bad_steps_in_turn_are_counted_on_after_a_resume():
    first = guard(non_finite="skip", at_most=2)
    for _ in range(2):
        assert first.look(float("nan"), 1.0).action == "skip"
    second = guard(non_finite="skip", at_most=2)
    second.load(first.state())
    assert second.look(float("nan"), 1.0).action == "stop"


def test_the_seventeenth_step_may_be_a_spike():
    one = guard(spike=2.0)
    assert [one.look(loss, 1.0) for loss in [1.0] * 15 + [9.0]] == [None] * 16
    one = guard(spike=2.0)
    for _ in range(16):
        one.look(1.0, 1.0)
    assert one.look(9.0, 1.0).kind == "spike"


def test_a_gradient_norm_may_be_a_spike_where_the_loss_is_none():
    first = guard(norm_spike=3.0)
    for _ in range(16):
        assert first.look(1.0, 2.0) is None
    second = guard(norm_spike=3.0, on_spike="stop")
    second.load(first.state())
    found = second.look(1.0, 6.5)
    assert (found.kind, found.action, found.text) == ("spike", "stop", "gradient norm 6.5, usually 2: a spike")
    assert second.look(99.0, 5.9) is None


def test_what_was_wrong_is_no_measure():
    one = guard(spike=2.0, at_most=100)
    for _ in range(20):
        one.look(1.0, 1.0)
    one.look(float("nan"), 1.0)
    assert all(one.look(9.0, 1.0).text == "loss 9, usually 1: a spike" for _ in range(40))
    assert one.state()["losses"] == [1.0] * 20


def test_a_gradient_that_is_not_finite_is_wrong_though_the_loss_is_not():
    assert guard().look(1.0, float("inf")).kind == "non_finite"


def test_the_window_stays_after_a_resume():
    one, other = guard(spike=2.0), guard(spike=2.0)
    for _ in range(100):
        one.look(9.0, 1.0)
    other.load(one.state())
    for _ in range(64):
        other.look(1.0, 1.0)
    assert len(other.state()["losses"]) == 64


def scored(loss, documents=7):
    return Score(documents, loss, perplexity(loss), None)


def of_all(score):
    return Scores(score, {}, {}, ())


def test_early_stopping_counts_gains_of_the_least_size():
    early = EarlyStopping(EvaluateConfig(every_steps=1, patience=2, least_gain=0.1))
    seen = []
    for step, loss in enumerate([1.0, 0.95, 0.92], 1):
        early.look(of_all(scored(loss)), step)
        seen.append(early.wanted)
    assert seen == [False, False, True]
    assert early.best_step == 1


def test_a_scoring_of_no_document_says_nothing():
    early = EarlyStopping(EvaluateConfig(every_steps=1, patience=2))
    for step, score in enumerate([scored(1.0), *[scored(math.nan, documents=0)] * 3], 1):
        early.look(of_all(score), step)
    assert not early.wanted
    assert early.state() == {
        "best": 1.0,
        "best_step": 1,
        "since": 0,
        "looked": 4,
        "documents": 7,
        "by": None,
        "from_first": True,
    }
    for step in (5, 6):
        early.look(of_all(scored(2.0)), step)
    assert early.wanted


def test_early_stopping_counts_a_loss_that_is_not_finite_as_one_that_is_no_lower():
    early = EarlyStopping(EvaluateConfig(every_steps=1, patience=2))
    for step, loss in enumerate([1.0, math.inf, math.nan], 1):
        early.look(of_all(scored(loss)), step)
    assert early.wanted
    assert early.state() == {
        "best": 1.0,
        "best_step": 1,
        "since": 2,
        "looked": 3,
        "documents": 7,
        "by": None,
        "from_first": True,
    }


@pytest.mark.parametrize("loss", [0.5, 2.0, math.inf, math.nan])
@pytest.mark.parametrize("documents", [0, 7])
def test_a_scoring_counts_the_same_where_it_is_read_back(tmp_path, loss, documents):
    config = small_run(evaluate={"every_steps": 2, "patience": 3})
    scores = of_all(scored(loss, documents=documents))
    folder = RunFolder(tmp_path)

    def scorings(score):
        one = Scorings(config, score, folder.scores, lambda line: None)
        one.early.load({"best": 1.0, "best_step": 1, "since": 1, "looked": 1})
        return one

    live, resumed = scorings(lambda: scores), scorings(lambda: pytest.fail("stands in held_out.jsonl"))
    live.after(2)
    folder.append(folder.held_out, [row_of(2, scores)])
    resumed.take_up(2)
    assert resumed.early.state() == live.early.state()
