"""A sharded run that begins with the weights of one process, and one of other parts that says so once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kosmos.train.run import train_model
from kosmos.train.saved import opened_run
from support import ticks
from support.command import SMALL, install_plugin
from support.ranks import End, train_in_turn
from support.runs import small_run, ticks_registry

RUN = ("--modalities", "ticks", *SMALL, "data.workers=0", "data.lanes=2", "evaluate.max_documents=2", "--steps", 1)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process, whose backbone learned by low-rank updates."""
    output = tmp_path_factory.mktemp("first") / "run"
    train_model(small_run(output, train={"steps": 2}, backbone={"lora": 4}), registry=ticks_registry())
    return output


@pytest.fixture(scope="module")
def two_ranks(first: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, list[End]]]:
    """The second runs by their names, which the same ranks take in turn: the folder of each, and how they ended."""
    home = tmp_path_factory.mktemp("second")
    site = install_plugin(home / "site", "ticks", None, module=ticks.__name__)
    texts = home / "texts"
    train_model(small_run(texts, modalities=[], data={"sources": ["sums"]}), registry=ticks_registry())
    still = ("train.learning_rate=1e-12", "train.weight_decay=0", "train.seed=3")
    more = {
        "still": (f"init.path={first}", "init.optimizer=true", *still),
        "another": (f"init.path={first}", "backbone.ffn_width=32"),
        "more": (f"init.path={texts}", *still),
    }
    cases = {}
    for name, options in more.items():
        sharded = ("parallel.strategy=fsdp", "--output", home / name)
        cases[name] = [(*RUN, *sharded, *options)] * 2
    ends = train_in_turn(home, cases, path=[site])
    return lambda name: (home / name, ends[name])


def test_two_ranks_begin_with_the_weights_of_one(
    first: Path, two_ranks: Callable[[str], tuple[Path, list[End]]]
) -> None:
    output, ends = two_ranks("still")
    assert [status for status, _ in ends] == [0, 0], ends
    told = "begins with backbone, streams.ticks.encoder, streams.ticks.connector of"
    assert sum(said.count(told) for _, said in ends) == 1
    taken = r"takes the optimizer's state of (\d+) of the \d+ tensors"  # of the streams: the backbone's were updates
    assert sum(len(re.findall(taken, " ".join(said.split()))) for _, said in ends) == 1
    one, other = (
        opened_run(path, device="cpu", registry=ticks_registry(), merge=True).composition.model.state_dict()
        for path in (first, output)
    )
    assert one.keys() == other.keys()
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)


def test_another_model_is_refused_once(two_ranks: Callable[[str], tuple[Path, list[End]]]) -> None:
    output, ends = two_ranks("another")
    (line,) = [line for _, said in ends for line in said.splitlines() if line.startswith("error")]
    assert line.startswith("error[config]: init: backbone of ") and "is another" in line
    assert [status for status, _ in ends] == [2, 2]
    assert not output.exists()


def test_two_ranks_take_the_rows_of_the_tokens_that_both_runs_have(
    two_ranks: Callable[[str], tuple[Path, list[End]]],
) -> None:
    output, ends = two_ranks("more")
    assert [status for status, _ in ends] == [0, 0], ends
    assert sum(said.count("begin as the mean of the others: the rows of ") for _, said in ends) == 1
    before, after = (
        opened_run(run, device="cpu", registry=ticks_registry()) for run in (output.parent / "texts", output)
    )
    table, more = (run.composition.model.backbone.embedding.weight for run in (before, after))
    tokens = before.composition.tokenizer.vocab_size
    assert len(table) == tokens < len(more)
    torch.testing.assert_close(more[:tokens], table, rtol=0, atol=1e-6)
    assert more[tokens:].abs().sum(1).all()
