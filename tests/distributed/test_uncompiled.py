"""A C++ compiler that one of two ranks lacks: both take the same steps all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kosmos.checkpoint.folder import load_newest
from kosmos.checkpoint.tensors import read_whole
from support import trainings
from support.runs import SMALL
from support.torchrun import forked

LARGE = {"name": "decoder", "width": 256, "layers": 6, "heads": 4, "ffn_width": 768}


def run(output: Path, **wanted: Any) -> dict[str, Any]:
    """``wanted`` of the model and of the optimizer."""
    train = {"steps": 3, "warmup_steps": 1, "precision": "fp32", "optimizer": {"name": "lion", **wanted}, **wanted}
    return {**SMALL, "backbone": LARGE, "train": train, "evaluate": {"max_documents": 2}, "output": str(output)}


def test_ranks_step_alike_where_one_has_no_compiler(tmp_path: Path) -> None:
    only_first = tmp_path / "cxx"
    only_first.write_text('#!/bin/sh\n[ "$RANK" = 0 ] && exec g++ "$@"\necho "error: not here" >&2\nexit 1\n')
    only_first.chmod(0o755)
    none, one = tmp_path / "none", tmp_path / "one"
    entries = [{"world": 2, "aloud": True, "run": settings} for settings in (run(none, compile=False), run(one))]
    (tmp_path / "trainings.json").write_text(json.dumps(entries))
    ranks = forked(2, [trainings.__file__, tmp_path / "trainings.json"], CXX=str(only_first))
    status, said = ranks.end(at_most_s=180)  # two runs: 37 s on two slow cores
    assert status == 0, said
    said_of_none, said_of_one = said.split(str(one), 1)
    lines = [line for line in said_of_one.splitlines() if "not compiled" in line]
    assert len(lines) == 2  # what stands between products, and the optimizer's step
    for line in lines:
        assert line.startswith("warning: ") and "error: not here" in line and line.endswith("(rank 1)")
    assert str(none) in said_of_none and "not compiled" not in said_of_none
    tensors, others = (read_whole(load_newest(output / "checkpoints").tensors) for output in (one, none))
    assert all(tensors[name].equal(others[name]) for name in others)
