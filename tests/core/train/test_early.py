"""What early stopping compares."""

from __future__ import annotations

import math

from kosmos.config import EvaluateConfig
from kosmos.evaluate.score import Score, Scores
from kosmos.train.early import EarlyStopping


def scored(score: Score, **by_source: Score) -> Scores:
    return Scores(score, {}, by_source, ())


def test_scores_of_another_number_of_documents_begin_anew() -> None:
    """As where a run goes on with another ``evaluate.max_documents``: its other documents may all be harder."""
    before = EarlyStopping(EvaluateConfig(patience=2, every_steps=1))
    before.look(scored(Score(8, 1.0, 2.7, None)), 1)
    before.look(scored(Score(8, 1.5, 4.4, None)), 2)
    after = EarlyStopping(EvaluateConfig(patience=2, every_steps=1))
    after.load(before.state())
    after.look(scored(Score(32, 2.0, 7.4, None)), 3)
    assert (after.best, after.best_step, after.since) == (2.0, 3, 0)
    after.look(scored(Score(32, 1.8, 6.0, None)), 4)
    assert (after.best_step, after.wanted) == (4, False)


def test_pieces_of_cut_documents_are_compared_with_what_was_counted_as_documents_before() -> None:
    before = EarlyStopping(EvaluateConfig(patience=2, every_steps=1))
    before.look(scored(Score(20, 1.0, 2.7, None)), 1)
    before.look(scored(Score(8, 1.5, 4.4, None, pieces=20)), 2)
    assert (before.best, before.best_step, before.since) == (1.0, 1, 1)
    before.look(scored(Score(8, 1.5, 4.4, None, pieces=21)), 3)
    assert (before.best, before.best_step, before.since) == (1.5, 3, 0)


def test_a_loss_that_is_lower_by_too_little_is_not_said_to_be_higher() -> None:
    early = EarlyStopping(EvaluateConfig(patience=1, every_steps=1, least_gain=0.5))
    early.look(scored(Score(8, 1.0, 2.7, None)), 1)
    early.look(scored(Score(8, 0.9, 2.5, None)), 2)
    assert early.wanted
    assert str(early) == (
        "the held-out loss was 1.0000 at step 1, 1 scoring ago, and none since lower by evaluate.least_gain 0.5"
    )


def test_a_loss_that_was_lower_before_the_first_step_is_told_beside_the_lowest_since():
    early = EarlyStopping(EvaluateConfig(patience=1, every_steps=1))
    early.look(scored(Score(8, 2.0, 7.4, None)), 1)
    early.look(scored(Score(8, 3.0, 20.1, None)), 2)
    before = scored(Score(8, 1.5, 4.5, None))
    lowest = "the held-out loss was lowest at step 1 (2.0000), 1 scoring ago"
    assert early.told(before) == f"{lowest}; before the first step it was lower (1.5000)"
    assert early.told(None) == early.told(scored(Score(9, 1.5, 4.5, None))) == lowest


def test_the_scoring_before_the_first_step_is_what_others_have_to_be_better_than():
    early = EarlyStopping(EvaluateConfig(patience=2, every_steps=1))
    for step, loss in enumerate([1.5, 2.0, 1.8]):
        early.look(scored(Score(8, loss, 7.4, None)), step)
    assert early.wanted
    assert str(early) == "the held-out loss was lowest before the first step (1.5000), 2 scorings ago"


def test_a_model_that_gives_no_numbers_before_the_first_step_has_all_its_patience_left():
    early = EarlyStopping(EvaluateConfig(patience=1, every_steps=1))
    early.look(scored(Score(8, math.nan, math.nan, None)), 0)
    assert (early.since, early.best) == (0, None)
    early.look(scored(Score(8, 3.0, 20.1, None)), 1)
    assert (early.best_step, early.wanted) == (1, False)
