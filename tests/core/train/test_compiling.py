"""Compiled blocks give what uncompiled ones give, and nothing is compiled again after the warm-up."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor
from torch.autograd.profiler import profile

from kosmos.compose import compose
from kosmos.errors import ConfigError
from kosmos.runtime import devices
from kosmos.train.compiling import check_compile, compile_blocks
from kosmos.train.goodput_report import read_rows, summary
from kosmos.train.progress import Reporter
from kosmos.train.run import resume_run, train_model
from support.runs import assert_same_tensors, rows_of, small_run, ticks_registry


class LastStep(Reporter):
    """What torch ran in the last step."""

    def __init__(self) -> None:
        self.profile = profile()
        self.seen: Counter[str] = Counter()

    def step(self, row: Any, steps: int) -> None:
        if row["step"] == steps - 1:
            self.profile.__enter__()
        if row["step"] == steps:
            self.profile.__exit__(None, None, None)
            self.seen.update(event.name.split(":")[0] for event in self.profile.function_events)


LLAMA = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 512,
}  # fmt: skip
DECODER = {"name": "decoder", "layers": 2, "dropout": 0.1}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # torch's compiler warns of its own parts
@pytest.mark.parametrize(
    ("backbone", "recompute"),
    [
        (DECODER, False),
        (DECODER, True),
        (DECODER, "selective"),
        ({"name": "hf", "config": LLAMA}, "selective"),
    ],
    ids=["kept", "recomputed", "selective", "selective-hf"],
)
def test_compiled_blocks_train_as_uncompiled_ones_and_are_compiled_once(
    tmp_path: Path, backbone: dict[str, Any], recompute: Any
) -> None:
    rows, last = {}, {}
    for wanted in (False, True):
        train = {"compile": wanted, "steps": 8, "gradient_checkpointing": recompute}
        modalities = ["text"] if recompute else ["ticks"]
        config = small_run(tmp_path / str(wanted), train=train, modalities=modalities, backbone=backbone)
        train_model(config, registry=ticks_registry(), reporter=last.setdefault(wanted, LastStep()))
        rows[wanted] = rows_of(tmp_path / str(wanted) / "metrics.jsonl")
    for row, one in zip(rows[True], rows[False], strict=True):
        assert row["loss"] == pytest.approx(one["loss"], rel=1e-5)  # measured: 0
    assert "compilations" not in rows[False][-1]
    counts = [row["compilations"] for row in rows[True]]
    assert counts[0] > 0
    # Rows of other lengths and documents are still computed by the programs, not by the code they were made of.
    assert last[True].seen["Torch-Compiled Region"] >= 2 * 2 > last[False].seen["Torch-Compiled Region"] == 0
    assert counts[3:] == [counts[3]] * len(counts[3:])


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_losses_weights_and_states_of_a_compiled_run_are_bit_identical_after_a_resume(tmp_path: Path) -> None:
    over = {"backbone": {"dropout": 0.1}, "train": {"compile": True, "precision": "bf16"}}
    registry = ticks_registry()
    torch.compiler.reset()
    checkpoint = {"every_steps": 3, "keep_last": 9}
    train_model(small_run(tmp_path / "whole", **over, checkpoint=checkpoint), registry=registry)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    (tmp_path / "cut" / "checkpoints" / "step-00000006").rename(tmp_path / "gone")  # as killed after step 3
    torch.compiler.reset()  # a new process has no programs
    torch._dynamo.utils.counters.clear()
    resume_run(tmp_path / "cut", registry=registry)
    rows = {name: rows_of(tmp_path / name / "metrics.jsonl") for name in ("whole", "cut")}
    losses = {name: [row["loss"] for row in of] for name, of in rows.items()}
    assert losses["cut"] == losses["whole"]
    assert_same_tensors(tmp_path / "whole", tmp_path / "cut")
    assert rows["cut"][3]["compilations"] > 0  # in its very first step, which is counted no more
    # Its seconds are no steps' and no scoring's, of both of which most would be those of the compiler.
    spent = summary(read_rows(tmp_path / "cut" / "goodput.jsonl")).seconds
    assert spent["compile"] > 2 * (spent["productive"] + spent["evaluation"]) > 0


@pytest.fixture
def without_compilers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    devices.has_triton.cache_clear()
    with inductor.patch({"cpp.cxx": (None, "no-such-compiler")}):  # it looks at $CXX when it is imported
        yield
    devices.has_triton.cache_clear()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_cannot_be_compiled_is_refused_in_one_line(device: str, without_compilers: None) -> None:
    model = compose(small_run(), ticks_registry()).model
    line = {"cpu": r"PyTorch finds no C\+\+ compiler", "cuda": r"a C compiler for it \(gcc or clang\), is missing"}
    with pytest.raises(ConfigError, match=rf"^train\.compile: .*{line[device]}.*; install .* leave "):
        check_compile(model, True, torch.device(device))
    check_compile(model, "auto", torch.device(device))


def test_a_gpu_without_a_compiler_compiles_no_block_by_itself(without_compilers: None) -> None:
    model = compose(small_run(), ticks_registry()).model
    assert compile_blocks(model, "auto", torch.device("cuda")) == 0


def test_a_run_that_cannot_be_compiled_leaves_nothing_behind(tmp_path: Path, without_compilers: None) -> None:
    with pytest.raises(ConfigError, match=r"train\.compile: PyTorch finds no C\+\+ compiler"):
        train_model(small_run(tmp_path / "run", train={"compile": True}), registry=ticks_registry())
    assert not (tmp_path / "run").exists()


def test_a_model_without_blocks_is_not_said_to_be_compiled() -> None:
    model = compose(small_run(), ticks_registry()).model
    del model.backbone.blocks
    with pytest.raises(
        ConfigError, match=r"train\.compile: neither the backbone \(Decoder\) nor an encoder has blocks"
    ):
        check_compile(model, True, torch.device("cpu"))
    check_compile(model, "auto", torch.device("cpu"))


@pytest.mark.filterwarnings("default")  # torch's compiler warns of its own parts
def test_a_compiler_hears_no_ctrl_c_and_the_run_does() -> None:
    heard: list[int] = []
    told: list[str] = []
    shell = ["/bin/sh", "-c", "kill -INT $$; echo alive"]

    def backend(graph: Any, inputs: Any) -> Any:
        told.append(subprocess.run(shell, capture_output=True, text=True, check=False).stdout)
        os.kill(os.getpid(), signal.SIGINT)
        return graph.forward

    model = compose(small_run(), ticks_registry()).model
    assert compile_blocks(model, True, torch.device("cpu")) > 0
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        torch.compile(lambda x: x + 1, backend=backend)(torch.zeros(3))
    finally:
        signal.signal(signal.SIGINT, before)
    assert told == ["alive\n"]
    assert heard == [signal.SIGINT]
