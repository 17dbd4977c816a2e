"""A vision transformer of timm attends by Kosmos's C++ in training on a CPU, and is the same model."""

from __future__ import annotations

import shutil
from copy import deepcopy
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from kosmos.model import attention_compiled, products
from kosmos.model.cpu_kernels import use_kernels
from kosmos_vision import timm_attention
from kosmos_vision.timm_attention import Attention, PictureAttention
from kosmos_vision.timm_encoder import TimmEncoder
from support.kernels import multiply_as_convolutions

SMALL = {"depth": 2, "embed_dim": 32, "num_heads": 2}
GRIDS = torch.tensor([[1, 4, 4], [2, 4, 4]])

pytestmark = [
    pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler"),
    pytest.mark.skipif(
        not torch.cpu.get_capabilities().get("avx512_bf16"), reason="a processor that does not multiply bf16"
    ),
]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    call = attention_compiled.call
    monkeypatch.setattr(attention_compiled, "call", lambda f, name, *rest: (names.append(name), call(f, name, *rest)))
    return names


def encoder(model: str = "vit_tiny_patch16_224", **options: Any) -> TimmEncoder:
    torch.manual_seed(0)
    found = TimmEncoder(model=model, image_size=64, model_options=SMALL, **options)
    use_kernels(found)
    return found


def run(model: TimmEncoder, grids: Tensor = GRIDS, dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    """Features, and gradients of all weights."""
    size = torch.Size((int(grids.prod(dim=1).sum()), 3, 16, 16))
    values = torch.randint(256, size, generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        out = model(values, grids)
    if not out.requires_grad:
        return [out]
    model.zero_grad()
    out.float().backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(1)))
    return [out.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def close(found: list[Tensor], expected: list[Tensor]) -> bool:
    """As two ways of rounding to bf16 differ: measured up to 0.02."""
    return all(
        float((a.float() - b.float()).norm()) < 0.05 * float(b.float().norm()) + 1e-3
        for a, b in zip(found, expected, strict=True)
    )


VARIABLE = {"model": "naflexvit_base_patch16_gap", "variable": True}


@pytest.mark.parametrize("options", [{}, {"variable": True}, VARIABLE], ids=["vit", "vit in a row", "naflex"])
def test_it_is_the_model_that_it_is_without_kernels(options: dict[str, Any], calls: list[str]) -> None:
    model, grids = encoder(**options), torch.tensor([[1, 4, 4], [1, 3, 5]]) if options else GRIDS
    ours = run(model, grids)
    assert calls == 2 * ["attend"] + 2 * ["attend_backward"]
    use_kernels(model, False)
    assert close(ours, run(model, grids))
    assert len(calls) == 4


def test_pictures_of_many_cells_attend_so_too(calls: list[str]) -> None:
    """Of which torch's attention is slow, and shares of all cells would take much memory."""
    model = encoder(variable=True)
    grids = torch.tensor([[1, 21, 20]])
    ours = run(model, grids)
    assert calls
    use_kernels(model, False)
    assert close(ours, run(model, grids))


def test_of_no_pictures_it_gives_none() -> None:
    attention = encoder().blocks[0].attn
    with torch.autocast("cpu", torch.bfloat16):
        assert cast(PictureAttention, attention).attends(torch.device("cpu"), torch.float32)
        assert cast(PictureAttention, attention)(torch.zeros(0, 17, 32)).shape == (0, 17, 32)


@pytest.mark.parametrize("options", [{}, {"variable": True}], ids=["vit", "vit in a row"])
def test_without_gradients_as_of_one_that_is_frozen_it_attends_so_too(
    options: dict[str, Any], calls: list[str]
) -> None:
    model = encoder(**options)
    with torch.no_grad():
        ours = run(model)
    assert calls == 2 * ["attend"]
    use_kernels(model, False)
    with torch.no_grad():
        assert close(ours, run(model))
    assert len(calls) == 2


def test_in_fp32_it_is_torchs_but_in_steps_where_ours_is_faster(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = encoder()
    multiply_as_convolutions(monkeypatch)
    ours = run(model, dtype=torch.float32)
    assert calls == 2 * ["attend"] + 2 * ["attend_backward"]
    calls.clear()
    monkeypatch.setattr(timm_attention, "within_items", None)  # nobody may call it
    with torch.no_grad():
        run(model, dtype=torch.float32)
    monkeypatch.setattr(products, "pays", lambda: False)
    torchs = run(model, dtype=torch.float32)
    assert not calls
    for a, b in zip(ours, torchs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_weights_that_wait_on_the_cpu_do_not_say_where_pictures_attend() -> None:
    model = encoder()
    with torch.autocast("cpu", torch.bfloat16):
        for by_kernels in (True, False):
            use_kernels(model, by_kernels)
            model._pick_attention(torch.device("cuda"), 16)
            assert all(module.fused_attn for module in model._attentions)
            model._pick_attention(torch.device("cpu"), 16)
            assert all(module.fused_attn is by_kernels for module in model._attentions)


def test_what_drops_attention_stays_timms(calls: list[str]) -> None:
    torch.manual_seed(0)
    model = TimmEncoder(model="vit_tiny_patch16_224", image_size=64, model_options={**SMALL, "attn_drop_rate": 0.5})
    use_kernels(model)
    run(model)
    assert not calls


def test_a_copy_attends_with_its_own_weights_and_may_be_recomputed(calls: list[str]) -> None:
    model = encoder()
    other = deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.5)
    assert not close(run(other), run(model))
    kept = run(model)
    calls.clear()
    model.set_gradient_checkpointing(True)
    assert all(a.equal(b) for a, b in zip(run(model), kept, strict=True))
    assert calls.count("attend") == 4


def test_only_timms_plain_attention_is_taken() -> None:
    kinds = {type(m) for m in encoder().model.modules() if isinstance(m, Attention)}
    assert kinds == {PictureAttention}
