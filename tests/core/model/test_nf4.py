"""Weights in 4 bits: what they are rounded to, the products with them, and how little a backward pass keeps."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from kosmos.errors import ConfigError
from kosmos.model.decoder import Decoder
from kosmos.model.lora import LoRALinear, add_lora, merge_updates
from kosmos.model.nf4 import pack, packed_shape, shape_of, unpack, values_in
from kosmos.model.nf4_linear import NF4Linear, begin_nf4
from kosmos.model.quantize import pack_weights, packed_of

WIDEST = (1.0 - 0.6961928009986877) / 2
"""Half of the widest gap between levels."""


def weight(seed: int = 0, rows: int = 6, columns: int = 128, scale: float = 0.02) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * scale


@given(st.integers(0, 99), st.integers(0, 5), st.integers(1, 4), st.sampled_from([0, 1e-30, 1, 1e9]))
@settings(max_examples=40, deadline=None)
def test_no_value_is_farther_than_half_a_gap(seed: int, rows: int, blocks: int, scale: float) -> None:
    whole = weight(seed, rows, 64 * blocks, scale)
    packed = pack(whole)
    assert tuple(packed.shape) == packed_shape(whole) and shape_of(packed.shape) == tuple(whole.shape)
    assert values_in(packed) == whole.numel() and packed.nbytes * 8 == 4.25 * whole.numel()
    found = unpack(packed, torch.float32)
    largest = whole.view(-1, 64).abs().amax(1, keepdim=True)
    assert bool(((found - whole).view(-1, 64).abs() <= largest * (WIDEST + 2**-8)).all())
    again = unpack(pack(found), torch.float32)  # what is rounded once stays as it is
    torch.testing.assert_close(again, found, rtol=2**-7, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_another_type_is_rounded_once(dtype: torch.dtype) -> None:
    packed = pack(weight())
    assert torch.equal(unpack(packed, dtype), unpack(packed, torch.float32).to(dtype))


def layers(bias: bool = True) -> tuple[nn.Module, nn.Module]:
    """Packed, and the same with the rounded weights in whole layers."""
    torch.manual_seed(1)
    packed = nn.Sequential(nn.Linear(128, 64, bias=bias), nn.GELU(), nn.Linear(64, 8, bias=bias))
    add_lora(packed, "backbone.lora", rank=2, alpha=4, layers=["0"])
    for module in packed.modules():
        if isinstance(module, LoRALinear):
            nn.init.normal_(module.low_rank_b)
    whole = copy.deepcopy(packed)
    assert pack_weights(packed, "backbone.lora") == 2
    for mine, theirs in ((packed[0], whole[0]), (packed[2], whole[2])):
        assert isinstance(mine, NF4Linear)
        theirs.weight.data = mine.weight  # type: ignore[union-attr, assignment]
    return packed, whole


@pytest.mark.parametrize("precision", [None, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_products_and_gradients_are_those_of_the_rounded_weights(precision: Any, bias: bool) -> None:
    outcomes = []
    for model in layers(bias):
        x = torch.randn(5, 128, generator=torch.Generator().manual_seed(3), requires_grad=True)
        for layer in model.modules():
            if isinstance(layer, nn.Linear) and layer.bias is not None:
                layer.bias.requires_grad_(True)
        with torch.autocast("cpu", dtype=precision or torch.bfloat16, enabled=precision is not None):
            y = model(x)
        y.float().square().sum().backward()
        biases = [module.bias.grad for module in model if getattr(module, "bias", None) is not None]
        outcomes.append([y, x.grad, model[0].low_rank_a.grad, model[0].low_rank_b.grad, *biases])  # type: ignore[index]
    close = {"rtol": 2**-7, "atol": 1e-3} if precision else {}  # sums of the same in another order
    for one, other in zip(*outcomes, strict=True):
        torch.testing.assert_close(one, other, **close)


def test_a_backward_pass_keeps_the_packed_weight_alone() -> None:
    packed, _ = layers()
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        packed(torch.randn(3, 128, requires_grad=True))
    assert {t.data_ptr() for t in kept} >= {p.data_ptr() for p in packed_of(packed)}
    assert max(t.numel() for t in kept if t.dtype != torch.uint8) < 64 * 128  # the weight of the first layer


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's compiler does
def test_a_compiled_layer_is_one_graph_and_gives_the_same() -> None:
    packed, _ = layers()
    compiled = torch.compile(packed, fullgraph=True, backend="aot_eager")
    x, outcomes = torch.randn(5, 128), []
    for model in (packed, compiled):
        given = x.clone().requires_grad_()
        y = model(given)
        y.sum().backward()
        outcomes.append((y, given.grad))
    for one, other in zip(*outcomes, strict=True):
        torch.testing.assert_close(one, other)


def test_the_type_of_a_layer_follows_its_module_and_a_vector_has_gradients_too() -> None:
    layer = nn.Linear(64, 8)
    layer.weight.requires_grad_(False)
    begin_nf4(layer)
    layer(torch.randn(64, requires_grad=True)).sum().backward()
    assert torch.equal(layer.bias.grad, torch.ones(8))  # type: ignore[arg-type]
    layer.to(torch.bfloat16)
    assert layer.weight.dtype == torch.bfloat16
    layer.merge()  # type: ignore[operator]
    assert {p.dtype for p in layer.parameters()} == {torch.bfloat16} and not dict(layer.named_buffers())


def test_a_merged_layer_is_one_like_others() -> None:
    packed, whole = layers()
    for model in (packed, whole):
        merge_updates(model)
    assert not packed_of(packed) and type(packed[0]) is type(packed[2]) is nn.Linear  # type: ignore[index]
    theirs = whole.state_dict()
    assert packed.state_dict().keys() == theirs.keys()
    for name, tensor in packed.state_dict().items():
        torch.testing.assert_close(tensor, theirs[name])


def test_what_is_trained_shared_or_of_an_odd_size_stays_whole() -> None:
    model = nn.Module()
    model.one, model.two, model.odd, model.learns = (nn.Linear(n, 4) for n in (64, 64, 60, 64))
    model.two.weight = model.one.weight
    model.requires_grad_(False)
    model.learns.weight.requires_grad_(True)
    with pytest.raises(ConfigError, match=r"lora\.quantize: Module has no frozen linear layer of a multiple of 64"):
        pack_weights(model, "streams.x.lora")


def test_weights_that_a_run_draws_are_refused() -> None:
    decoder = Decoder(100, layers=1, width=64, heads=2)
    with pytest.raises(ConfigError, match=r"backbone\.lora\.quantize: Decoder draws its weights"):
        pack_weights(decoder, "backbone.lora")
