"""The built-in decoder: packing, cache, presets, positions."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kosmos.errors import ConfigError
from kosmos.model import rotary
from kosmos.model.decoder import Decoder
from kosmos.model.loss import linear_cross_entropy
from kosmos.model.recompute import uncompiled
from kosmos.model.rotary import XPOS_LONGEST, rotate, rotation
from kosmos.model.segments import Segments

V = 40
SMALL: dict[str, Any] = {"width": 32, "layers": 2, "heads": 4, "ffn_width": 48, "dropout": 0.0}
VARIANTS: dict[str, dict[str, Any]] = {
    "tiny": {"preset": "tiny", **SMALL},
    "kosmos-1": {"preset": "kosmos-1", **SMALL},
    "7b": {"preset": "7b", **SMALL},
    "18b": {"preset": "18b", **SMALL},
    "grouped": {"kv_heads": 2, "qk_norm": True, "tie_embeddings": True, **SMALL},
}


def build(variant: str, **options: Any) -> Decoder:
    torch.manual_seed(0)
    return Decoder(V, **{**VARIANTS[variant], **options}).double()


def positions(lengths: tuple[int, ...]) -> Tensor:
    return torch.cat([torch.arange(n) for n in lengths])


def loss_and_gradients(model: Decoder, ids: Tensor, rows: list[tuple[int, ...]]) -> tuple[Tensor, list[Tensor]]:
    """Summed over ``rows``, each a packed row of documents that follow each other in ``ids``."""
    model.zero_grad()
    total = torch.zeros((), dtype=torch.float64)
    for lengths, part in zip(rows, ids.split([sum(row) for row in rows]), strict=True):
        hidden = model(model.embed(part), positions(lengths), Segments(lengths))
        total = total + linear_cross_entropy(hidden, model.output_weight(), part.roll(1)).total
    total.backward()
    return total.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=12, deadline=None)
@given(lengths=st.lists(st.integers(1, 70), min_size=1, max_size=5))
def test_packed_hidden_states_and_gradients_equal_those_of_each_document_alone(
    variant: str, lengths: list[int]
) -> None:
    model = build(variant)
    ids = torch.randint(V, (sum(lengths),), generator=torch.Generator().manual_seed(1))
    targets = torch.cat([part.roll(1) for part in ids.split(lengths)])
    results = []
    for rows in ([tuple(lengths)], [(n,) for n in lengths]):
        model.zero_grad()
        hidden = [
            model(model.embed(part), positions(row), Segments(row))
            for row, part in zip(rows, ids.split([sum(row) for row in rows]), strict=True)
        ]
        loss = linear_cross_entropy(torch.cat(hidden), model.output_weight(), targets).total
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    assert len(results[0]) == 1 + len(list(model.parameters()))
    for packed, alone in zip(*results, strict=True):
        # fp64; measured 2.3e-15 of the largest gradient
        torch.testing.assert_close(packed, alone, rtol=0, atol=1e-11 * max(1.0, float(alone.abs().max())))


@pytest.mark.parametrize("variant", VARIANTS)
def test_decoding_with_a_cache_gives_the_hidden_states_of_the_whole_document(variant: str) -> None:
    model = build(variant).eval()
    ids = torch.randint(V, (150,))
    with torch.no_grad():
        whole = model(model.embed(ids), torch.arange(150), Segments((150,)))
        cache = model.new_cache()
        parts = []
        for n in (10, 1, 1, 60, 78):
            at = cache.length
            x = model.embed(ids[at : at + n])
            parts.append(model(x, torch.arange(at, at + n), Segments((n,)), cache))
    assert cache.length == 150
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-11)  # fp64; measured 1.2e-15


@pytest.mark.parametrize(
    ("preset", "vocab_size", "parameters"),
    [
        ("tiny", 300, 601_728),
        ("small", 50_257, 123_551_232),
        ("kosmos-1", 64_007, 1_340_180_480),
        ("7b", 32_000, 7_241_732_096),
        ("18b", 32_000, 18_211_227_648),
    ],
)
def test_presets_have_the_stated_number_of_parameters(preset: Any, vocab_size: int, parameters: int) -> None:
    with torch.device("meta"):
        model = Decoder(vocab_size, preset=preset)
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_a_row_without_tokens_runs_forward_and_backward() -> None:
    model = build("kosmos-1")
    ids = torch.zeros(0, dtype=torch.int64)
    hidden = model(model.embed(ids), ids, Segments(()))
    linear_cross_entropy(hidden, model.output_weight(), ids).total.backward()
    assert hidden.shape == (0, 32)


@pytest.mark.parametrize("how", [True, "selective"])
def test_gradient_checkpointing_changes_no_gradient(how: Any) -> None:
    model = build("grouped")
    ids = torch.randint(V, (30,))
    plain = loss_and_gradients(model, ids, [(10, 20)])
    model.set_gradient_checkpointing(how)
    recomputed = loss_and_gradients(model, ids, [(10, 20)])
    assert all(torch.equal(a, b) for a, b in zip(plain[1], recomputed[1], strict=True))


class Calls(TorchDispatchMode):
    """Counts calls of operators."""

    def __init__(self) -> None:
        super().__init__()
        self.of: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.of[func.__name__.partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))


def test_selective_checkpointing_computes_what_is_cheap_again_and_no_product_nor_attention() -> None:
    calls = {}
    for how in (False, "selective", True):
        model = build("grouped")
        model.set_gradient_checkpointing(how)
        ids, lengths = torch.randint(V, (30,)), (10, 20)
        loss = model(model.embed(ids), positions(lengths), Segments(lengths)).sum()
        with Calls() as calls[how]:
            loss.backward()
    none, selective, full = (calls[how].of for how in (False, "selective", True))
    attention = "attention_in_products"
    assert selective["mm"] == none["mm"] < full["mm"]
    assert selective[attention] == none[attention] == 0 < full[attention]
    assert none["silu"] == 0 < selective["silu"] == full["silu"]


def test_compiled_blocks_that_run_as_written_for_once_keep_no_more_than_products() -> None:
    calls = {}
    for compiled in (False, True):
        model = build("grouped")
        ids, lengths = torch.randint(V, (30,)), (10, 20)
        with uncompiled():
            for block in model.blocks if compiled else ():
                block.compile(backend="eager")
            loss = model(model.embed(ids), positions(lengths), Segments(lengths)).sum()
            with Calls() as calls[compiled]:
                loss.backward()
    plain, of_compiled = calls[False].of, calls[True].of
    assert of_compiled["mm"] == plain["mm"]
    assert of_compiled["silu"] > plain["silu"] == 0  # computed again


def test_bf16_parameters_stay_close_to_fp32_ones() -> None:
    model = build("tiny").float()
    ids, lengths = torch.randint(V, (40,)), (15, 25)
    with torch.no_grad():
        exact = model(model.embed(ids), positions(lengths), Segments(lengths))
        model.bfloat16()
        rough = model(model.embed(ids), positions(lengths), Segments(lengths))
    assert rough.dtype == torch.bfloat16
    assert float((rough.float() - exact).norm() / exact.norm()) < 0.03  # measured 0.011


def test_magneto_scales_value_output_and_feed_forward_by_the_root_of_the_log_of_twice_the_layers() -> None:
    torch.manual_seed(0)
    model = Decoder(V, preset="kosmos-1", width=256, layers=4, heads=4, ffn_width=512)
    gain = math.sqrt(math.log(8))
    weights = {name: p.detach() for name, p in model.blocks[1].named_parameters()}
    square, wide = math.sqrt(2 / 512), math.sqrt(2 / 768)
    for weight, std in (
        (weights["attention.query.weight"], square),
        (weights["attention.key.weight"], square),
        (weights["attention.value.weight"], square * gain),
        (weights["attention.output.weight"], square * gain),
        (weights["feed_forward.inner.weight"], wide * gain),
        (weights["feed_forward.output.weight"], wide * gain),
    ):
        assert float(weight.std()) == pytest.approx(std, rel=0.02)


def xpos_logits(n: Tensor, m: Tensor, q: Tensor, k: Tensor, middle: int, dtype: torch.dtype) -> Tensor:
    def turn(x: Tensor, at: Tensor, side: int) -> Tensor:
        table = rotation(at, 16, "xpos", base=10_000.0, middle=middle, dtype=dtype)
        return rotate(x.to(dtype)[None, None].expand(len(at), 1, -1), table[side])

    return (turn(q, n, 0) * turn(k, m, 1)).sum(-1)[:, 0]


def test_xpos_logits_follow_the_formula_and_depend_on_distance_alone() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 16, dtype=torch.float64)
    n, m = torch.tensor([5, 105, 900, 30_900]), torch.tensor([5, 105, 100, 30_100])
    got = xpos_logits(n, m, q, k, 0, torch.float64)
    i = torch.arange(0, 16, 2, dtype=torch.float64)
    zeta, wave = (i + 0.4 * 16) / (1.4 * 16), 10_000.0 ** (-i / 16)
    a, b = torch.complex(q[:8], q[8:]), torch.complex(k[:8], k[8:])
    distance = (n - m)[:, None].double()
    phase = torch.polar(zeta ** (distance / 512), distance * wave)
    expected = (a * b.conj() * phase).real.sum(1)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)  # fp64; measured 4e-15


def test_xpos_stays_finite_and_right_in_fp32_at_the_longest_position() -> None:
    q, k = torch.randn(2, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    n = torch.tensor([XPOS_LONGEST - 1])
    rough = xpos_logits(n, n - 3, q, k, 0, torch.float32)
    exact = xpos_logits(n, n - 3, q, k, 0, torch.float64)
    torch.testing.assert_close(rough.double(), exact, rtol=0, atol=2e-2)  # measured 2e-4: angles of 3e4 in fp32


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"preset": "huge"}, "no decoder 'huge'"),
        ({"width": 100, "heads": 3}, "heads: 3"),
        ({"kv_heads": 3}, "kv_heads: 3"),
        ({"layers": 0}, "layers"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Decoder(V, **options)


def test_a_document_too_long_for_xpos_is_refused() -> None:
    model = build("kosmos-1")
    n = XPOS_LONGEST + 1
    with pytest.raises(ConfigError, match="at most 32768"):
        model(torch.zeros(n, 32, dtype=torch.float64), torch.arange(n), Segments((n,)))


def test_what_writes_to_the_residual_stream_starts_smaller():
    block = Decoder(300, width=64, layers=8, heads=2, ffn_width=96).blocks[0]
    assert float(block.attention.query.weight.detach().std()) == pytest.approx(64**-0.5, rel=0.05)
    for layer in (block.attention.output, block.feed_forward.output):
        expected = layer.in_features**-0.5 / 16**0.5
        assert float(layer.weight.detach().std()) == pytest.approx(expected, rel=0.05)


def test_a_text_that_is_written_past_what_xpos_holds_is_refused(monkeypatch):

    monkeypatch.setattr(rotary, "XPOS_LONGEST", 10)
    model = Decoder(300, width=64, layers=1, heads=2, ffn_width=96, positions="xpos")
    cache = model.new_cache()
    with torch.no_grad():
        model(model.embed(torch.arange(10)), torch.arange(10), Segments((10,)), cache)
        with pytest.raises(ConfigError, match="11 tokens, at most 10"):
            model(model.embed(torch.tensor([1])), torch.tensor([10]), Segments((1,)), cache)
