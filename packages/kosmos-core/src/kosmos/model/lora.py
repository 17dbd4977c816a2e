"""Low-rank updates beside frozen linear layers (LoRA, arXiv 2106.09685): ``W x + alpha / rank * B A x``.

A layer keeps its ``weight`` and ``bias`` under their names, and beside them has ``low_rank_a`` [rank, in] and
``low_rank_b`` [out, rank], which begins at zero, so that the first step is taken from the model as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from kosmos.errors import ConfigError
from kosmos.model.nf4 import PACKED, unpack
from kosmos.model.nf4_linear import NF4Linear
from kosmos.model.products import KINDS, has_products
from kosmos.model.weights import UPDATE, Normal, draw_parameters, is_update, new_seed
from kosmos.names import did_you_mean, listed, plain

A, B = UPDATE


class LoRALinear(nn.Linear):
    """A linear layer, frozen, with an update of its own beside it: [.., in] -> [.., out]. ``begin`` makes one."""

    low_rank_scale: float
    low_rank_dropout: float
    low_rank_a: nn.Parameter
    low_rank_b: nn.Parameter
    _low_rank_seed: int

    @classmethod
    def begin(cls, layer: nn.Linear, rank: int, scale: float, dropout: float = 0.0) -> None:
        """Make a layer one of these, where it stands: whoever holds or watches it goes on with it.

        Where it has no memory yet, the update has none either.
        """
        layer.__class__ = cls
        own = cast(LoRALinear, layer)
        dtype, device = torch.promote_types(layer.weight.dtype, torch.float32), layer.weight.device
        own.low_rank_a = nn.Parameter(torch.empty(rank, layer.in_features, dtype=dtype, device=device))
        own.low_rank_b = nn.Parameter(torch.empty(layer.out_features, rank, dtype=dtype, device=device))
        own.low_rank_scale, own.low_rank_dropout, own._low_rank_seed = scale, dropout, new_seed()
        if not own.low_rank_a.is_meta:
            own.draw_weights()

    @torch.no_grad()
    def merge(self) -> None:
        """Put the update into the weight: the layer is then one like others."""
        self.weight.copy_(plus(self.weight, change(self.low_rank_a, self.low_rank_b, self.low_rank_scale)))
        del self.low_rank_a, self.low_rank_b, self.low_rank_scale, self.low_rank_dropout, self._low_rank_seed
        self.__class__ = nn.Linear  # type: ignore[assignment]

    def draw_weights(self) -> None:
        """Normal values, as wide as uniform ones of Kaiming's with a slope of sqrt(5); zeros in ``low_rank_b``."""
        values = {A: Normal(std=(3 * self.in_features) ** -0.5), B: Normal()}
        draw_parameters({A: self.low_rank_a, B: self.low_rank_b}, values, self._low_rank_seed)

    def is_idle(self) -> bool:
        """Whether no step has changed the part of the update that lies here."""
        b = self.low_rank_b
        here = b.to_local() if isinstance(b, DTensor) else b
        return bool(here.numel()) and not bool(here.any())

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.update(x)

    def update(self, x: Tensor) -> Tensor:
        """What is added to the product with the frozen weight: [.., in] -> [.., out]."""
        if self.low_rank_dropout and self.training:
            x = F.dropout(x, self.low_rank_dropout)
        low = F.linear(x, self.low_rank_a.to(x.dtype)) * self.low_rank_scale
        return F.linear(low, self.low_rank_b.to(x.dtype))


KINDS.append(LoRALinear)


