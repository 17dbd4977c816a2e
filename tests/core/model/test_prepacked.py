"""Products of a model that writes, by weights that oneDNN has laid out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from kosmos import Segments
from kosmos.generate import generate_ids, generate_together, ready_prompt
from kosmos.model import prepacked
from kosmos.model.lora import LoRALinear
from kosmos.model.prepacked import PAYS, Prepacked
from kosmos.runtime.devices import autocast
from support.backbones import BACKBONES, composed, documents

CPU = torch.device("cpu")
BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


class Calls(TorchDispatchMode):
    """How often oneDNN multiplied by weights that it has laid out."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.mkldnn._linear_pointwise.default
        return func(*args, **kwargs or {})


@pytest.fixture(autouse=True)
def of_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepacked, "WORTH", 0)


@pytest.fixture(scope="module", params=BACKBONES)
def parts(request: pytest.FixtureRequest) -> Any:
    found = composed(request.param)
    backbone: Any = found.model.backbone
    layers = [part for part in backbone.modules() if type(part) is nn.Linear]
    for layer in layers[:2]:  # some are trained beside what they were
        LoRALinear.begin(layer, rank=2, scale=1.0)
        with torch.no_grad():
            layer.low_rank_b.normal_()
    return found


@contextmanager
def computing(dtype: torch.dtype) -> Iterator[Calls]:
    with torch.no_grad(), autocast(CPU, dtype), Calls() as calls:
        yield calls


def blocks(backbone: Any) -> Any:
    return backbone.blocks if hasattr(backbone, "blocks") else backbone.model.model.layers


def hidden(backbone: Any) -> torch.Tensor:
    tokens = torch.arange(7)
    found: torch.Tensor = backbone(backbone.embed(tokens), tokens, Segments((7,)))
    return found


@BOTH
def test_products_are_those_of_pytorch_and_modules_as_they_were(parts: Any, dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN multiplies in bf16 where the processor has units for it")
    backbone = parts.model.backbone
    before = [dict(vars(part)) for part in backbone.modules()]
    with computing(dtype) as calls:
        expected = hidden(backbone)
        with Prepacked(backbone) as products:
            for _ in range(PAYS):
                assert torch.equal(hidden(backbone), expected)  # nothing is changed until it pays
                products.count()
            assert not calls.count
            found = hidden(backbone)
        assert calls.count == sum(isinstance(part, nn.Linear) for block in blocks(backbone) for part in block.modules())
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.05)
        assert torch.equal(hidden(backbone), expected)
    assert [dict(vars(part)) for part in backbone.modules()] == before


@BOTH
def test_a_long_text_is_written_by_them_and_a_short_one_is_not(parts: Any, dtype: torch.dtype) -> None:
    given: dict[str, Any] = {"device": CPU, "dtype": dtype, "temperature": 9.0, "seed": 3}  # so that it ends late
    document = next(documents())
    with Calls() as calls:
        short = generate_ids(parts, document, max_new_tokens=PAYS, **given)
        assert (len(short), calls.count) == (PAYS, 0)
        assert generate_ids(parts, document, max_new_tokens=PAYS + 2, **given)[:PAYS] == short
    assert calls.count or dtype not in prepacked._types()


def test_texts_together_are_written_by_them(parts: Any) -> None:
    prompts = [ready_prompt(parts, document) for document in documents()]
    given: dict[str, Any] = {"max_new_tokens": 80, "device": CPU, "dtype": torch.float32}
    with Calls() as calls:
        together = generate_together(parts, prompts, **given)
    assert calls.count
    assert together == [generate_ids(parts, document, temperature=0.0, seed=0, **given) for document in documents()]


@pytest.mark.parametrize(("name", "value"), [("WORTH", 10**9), ("SHARE", 0.0)])
def test_small_models_and_those_that_fill_the_memory_are_left_alone(
    parts: Any, name: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepacked, name, value)
    backbone = parts.model.backbone
    with computing(torch.float32) as calls, Prepacked(backbone) as products:
        for _ in range(PAYS):
            products.count()
        hidden(backbone)
    assert not calls.count


def test_a_text_that_is_given_up_leaves_the_model_as_it_was(parts: Any) -> None:
    backbone, changed = parts.model.backbone, list[bool]()
    before = [dict(vars(part)) for part in backbone.modules()]

    def interrupt(*_: Any) -> None:
        changed.append(any("forward" in vars(part) for part in backbone.modules()))
        if changed[-1]:
            raise KeyboardInterrupt

    given: dict[str, Any] = {"max_new_tokens": 80, "device": CPU, "dtype": torch.float32, "temperature": 9.0, "seed": 3}
    hook = backbone.register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        generate_ids(parts, next(documents()), **given)
    hook.remove()
    assert changed == [*[False] * PAYS, True]
    assert [dict(vars(part)) for part in backbone.modules()] == before
