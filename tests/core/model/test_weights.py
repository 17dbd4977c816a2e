"""Initial weights: what is drawn, and that it is the same however and whenever it is drawn."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from kosmos import BackboneSpec, hookimpl, make_run
from kosmos.compose import compose
from kosmos.model.decoder import Decoder
from kosmos.model.huggingface import HuggingFaceBackbone
from kosmos.model.weights import BLOCK, Normal, draw_weights, materialize, round_weights, without_memory
from support.runs import small_run, ticks_registry

CPU = torch.device("cpu")


class Plain(nn.Module):
    def __init__(self, *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.parts = nn.ParameterList(torch.empty(shape) for shape in shapes)

    def drawn(self, seed: int, std: float = 0.5) -> list[torch.Tensor]:
        draw_weights(self, {name: Normal(2.0, std) for name, _ in self.named_parameters()}, seed)
        return [part.detach().clone() for part in self.parts]


def test_values_are_normal_and_no_block_is_like_another() -> None:
    columns = 1000
    [found, other] = Plain((3 * (BLOCK // columns) + 5, columns), (BLOCK // columns, columns)).drawn(7)
    blocks = [*found.split(BLOCK // columns), other]
    assert len(blocks) == 5  # the fourth is short
    for number, block in enumerate(blocks):
        error = 6 * 0.5 / block.numel() ** 0.5
        assert block.mean().item() == pytest.approx(2.0, abs=error)
        assert block.std().item() == pytest.approx(0.5, abs=error)
        assert not any(torch.equal(block[0], earlier[0]) for earlier in blocks[:number])


def test_values_follow_from_the_seed_and_not_from_threads_or_type() -> None:
    shapes = (2 * BLOCK // 100 + 7, 100), (5, 3, 2)
    one = Plain(*shapes).drawn(1)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        again, low = Plain(*shapes).drawn(1), Plain(*shapes).to(torch.bfloat16).drawn(1)
    finally:
        torch.set_num_threads(threads)
    assert all(map(torch.equal, one, again))
    assert all(torch.equal(a.to(torch.bfloat16), b) for a, b in zip(one, low, strict=True))
    assert not torch.equal(one[0], Plain(*shapes).drawn(2)[0])


def test_a_constant_needs_no_draw_and_an_empty_parameter_nothing() -> None:
    assert [p.tolist() for p in Plain((2,), (0, 4), (3, 0)).drawn(0, std=0.0)] == [[2.0, 2.0], [], [[], [], []]]
    assert Plain((0, 4), (3, 0)).drawn(0)[0].shape == (0, 4)


def test_a_single_number_is_drawn_too() -> None:
    [found] = Plain(()).drawn(0)
    assert found.shape == ()
    assert 0 < abs(found.item() - 2.0) < 6 * 0.5


@pytest.mark.parametrize("preset", ["tiny", "kosmos-1"])
def test_a_decoder_drawn_later_is_the_one_drawn_at_once(preset: Any) -> None:
    shape: dict[str, Any] = {"preset": preset, "width": 32, "layers": 2, "heads": 2, "ffn_width": 48, "qk_norm": True}
    torch.manual_seed(3)
    at_once = Decoder(300, **shape)
    torch.manual_seed(3)
    with without_memory():
        later = Decoder(300, **shape)
    assert all(p.is_meta for p in later.parameters())
    materialize(later, CPU, draw=True)
    assert at_once.state_dict().keys() == later.state_dict().keys()
    assert all(torch.equal(a, b) for a, b in zip(at_once.parameters(), later.parameters(), strict=True))


def test_a_part_has_the_same_weights_whatever_else_the_model_has(tmp_path: Any) -> None:
    backbones: list[dict[str, Any]] = [{"name": "decoder"}, {"name": "decoder", "layers": 2}]
    configs = [make_run(small_run(tmp_path).model_dump(exclude={"backbone"}), {"backbone": b}) for b in backbones]
    first, second = (compose(config, ticks_registry()).model for config in configs)
    assert all(map(torch.equal, first.streams.parameters(), second.streams.parameters()))
    other = compose(small_run(tmp_path, train={"seed": 1}), ticks_registry()).model
    assert not torch.equal(next(other.streams.parameters()), next(first.streams.parameters()))


def test_a_run_is_composed_without_memory_for_the_backbone_and_has_the_same_weights(tmp_path: Any) -> None:
    config, registry = small_run(tmp_path), ticks_registry()
    at_once, later = (compose(config, registry, draw=draw).model for draw in (True, False))
    assert all(p.is_meta for p in later.backbone.parameters())
    assert not any(p.is_meta for p in later.streams.parameters())
    materialize(later, CPU, draw=True)
    assert all(torch.equal(a, b) for a, b in zip(at_once.parameters(), later.parameters(), strict=True))


class Inherits(Decoder):
    """Its own part is none that its parent's ``draw_weights`` would know."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size, width=32, layers=1, heads=2, ffn_width=48)
        self.own = nn.Parameter(torch.full((3,), 5.0))


def test_a_backbone_without_draw_weights_of_its_own_has_its_weights_from_the_beginning(tmp_path: Any) -> None:
    plugin = ModuleType("acme_inherits")
    plugin.KOSMOS_API = 1  # type: ignore[attr-defined]

    @hookimpl
    def kosmos_backbones() -> Any:
        yield BackboneSpec(name="inherits", target=f"{__name__}:Inherits", summary="")

    plugin.kosmos_backbones = kosmos_backbones  # type: ignore[attr-defined]
    config = make_run(small_run(tmp_path).model_dump(exclude={"backbone"}), {"backbone": {"name": "inherits"}})
    model = compose(config, ticks_registry(inherits=plugin), draw=False).model
    assert not any(p.is_meta for p in model.parameters())
    assert model.backbone.own.tolist() == [5.0] * 3


PEAK = """
import torch
from kosmos.model.decoder import Decoder
from kosmos.train.memory import peak_bytes

cpu = torch.device("cpu")
before = peak_bytes(cpu)
model = Decoder(300, width=1024, layers=4, heads=8, ffn_width=4096)
print(4 * sum(p.numel() for p in model.parameters()), peak_bytes(cpu) - before)
"""


def test_drawing_takes_no_memory_beside_the_weights() -> None:
    done = subprocess.run([sys.executable, "-c", PEAK], check=True, capture_output=True, text=True)
    weights, taken = map(int, done.stdout.split())
    assert weights > 200 << 20
    assert taken < weights + (40 << 20)


def test_rounded_weights_leave_what_positions_are_turned_by_as_it_was() -> None:
    fields = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 54, "num_hidden_layers": 1}
    backbone = HuggingFaceBackbone(300, config={**fields, "num_attention_heads": 4, "num_key_value_heads": 4})
    model = nn.ModuleList([backbone, nn.BatchNorm1d(4)])
    exact = {name: buffer.clone() for name, buffer in backbone.named_buffers()}
    round_weights(model)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert exact and all(torch.equal(buffer, exact[name]) for name, buffer in backbone.named_buffers())
    assert model[1](torch.randn(8, 4, dtype=torch.bfloat16)).isfinite().all()


def test_a_parameter_that_nobody_says_how_to_fill_is_an_error() -> None:
    with pytest.raises(KeyError, match="bias"):
        draw_weights(nn.Linear(2, 2), {"weight": Normal(std=1.0)}, 0)
