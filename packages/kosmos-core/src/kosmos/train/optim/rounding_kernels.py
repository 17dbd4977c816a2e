"""What Triton kernels of optimizers do with bf16 weights: as ``masters`` and ``noise``, inside of a kernel."""

from __future__ import annotations

import triton
import triton.language as tl

from kosmos.train.optim.noise import MIX1, MIX2, WEYL

_WEYL, _MIX1, _MIX2 = (tl.constexpr(value) for value in (WEYL, MIX1, MIX2))


@triton.jit  # type: ignore[untyped-decorator]
def load_weight(weight_ptr, low_ptr, place, inside, LOW_BITS: tl.constexpr, STOCHASTIC: tl.constexpr):  # type: ignore[no-untyped-def]
    """Weights in fp32. With low bits or stochastic rounding ``weight_ptr`` is to int16, bf16's bits."""
    stored = tl.load(weight_ptr + place, mask=inside, other=0)
    if LOW_BITS > 0:
        low = tl.load(low_ptr + place, mask=inside, other=0).to(tl.int32)
        return ((stored.to(tl.int32) << 16) + (low << (16 - LOW_BITS))).to(tl.float32, bitcast=True)
    elif STOCHASTIC:
        return (stored.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        return stored.to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def store_weight(  # type: ignore[no-untyped-def]
    weight_ptr, low_ptr, place, inside, weight, key,
    WEIGHT: tl.constexpr, LOW: tl.constexpr, LOW_BITS: tl.constexpr, STOCHASTIC: tl.constexpr,
):  # fmt: skip
    """Put fp32 weights back where ``load_weight`` found them. ``key`` is that of the random bits."""
    if LOW_BITS > 0:
        bits = weight.to(tl.int32, bitcast=True)
        if LOW_BITS < 16:
            bits = ((bits + (1 << (15 - LOW_BITS))) >> (16 - LOW_BITS)) << (16 - LOW_BITS)
        high = (bits + (1 << 15)) >> 16
        tl.store(weight_ptr + place, high.to(tl.int16), mask=inside)
        rest = (bits - (high << 16)) >> (16 - LOW_BITS)
        tl.store(low_ptr + place, rest.to(LOW), mask=inside)
    elif STOCHASTIC:
        bits = weight.to(tl.int32, bitcast=True) + random_bits(place, key)
        tl.store(weight_ptr + place, (bits >> 16).to(tl.int16), mask=inside)
    else:
        tl.store(weight_ptr + place, weight.to(WEIGHT), mask=inside)


@triton.jit
def random_bits(place, key):  # type: ignore[no-untyped-def]
    """As ``noise.random_bits``."""
    x = place.to(tl.uint32) * _WEYL + key.to(tl.uint32)
    x = (x ^ (x >> 16)) * _MIX1
    x = (x ^ (x >> 13)) * _MIX2
    return (x >> 16).to(tl.int32)
