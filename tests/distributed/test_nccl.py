"""Ranks that exchange tensors of GPUs by NCCL train as one process does. They share one GPU, so that one is enough."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from support import ticks, trainings
from support.command import install_plugin, lines_in
from support.ranks import start_ranks
from support.runs import SMALL, rows_of
from support.same import assert_same_run
from support.torchrun import done, torchrun
from support.turns import ON_ONE_GPU, host_of_its_own

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
STEPS = 4
LOSS, WEIGHTS = 1e-3, 1e-3
"""Relative and absolute, fp32: a GPU adds up in the order that its threads come in."""
ADAMW = {"optimizer": "adamw"}  # Lion takes signs, which the smallest difference turns
RELEASED = {**ADAMW, "clip_norm": None, "release_gradients": True}
STEADY = {"dropout": 0.0}  # parts of a row draw what falls out by themselves
LORA = {"lora": {"rank": 4, "whole": ["head"]}}
IN_BF16 = {"precision": "bf16", "compile": "auto", "optimizer": {"name": "lion8bit", "block": 64}}

MUON = {"optimizer": "muon", "learning_rate": 0.02, "warmup_steps": 0}  # so that a wrong step would be seen

Way = tuple[int, dict[str, Any], dict[str, Any], dict[str, Any]]
"""Processes, and the sections ``parallel``, ``train`` and ``backbone``."""
ALONE: dict[str, Way] = {
    "whole": (1, {}, ADAMW, {}),
    "steady": (1, {}, ADAMW, STEADY),
    "muon": (1, {}, MUON, {}),
    "released": (1, {}, {**ADAMW, "clip_norm": None}, {}),
    "lora": (1, {}, ADAMW, LORA),
    "bf16": (1, {}, IN_BF16, {}),
}
SEVERAL: dict[str, Way] = {
    "whole, ddp": (2, {"strategy": "ddp"}, ADAMW, {}),
    "whole, fsdp": (4, {"strategy": "fsdp"}, ADAMW, {}),
    "whole, hsdp": (4, {"strategy": "hsdp", "shards": 2}, ADAMW, {}),
    "whole, offloaded": (2, {"strategy": "fsdp", "offload": True}, ADAMW, {}),
    "whole, tensor": (2, {"tensor": 2}, ADAMW, {}),
    "steady, sequence": (2, {"sequence": 2}, ADAMW, STEADY),
    "steady, tensor and sequence": (4, {"tensor": 2, "sequence": 2}, ADAMW, STEADY),
    "steady, joined fsdp": (2, {"strategy": "fsdp"}, {**ADAMW, "lanes_at_once": 2}, STEADY),
    "steady, joined ddp": (2, {"strategy": "ddp"}, {**ADAMW, "lanes_at_once": 2}, STEADY),
    "released, fsdp": (4, {"strategy": "fsdp"}, RELEASED, {}),
    "muon, fsdp": (4, {"strategy": "fsdp"}, MUON, {}),
    "muon, hsdp": (4, {"strategy": "hsdp", "shards": 2}, MUON, {}),
    "muon, ddp": (2, {"strategy": "ddp"}, MUON, {}),
    "muon, offloaded": (2, {"strategy": "fsdp", "offload": True}, MUON, {}),
    "lora, ddp": (2, {"strategy": "ddp"}, ADAMW, LORA),
    "lora, fsdp": (2, {"strategy": "fsdp"}, ADAMW, LORA),
    "bf16, fsdp": (2, {"strategy": "fsdp"}, IN_BF16, {}),
    "bf16, ddp": (2, {"strategy": "ddp"}, IN_BF16, {}),
}


def run(output: Path, way: Way, steps: int = STEPS) -> dict[str, Any]:
    _, parallel, train, backbone = way
    width = {"width": 64, "heads": 4, "ffn_width": 128, "layers": 2, "dropout": 0.1}
    return {
        **SMALL,
        "data": {"tokens_per_pack": 96, "lanes": 4, "look_ahead": 4, "workers": 0, "sources": ["ticks", "sums"]},
        "streams": {"ticks": {"encoder": {"name": "ticks", "ledger": str(output.with_suffix(".ledger"))}}},
        "backbone": {"name": "decoder", **width, **backbone},
        "train": {**SMALL["train"], "compile": False, "steps": steps, "schedule": "constant", **train},  # type: ignore[dict-item]
        "evaluate": {"max_documents": 8, "every_steps": 2},
        "parallel": parallel,
        "output": str(output),
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folders of all trainings, which one launch of four processes makes."""
    folder = tmp_path_factory.mktemp("nccl")
    ways = ALONE | SEVERAL
    entries = [{"world": way[0], "run": run(folder / name, way)} for name, way in ways.items()]
    moved = folder / "moved"
    entries.append({"world": 4, "run": run(moved, SEVERAL["whole, fsdp"], steps=1)})
    for steps, name in ((2, "whole, ddp"), (3, "whole, hsdp"), (STEPS, "whole")):
        world, parallel, _, _ = ways[name]
        over = {"train": {"steps": steps}, "parallel": {"strategy": "auto", "shards": None, **parallel}}
        entries.append({"world": world, "resume": str(moved), "over": over})
    (folder / "trainings.json").write_text(json.dumps(entries))
    done(torchrun(4, [trainings.__file__, folder / "trainings.json"], **{ON_ONE_GPU: "1"}), at_most_s=400)
    return lambda name: folder / name


