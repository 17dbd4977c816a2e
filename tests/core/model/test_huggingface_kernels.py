"""Norms and feed-forwards of transformers' models by C++ of ours."""

from __future__ import annotations

import copy
import pickle
import shutil
from typing import Any

import pytest
import torch
from torch import Tensor

from kosmos.model import huggingface_kernels
from kosmos.model.cpu_kernels import WithKernels, use_kernels
from kosmos.model.huggingface import HuggingFaceBackbone
from kosmos.model.segments import Segments
from kosmos.model.weights import without_memory

pytestmark = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
LENGTHS = (5, 70, 1, 60)


def backbone(kind: str, **fields: Any) -> HuggingFaceBackbone:
    torch.manual_seed(0)
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    return HuggingFaceBackbone(
        50, config={"model_type": kind, **small, "num_key_value_heads": 1, "vocab_size": 50, **fields}
    )


def offered(model: HuggingFaceBackbone) -> dict[str, int]:
    found = [type(module).__name__ for module in model.model.modules() if isinstance(module, WithKernels)]
    return {ending: sum(name.endswith(ending) for name in found) for ending in ("RMSNorm", "MLP")}


def hidden(model: HuggingFaceBackbone) -> Tensor:
    ids = torch.randint(50, (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))
    return model(model.embed(ids), torch.cat([torch.arange(n) for n in LENGTHS]), Segments(LENGTHS))


def results(model: HuggingFaceBackbone, precision: torch.dtype) -> list[Tensor]:
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
        out = hidden(model).float()
    out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(2)))
    return [out.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("kind", "norms"),
    [("llama", 5), ("qwen3", 9), ("qwen2", 5), ("mistral", 5), ("smollm3", 5), ("olmo2", 9), ("qwen3_moe", 9)],
)
def test_a_model_by_kernels_is_the_model_without_them(
    kind: str, norms: int, precision: torch.dtype, calls: list[str]
) -> None:
    experts = kind == "qwen3_moe"  # whose feed-forwards are products of groups
    few = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    model = backbone(kind, **(few if experts else {}))
    assert offered(model) == {"RMSNorm": norms, "MLP": 0 if experts else 2}
    found = []
    for wanted in (False, True):
        use_kernels(model, wanted)
        calls.clear()
        found.append(results(model, precision))
        ours = {"norm", "norm_backward"} | (set() if experts else {"swiglu", "swiglu_backward"})
        assert ours & set(calls) == (ours if wanted else set())
    for mine, theirs in zip(found[1], found[0], strict=True):
        assert (mine - theirs).norm() / theirs.norm() < {torch.float32: 1e-5, torch.bfloat16: 4e-2}[precision]


@pytest.mark.parametrize("default", [torch.float32, torch.bfloat16])
def test_models_without_weights_yet_are_given_them_too(default: torch.dtype) -> None:
    for known in (huggingface_kernels._is_rms_norm, huggingface_kernels._is_gated):  # as in a process of its own
        known.cache_clear()
    torch.set_default_dtype(default)
    try:
        with without_memory(), torch.device("meta"):
            assert offered(backbone("llama")) == {"RMSNorm": 5, "MLP": 2}
        with torch.autocast("cpu", torch.bfloat16), without_memory():
            assert offered(backbone("qwen2")) == {"RMSNorm": 5, "MLP": 2}
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_could_not_be_tried_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_kernels._is_gated.cache_clear()
    with monkeypatch.context() as broken, without_memory():
        broken.setattr(torch.nn.functional, "silu", None)
        assert offered(backbone("olmo2")) == {"RMSNorm": 9, "MLP": 0}
        broken.setattr(torch.nn.functional, "silu", fail)
        with pytest.warns(
            UserWarning, match=r"^hf: Olmo2MLP computes by PyTorch, as it could not be tried: RuntimeError: no silu$"
        ):
            assert offered(backbone("olmo2")) == {"RMSNorm": 9, "MLP": 0}
    assert offered(backbone("olmo2")) == {"RMSNorm": 9, "MLP": 2}


def fail(*_: Any) -> Tensor:
    raise RuntimeError("no silu")


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace")  # deprecated
def test_what_kernels_do_not_know_is_computed_without_them(calls: list[str]) -> None:
    layer = backbone("llama").blocks[0]
    use_kernels(layer)
    x = torch.randn(3, 32)
    traced = torch.jit.trace(layer.input_layernorm, x)  # in which values would be constants
    layer.input_layernorm.to("meta")(x.to("meta"))
    layer.mlp.up_proj.register_forward_hook(lambda module, given, out: out.bfloat16())
    mixed = layer.mlp(x)
    assert not calls
    use_kernels(layer, False)
    torch.testing.assert_close(traced(2 * x), backbone("llama").blocks[0].input_layernorm(2 * x))
    torch.testing.assert_close(mixed, layer.mlp(x))


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_it_can_be_copied_and_pickled(again: Any) -> None:
    model = backbone("llama").model
    use_kernels(model)
    other = again(model)
    assert [type(m) for m in other.modules()] == [type(m) for m in model.modules()]
    assert all(m.by_kernels for m in other.modules() if isinstance(m, WithKernels))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_scores_are_those_of_transformers_in_fp32_to_the_bit(calls: list[str]) -> None:
    model = backbone("qwen3")
    with torch.no_grad():
        before = hidden(model)
        with torch.autocast("cpu", torch.bfloat16):
            low = hidden(model)
        use_kernels(model)
        assert torch.equal(hidden(model), before) and not calls
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(hidden(model).float(), low.float(), rtol=0.05, atol=0.05)
    assert {"norm", "swiglu"} <= {*calls}


@pytest.mark.parametrize(
    ("kind", "fields", "offers"),
    [
        ("gemma3_text", {}, {"RMSNorm": 0, "MLP": 0}),  # weights are 1 + w, feed-forwards with GELU
        ("phi3", {"pad_token_id": 0}, {"RMSNorm": 5, "MLP": 0}),  # one product for gate and inner
        ("llama", {"hidden_act": "gelu"}, {"RMSNorm": 5, "MLP": 0}),
        # Its layers add what comes to what norms give, which would be a residual stream in bf16.
        ("minimax", {"layer_types": ["full_attention"] * 2, "num_local_experts": 2}, {"RMSNorm": 0, "MLP": 0}),
    ],
)
def test_what_computes_something_else_stays(kind: str, fields: dict[str, Any], offers: dict[str, int]) -> None:
    model = backbone(kind, **fields)
    assert offered(model) == offers
    use_kernels(model)
    hidden(model).sum().backward()
