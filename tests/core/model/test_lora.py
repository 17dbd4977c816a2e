"""Low-rank updates beside linear layers: what they compute, where they stand, and what is trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kosmos.errors import ConfigError
from kosmos.model.decoder import Decoder
from kosmos.model.huggingface import HuggingFaceBackbone
from kosmos.model.lora import LoRALinear, add_lora, merge_updates
from kosmos.model.segments import Segments
from kosmos.model.weights import materialize, seed_part, without_memory

SHAPE = {"width": 32, "layers": 2, "heads": 2, "ffn_width": 48}
LLAMA = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 48}  # fmt: skip


def decoder() -> Decoder:
    torch.manual_seed(0)
    return Decoder(100, **SHAPE)  # type: ignore[arg-type]


def llama() -> HuggingFaceBackbone:
    torch.manual_seed(0)
    return HuggingFaceBackbone(100, config=LLAMA)


def with_updates(part: nn.Module, **more: Any) -> nn.Module:
    torch.manual_seed(1)
    add_lora(part, "lora", **{"rank": 4, "alpha": 8, "leave": [part.output_weight()], **more})  # type: ignore[operator]
    return part


def hidden(part: nn.Module) -> torch.Tensor:
    ids = torch.arange(24) % 100
    row = Segments((10, 0, 14))
    places = torch.cat([torch.arange(10), torch.arange(14)])
    return part(part.embed(ids), places, row)  # type: ignore[operator, no-any-return]


def stirred(part: nn.Module) -> nn.Module:
    """As after some steps."""
    torch.manual_seed(2)
    for name, parameter in part.named_parameters():
        if name.endswith("low_rank_b"):
            nn.init.normal_(parameter, std=0.2)
    return part


@pytest.mark.parametrize("made", [decoder, llama])
def test_a_model_begins_as_it_was_and_only_updates_learn(made: Any) -> None:
    before = made()
    part = with_updates(made())
    assert torch.equal(hidden(part), hidden(before))
    hidden(part).square().sum().backward()
    own = dict(before.named_parameters())
    for name, parameter in part.named_parameters():
        assert (parameter.grad is None) == (name in own)
        if name in own:
            assert torch.equal(parameter, own[name])
    layers = [module for module in before.modules() if isinstance(module, nn.Linear)]
    inside = [layer for layer in layers if layer.weight is not before.output_weight()]
    learned = sum(p.numel() for p in part.parameters() if p.requires_grad)
    assert learned == sum(4 * (layer.in_features + layer.out_features) for layer in inside)


@pytest.mark.parametrize("bias", [True, False])
def test_an_update_adds_its_product_by_alpha_over_rank(bias: bool) -> None:
    torch.manual_seed(0)
    layer: Any = nn.Linear(6, 5, bias=bias)
    x = torch.randn(2, 3, 6)
    before = layer(x)
    LoRALinear.begin(layer, 3, 2.5)
    nn.init.normal_(layer.low_rank_b)
    torch.testing.assert_close(layer(x), before + 2.5 * (x @ layer.low_rank_a.T @ layer.low_rank_b.T))
    assert layer(x[:, :0]).shape == (2, 0, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    narrow: Any = nn.Linear(6, 5, bias=bias).bfloat16()
    LoRALinear.begin(narrow, 3, 1.0)
    assert narrow(x.bfloat16()).dtype == torch.bfloat16 and narrow.low_rank_a.dtype == torch.float32


def test_a_small_update_in_bf16_is_not_lost_in_a_weight_of_fp32() -> None:
    layer: Any = nn.Linear(64, 64)
    LoRALinear.begin(layer, 4, 2.0)
    nn.init.normal_(layer.low_rank_b, std=1e-4)
    for parameter in (layer.low_rank_a, layer.low_rank_b):
        parameter.data = parameter.data.bfloat16()
    before, exact = layer.weight.clone(), 2.0 * layer.low_rank_b.double() @ layer.low_rank_a.double()
    layer.merge()
    assert type(layer) is nn.Linear and set(dict(layer.named_parameters())) == {"weight", "bias"}
    torch.testing.assert_close((layer.weight - before).double(), exact, rtol=1e-2, atol=1e-7)


@pytest.mark.parametrize("made", [decoder, llama])
def test_merged_updates_give_the_same_with_the_layers_of_before(made: Any) -> None:
    part = stirred(with_updates(made()))
    before = hidden(part)
    assert not torch.allclose(before, hidden(made()), atol=1e-2)
    merge_updates(part)
    torch.testing.assert_close(hidden(part), before, rtol=1e-4, atol=1e-5)
    assert part.state_dict().keys() == made().state_dict().keys()


def test_layers_and_whole_modules_are_named_by_the_last_parts_of_their_names() -> None:
    part = with_updates(llama(), layers=["q_proj", "layers.1.mlp.up_proj"], whole=["embed_tokens", "layers.0.mlp"])
    found = {name for name, module in part.named_modules() if isinstance(module, LoRALinear)}
    assert found == {f"model.model.layers.{n}.self_attn.q_proj" for n in (0, 1)} | {"model.model.layers.1.mlp.up_proj"}
    whole = {name for name, p in part.named_parameters() if p.requires_grad and "low_rank" not in name}
    assert whole == {"model.model.embed_tokens.weight"} | {
        f"model.model.layers.0.mlp.{name}_proj.weight" for name in ("gate", "up", "down")
    }


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"layers": ["q_prj"]}, r"lora\.layers: no linear layer is called 'q_prj'; did you mean q_proj\?"),
        ({"layers": ["lm_head"]}, r"lora\.layers: no linear layer is called 'lm_head'; there are q_proj, k_proj, "),
        ({"layers": ["all-linear"]}, r"lora\.layers: .*, down_proj; leave layers out for all of them"),
        ({"whole": ["embeddings"]}, r"lora\.whole: no module is called 'embeddings'; "),
        ({"whole": ["layers"]}, r"lora: there is no linear layer to put an update beside, since lora\.whole has all"),
        ({"whole": [""]}, r"lora\.whole: no module is called ''"),
    ],
)
def test_a_name_that_is_nobodys_is_one_line(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}"):
        with_updates(llama(), **more)


class Encoder(nn.Module):
    """Layers that are held, watched, read and fixed in other ways than most."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.again = nn.Linear(4, 4)
        self.held = [self.first]
        self.first.register_buffer("scale", torch.ones(2))
        self.first.register_forward_hook(lambda module, given, out: 2 * out)
        self.attention = nn.MultiheadAttention(4, 2)  # whose projections are read, not called
        self.normed = torch.nn.utils.spectral_norm(nn.Linear(4, 4))  # whose weight is no parameter
        self.block = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)  # reads its layers in evaluation mode
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.other.weight = self.one.weight
        self.place = nn.Embedding(4, 4).requires_grad_(False)
        self.code = nn.Sequential(nn.Embedding(4, 4), self.place)


