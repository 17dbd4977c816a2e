"""Large models score and write by kernels in bf16 on a CPU, and are as they were behind it."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
import torch

from kosmos import Document, Documents, Text, generate_answers, generate_texts, make_run, score
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
        attends = attention_compiled.binary() is not None
        assert {"norm", "rotate", "swiglu", "add"} <= {*names} and ("attend" in names) is attends
        names.clear()
        assert score(parts, sources, workers=0).overall.loss == exact.overall.loss and not names  # fp32 to the bit
        names.append("some have to")
    assert got.overall.loss == pytest.approx(expected.overall.loss, rel=1e-3)
    assert not parts.model.by_kernels


def test_what_is_written_of_many_is_by_kernels(parts: Composition) -> None:
    documents = [Document(f"{n}", (Text(f"{n} + 1 = "), Text(f"{n + 1}", train=True))) for n in range(3)]
    with small_models_train_by_kernels() as names:
        answers = list(generate_answers(parts, Documents("sums", documents), max_new_tokens=4, dtype=LOW))
        assert {"norm", "rotate", "swiglu"} <= {*names} and len(answers) == 3
        prompts = [Document(f"{n}", (Text(f"{n} + 1 = "),)) for n in range(3)]
        assert generate_texts(parts, prompts, max_new_tokens=4, dtype=LOW) == [answer.text for answer in answers]
    assert not parts.model.by_kernels


def test_a_model_computes_by_kernels_as_long_as_anybody_asks(
    parts: Composition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels_in_use, "WORTH", 0)
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with by_kernels(parts.model, *AUTO):
            inside.set()
            assert leave.wait(60)

    thread = threading.Thread(target=other)
    with by_kernels(parts.model, *AUTO):
        thread.start()
        assert inside.wait(60)
    assert parts.model.by_kernels  # the other thread still computes
    leave.set()
    thread.join()
    assert not parts.model.by_kernels
    for wanted, dtype in ((False, LOW), ("auto", torch.float32)):
        with by_kernels(parts.model, wanted, torch.device("cpu"), dtype):
            assert not parts.model.by_kernels


def test_without_a_compiler_it_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(kernels_in_use, "WORTH", 0)
    caches = [cpu_kernels.binary, attention_compiled.binary, attention_compiled._compilation]
    parts = compose(make_run({"backbone": {"name": "decoder"}}), ticks_registry())
    try:
        for cache in caches:
            cache.cache_clear()
        said = r"not compiled, which takes longer: train.compile: it needs a C\+\+ compiler"
        with pytest.warns(UserWarning, match=said), by_kernels(parts.model, *AUTO):
            assert not parts.model.by_kernels
        with by_kernels(parts.model, *AUTO):  # a second warning would be an error here
            assert not parts.model.by_kernels
    finally:
        for cache in caches:
            cache.cache_clear()
