"""Layers of other libraries on a packed row: each item alone, whatever lies beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from kosmos import ConfigError, Segments, run_block, within_items
from kosmos.model.within_items import WithinItems
from kosmos.testing.fake_gpu import fake_gpu

LENGTHS = (5, 1, 9, 2)


def row(total: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(1, total, width, generator=torch.Generator().manual_seed(seed))


def layer_of(name: str, attention: str = "sdpa") -> Any:
    """A layer of transformers that takes a mask, in fp64."""
    torch.manual_seed(0)
    if name == "siglip":
        from transformers import SiglipVisionConfig
        from transformers.models.siglip.modeling_siglip import SiglipEncoderLayer as Layer

        config: Any = SiglipVisionConfig(hidden_size=32, intermediate_size=64, num_attention_heads=2)
    else:
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperEncoderLayer as Layer  # type: ignore[assignment]

        config = WhisperConfig(d_model=24, encoder_ffn_dim=48, encoder_attention_heads=2)  # scales queries itself
    config._attn_implementation = attention
    return Layer(config).eval().double()


def out_of(layer: Any, x: Tensor, mask: Tensor | None) -> Tensor:
    found = layer(x, mask)
    return found if isinstance(found, Tensor) else found[0]


@pytest.mark.parametrize("name", ["siglip", "whisper"])
def test_a_layer_of_transformers_gives_items_of_a_row_what_it_gives_each_alone(name: str) -> None:
    layer, items = layer_of(name), Segments(LENGTHS)
    x = row(items.total, 32 if name == "siglip" else 24).double().requires_grad_()
    packed = out_of(layer, x, within_items(items, x))
    alone = torch.cat([out_of(layer, piece, None) for piece in torch.split(x, LENGTHS, dim=1)], 1)
    weights = row(items.total, x.shape[2], seed=1).double()
    (mine,), (theirs,) = (torch.autograd.grad((out * weights).sum(), x, retain_graph=True) for out in (packed, alone))
    torch.testing.assert_close(packed, alone, atol=1e-12, rtol=0)
    torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=0)


def test_what_stands_behind_the_items_sees_nothing_and_is_not_seen() -> None:
    items, padded = Segments(LENGTHS), sum(LENGTHS) + 3
    given = [row(padded, 8, seed).view(1, -1, 2, 4).transpose(1, 2).clone() for seed in range(3)]
    found = F.scaled_dot_product_attention(*given, attn_mask=within_items(items, given[0]))
    assert found[:, :, items.total :].eq(0).all()
    for x in given:
        x[:, :, items.total :] = float("nan")
        x.requires_grad_()
    again = F.scaled_dot_product_attention(*given, attn_mask=within_items(items, given[0]))
    assert torch.equal(found, again)
    again.sum().backward()
    for x in given:
        assert x.grad is not None
        assert x.grad.isfinite().all() and x.grad[:, :, items.total :].eq(0).all()


def test_scale_causality_and_shared_heads_are_those_of_torch() -> None:
    length = 7
    q = row(length, 16).view(1, length, 4, 4).transpose(1, 2)
    k, v = (row(length, 8, seed).view(1, length, 2, 4).transpose(1, 2) for seed in (1, 2))
    for options in ({"scale": 0.7, "enable_gqa": True}, {"is_causal": True, "enable_gqa": True}):
        expected = F.scaled_dot_product_attention(q, k, v, **options)  # type: ignore[arg-type]
        found = F.scaled_dot_product_attention(
            q, k, v, attn_mask=within_items(Segments((length,)), q), **options  # type: ignore[arg-type]
        )  # fmt: skip
        torch.testing.assert_close(found, expected)


def test_a_mask_that_a_layer_cuts_knows_its_items() -> None:
    mask = within_items(Segments(LENGTHS), row(17, 4), by_kernels=True)
    assert mask.shape == (1, 1, 17, 17)
    cut = mask[..., :17]
    assert isinstance(cut, WithinItems)
    assert (cut.items, cut.by_kernels) == (mask.items, True)


def attention(batch: int = 1, **options: Any) -> Tensor:
    x = row(17 * batch, 4).view(batch, 1, 17, 4)
    return F.scaled_dot_product_attention(x, x, x, attn_mask=within_items(Segments(LENGTHS), x), **options)


def other_rows(queries: int, keys: int, device: str = "cpu") -> Tensor:
    q, k = (torch.zeros(1, 1, n, 16, dtype=torch.bfloat16, device=device) for n in (queries, keys))
    return F.scaled_dot_product_attention(q, k, k, attn_mask=within_items(Segments(LENGTHS), k[0, :, :17]))


MISUSES: dict[str, Callable[[], Any]] = {
    r"drops parts of attention \(dropout 0\.1\)": lambda: attention(dropout_p=0.1),
    "attends in a batch of 2": lambda: attention(batch=2),
    r"computes with its mask \(add\)": lambda: layer_of("whisper", "eager")(row(17, 24).double(), within()),
    r"computes with its mask \(where\)": lambda: torch.where(within(), torch.zeros(17, 17), -1e9),
    r"computes with its mask \(cat\)": lambda: torch.cat([within(), within()]),
    r"computes with its mask \(__setitem__\)": lambda: torch.zeros(1, 1, 17, 17).__setitem__(within(), -1e9),
    r"computes with its mask \(masked_fill_\)": lambda: torch.zeros(1, 1, 17, 17).masked_fill_(within(), -1e9),
    r"cuts its mask from \[1, 1, 17, 17\] to \[1, 1, 17, 9\]": lambda: within()[..., :9],
    "attends over another row than that of its mask, 17 cells": lambda: other_rows(4, 17),
    "attends over another row .*, 17 cells": lambda: other_rows(17, 30),
    "attends over another row .*17 cells": lambda: other_rows(24, 24),
    "a row of 16 for 17 cells": lambda: within_items(Segments(LENGTHS), row(16, 4)),
}


def within() -> Tensor:
    return within_items(Segments(LENGTHS), row(17, 4))


@pytest.mark.parametrize("said", MISUSES)
def test_layers_that_would_attend_to_everything_are_refused(said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        MISUSES[said]()


@pytest.mark.parametrize("recompute", [True, "selective"])
def test_layers_may_be_recomputed(recompute: Any) -> None:
    layer, items = layer_of("whisper"), Segments(LENGTHS)
    x = row(items.total, 24).double().requires_grad_()
    found = []
    for how in (False, recompute):
        out = run_block(layer, x, recompute=how, attention_mask=within_items(items, x))
        found.append(torch.autograd.grad(out.square().sum(), [x, *layer.parameters()]))
    for kept, again in zip(*found, strict=True):
        assert torch.equal(kept, again)


@pytest.mark.skipif(torch.version.cuda is None, reason="this build of torch knows no CUDA")
@pytest.mark.parametrize(("queries", "keys"), [(4, 17), (17, 30), (24, 24)])
def test_on_a_gpu_as_well_whose_kernel_would_write_beyond_them(queries: int, keys: int) -> None:
    with fake_gpu(), torch.no_grad():
        assert other_rows(17, 17, "cuda").shape == (1, 1, 17, 16)
        with pytest.raises(ConfigError, match="attends over another row than that of its mask, 17 cells"):
            other_rows(queries, keys, "cuda")
