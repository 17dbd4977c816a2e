"""Held-out scores as lines for a person."""

from __future__ import annotations

from kosmos.evaluate.score import Score, Scores
from kosmos.train.held_out import closing_table


def scores(documents: int, loss: float) -> Scores:
    score = Score(documents, loss, 2.0, 0.5)
    return Scores(score, {"image": score}, {"shapes": score}, ())


def test_scores_of_other_documents_are_not_set_beside_those_of_now() -> None:
    (_, same) = closing_table(scores(8, 6.0), scores(8, 5.0))
    assert same.split() == ["image", "8", "6.0000", "5.0000", "50.0", "%", "50.0", "%"]
    (_, line, why) = closing_table(scores(32, 6.0), scores(8, 5.0))
    assert line.split() == ["image", "8", "-", "5.0000", "-", "50.0", "%"]
    assert why == "before, other documents were scored (32 of image), which compare with none of these"
