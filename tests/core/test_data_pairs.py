"""``kosmos data`` of rows of preferences."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kosmos import Documents, make_run
from kosmos.cli import main
from kosmos.commands import data
from kosmos.commands.checked import check_all
from kosmos.compose import compose
from kosmos.data.sources import open_source
from kosmos.evaluate.score import score
from kosmos.plugins import load_plugins
from support.command import SMALL

ROWS = [
    {"prompt": [{"role": "user", "content": "Q"}], "chosen": "Cats.", "rejected": "Dogs bark."},
    {"prompt": "A b", "chosen": " c", "rejected": " no"},
]


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path / "rows.jsonl"


@pytest.fixture
def of_pairs(rows):
    """A run that learns from pairs, and its source."""
    over = {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48}
    made = compose(make_run({"data": {"tokens_per_pack": 256}, "backbone": over}), load_plugins())
    return replace(made, planner=replace(made.planner, pairs=True)), opened(rows)


def opened(path):
    return open_source(str(path), split="train", registry=load_plugins(), modalities=(), held_out=0.0)


def test_a_run_that_learns_from_no_pairs_is_told_what_to_do(rows, capsys):
    status = main(["data", "--data", str(rows), "data.held_out=0", *SMALL])
    said = "".join(capsys.readouterr())
    assert status == 3
    assert "tells a worse answer, too (rejected), of which this run learns nothing" in said
    assert "train.objective=dpo" in said
    assert "{completion: chosen} beside a prompt" in said
    assert main(["data", "--data", str(rows), "data.held_out=0", "--check", *SMALL]) == 3


def test_a_pair_is_shown_as_both_with_what_is_learned_of_each(of_pairs, capsys):
    composition, source = of_pairs
    figures, shown, incidents = data.look(composition, [source], 2)
    assert incidents == []
    lengths = sorted(len(composition.planner.plan(source.document(n))[0]) for n in range(2))
    assert [figures[source.name].shortest, figures[source.name].longest] == lengths
    for document in shown:
        assert sum(s.tokens for s in (*document.stretches, *document.rejected)) == document.tokens
    data._print(shown)
    out = capsys.readouterr().out
    asked = "<s><|user|>Q<|end|><|assistant|>"
    assert f"chosen    {asked}«Cats.<|end|></s>»\nrejected  {asked}«Dogs bark.<|end|></s>»\n" in out
    assert "chosen    <s>A b« c</s>»\nrejected  <s>A b« no</s>»\n" in out


def test_all_pairs_are_checked_and_so_is_what_is_held_out(of_pairs, tmp_path):
    composition, source = of_pairs
    (tmp_path / "texts.jsonl").write_text('{"text": "T"}\n')
    texts = opened(tmp_path / "texts.jsonl")
    [incident] = check_all(composition, [source], [texts], workers=0).incidents
    assert "learns from pairs, and here is no worse answer" in incident.cause


def test_scores_are_those_of_the_better_ones_alone(of_pairs):
    composition, source = of_pairs
    composition = replace(composition, planner=composition.planner.for_scores())  # as of a run that is loaded
    better = [replace(source.document(n), rejected=()) for n in range(len(source))]
    expected = score(composition, [Documents(source.name, better)], workers=0)
    found = score(composition, [source], workers=0)
    assert found == expected
    assert found.overall.documents == 2
