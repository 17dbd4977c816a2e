"""A model learns from answers that it has written, by rewards."""

from __future__ import annotations

from pathlib import Path

import pytest

from kosmos import Documents, Generated, answered, generate_answers, load_run, make_run, train_model
from support.runs import small_run, ticks_registry
from support.ticks import TicksSource

WISHED = "falling"  # whatever is asked


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned both answers, and not yet when to give which."""
    train = {"steps": 40, "optimizer": "adamw", "learning_rate": 1e-2}
    output = tmp_path_factory.mktemp("own") / "first"
    return train_model(small_run(output, train=train), registry=ticks_registry()).output


def tries(run: Path, turn: int) -> list[list[Generated]]:
    composed = load_run(run, registry=ticks_registry()).composition
    how = {"max_documents": 24, "max_new_tokens": 12, "temperature": 1.0}
    return [list(generate_answers(composed, TicksSource("train", 24), seed=10 * turn + n, **how)) for n in range(4)]


def share(found: list[list[Generated]]) -> float:
    answers = [answer.text.strip() == WISHED for each in found for answer in each]
    return sum(answers) / len(answers)


@pytest.mark.parametrize("kind", ["rejection", "policy gradient"])
def test_rewarded_answers_become_likelier(first: Path, tmp_path: Path, kind: str) -> None:
    run, questions, shares = first, TicksSource("train", 24), []
    for turn in range(6):
        found = tries(run, turn)
        shares.append(share(found))
        learned = []
        for number, each in enumerate(found):
            for answer in each:
                reward = float(answer.text.strip() == WISHED)
                weight = reward if kind == "rejection" else reward - shares[-1]
                origin = f"{answer.origin} {number}"
                learned.append(answered(questions.document(answer.row), answer.text, origin=origin, weight=weight))
        train = {"steps": 4, "optimizer": "adamw", "learning_rate": 3e-3, "warmup_steps": 0}
        stage = {"init": str(run), "data": {"sources": []}, "train": train}
        settings = make_run(small_run(tmp_path / f"turn-{turn}").model_dump(mode="json"), stage)
        run = train_model(settings, sources=[Documents("answers", learned)], registry=ticks_registry()).output
    assert 0.1 < shares[0] < 0.6 and shares[-1] > shares[0] + 0.3, shares  # measured 0.43, then 0.98 and 0.88
