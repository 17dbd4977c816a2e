"""Which layers of a part are kept in 4 bits beside low-rank updates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import cast

from torch import Tensor, nn

from kosmos.errors import ConfigError
from kosmos.model.lora import LoRALinear
from kosmos.model.nf4 import BLOCK
from kosmos.model.nf4_linear import NF4Linear, begin_nf4


class _NF4LoRALinear(LoRALinear, NF4Linear):
    """With an update beside it."""

    def merge(self) -> None:
        """The layer gets its rounded weight, with the update put into it, and is then one like others."""
        self.become(LoRALinear)
        LoRALinear.merge(self)


def pack_weights(part: nn.Module, where: str, *, leave: Collection[Tensor] = ()) -> int:
    """Round the frozen weights of a part's linear layers to 4 bits.

    Args:
        where: the settings' place in the run file, for errors.
        leave: weights that are read by others, too.

    Returns:
        How many layers they are.

    Raises:
        ConfigError: there is none, or the part draws its weights by itself, once it has memory.
    """
    if hasattr(type(part), "draw_weights") and not getattr(part, "draws_packed", False):
        raise ConfigError(
            f"{where}.quantize: {type(part).__name__} draws its weights, and there is nothing to keep of these; it is "
            "for weights that are read, such as those of {name: hf, model: ...}; leave it out"
        )
    left = {id(weight) for weight in leave}
    held = Counter(id(parameter) for module in part.modules() for parameter in module._parameters.values())
    layers = [cast(nn.Linear, module) for module in part.modules() if _can_be_packed(module)]
    chosen = [layer for layer in layers if held[id(layer.weight)] == 1 and id(layer.weight) not in left]
    if not chosen:
        raise ConfigError(
            f"{where}.quantize: {type(part).__name__} has no frozen linear layer of a multiple of {BLOCK} features; "
            "leave it out"
        )
    for layer in chosen:
        begin_nf4(layer, _NF4LoRALinear if isinstance(layer, LoRALinear) else NF4Linear)
    _let_go_of_files(part)
    return len(chosen)


def _let_go_of_files(part: nn.Module) -> None:
    """Copy what stays whole: one tensor that lies in a file which was mapped for reading keeps all of it in memory."""
    tensors = [tensor for tensor in part.parameters() if tensor.is_floating_point() and not tensor.is_meta]
    for tensor in tensors:
        tensor.data = tensor.data.clone()


def packed_of(model: nn.Module) -> list[nn.Parameter]:
    """What stands for weights in 4 bits, of all layers."""
    return [module.weight_nf4 for module in model.modules() if isinstance(module, NF4Linear)]


def _can_be_packed(module: nn.Module) -> bool:
    """Whether it is a frozen linear layer that computes as such."""
    if type(module) not in (nn.Linear, LoRALinear) or "forward" in vars(module):
        return False
    weight = module._parameters.get("weight")
    return (
        weight is not None and not weight.requires_grad and weight.is_floating_point() and weight.shape[1] % BLOCK == 0
    )
