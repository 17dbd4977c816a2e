"""What is told of a run whose data are few for what it does with them."""

from __future__ import annotations

import pytest

from kosmos.train.progress import ConsoleReporter
from kosmos.train.run import train_model
from kosmos.train.small_data import FEW
from support.runs import small_run, ticks_registry


@pytest.fixture
def few_texts(tmp_path):
    """A run of documents that come often, of which as many as wanted are held out."""

    def run(held_out=0, **over):
        for name, number in (("train", 6), ("held", held_out)):
            (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"text": "n {n}"}}\n' for n in range(number)))
        scored = {"evaluate": {"sources": [{"path": str(tmp_path / "held.jsonl")}]}} if held_out else {}
        sources = [{"path": str(tmp_path / "train.jsonl")}]
        over = {"data": {"sources": sources, "held_out": 0.0}, **scored, **over}
        return train_model(small_run(tmp_path / "run", **over), registry=ticks_registry(), reporter=ConsoleReporter())

    return run


def test_many_passes_over_few_documents_are_told_in_time_and_at_the_end(few_texts, capsys):
    (warning,) = [line for line in few_texts().warnings if "passes" in line]
    assert warning.startswith("train.steps 6 are about ") and " passes over the 6 documents" in warning
    lines = capsys.readouterr().err.splitlines()
    first, last = [line for line in lines if line.startswith("step ")]
    assert "  epoch " in first and "  epoch " in last
    assert lines.index(f"warning: {warning}") < lines.index(last)
    (told,) = [line for line in lines if line.startswith("these were ")]
    assert lines.index(told) > lines.index(last)


def test_passes_that_were_asked_for_are_not_warned_of(few_texts, capsys):
    assert not [line for line in few_texts(train={"epochs": 100}).warnings if "passes" in line]
    assert "these were" not in capsys.readouterr().err


@pytest.mark.parametrize("number", [1, FEW - 1, FEW])
def test_a_handful_of_held_out_documents_is_told_to_say_little(few_texts, number):
    found = [line for line in few_texts(held_out=number, train={"steps": 1}).warnings if "held out" in line]
    assert [line.split(":")[0] for line in found] == {
        1: ["1 document is held out"], FEW - 1: [f"{FEW - 1} documents are held out"], FEW: [],
    }[number]  # fmt: skip
