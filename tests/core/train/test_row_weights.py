"""What documents weigh in training: gradients of a row are those of its documents alone, by their weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kosmos.compose import compose
from kosmos.run_sources import open_sources
from kosmos.train.run import train_model
from support.runs import rows_of, small_run, ticks_registry

CONFIG, REGISTRY = small_run(None, data={"sources": ["ticks", "sums"]}), ticks_registry()
COMPOSED = compose(CONFIG, REGISTRY)
DOCUMENTS = [source.document(n) for source in open_sources(CONFIG, REGISTRY, "train") for n in (0, 1)]


def gradients(documents):
    COMPOSED.model.zero_grad(set_to_none=True)
    COMPOSED.model(COMPOSED.pack(documents)).total.backward()
    return {name: p.grad.clone() for name, p in COMPOSED.model.named_parameters() if p.grad is not None}


ALONE = [gradients([document]) for document in DOCUMENTS]


@settings(deadline=None, max_examples=20)
@given(st.lists(st.floats(-2, 2, width=16), min_size=len(DOCUMENTS), max_size=len(DOCUMENTS)))
def test_gradients_of_a_row_are_those_of_its_documents_by_their_weights(weights: list[float]) -> None:
    weighed = [replace(document, weight=weight) for document, weight in zip(DOCUMENTS, weights, strict=True)]
    for name, gradient in gradients(weighed).items():
        zero = torch.zeros_like(gradient)
        expected = sum((w * own.get(name, zero) for w, own in zip(weights, ALONE, strict=True)), zero)
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    rows = [{"text": f"{'right' if n % 2 else 'wrong'} {n}", "reward": float(n % 2)} for n in range(40)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def trained(lines: Path, output: Path, workers: int, **source: object) -> Path:
    data = {"sources": [{"path": str(lines), **source}], "workers": workers, "held_out": 0}
    train = {"weight_decay": 0.0}
    train_model(small_run(output, modalities=[], data=data, train=train), registry=ticks_registry())
    return output


def losses(run: Path) -> list[float]:
    return [row["loss"] for row in rows_of(run / "metrics.jsonl")]


def test_workers_hand_them_on_and_told_losses_leave_them_out(lines: Path, tmp_path: Path) -> None:
    by_reward = {"columns": {"weight": "reward"}}
    here = losses(trained(lines, tmp_path / "here", 0, **by_reward))
    there = losses(trained(lines, tmp_path / "there", 1, **by_reward))
    plain = losses(trained(lines, tmp_path / "plain", 0))
    assert here == there
    assert here[0] == plain[0] and here[1:] != plain[1:]  # the first step's loss is that of the same weights


def test_of_rows_that_weigh_nothing_nothing_is_learned(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"text": "to be or not to be", "reward": 0}) + "\n")
    told = losses(trained(path, tmp_path / "run", 0, columns={"weight": "reward"}))
    assert len(told) > 1 and len(set(told)) == 1


def test_a_long_text_weighs_the_same_in_all_its_pieces() -> None:
    long = replace(DOCUMENTS[-1], segments=DOCUMENTS[-1].segments * 200, weight=3.0)
    plans = COMPOSED.planner.plan(long)
    assert len(plans) > 1 and {plan.weight for plan in plans} == {3.0}