def change(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """What an update adds to a weight: [out, in], in fp32 or more."""
    exact = torch.promote_types(a.dtype, torch.float32)
    return scale * (b.to(exact) @ a.to(exact))


def plus(weight: Tensor, added: Tensor) -> Tensor:
    """The sum in the weight's type, rounded once."""
    return (weight.to(torch.promote_types(weight.dtype, added.dtype)) + added).to(weight.dtype)


def add_lora(
    part: nn.Module,
    where: str,
    *,
    rank: int,
    alpha: float,
    dropout: float = 0.0,
    layers: Sequence[str] = (),
    whole: Sequence[str] = (),
    leave: Collection[Tensor] = (),
) -> None:
    """Freeze a part of a model but for updates beside its linear layers, and modules that are trained whole.

    Args:
        where: the settings' place in the run file, for errors.
        rank: of the updates.
        alpha: they count ``alpha / rank`` times.
        dropout: share of what they read that is left out in training.
        layers: names of linear layers, or last parts of names; none takes all.
        whole: likewise, of modules.
        leave: weights whose layers are read without being called.

    Raises:
        ConfigError: there is no such layer or module.
    """
    modules = {name: module for name, module in part.named_modules() if name}
    trained = modules_named(modules, whole, f"{where}.whole", "module").values()
    inside = {id(module) for parent in trained for module in parent.modules()}
    left = {id(weight) for weight in leave}
    held = Counter(id(parameter) for module in part.modules() for parameter in module._parameters.values())
    linear = {
        name: module
        for name, module in part.named_modules()
        if _is_called(module) and held[id(module.weight)] == 1 and id(module.weight) not in left
    }
    chosen = modules_named(linear, layers, f"{where}.layers", "linear layer") if layers else linear
    taken = [module for module in dict.fromkeys(chosen.values()) if id(module) not in inside]
    if not taken:
        why = f"{where}.whole has all of them" if chosen else f"{type(part).__name__} has none"
        raise ConfigError(f"{where}: there is no linear layer to put an update beside, since {why}; leave {where} out")
    learn = [parameter for module in trained for parameter in module.parameters() if parameter.requires_grad]
    part.requires_grad_(False)
    for parameter in learn:
        parameter.requires_grad_(True)
    for layer in taken:
        LoRALinear.begin(cast(nn.Linear, layer), rank, alpha / rank, dropout)
    for module in part.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0  # else in evaluation it reads its layers without calling them


def _is_called(module: nn.Module) -> bool:
    """Whether it is a linear layer that computes as such.

    One of a class of its own may be read without being called, as in PyTorch's attention.
    """
    is_its_own = "forward" not in vars(module) or has_products(module)
    return type(module) is nn.Linear and "weight" in module._parameters and is_its_own


def modules_named(found: Mapping[str, nn.Module], wanted: Sequence[str], where: str, what: str) -> dict[str, nn.Module]:
    """Those whose names are wanted, or end with them. Raises ConfigError where one is of none."""
    chosen: dict[str, nn.Module] = {}
    for name in wanted:
        fitting = {path: module for path, module in found.items() if name and f".{path}".endswith(f".{name}")}
        if not fitting:
            words = dict.fromkeys(last if not (last := p.rpartition(".")[2]).isdigit() else p for p in found)
            every = "; leave layers out for all of them" if plain(name) in ("all", "alllinear") else ""
            hint = did_you_mean(name, words) or f"there are {listed(words)}{every}"
            raise ConfigError(f"{where}: no {what} is called {name!r}; {hint}")
        chosen |= fitting
    return chosen


def updates_in(model: nn.Module) -> set[str]:
    """Names of the parameters of all updates."""
    layers = [name for name, module in model.named_modules() if isinstance(module, LoRALinear)]
    return {f"{layer}.{last}" for layer in layers for last in UPDATE}


def updates_among(names: Collection[str], scales: Mapping[str, float]) -> set[str]:
    """Names, among those of a checkpoint's tensors, of the parameters of updates.

    Args:
        scales: how often updates count, by the part of the model that has some.
    """
    of_parts = tuple(f"{part}." for part in scales)
    return {
        name
        for name in names
        if is_update(name) and name.startswith(of_parts) and _has_weight(name.rpartition(".")[0], names)
    }


def _has_weight(layer: str, names: Collection[str]) -> bool:
    return f"{layer}.weight" in names or f"{layer}.{PACKED}" in names


def changes(updates: Mapping[str, Tensor], scales: Mapping[str, float]) -> Iterator[tuple[str, Tensor]]:
    """Names of weights, and what an update adds to each.

    Args:
        updates: the tensors that ``updates_among`` names.
        scales: as there.
    """
    for name, tensor in updates.items():
        path, _, last = name.rpartition(".")
        if last == A:
            scale = next(scale for part, scale in scales.items() if name.startswith(f"{part}."))
            yield f"{path}.weight", change(tensor, updates[f"{path}.{B}"], scale)


def merge_tensors(tensors: dict[str, Tensor], scales: Mapping[str, float]) -> None:
    """Put updates into the weights of a checkpoint, which has none then, nor weights in 4 bits; ``scales`` as of
    ``updates_among``."""
    for part in scales:
        _unpack_part(tensors, f"{part}.")
    updates = {name: tensors.pop(name) for name in updates_among(tensors, scales)}
    for name, added in changes(updates, scales):
        tensors[name] = plus(tensors[name], added)


def _unpack_part(tensors: dict[str, Tensor], begin: str) -> None:
    """Make weights in 4 bits whole, in the type of what else there is of their part."""
    own = [name for name in tensors if name.startswith(begin)]
    kept = [name for name in own if name.endswith(f".{PACKED}")]
    types = (tensors[name].dtype for name in own if tensors[name].is_floating_point() and not is_update(name))
    dtype = next(types, torch.bfloat16)
    for name in kept:
        tensors[f"{name.removesuffix(PACKED)}weight"] = unpack(tensors.pop(name), dtype)


def refuse_updates(model: nn.Module) -> None:
    """Raises ConfigError where a model has updates that are not in its weights."""
    if updates_in(model):
        raise ConfigError("low-rank updates (lora) stand beside the weights; put them in (load_run(..., merge=True))")


def merge_updates(model: nn.Module) -> None:
    """Put updates into the weights that they stand beside, which are none in 4 bits then."""
    for module in model.modules():
        if isinstance(module, LoRALinear | NF4Linear):
            module.merge()
