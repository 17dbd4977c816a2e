"""Scores of texts where there is little to score."""

from __future__ import annotations

import math

import pytest

from kosmos.evaluate.metrics import word_error_rate


@pytest.mark.parametrize(
    ("predictions", "references", "expected"),
    [
        (["a b"], ["a c"], 0.5),
        ([""], [""], 0.0),
        ([" "], ["", " "][:1], 0.0),
        ([""], ["a b"], 1.0),
        (["a"], [""], math.inf),
    ],
)
def test_word_error_rate(predictions, references, expected):
    assert word_error_rate()(predictions, references) == expected
