"""A sharded run that begins with the weights of one process, and one of other parts that says so once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kosmos import load_run
from kosmos.train.run import train_model
from support import ticks
from support.command import SMALL, Started, install_plugin
from support.runs import small_run, ticks_registry
from support.torchrun import LOOPBACK

RUN = ("--modalities", "ticks", *SMALL, "data.workers=0", "data.lanes=2", "evaluate.max_documents=2", "--steps", 1)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process, whose backbone learned by low-rank updates."""
    output = tmp_path_factory.mktemp("first") / "run"
    train_model(small_run(output, train={"steps": 2}, backbone={"lora": 4}), registry=ticks_registry())
    return output


def two_ranks(output: Path, *more: object) -> tuple[int, str]:
    site = install_plugin(output.with_name("site"), "ticks", None, module=ticks.__name__)
    sharded = ("--nproc", 2, "parallel.strategy=fsdp", "--output", output)
    return Started("train", *RUN, *sharded, *more, path=[site], **LOOPBACK).end(at_most_s=90)


def test_two_ranks_begin_with_the_weights_of_one(first: Path, tmp_path: Path) -> None:
    still = ("train.learning_rate=1e-12", "train.weight_decay=0", "train.seed=3")
    status, said = two_ranks(tmp_path / "second", f"init={first}", *still)
    assert status == 0, said
    assert said.count("begins with backbone, streams.ticks.encoder, streams.ticks.connector of") == 1
    one, other = (
        load_run(path, device="cpu", registry=ticks_registry(), merge=True).composition.model.state_dict()
        for path in (first, tmp_path / "second")
    )
    assert one.keys() == other.keys()
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)


def test_another_model_is_refused_once(first: Path, tmp_path: Path) -> None:
    status, said = two_ranks(tmp_path / "second", f"init={first}", "backbone.ffn_width=32")
    (line,) = [line for line in said.splitlines() if line.startswith("error")]
    assert line.startswith("error[config]: init: backbone of ") and "is another" in line
    assert status == 2
    assert not (tmp_path / "second").exists()
