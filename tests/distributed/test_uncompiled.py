"""A C++ compiler that one of two ranks lacks: both take the same steps all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import Tensor

from kosmos.checkpoint.folder import load_newest
from kosmos.checkpoint.tensors import read_whole
from support.command import SMALL, kosmos

LARGE = (*SMALL, "backbone.width=256", "backbone.layers=6", "backbone.ffn_width=768", "backbone.heads=4")
RUN = ("train", "--modalities", "image", *LARGE, "data.workers=0", "data.lanes=2", "evaluate.max_documents=2")


def test_ranks_step_alike_where_one_has_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    only_first = tmp_path / "cxx"
    only_first.write_text('#!/bin/sh\n[ "$RANK" = 0 ] && exec g++ "$@"\necho "error: not here" >&2\nexit 1\n')
    only_first.chmod(0o755)
    monkeypatch.setenv("CXX", str(only_first))

    def trained(name: str, *more: str) -> tuple[str, dict[str, Tensor]]:
        output = tmp_path / name
        done = kosmos(*RUN, "--nproc", 2, "--steps", 3, "train.precision=fp32", "--output", output, *more)
        assert done.returncode == 0, done.stderr
        return done.stderr, read_whole(load_newest(output / "checkpoints").tensors)

    said, tensors = trained("one")
    (line,) = [line for line in said.splitlines() if "not compiled" in line]
    assert line.startswith("warning: ") and "error: not here" in line and line.endswith("(rank 1)")
    said, others = trained("none", "train.optimizer.compile=false")
    assert "not compiled" not in said
    assert all(tensors[name].equal(others[name]) for name in others)
