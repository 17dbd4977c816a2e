"""Attention over packed documents on a GPU, as a part of ``gpu.py``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch
import torch.nn.functional as F
from gpu_place import Place
from torch import Tensor

from kosmos import Segments, attend
from kosmos.train.peak import peak_flops

BF16 = torch.bfloat16


def attention(place: Place) -> None:
    """Our attention over documents of mixed lengths against FlexAttention's document mask and one dense row."""
    tokens, heads, width = (256, 2, 32) if place.tiny else (16_384, 16, 128)
    peak = peak_flops(place.device, BF16)
    torch.manual_seed(0)
    rows = {"mixed lengths": _lengths(tokens), "four documents": (tokens // 4,) * 4}
    for (kind, lengths), causal in product(rows.items(), (True, False)):
        segments = Segments(lengths)
        pairs = sum(n * n for n in lengths) / (2 if causal else 1)
        inputs = [torch.randn(tokens, heads, width, device=place.device, dtype=BF16, requires_grad=True) for _ in "qkv"]
        upstream = torch.randn(tokens, heads, width, device=place.device, dtype=BF16)
        arms: dict[str, Callable[[], Tensor]] = {
            "attend": lambda i=inputs, s=segments, c=causal: attend(*i, s, causal=c),
        }
        if place.device.type == "cuda":
            arms["flex"] = _flex(inputs, lengths, causal)
        arms["one dense row (wrong)"] = lambda i=inputs, c=causal: _dense(i, c)
        both = {name: lambda a=arm, i=inputs, u=upstream: torch.autograd.grad(a(), i, u) for name, arm in arms.items()}
        # Backward computes the logits again: seven products of 2 in place of two.
        for what, acts, flops in ("forward", arms, 4.0), ("forward and backward", both, 14.0):
            times = place.by_turns(acts)
            for name, seconds in times.items():
                reached = 100 * flops * pairs * heads * width / seconds / peak
                share = f", {reached:.0f} % of the products' limit" if name != list(arms)[-1] else ""
                print(
                    f"attention of {kind}, causal={causal}, {what}, {name}: {1000 * seconds:.2f} ms, "
                    f"{seconds / times['attend']:.2f}x ours{share}",
                    flush=True,
                )


def _dense(inputs: list[Tensor], causal: bool) -> Tensor:
    out = F.scaled_dot_product_attention(*(x.transpose(0, 1)[None] for x in inputs), is_causal=causal)
    return out[0].transpose(0, 1)


def _lengths(tokens: int) -> tuple[int, ...]:
    lengths, rest = [], tokens
    while rest:
        lengths.append(min(rest, int(torch.empty(1).log_normal_(5.5, 1.0).clamp(8, tokens / 4))))
        rest -= lengths[-1]
    return tuple(lengths)


def _flex(inputs: list[Tensor], lengths: tuple[int, ...], causal: bool) -> Callable[[], Tensor]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    device, total = inputs[0].device, sum(lengths)
    owner = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).to(device)

    def visible(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        same = owner[q] == owner[k]
        return same & (q >= k) if causal else same

    mask = create_block_mask(visible, None, None, total, total, device=str(device))
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(*(x.transpose(0, 1)[None] for x in inputs), block_mask=mask)[0].transpose(0, 1)