@pytest.mark.parametrize("name", [name for name in SEVERAL if name.partition(",")[0] not in ("bf16", "muon")])
def test_ranks_that_pass_tensors_by_nccl_train_as_one_process_does(trained: Callable[[str], Path], name: str) -> None:
    assert_same_run(trained(name), trained(name.partition(",")[0]), rel=LOSS, weights=WEIGHTS)


@pytest.mark.parametrize("name", [name for name in SEVERAL if name.partition(",")[0] in ("bf16", "muon")])
def test_ranks_that_round_to_bf16_come_near_one_process(trained: Callable[[str], Path], name: str) -> None:
    """Compiled, and by steps that are."""
    rows, expected = (rows_of(trained(one) / "metrics.jsonl") for one in (name, name.partition(",")[0]))
    assert [row["documents"] for row in rows] == [row["documents"] for row in expected]
    assert [row["loss"] for row in rows] == pytest.approx([row["loss"] for row in expected], rel=2e-2)


def test_a_run_goes_on_with_other_ranks(trained: Callable[[str], Path]) -> None:
    assert_same_run(trained("moved"), trained("whole"), rel=LOSS, weights=WEIGHTS)


ENDS = {
    signal.SIGKILL: (4, "error[training]: another rank is gone without a word"),
    signal.SIGSTOP: (5, "error[hang]: no progress for 8 s: rank 1 does not answer"),
    signal.SIGTERM: (130, "error[interrupted]: stopped at step"),
}


@pytest.mark.parametrize("strategy", ["fsdp", "ddp"])
@pytest.mark.parametrize("number", ENDS, ids=lambda number: number.name)
def test_what_becomes_of_a_rank_ends_the_other(tmp_path: Path, number: signal.Signals, strategy: str) -> None:
    site = install_plugin(tmp_path / "site", "ticks", None, module=ticks.__name__)
    output = tmp_path / "run"
    whole = run(output, (2, {"strategy": strategy}, {**ADAMW, "hang_s": 8}, {}), steps=100_000)
    del whole["streams"]
    (tmp_path / "run.yaml").write_text(json.dumps(whole))
    program = ["-m", "kosmos", "train", tmp_path / "run.yaml"]
    first, second = start_ranks([program] * 2, path=[site], own=host_of_its_own)
    first.wait_for(lambda: lines_in(output / "metrics.jsonl") > 2)
    os.kill(second.process.pid, number)
    try:
        status, said = first.end(at_most_s=60)
    finally:
        second.process.kill()
        second.process.communicate()
    expected, line = ENDS[number]
    assert [found.startswith(line) for found in said.splitlines() if found.startswith("error[")] == [True], said
    assert status == expected