def encoder(**more: Any) -> Encoder:
    torch.manual_seed(0)
    part = Encoder()
    add_lora(part, "lora", rank=2, alpha=2, **more)
    return part


def test_a_layer_is_where_it_was_for_all_that_hold_or_watch_it() -> None:
    part = encoder()
    first: Any = part.first
    assert isinstance(first, LoRALinear) and part.again is first and part.held == [first]
    x = torch.ones(1, 4)
    nn.init.ones_(first.low_rank_b)
    expected = 2 * (F.linear(x, first.weight, first.bias) + (x @ first.low_rank_a.T).sum())
    torch.testing.assert_close(first(x), expected)
    merge_updates(part)
    torch.testing.assert_close(part.first(x), expected)


def test_layers_that_are_read_without_being_called_have_no_update_or_are_called() -> None:
    part = encoder()
    others = (part.attention.out_proj, part.normed, part.block.self_attn.out_proj, part.one, part.other)
    assert not any(isinstance(layer, LoRALinear) for layer in others)
    assert isinstance(part.block.linear1, LoRALinear)
    stirred(part)
    x = torch.randn(3, 1, 4)
    with torch.no_grad():
        torch.testing.assert_close(part.block.eval()(x), part.block.train()(x))


def test_what_a_part_has_fixed_is_not_trained_with_the_whole() -> None:
    part = encoder(whole=["code"])
    assert [name for name, p in part.code.named_parameters() if p.requires_grad] == ["0.weight"]


@pytest.mark.parametrize("kind", ["decoder", "hf"])
def test_weights_that_are_filled_later_are_those_of_a_model_made_at_once(kind: str) -> None:
    """As each rank of a sharded run has them."""

    def built() -> nn.Module:
        seed_part(3, "backbone")
        return Decoder(100, **SHAPE) if kind == "decoder" else HuggingFaceBackbone(100, config=LLAMA)  # type: ignore[arg-type]

    at_once = with_updates(built())
    with without_memory():
        later = built()
    later = with_updates(later)
    assert all(p.is_meta for p in later.parameters())
    materialize(later, torch.device("cpu"), draw=True)
    filled, expected = dict(later.named_parameters()), dict(at_once.named_parameters())
    assert filled.keys() == expected.keys()
    assert all(torch.equal(filled[name], tensor) for name, tensor in expected.items())
