"""Held-out scores as lines for a person."""

from __future__ import annotations

import math

from kosmos.evaluate.score import Score, Scores
from kosmos.train.held_out import closing_table


def test_texts_that_ask_nothing_have_their_perplexity_where_the_accuracy_would_be() -> None:
    before, after = (
        Scores(text, {"text": text}, {"wiki": text}, ())
        for text in (Score(8, 7.5, 1808.0, None), Score(8, 5.0, 148.4, None))
    )
    head, line = closing_table(before, after)
    assert head.split() == "held out documents loss before after perplexity before after".split()
    assert line.split() == ["text", "8", "7.5000", "5.0000", "1,808.00", "148.40"]


def test_questions_alone_have_no_columns_of_losses() -> None:
    asked = Score(8, math.nan, math.nan, 0.25, 8)
    head, line = closing_table(None, Scores(Score(0, math.nan, math.nan, None), {}, {"quiz": asked}, ()))
    assert head.split() == "held out documents accuracy before after".split()
    assert line.split() == ["source", "quiz", "8", "-", "25.0", "%"]


def scores(documents: int, loss: float) -> Scores:
    score = Score(documents, loss, 2.0, 0.5)
    return Scores(score, {"image": score}, {"shapes": score}, ())


def test_scores_of_other_documents_are_not_set_beside_those_of_now() -> None:
    (_, same) = closing_table(scores(8, 6.0), scores(8, 5.0))
    assert same.split() == ["image", "8", "6.0000", "5.0000", "50.0", "%", "50.0", "%"]
    (_, line, why) = closing_table(scores(32, 6.0), scores(8, 5.0))
    assert line.split() == ["image", "8", "-", "5.0000", "-", "50.0", "%"]
    assert why == "before, other documents were scored (32 of image), which compare with none of these"


def test_sources_stand_below_no_modality() -> None:
    score = Score(4, 5.0, 148.4, 0.5)
    _, *lines = closing_table(None, Scores(score, {"image": score}, {"shapes": score, "tones": score}, ()))
    assert [line.split(" " * 3)[0] for line in lines] == ["image", "source shapes", "source tones"]
