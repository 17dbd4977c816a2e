"""The loss of the balance of experts: transformers' own value and gradients, and no more than was asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kosmos import ConfigError, Segments, WithLosses
from kosmos.model.huggingface import HuggingFaceBackbone

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
KINDS: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 4, "intermediate_size": 24},
    "qwen3_moe": {"num_experts": 4, "moe_intermediate_size": 24, "head_dim": 16},
}
WEIGHT = 0.02
LENGTHS = (12, 8)


def made(kind: str, weight: float | None = WEIGHT) -> HuggingFaceBackbone:
    torch.manual_seed(0)
    config = {"model_type": kind, **SMALL, **KINDS[kind], "num_experts_per_tok": 2}
    return HuggingFaceBackbone(300, config=config, router_loss=weight).train()


def run(model: HuggingFaceBackbone, ids: torch.Tensor, lengths: tuple[int, ...], cache: Any = None) -> Any:
    positions = torch.cat([torch.arange(length) for length in lengths])
    return model(model.embed(ids), positions, Segments(lengths), cache)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recompute", [False, True])
def test_it_is_that_of_transformers_times_the_tokens(kind: str, recompute: bool) -> None:
    model, ids = made(kind), torch.arange(12) * 7
    plain = model.to_transformers(512).train()
    theirs = plain(input_ids=ids[None], output_router_logits=True).aux_loss
    model.set_gradient_checkpointing(recompute)
    found = run(model, ids, (12,))
    assert isinstance(found, WithLosses) and list(found.losses) == ["router"]
    torch.testing.assert_close(found.losses["router"], WEIGHT * 12 * theirs, rtol=1e-5, atol=0)
    wanted = [name for name, _ in model.model.named_parameters() if name.endswith("gate.weight")]
    weights = [dict(model.model.named_parameters())[name] for name in wanted]
    ours = torch.autograd.grad(found.losses["router"], weights)
    expected = torch.autograd.grad(WEIGHT * 12 * theirs, [dict(plain.named_parameters())[name] for name in wanted])
    assert len(wanted) == 2 and all(gradient.any() for gradient in ours)
    torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-7)


def test_it_is_there_in_training_alone_and_changes_no_hidden_state() -> None:
    model, ids = made("mixtral"), torch.arange(20)
    found = run(model, ids, LENGTHS)
    torch.testing.assert_close(found.output, run(made("mixtral", None), ids, LENGTHS), rtol=0, atol=0)
    assert isinstance(run(model.eval(), ids, LENGTHS), torch.Tensor)
    with torch.no_grad():
        assert isinstance(run(model.train(), ids, LENGTHS), torch.Tensor)
        assert isinstance(run(model, ids[:12], (12,), model.new_cache()), torch.Tensor)
    assert run(model, ids[:0], (0,)).shape == (0, 32)


def test_where_there_is_none_it_is_refused() -> None:
    llama = {"model_type": "llama", **SMALL, "intermediate_size": 24}
    with pytest.raises(ConfigError, match=r"^hf: router_loss: llama \(LlamaForCausalLM\) has no loss of the balance"):
        HuggingFaceBackbone(300, config=llama, router_loss=0.01)
    with pytest.raises(ConfigError, match=r"^hf: router_loss: expected a number above 0, got -1"):
        made("mixtral", -1.0)
