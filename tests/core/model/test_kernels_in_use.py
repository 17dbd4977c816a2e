"""Large models score by kernels in bf16 on a CPU, and are as they were behind it."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from kosmos import (
    Document,
    Documents,
    Registry,
    Text,
    compile_model,
    generate_text,
    generate_texts,
    make_run,
    score,
)
from kosmos.compose import Composition, compose
from kosmos.model import attention_compiled, cpu_kernels, kernels_in_use
from kosmos.model.kernels_in_use import by_kernels
from support.kernels import small_models_train_by_kernels
from support.runs import small_run, ticks_registry
from support.ticks import TicksSource

pytestmark = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
LOW = torch.bfloat16
AUTO = "auto", torch.device("cpu"), LOW


@pytest.fixture(scope="module")
def parts() -> Composition:
    return compose(small_run(), ticks_registry())


def test_scores_are_those_without_kernels_but_for_rounding(parts: Composition) -> None:
    sources = [TicksSource("held_out", 80)]
    expected = score(parts, sources, dtype=LOW, workers=0)
    exact = score(parts, sources, workers=0)
    with small_models_train_by_kernels() as names:
        got = score(parts, sources, dtype=LOW, workers=0)
        attends = attention_compiled.binary(torch.bfloat16) is not None
        assert {"norm", "rotate", "swiglu", "add"} <= {*names} and ("attend" in names) is attends
        names.clear()
        assert score(parts, sources, workers=0).overall.loss == exact.overall.loss and not names  # fp32 to the bit
        names.append("some have to")
    assert got.overall.loss == pytest.approx(expected.overall.loss, rel=1e-3)
    assert not parts.model.by_kernels


LLAMA = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 512,
}  # fmt: skip


@pytest.mark.parametrize(
    "backbone", [{"name": "decoder", "layers": 1}, {"name": "hf", "config": LLAMA}], ids=["decoder", "hf"]
)
def test_texts_are_written_by_kernels_where_a_caller_has_them_compiled(backbone: dict[str, Any]) -> None:
    parts = compose(make_run({"backbone": backbone}), Registry.from_modules({}))
    prompts = [Document(f"{n}", (Text(f"{n} + 1 = "),)) for n in range(2)]

    def write() -> None:
        generate_text(parts, prompts[0], max_new_tokens=3, dtype=LOW)
        generate_texts(parts, prompts, max_new_tokens=3, dtype=LOW)

    with small_models_train_by_kernels() as names:
        write()
        assert not names  # as kosmos generate, and what a run writes while it trains
        compile_model(parts, dtype=LOW)
        write()
        # The prompt of one, and those of two.
        assert names.count("attend") == (2 if attention_compiled.binary(torch.bfloat16) is not None else 0)
        score(parts, [Documents("sums", [Document("1", (Text("2", train=True),))])], dtype=LOW, workers=0)
    assert parts.model.by_kernels  # a score does not take from a caller what it has


def test_a_model_computes_by_kernels_as_long_as_anybody_asks(
    parts: Composition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels_in_use, "WORTH", 0)
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with by_kernels(parts.model, *AUTO, pytest.fail):
            inside.set()
            assert leave.wait(60)

    thread = threading.Thread(target=other)
    with by_kernels(parts.model, *AUTO, pytest.fail):
        thread.start()
        assert inside.wait(60)
    assert parts.model.by_kernels  # the other thread still computes
    leave.set()
    thread.join()
    assert not parts.model.by_kernels
    for wanted, dtype in ((False, LOW), ("auto", torch.float32)):
        with by_kernels(parts.model, wanted, torch.device("cpu"), dtype, pytest.fail):
            assert not parts.model.by_kernels


def test_without_a_compiler_it_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(kernels_in_use, "WORTH", 0)
    caches = [cpu_kernels.binary, attention_compiled.binary, attention_compiled._compilation]
    parts, sources = compose(small_run(), ticks_registry()), [TicksSource("held_out", 20)]
    for cache in caches:
        cache.cache_clear()
    try:
        with pytest.warns(UserWarning, match=r"scoring takes longer: train.compile: it needs a C\+\+ comp") as told:
            expected = score(parts, sources, dtype=LOW, workers=0)
        assert told[0].filename == __file__
        assert score(parts, sources, dtype=LOW, workers=0) == expected  # a second warning would be an error here
    finally:
        for cache in caches:
            cache.cache_clear()
