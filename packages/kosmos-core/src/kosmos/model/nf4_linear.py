"""Linear layers whose frozen weights are in 4 bits (``kosmos.model.nf4``), and made whole for each product."""

from __future__ import annotations

import warnings
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kosmos.model.nf4 import BUFFERS, PACKED, pack, packed_shape, unpack, value_pairs

# Torch's own compiler does that to each of them, and torch calls it deprecated.
warnings.filterwarnings("ignore", message=".*autograd.* should not be instantiated", category=DeprecationWarning)


class NF4Linear(nn.Linear):
    """A linear layer, frozen, with ``weight_nf4`` in place of its weight: [.., in] -> [.., out]."""

    weight_nf4: nn.Parameter
    nf4_type: Tensor
    """Empty, of the type of the whole weight, which ``Module.to`` changes with that of others."""
    nf4_pairs: Tensor
    """Each layer's own, as a compiled layer takes what its module has, and makes what is kept elsewhere anew."""

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """[out, in], rounded, for who reads it without a product."""
        return unpack(self.weight_nf4, self.nf4_type.dtype, self.nf4_pairs)

    def forward(self, x: Tensor) -> Tensor:
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        product: Tensor = _Product.apply(x.to(dtype), self.weight_nf4, self.nf4_pairs, bias)  # type: ignore[no-untyped-call]
        return product

    def merge(self) -> None:
        """The layer gets its rounded weight, and is then one like others."""
        self.become(nn.Linear)

    def become(self, kind: type[nn.Linear]) -> None:
        """The layer gets its rounded weight, and a class that multiplies by it."""
        whole = nn.Parameter(self.weight.detach(), requires_grad=False)
        del self._parameters[PACKED]
        for name in BUFFERS:
            del self._buffers[name]
        self.__class__ = kind  # type: ignore[assignment]
        self.register_parameter("weight", whole)

    def _round(self, weight: nn.Parameter) -> None:
        is_empty = weight.is_meta
        packed = torch.empty(packed_shape(weight), dtype=torch.uint8, device="meta") if is_empty else pack(weight)
        self.register_parameter(PACKED, nn.Parameter(packed, requires_grad=False))
        for name, tensor in zip(BUFFERS, (value_pairs(), torch.empty(0, dtype=weight.dtype)), strict=True):
            self.register_buffer(name, tensor, persistent=False)


def begin_nf4(layer: nn.Linear, kind: type[NF4Linear] = NF4Linear) -> None:
    """Round the weight of a layer, where it stands. Where it has no memory yet, what is packed has none either.

    Args:
        kind: the class that the layer gets.
    """
    weight = layer._parameters.pop("weight")
    assert weight is not None
    layer.__class__ = kind
    cast(NF4Linear, layer)._round(weight)


class _Product(torch.autograd.Function):
    """``x @ weight.T + bias``, for whose gradient the weight is made whole once more: kept, it would be as large as all
    weights of the model."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor, pairs: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(packed, pairs)
        ctx.dtype = x.dtype
        return F.linear(x, unpack(packed, x.dtype, pairs), bias)

    @staticmethod
    def backward(ctx: Any, *upstreams: Tensor) -> tuple[Tensor | None, None, None, Tensor | None]:
        (packed, pairs), (upstream,) = ctx.saved_tensors, upstreams
        of_x, _, _, of_bias = ctx.needs_input_grad
        return (
            upstream @ unpack(packed, ctx.dtype, pairs) if of_x else None,
            None,
            None,
            upstream.reshape(-1, upstream.shape[-1]).sum(0) if of_bias else None,
        )
