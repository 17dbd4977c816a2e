"""Low-rank updates beside frozen linear layers (LoRA, arXiv 2106.09685): ``W x + alpha / rank * B A x``.

A layer keeps its ``weight`` and ``bias`` under their names, and beside them has ``low_rank_a`` [rank, in] and
``low_rank_b`` [out, rank], which begins at zero, so that the first step is taken from the model as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from kosmos.errors import ConfigError
from kosmos.model.weights import UPDATE, Normal, draw_weights, is_update, new_seed
from kosmos.names import did_you_mean, listed, plain

A, B = UPDATE


class LoRALinear(nn.Linear):
    """A linear layer, frozen, with an update of its own beside it: [.., in] -> [.., out]."""

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        """
        Args:
            base: whose weight and bias it takes over. Where they have no memory yet, the update has none either.
        """
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.scale = base.in_features, base.out_features, scale
        self.weight, self.bias = base.weight, base.bias
        dtype, device = torch.promote_types(base.weight.dtype, torch.float32), base.weight.device
        self.low_rank_a = nn.Parameter(torch.empty(rank, base.in_features, dtype=dtype, device=device))
        self.low_rank_b = nn.Parameter(torch.empty(base.out_features, rank, dtype=dtype, device=device))
        self.train(base.training)
        self._seed = new_seed()
        if not self.low_rank_a.is_meta:
            self.draw_weights()

    def draw_weights(self) -> None:
        """Normal values, as wide as uniform ones of Kaiming's with a slope of sqrt(5); zeros in ``low_rank_b``."""
        values = {A: Normal(std=(3 * self.in_features) ** -0.5), B: Normal()}
        draw_weights(self, values, self._seed)

    def is_idle(self) -> bool:
        """Whether no step has changed the part of the update that lies here."""
        b = self.low_rank_b
        here = b.to_local() if isinstance(b, DTensor) else b
        return bool(here.numel()) and not bool(here.any())

    def forward(self, x: Tensor) -> Tensor:
        low = F.linear(x, self.low_rank_a.to(x.dtype)) * self.scale
        return super().forward(x) + F.linear(low, self.low_rank_b.to(x.dtype))


def add_lora(
    part: nn.Module,
    where: str,
    *,
    rank: int,
    alpha: float,
    layers: Sequence[str] = (),
    whole: Sequence[str] = (),
    leave: Collection[Tensor] = (),
) -> None:
    """Freeze a part of a model but for updates beside its linear layers, and modules that are trained whole.

    Args:
        where: the settings' place in the run file, for errors.
        rank: of the updates.
        alpha: they count ``alpha / rank`` times.
        layers: names of linear layers, or last parts of names; none takes all.
        whole: likewise, of modules.
        leave: weights whose layers are read without being called.

    Raises:
        ConfigError: there is no such layer or module.
    """
    part.requires_grad_(False)
    trained = _named(dict(part.named_modules()), whole, f"{where}.whole", "module")
    inside = {id(module) for parent in trained.values() for module in parent.modules()}
    left = {id(weight) for weight in leave}
    linear = {
        name: module
        for name, module in part.named_modules()
        # One of a class of its own may be read without being called, as in PyTorch's attention.
        if type(module) is nn.Linear and id(module) not in inside and id(module.weight) not in left
    }
    chosen = _named(linear, layers, f"{where}.layers", "linear layer") if layers else linear
    if not chosen:
        raise ConfigError(
            f"{where}: {type(part).__name__} has no linear layer to put updates beside; leave {where} out"
        )
    layer = {id(base): LoRALinear(cast(nn.Linear, base), rank, alpha / rank) for base in chosen.values()}
    _replace(part, layer)
    for module in trained.values():
        module.requires_grad_(True)


def _named(found: Mapping[str, nn.Module], wanted: Sequence[str], where: str, what: str) -> dict[str, nn.Module]:
    """Those whose names are wanted, or end with them. Raises ConfigError where one is of none."""
    chosen: dict[str, nn.Module] = {}
    for name in wanted:
        fitting = {path: module for path, module in found.items() if f".{path}".endswith(f".{name}")}
        if not fitting:
            words = [w for w in dict.fromkeys(path.rpartition(".")[2] for path in found) if w and not w.isdigit()]
            every = "; leave layers out for all of them" if plain(name) in ("all", "alllinear") else ""
            hint = did_you_mean(name, words) or f"there are {listed(words)}{every}"
            raise ConfigError(f"{where}: no {what} is called {name!r}; {hint}")
        chosen |= fitting
    return chosen


def added(tensors: Mapping[str, Tensor], scales: Mapping[str, float]) -> Iterator[tuple[str, Tensor]]:
    """Names of the weights that have an update beside them, and what it adds to each: [out, in].

    Args:
        tensors: that hold the updates, by name.
        scales: how often updates count, by the part of the model that they belong to.
    """
    for name, tensor in tensors.items():
        path, _, last = name.rpartition(".")
        if last == A:
            (scale,) = (scale for part, scale in scales.items() if name.startswith(f"{part}."))
            yield f"{path}.weight", scale * (tensors[f"{path}.{B}"] @ tensor)


def plus(weight: Tensor, change: Tensor) -> Tensor:
    """The sum in the weight's type, rounded once."""
    return (weight.to(change.dtype) + change).to(weight.dtype)


def merge_tensors(tensors: dict[str, Tensor], scales: Mapping[str, float]) -> None:
    """Put updates into the weights of a checkpoint, which has none then; arguments as of ``added``."""
    for name, change in added(tensors, scales):
        tensors[name] = plus(tensors[name], change)
    for name in [name for name in tensors if is_update(name)]:
        del tensors[name]


@torch.no_grad()
def merge_updates(part: nn.Module) -> None:
    """Put updates into the weights that they stand beside, which are layers like others then."""
    _replace(part, {id(layer): _merged(layer) for layer in part.modules() if isinstance(layer, LoRALinear)})


def _merged(layer: LoRALinear) -> nn.Linear:
    plain = nn.Linear(layer.in_features, layer.out_features, device="meta")
    plain.weight, plain.bias = layer.weight, layer.bias
    plain.weight.copy_(plus(layer.weight, layer.scale * (layer.low_rank_b @ layer.low_rank_a)))
    return plain.train(layer.training)


def _replace(part: nn.Module, made: Mapping[int, nn.Module]) -> None:
    """Modules by others, wherever in ``part`` they stand; by ``id``."""
    for parent in list(part.modules()):
        for name, child in parent._modules.items():
            if id(child) in made:
                parent._modules[name] = made[id(child)]
