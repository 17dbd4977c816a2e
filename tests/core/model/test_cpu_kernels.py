"""What a decoder computes between products by one pass in C++ is what PyTorch's operations give, in any shape."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from kosmos.model import attention_compiled, cpu_kernels, kernels_in_use, products
from kosmos.model.cpu_kernels import add, add_, rms_norm, swiglu, use_kernels
from kosmos.model.decoder import Decoder
from kosmos.model.item_transformer import ItemTransformer
from kosmos.model.recompute import Recompute
from kosmos.model.rotary import rotate, rotation
from kosmos.model.segments import Segments
from kosmos.train.progress import Reporter
from kosmos.train.run import resume_run, train_model
from support.runs import assert_same_tensors, rows_of, small_run, ticks_registry

needs_compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
pytestmark = needs_compiler
TYPES = [torch.float32, torch.bfloat16]
ULPS = {torch.float32: 2e-6, torch.bfloat16: 2**-8}
"""Of the largest number; bf16 rounds each result once."""
STRIDES: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "swapped": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "wider": lambda x: torch.cat([x, x], dim=-1)[..., : x.shape[-1]],
    "spread": lambda x: x[:1].expand(x.shape),
}


def check(
    function: Callable[..., Tensor],
    exact: Callable[..., Tensor],
    parts: list[Tensor],
    upstream: Tensor,
    tolerance: float,
) -> None:
    """Results and gradients against those in fp64."""
    own = [x.detach().requires_grad_() for x in parts]
    wide = [x.detach().double().requires_grad_() for x in parts]
    got, expected = function(*own), exact(*wide)
    assert got.shape == expected.shape
    found = [got, *torch.autograd.grad(got, own, upstream)]
    wanted = [expected.detach(), *torch.autograd.grad(expected, wide, upstream.double())]
    for x, y, part in zip(found, wanted, [got, *own], strict=True):
        assert x.dtype == part.dtype
        torch.testing.assert_close(
            x.double(), y, rtol=0, atol=tolerance * float(y.abs().max() if y.numel() else 0) + 1e-30
        )


shapes = st.tuples(st.sampled_from([0, 1, 3, 130, 700]), st.sampled_from([1, 2, 5]), st.sampled_from([1, 4, 17, 32]))


@settings(max_examples=40, deadline=None)
@given(
    shape=shapes,
    dtype=st.sampled_from(TYPES),
    strides=st.sampled_from(list(STRIDES)),
    kind=st.sampled_from(["rope", "xpos"]),
)
def test_rotations_are_those_of_torch(shape: tuple[int, int, int], dtype: torch.dtype, strides: str, kind: Any) -> None:
    tokens, heads, half = shape
    torch.manual_seed(0)
    x = STRIDES[strides](torch.randn(tokens, heads, 2 * half).to(dtype))
    table = rotation(torch.arange(tokens), 2 * half, kind, base=10_000.0, middle=tokens // 2).key
    upstream = STRIDES[strides](torch.randn(tokens, heads, 2 * half).to(dtype))

    def exact(x: Tensor) -> Tensor:
        (a, b), (cos, sin) = x.chunk(2, dim=-1), (t.double() for t in table)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    check(lambda x: rotate(x, table, by_kernels=True), exact, [x], upstream, ULPS[dtype])


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.sampled_from([0, 1, 3, 700]), st.sampled_from([1, 5]), st.sampled_from([8, 17, 96])),
    dtype=st.sampled_from(TYPES),
    strides=st.sampled_from(list(STRIDES)),
)
def test_norms_are_those_of_torch(shape: tuple[int, int, int], dtype: torch.dtype, strides: str) -> None:
    torch.manual_seed(0)
    width = shape[-1]
    x, weight = STRIDES[strides](torch.randn(shape)), torch.randn(width)
    upstream = STRIDES[strides](torch.randn(shape).to(dtype))
    check(
        lambda x, weight: rms_norm(x, weight, 1e-6, dtype),
        lambda x, weight: F.rms_norm(x, (width,), weight, 1e-6),
        [x, weight],
        upstream,
        max(1e-4, ULPS[dtype]),  # of the weight: thousands of like rows, one after another
    )


@settings(max_examples=40, deadline=None)
@given(
    shape=shapes,
    dtype=st.sampled_from(TYPES),
    strides=st.sampled_from(list(STRIDES)),
    size=st.sampled_from([0.01, 3.0, 60.0]),
)
def test_swiglu_is_that_of_torch(shape: tuple[int, int, int], dtype: torch.dtype, strides: str, size: float) -> None:
    torch.manual_seed(0)
    gate, inner, upstream = (STRIDES[strides]((size * torch.randn(shape)).to(dtype)) for _ in range(3))
    check(swiglu, lambda a, b: F.silu(a) * b, [gate, inner], upstream, ULPS[dtype])


@settings(max_examples=40, deadline=None)
@given(shape=shapes, dtype=st.sampled_from(TYPES), strides=st.sampled_from(list(STRIDES)))
def test_sums_are_those_of_torch(shape: tuple[int, int, int], dtype: torch.dtype, strides: str) -> None:
    torch.manual_seed(0)
    x, upstream = (STRIDES[strides](torch.randn(shape)) for _ in range(2))
    y = STRIDES[strides](torch.randn(shape).to(dtype))
    check(add, lambda a, b: a + b, [x, y], upstream, ULPS[dtype])
    total, y = x.contiguous().clone(), y.contiguous()
    add_(total, y)
    assert torch.equal(total, x + y)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_wrong_stay_wrong(dtype: torch.dtype, wrong: float) -> None:
    """A guard that looks for them must see them."""
    bad = torch.ones(3, 2, 8)
    bad[1, 1, 5] = wrong
    table = rotation(torch.arange(3), 8, "rope", base=10_000.0, middle=0).query
    ones = torch.ones_like(bad)
    given = [
        rotate(bad.to(dtype), table, by_kernels=True),
        rms_norm(bad, torch.ones(8), 1e-6, dtype),
        swiglu(ones.to(dtype), bad.to(dtype)),
        swiglu((-bad if wrong == float("-inf") else bad).to(dtype), ones.to(dtype)),
        add(ones, bad.to(dtype)),
    ]
    for out in given:
        assert not out[1, 1].isfinite().all()
        assert out[0].isfinite().all() and out[2].isfinite().all()


@pytest.mark.parametrize("size", [1e-39, -3e-39, 2e-38, 1.0])
def test_where_a_vector_ends_does_not_change_what_is_given(size: float) -> None:
    """Below the normal numbers of fp32, too."""
    out = swiglu(torch.ones(77, dtype=torch.bfloat16), torch.full((77,), size, dtype=torch.bfloat16))
    assert len({str(x) for x in out.tolist()}) == 1


def test_threads_do_not_change_what_is_given() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(700, 96, requires_grad=True), torch.randn(96, requires_grad=True)
    gate, turned = (torch.randn(700, 2, 48).bfloat16().requires_grad_() for _ in range(2))
    table = rotation(torch.arange(700), 48, "rope", base=10_000.0, middle=0).query
    before, found, of_weight = torch.get_num_threads(), [], []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            outs = [
                rms_norm(x, weight, 1e-6, torch.bfloat16),
                swiglu(gate, gate),
                rotate(turned, table, by_kernels=True),
            ]
            whole = torch.cat([out.flatten() for out in outs])
            *exact, summed = torch.autograd.grad(whole.square().sum(), (x, gate, turned, weight))
            found.append([*outs, *exact])
            of_weight.append(summed)
    finally:
        torch.set_num_threads(before)
    assert all(a.equal(b) for other in found[1:] for a, b in zip(found[0], other, strict=True))
    for summed in of_weight[1:]:  # by each thread for itself
        torch.testing.assert_close(summed, of_weight[0], rtol=1e-5, atol=1e-5 * float(summed.abs().max()))


class Items(ItemTransformer):
    input = None

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        return self.transform(values, grids)


def gradients(model: nn.Module, run: Callable[[], Tensor]) -> list[Tensor]:
    model.zero_grad()
    out = run().float()
    out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(1)))  # a norm hides a sum of squares
    return [out.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize("preset", ["tiny", "kosmos-1"])
def test_a_model_by_kernels_is_the_model_without_them(preset: Any, precision: torch.dtype, calls: list[str]) -> None:
    torch.manual_seed(0)
    small: dict[str, Any] = {
        "width": 32,
        "layers": 2,
        "heads": 2,
        "ffn_width": 48,
        "qk_norm": preset == "tiny",
        "dropout": 0.0,
    }
    decoder = Decoder(50, preset=preset, **small)
    encoder = Items(width=32, layers=2, heads=2, feed_forward=2, rotary=True)
    lengths = (5, 70, 1, 150)
    segments, positions = Segments(lengths), torch.cat([torch.arange(n) for n in lengths])
    ids, grids = torch.randint(50, (sum(lengths),)), torch.tensor([[n, 1, 1] for n in lengths])
    for model, run in (
        (decoder, lambda: decoder(decoder.embed(ids), positions, segments)),
        (encoder, lambda: encoder(torch.randn(226, 32, generator=torch.Generator().manual_seed(0)), grids)),
    ):
        found = []
        for wanted in (False, True):
            use_kernels(model, wanted)
            calls.clear()
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
                found.append(gradients(model, run))
            assert bool(calls) is wanted
        for ours, torch_s in zip(found[1], found[0], strict=True):
            # measured: 2e-6 and 0.02
            apart = (ours - torch_s).norm() / torch_s.norm()
            assert apart < {torch.float32: 1e-5, torch.bfloat16: 4e-2}[precision]


@pytest.mark.parametrize("recompute", [True, "selective"])
def test_kernels_may_be_recomputed(recompute: Recompute, calls: list[str]) -> None:
    torch.manual_seed(0)
    decoder = Decoder(50, preset="tiny")
    use_kernels(decoder)
    ids, positions, segments = torch.randint(50, (200,)), torch.arange(200), Segments((200,))
    found = []
    for wanted in (False, recompute):
        decoder.set_gradient_checkpointing(wanted)
        with torch.autocast("cpu", torch.bfloat16):
            found.append(gradients(decoder, lambda: decoder(decoder.embed(ids), positions, segments)))
    assert all(a.equal(b) for a, b in zip(*found, strict=True))
    assert calls.count("norm") > calls.count("norm_backward")  # forward once more


def test_scores_and_answers_are_those_of_torch(calls: list[str]) -> None:
    decoder = Decoder(50, preset="tiny")
    use_kernels(decoder)
    with torch.no_grad():
        decoder(decoder.embed(torch.arange(9)), torch.arange(9), Segments((9,)))
    assert not calls


def test_what_kernels_do_not_know_is_left_to_torch() -> None:
    decoder = Decoder(50, preset="tiny").double()
    use_kernels(decoder)
    ids = torch.randint(50, (9,))
    out = decoder(decoder.embed(ids), torch.arange(9), Segments((9,)))
    assert out.dtype == torch.float64
    out.sum().backward()


LARGE = {"name": "decoder", "width": 256, "layers": 6, "heads": 4, "ffn_width": 768}
"""Of more than 4 million parameters."""


TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Said(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize(("precision", "pays"), [("fp32", False), ("fp32", True), ("bf16", True)])
def test_a_model_trains_by_kernels_and_goes_on_to_the_bit(
    tmp_path: Path, precision: str, pays: bool, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "pays", lambda: pays)
    # A large one would take minutes in bf16 on a CPU without units for it.
    monkeypatch.setattr(kernels_in_use, "WORTH", 0)
    over: dict[str, Any] = {"train": {"precision": precision, "steps": 4}, "evaluate": {"max_documents": 2}}
    registry = ticks_registry()
    train_model(small_run(tmp_path / "whole", **over), registry=registry)
    attention = ("attend", "attend_backward")
    if not pays or attention_compiled.binary(TYPES[precision]) is None:
        attention = ("softmax", "softmax_backward")
    assert set(calls) == {
        "rotate", "norm", "norm_backward", "swiglu", "swiglu_backward", "cross_entropy", *attention,
        *(["add"] if precision == "bf16" else []),
    }  # fmt: skip
    train_model(small_run(tmp_path / "cut", **over, checkpoint={"every_steps": 2, "keep_last": 9}), registry=registry)
    (tmp_path / "cut" / "checkpoints" / "step-00000004").rename(tmp_path / "gone")  # as killed after step 2
    resume_run(tmp_path / "cut", registry=registry)
    losses = {name: [row["loss"] for row in rows_of(tmp_path / name / "metrics.jsonl")] for name in ("whole", "cut")}
    assert losses["cut"] == losses["whole"]
    assert_same_tensors(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize(("backbone", "wanted"), [(LARGE, False), ({"layers": 2}, "auto")])
def test_nothing_is_compiled_for_small_models_or_against_a_wish(
    tmp_path: Path, backbone: dict[str, Any], wanted: Any, calls: list[str]
) -> None:
    train = {"steps": 1, "compile": wanted}
    train_model(
        small_run(tmp_path, backbone=backbone, train=train, evaluate={"max_documents": 2}), registry=ticks_registry()
    )
    assert not calls


def test_a_large_model_without_a_compiler_trains_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[str]
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    cpu_kernels.binary.cache_clear()
    said = Said()
    train = {"steps": 1, "optimizer": "adamw"}
    config = small_run(tmp_path / "run", backbone=LARGE, train=train, evaluate={"max_documents": 2})
    try:
        train_model(config, registry=ticks_registry(), reporter=said)
    finally:
        cpu_kernels.binary.cache_clear()
    (line,) = [line for line in said.lines if "not compiled" in line]
    assert line.startswith("warning: ") and "train.compile: it needs a C++ compiler" in line
    assert line.endswith("set train.compile=false")
    assert not calls
