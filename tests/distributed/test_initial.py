"""A sharded run that begins with the weights of one process, and one of other parts that says so once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kosmos import load_run
from support.command import SMALL, kosmos

LOOPBACK = "GLOO_SOCKET_IFNAME"
RUN = ("train", "--modalities", "image", *SMALL, "data.workers=0", "evaluate.max_documents=2", "train.precision=fp32")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("first") / "run"
    done = kosmos(*RUN, "--steps", 2, "--output", output)
    assert done.returncode == 0, done.stderr
    return output


def two(*more: object):
    return kosmos(*RUN, "--nproc", 2, "data.lanes=2", "parallel.strategy=fsdp", *more)


def test_two_ranks_begin_with_the_weights_of_one(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOOPBACK, "lo")
    still = ("train.learning_rate=1e-12", "train.weight_decay=0", "train.seed=3")
    done = two(f"init={first}", "--steps", 1, "--output", tmp_path / "second", *still)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("begins with backbone, streams.image.encoder, streams.image.connector of") == 1
    one, other = (load_run(path, device="cpu").composition.model.state_dict() for path in (first, tmp_path / "second"))
    assert one.keys() == other.keys()
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)


def test_another_model_is_refused_once(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOOPBACK, "lo")
    done = two(f"init={first}", "--steps", 1, "--output", tmp_path / "second", "backbone.ffn_width=32")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error")]
    assert line.startswith("error[config]: init: backbone of ") and "is another" in line
    assert done.returncode == 2
    assert not (tmp_path / "second").exists()
