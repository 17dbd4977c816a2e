"""Products of the backbone's blocks in 8 bits, by torchao (the formats are those of arXiv 2209.05433).

What is multiplied is scaled and rounded to eight bits before each product; weights, gradients and what stands between
products stay as they are, and so do the output layer, encoders and connectors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kosmos.errors import ConfigError, cause
from kosmos.model.lora import LoRALinear

Recipe = Literal["tensorwise", "rowwise", "rowwise_with_gw_hp"]
"""Torchao's names: one scale a matrix, one a row of it, or one a row and gradients of weights in bf16."""

WHERE = "train.fp8"
LEAST_CAPABILITY = (8, 9)
"""Of a GPU that multiplies eight bits: Ada and Hopper."""
STEP = 16
"""Both sides of a weight have to be multiples of it."""


def check_fp8(recipe: Recipe | None, backbone: nn.Module, device: torch.device) -> None:
    """Whether blocks can multiply in eight bits, where they are to.

    Raises:
        ConfigError: torchao is missing, the GPU has no such products, or there is nothing for them.
    """
    if recipe is None:
        return
    _torchao()
    if device.type == "cuda" and (found := torch.cuda.get_device_capability(device)) < LEAST_CAPABILITY:
        name, least = torch.cuda.get_device_name(device), ".".join(map(str, LEAST_CAPABILITY))
        raise ConfigError(
            f"{WHERE}: {name} (compute capability {found[0]}.{found[1]}) has no products of 8 bits, which begin with "
            f"{least}; set {WHERE}=null"
        )
    if not products_of(backbone):
        raise ConfigError(
            f"{WHERE}: {type(backbone).__name__} has no blocks with linear layers whose sides are multiples of {STEP} "
            f"and whose weights are not kept in 4 bits (lora.quantize); set {WHERE}=null"
        )


def slower_here(recipe: Recipe | None, device: torch.device) -> str | None:
    """What to tell who trains without a GPU; else None."""
    if recipe is None or device.type == "cuda":
        return None
    return f"{WHERE}: products are rounded as on a GPU, and are slower than without: this device has none of 8 bits"


def products_of(backbone: nn.Module) -> list[str]:
    """Names of the linear layers of a backbone's blocks that can multiply in eight bits."""
    inside = {id(module) for block in getattr(backbone, "blocks", ()) for module in block.modules()}
    return [name for name, module in backbone.named_modules() if id(module) in inside and _fits(module)]


def _fits(module: nn.Module) -> bool:
    """Of a class of its own a layer may be read without being called."""
    if type(module) not in (nn.Linear, LoRALinear):
        return False
    return not any(side % STEP for side in cast(nn.Linear, module).weight.shape)


def use_fp8(backbone: nn.Module, recipe: Recipe | None, device: torch.device) -> int:
    """Have the layers that ``products_of`` names multiply in eight bits from now on. Their parameters stay the same.

    Args:
        recipe: None leaves all as they are.

    Returns:
        How many they are.
    """
    if recipe is None:
        return 0
    float8 = _torchao()
    config = replace(
        float8.Float8LinearConfig.from_recipe_name(recipe),
        emulate=device.type != "cuda",
        pad_inner_dim=recipe != "rowwise_with_gw_hp",  # a row's tokens, over which gradients of weights sum
    )
    names = products_of(backbone)
    for name in names:
        _begin(backbone.get_submodule(name), float8, config, emulated=device.type != "cuda")
    return len(names)


def _begin(layer: nn.Module, float8: Any, config: Any, *, emulated: bool) -> None:
    """Make a layer one of torchao's where it stands, as ``LoRALinear.begin`` does."""
    made = float8.convert_to_float8_training(nn.Linear(STEP, STEP, bias=False, device="meta"), config=config)
    own = {name: value for name, value in vars(made).items() if name not in vars(layer)}
    layer.__dict__.update(own)
    updates = (LoRALinear,) if isinstance(layer, LoRALinear) else ()
    layer.__class__ = _class_of((*updates, _OfSome, *((_Emulated,) if emulated else ()), type(made)))


def _class_of(bases: tuple[type, ...]) -> type:
    """One class for all layers alike: PyTorch's compiler compiles for each class anew."""
    if bases not in _CLASSES:
        _CLASSES[bases] = type(bases[-1].__name__, bases, {})
    return _CLASSES[bases]


_CLASSES: dict[tuple[type, ...], type] = {}


class _OfSome(nn.Linear):
    """In front of torchao's layer, which looks for the largest value: a product of nothing has none to look for."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if len(x) else F.linear(x, self.weight, self.bias)


class _Emulated(nn.Linear):
    """In front of torchao's layer, which knows no autocast but a GPU's: rounds as a GPU does, sums in the weight's
    type."""

    def forward(self, x: Tensor) -> Tensor:
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        with torch.autocast(kind, enabled=False):
            return super().forward(x.to(self.weight.dtype)).to(dtype)


def _torchao() -> Any:
    """Raises ConfigError where torchao is missing or cannot be imported."""
    try:
        import torchao.float8  # takes 1.6 s
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{WHERE}: is computed by torchao, which is not installed; pip install 'kosmos-core[fp8]>=26.11', or set "
            f"{WHERE}=null"
        ) from error
    except Exception as error:  # one made for another torch
        raise ConfigError(
            f"{WHERE}: is computed by torchao, whose import fails ({cause(error)}); install one for torch "
            f"{torch.__version__}, or set {WHERE}=null"
        ) from error
    return torchao.float8
