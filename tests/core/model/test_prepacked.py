"""Products of a model that writes, by weights that oneDNN has laid out."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from kosmos import Segments
from kosmos.generate import _head, generate_ids, generate_together, ready_prompt
from kosmos.model import prepacked
from kosmos.model.lora import LoRALinear
from kosmos.model.prepacked import PAYS, Prepacked
from kosmos.runtime.devices import autocast
from support.backbones import BACKBONES, composed, documents

CPU = torch.device("cpu")
BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
MORE = {"decoder": {"bias": True}, "kosmos-1": {"bias": True, "tie_embeddings": False}, "hf": {}}
pytestmark = pytest.mark.skipif(
    torch.bfloat16 not in prepacked._types(), reason="oneDNN reads weights faster with AVX-512 and its units for bf16"
)


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
def parts(request: pytest.FixtureRequest) -> Iterator[Any]:
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setitem(BACKBONES, request.param, {**BACKBONES[request.param], **MORE[request.param]})
    found = composed(request.param)
    backbone: Any = found.model.backbone
    layers = [part for part in backbone.modules() if type(part) is nn.Linear]
    with torch.no_grad():
        for layer in layers:
            if layer.bias is not None:  # they begin at zero
                layer.bias.normal_()
    for layer in layers[:2]:  # some are trained beside what they were
        LoRALinear.begin(layer, rank=2, scale=1.0)
        with torch.no_grad():
            layer.low_rank_b.normal_()
    yield found
    monkeypatch.undo()


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


def state(backbone: Any) -> list[dict[str, Any]]:
    return [dict(vars(part)) for part in backbone.modules()]


def after(products: Prepacked, tokens: int) -> None:
    for _ in range(tokens):
        products.count()


@BOTH
def test_products_are_those_of_pytorch_and_modules_as_they_were(parts: Any, dtype: torch.dtype) -> None:
    backbone, head = parts.model.backbone, _head(parts, dtype)
    before = state(backbone)
    with computing(dtype) as calls:
        expected = hidden(backbone)
        with Prepacked(backbone, head) as products:
            after(products, PAYS - 1)
            assert torch.equal(hidden(backbone), expected)  # nothing is changed until it pays
            products.count()
            assert not calls.count
            found = hidden(backbone)
            assert calls.count == sum(isinstance(part, nn.Linear) for b in blocks(backbone) for part in b.modules())
            logits = head(found.to(dtype))
            changed = [part for part in backbone.modules() if "forward" in vars(part)]
        assert calls.count == len(changed) + 1  # each is used, and the head
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.05)
        torch.testing.assert_close(logits, head(found.to(dtype)), rtol=0, atol=1e-4 if dtype == torch.float32 else 0.2)
        assert torch.equal(hidden(backbone), expected)
    assert state(backbone) == before


@BOTH
def test_a_long_text_is_written_by_them_and_a_short_one_is_not(parts: Any, dtype: torch.dtype) -> None:
    given: dict[str, Any] = {"device": CPU, "dtype": dtype, "temperature": 9.0, "seed": 3}  # so that it ends late
    document = next(documents())
    with Calls() as calls:
        short = generate_ids(parts, document, max_new_tokens=PAYS, **given)
        assert (len(short), calls.count) == (PAYS, 0)
        assert generate_ids(parts, document, max_new_tokens=PAYS + 2, **given)[:PAYS] == short
    assert calls.count


def test_texts_together_are_written_by_them(parts: Any) -> None:
    prompts = [ready_prompt(parts, document) for document in documents()]
    given: dict[str, Any] = {"max_new_tokens": 20, "device": CPU, "dtype": torch.float32}
    with Calls() as calls:
        together = generate_together(parts, prompts, **given)
    assert calls.count or max(map(len, together)) <= PAYS
    assert together == [generate_ids(parts, document, temperature=0.0, seed=0, **given) for document in documents()]


def test_other_threads_gradients_and_types_are_computed_as_they_were(parts: Any) -> None:
    backbone, head = parts.model.backbone, _head(parts, torch.bfloat16)
    training = hidden(backbone).detach()
    with torch.no_grad():
        expected = hidden(backbone)
    with computing(torch.bfloat16) as calls, Prepacked(backbone, head) as products:
        after(products, PAYS)
        with torch.autocast("cpu", enabled=False):
            assert torch.equal(hidden(backbone), expected)
        with torch.enable_grad(), torch.autocast("cpu", enabled=False):
            hidden(backbone).sum().backward()
        with ThreadPoolExecutor(1) as other:
            assert torch.equal(other.submit(hidden, backbone).result().detach(), training)
            assert other.submit(count_in_another, backbone, head).result() == 0  # one at a time
        assert not calls.count
        hidden(backbone)
        assert calls.count
    assert all(layer.weight.grad is not None or not layer.weight.requires_grad for layer in linear(blocks(backbone)))
    backbone.zero_grad()
    with Prepacked(backbone, head) as products, computing(torch.float32) as calls:  # the next may again
        after(products, PAYS)
        hidden(backbone)
    assert calls.count


def linear(parts: Any) -> list[Any]:
    return [part for block in parts for part in block.modules() if isinstance(part, nn.Linear)]


def count_in_another(backbone: Any, head: nn.Linear) -> int:
    before = state(backbone)
    with Prepacked(backbone, head) as products, computing(torch.float32) as calls:
        after(products, PAYS)
        assert state(backbone) == before
        hidden(backbone)
    return calls.count


def test_a_layer_that_somebody_has_changed_and_weights_elsewhere_stay(parts: Any) -> None:
    backbone, head = parts.model.backbone, _head(parts, torch.float32)
    first, second, *_ = linear(blocks(backbone))
    vars(first)["forward"] = own = lambda x: nn.Linear.forward(first, x)
    weight, second.weight = second.weight, nn.Parameter(second.weight.to("meta"))
    with torch.no_grad(), Prepacked(backbone, head) as products:
        after(products, PAYS)
        assert vars(first).pop("forward") is own
        assert "forward" not in vars(second)
    second.weight = weight


@pytest.mark.parametrize(("name", "value"), [("WORTH", 10**9), ("SHARE", 0.0)])
def test_small_models_those_that_fill_the_memory_are_left_alone(
    parts: Any, name: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, head = parts.model.backbone, _head(parts, torch.float32)
    monkeypatch.setattr(prepacked, name, value)
    before = state(backbone)
    with computing(torch.float32) as calls, Prepacked(backbone, head) as products:
        after(products, PAYS)
        assert state(backbone) == before
        hidden(backbone)
    assert not calls.count


def test_a_text_that_is_given_up_leaves_the_model_as_it_was(parts: Any) -> None:
    backbone, changed = parts.model.backbone, list[bool]()
    before = state(backbone)

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
    assert state(backbone) == before
