"""Attention in C++ is that of each document alone: in bf16 on processors that multiply it, and in fp32."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from kosmos.errors import ConfigError
from kosmos.model import attention_compiled, products
from kosmos.model.attention import attend, attend_cached
from kosmos.model.attention_compiled import attend_compiled, can_attend
from kosmos.model.segments import Segments
from kosmos.train.flops import _MAPPING

from .test_attention import dense
from .test_loss import error

GIVEN = torch.cpu.get_capabilities()
pytestmark = [
    pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler"),
    pytest.mark.skipif(not GIVEN.get("avx512_bf16"), reason="a processor that does not multiply bf16"),
]
TILES = pytest.param("tiles", marks=pytest.mark.skipif(not GIVEN.get("amx_bf16"), reason="a processor without AMX"))
LENGTHS = st.lists(st.sampled_from([0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 200]), min_size=1, max_size=5)
LONG = [[511], [512, 3], [513], [1100, 0, 40], [2100]]
"""One task or several, whose sums of the queries' gradients are added."""


class Way(NamedTuple):
    dtype: torch.dtype
    off: float
    """How far results may be from those in fp64, relative to them: a rounding is 2e-3 in bf16, and 6e-8 in fp32."""


@pytest.fixture(scope="module", params=[TILES, "vectors", "fp32"])
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    """How it multiplies: a processor with AMX can do all."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "fp32":
            patch.setattr(products, "pays", lambda: True)
            yield Way(torch.float32, 3e-6)
            return
        if request.param == "vectors" and GIVEN.get("amx_bf16"):
            with_it(patch, "-mno-amx-bf16")
        yield Way(torch.bfloat16, 6e-3)


def with_it(patch: pytest.MonkeyPatch, option: str) -> None:
    """What is compiled with an option more stands for the compiled source."""
    compile_anew(patch, f"{'g++' if shutil.which('g++') else 'clang++'} {option}")
    attention_compiled.binary(torch.bfloat16)


def compile_anew(patch: pytest.MonkeyPatch, compiler: str) -> None:
    patch.setenv("CXX", compiler)
    for cached in (attention_compiled._compilation, attention_compiled.binary):
        patch.setattr(attention_compiled, cached.__name__, functools.cache(cached.__wrapped__))


def row(lengths: list[int], width: int, heads: int = 3) -> list[Tensor]:
    """q, k, v as they lie in a joined projection, and upstream gradients: numbers of bf16."""
    torch.manual_seed(sum(lengths) + width)
    joined = torch.randn(sum(lengths), 3, heads, width).bfloat16()
    return [*joined.unbind(1), torch.randn(sum(lengths), heads, width).bfloat16()]


def found(way: Way, given: list[Tensor], lengths: list[int], causal: bool, scale: float = 0.2) -> list[Tensor]:
    *heads, upstream = (x.detach().to(way.dtype) for x in given)
    heads = [x.requires_grad_() for x in heads]
    out = attend_compiled(*heads, Segments(tuple(lengths)), causal=causal, scale=scale, dtype=way.dtype)
    return [out.detach(), *torch.autograd.grad(out, heads, upstream)]


def exact(given: list[Tensor], lengths: list[int], causal: bool, scale: float = 0.2) -> list[Tensor]:
    *heads, upstream = (x.detach().double() for x in given)
    heads = [x.requires_grad_() for x in heads]
    out = dense(heads[0] * (scale * heads[0].shape[2] ** 0.5), *heads[1:], lengths, causal)
    return [out.detach(), *torch.autograd.grad(out, heads, upstream)]


def before_differences(given: list[Tensor], lengths: list[int], causal: bool, scale: float = 0.2) -> list[float]:
    """Norms of what values and gradients are summed of, as if its signs were independent; in order of ``exact``.

    A gradient of logits is the difference of two numbers that are rounded each, and 0 in a document of one token: what
    is left there is a share of those numbers, whatever the difference is.
    """
    squares = torch.zeros(4, dtype=torch.float64)
    for part in zip(*(x.double().transpose(0, 1).split(lengths, 1) for x in given), strict=True):
        q, k, v, upstream = part  # [heads, T, width]
        hidden = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).triu(1) if causal else torch.zeros((), dtype=bool)
        shares = (scale * q @ k.mT).masked_fill(hidden, -torch.inf).softmax(-1).square()
        of_q, of_k, of_v, of_upstream = (x.square().sum(-1) for x in part)
        logits = shares * (upstream @ v.mT).square() * scale**2
        sums = shares @ of_v[..., None], logits @ of_k[..., None], logits.mT @ of_q[..., None]
        squares += torch.stack([x.sum() for x in (*sums, shares.mT @ of_upstream[..., None])])
    return squares.sqrt().tolist()


@settings(max_examples=40, deadline=None)
@example(lengths=[0], causal=True, width=64)
@example(lengths=[1] * 5, causal=True, width=128)
@example(lengths=[700, 64, 1], causal=True, width=80)
@given(lengths=LENGTHS, causal=st.booleans(), width=st.sampled_from([1, 8, 24, 32, 64, 80, 128]))
def test_values_and_gradients_are_those_of_fp64(way: Way, lengths: list[int], causal: bool, width: int) -> None:
    given = row(lengths, width)
    pairs = zip(found(way, given, lengths, causal), exact(given, lengths, causal), strict=True)
    for (ours, reference), before in zip(pairs, before_differences(given, lengths, causal), strict=True):
        assert ours.dtype == way.dtype
        assert float((ours.double() - reference).norm()) <= way.off * max(float(reference.norm()), before)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", LONG)
def test_long_documents_are_exact_too(way: Way, lengths: list[int], causal: bool) -> None:
    given = row(lengths, 32, heads=2)
    for ours, reference in zip(found(way, given, lengths, causal), exact(given, lengths, causal), strict=True):
        assert error(ours, reference) < way.off


@pytest.mark.parametrize("causal", [True, False])
def test_a_document_is_the_same_to_the_bit_in_any_row_and_by_any_number_of_threads(way: Way, causal: bool) -> None:
    lengths = [70, 1, 1300, 0, 33]
    given, threads = row(lengths, 48), torch.get_num_threads()
    packed = found(way, given, lengths, causal)
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            assert all(a.equal(b) for a, b in zip(found(way, given, lengths, causal), packed, strict=True))
    finally:
        torch.set_num_threads(threads)
    begin = 0
    for length in lengths:
        own = slice(begin, begin + length)
        alone = found(way, [x[own] for x in given], [length], causal)
        assert all(a.equal(b[own]) for a, b in zip(alone, packed, strict=True))
        begin += length


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_document(way: Way, wrong: float) -> None:
    given = row([40, 90, 20], 64)
    for x in given[:3]:
        x[60, 1, 5] = wrong
    for got in found(way, given, [40, 90, 20], True):
        assert got[:40].isfinite().all() and got[130:].isfinite().all()
        assert not got[40:130, 1].isfinite().all()
        assert got[40:130, [0, 2]].isfinite().all()  # and in its head


@pytest.mark.parametrize("size", [1e-3, 30.0])
def test_logits_of_any_size_have_shares(way: Way, size: float) -> None:
    """Those of 30 reach 20,000: nearly all is paid to one key, and no exponential overflows."""
    given = row([130], 64)
    given[0] *= size
    for got, reference in zip(found(way, given, [130], True, 0.5), exact(given, [130], True, 0.5), strict=True):
        assert got.isfinite().all()
        torch.testing.assert_close(got.double(), reference, rtol=0.05, atol=0.02 * float(reference.abs().max()))


def test_attention_is_this_one_where_kernels_are_asked_for(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v, _ = (x.float().requires_grad_() for x in row([9, 30], 16, heads=4))
    segments = Segments((9, 30))

    def run(**options: bool) -> list[str]:
        calls.clear()
        attend(q, k[:, :2], v[:, :2], segments, causal=True, **options).float().sum().backward()
        return calls

    with torch.autocast("cpu", torch.bfloat16):
        assert run(by_kernels=True) == ["attend", "attend_backward"]
        assert run() == []
        with torch.no_grad():
            out = attend(q, k, v, segments, causal=True, by_kernels=True)
            cached = attend_cached(q[9:], k[9:], v[9:], by_kernels=True)  # a prompt
        assert calls == ["attend"] * 2 and out[9:].equal(cached)
    monkeypatch.setattr(products, "pays", lambda: False)
    assert "attend" not in run(by_kernels=True)  # in fp32
    monkeypatch.setattr(products, "pays", lambda: True)
    assert run(by_kernels=True) == ["attend", "attend_backward"]
    with torch.no_grad():  # what is scored or written is to be the same with and without it
        attend(q, k, v, segments, causal=True, by_kernels=True)
        assert len(calls) == 2
        with products.frozen(True):
            attend(q, k, v, segments, causal=True, by_kernels=True)
    assert calls == ["attend", "attend_backward", "attend"]
    assert q.grad is not None and q.grad.dtype == torch.float32
    assert not can_attend(q, k, v, dtype=torch.bfloat16, scale=-1.0)  # a scale that would turn the largest logit


def test_its_operations_are_counted_by_real_lengths() -> None:
    q, k, v, _ = row([9, 30], 16, heads=4)
    with FlopCounterMode(display=False, custom_mapping=_MAPPING) as counted:
        attend_compiled(q.requires_grad_(), k, v, Segments((9, 30)), causal=True, scale=1.0)
    assert counted.get_total_flops() == 4 * (9 * 9 + 30 * 30) * 4 * 16


def test_a_processor_that_does_not_multiply_bf16_attends_as_before(
    monkeypatch: pytest.MonkeyPatch, calls: list[str]
) -> None:
    with_it(monkeypatch, "-mno-avx512bf16")
    q, k, v, _ = (x.requires_grad_() for x in row([9, 30], 16))
    out = attend(q, k, v, Segments((9, 30)), causal=True, by_kernels=True)
    assert set(calls) == {"softmax"}
    assert error(out, dense(q.double(), k.double(), v.double(), [9, 30], True)) < 2e-2


def test_a_compiler_that_fails_is_told_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_anew(monkeypatch, "false")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"train\.compile: false .* failed: exit status 1; set train\.compile"):
            attention_compiled.binary(torch.bfloat16)
