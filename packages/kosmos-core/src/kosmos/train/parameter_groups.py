"""Parameter groups: which weights are decayed, and whose learning rate they follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from torch import nn

from kosmos.config import RunConfig, StreamConfig
from kosmos.errors import PluginError
from kosmos.model.omni import OmniModel, Stream
from kosmos.model.protocols import Backbone

Group = dict[str, Any]
UNDECAYED = " (no decay)"


def parameter_groups(model: OmniModel, config: RunConfig) -> list[Group]:
    """Every trainable parameter in exactly one group, by the part and the module that own it.

    A group has ``name``, ``params``, ``names``, ``matrices`` (the names of those by which linear layers multiply, but
    for the output head), ``lr`` (the peak) and ``weight_decay``. Matrices of linear and convolution layers are decayed;
    norms, biases, embeddings and free parameters are not.
    """
    train, head = config.train, id(cast(Backbone, model.backbone).output_weight())
    groups: list[Group] = []
    taken: set[int] = set()
    for part, module, rate in _parts(model, config):
        kinds: dict[bool, list[tuple[str, nn.Parameter]]] = {True: [], False: []}
        matrices: set[str] = set()
        for owner_name, owner in module.named_modules():
            for name, parameter in owner.named_parameters(recurse=False):
                if parameter.requires_grad and id(parameter) not in taken:
                    taken.add(id(parameter))
                    full = ".".join(filter(None, (part, owner_name, name)))
                    kinds[_decays(owner, parameter)].append((full, parameter))
                    if id(parameter) != head and _is_matrix(owner, parameter):
                        matrices.add(full)
        for decays, found in kinds.items():
            if found:
                groups.append(
                    {
                        "name": f"{part}{'' if decays else UNDECAYED}",
                        "names": [name for name, _ in found],
                        "params": [parameter for _, parameter in found],
                        "matrices": matrices & {name for name, _ in found},
                        "lr": rate or train.learning_rate,
                        "weight_decay": train.weight_decay if decays else 0.0,
                    }
                )
    missed = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in taken]
    assert not missed, f"no group for {missed}"
    return groups


def by_part(groups: Sequence[Group]) -> dict[str, list[nn.Parameter]]:
    """Parameters by the part that owns them, decayed or not."""
    parts: dict[str, list[nn.Parameter]] = {}
    for group in groups:
        parts.setdefault(group["name"].removesuffix(UNDECAYED), []).extend(group["params"])
    return parts


def rated_groups(kept: Sequence[Group], groups: Sequence[Group]) -> Sequence[Group]:
    """The groups whose ``name`` and ``lr`` (the peak) count: those that were given, or what an optimizer made of them.

    Args:
        kept: what the optimizer has.
        groups: what it was given.

    Raises:
        PluginError: groups of its own lack names, or do not hold each parameter once.
    """
    names = [group.get("name") for group in kept]
    if not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        if len(kept) == len(groups):
            return groups
        raise PluginError(
            f"keeps {len(kept)} groups of parameters, {len(groups)} were given; where an optimizer makes groups of its "
            "own, each has a name that no other has, and the lr that is its peak"
        )
    if [[*map(id, group["params"])] for group in kept] == [[*map(id, group["params"])] for group in groups]:
        return groups
    held, given = ([id(p) for group in of for p in group["params"]] for of in (kept, groups))
    if sorted(held) != sorted(given):
        raise PluginError(
            f"its groups hold {len(held):,} parameters, {len({*given} & {*held}):,} of the {len(given):,} that were "
            "given; each has to be in one group"
        )
    return [{**group, "lr": float(group["lr"])} for group in kept]


def learning_rates(names: Sequence[str], rates: Sequence[float]) -> dict[str, Any]:
    """What a row of metrics tells: the rate of the first group, and those of all parts where they differ.

    Args:
        names: of the groups.
    """
    by_part = {name.removesuffix(UNDECAYED): rate for name, rate in zip(names, rates, strict=True)}
    several = {"learning_rate_by_part": by_part} if len(set(by_part.values())) > 1 else {}
    return {"learning_rate": rates[0], **several}


def _parts(model: OmniModel, config: RunConfig) -> list[tuple[str, nn.Module, float | None]]:
    parts: list[tuple[str, nn.Module, float | None]] = [("backbone", model.backbone, config.backbone.learning_rate)]
    for name, stream in model.streams.items():
        of = config.streams.get(name, StreamConfig())
        if of.connector_learning_rate is not None:  # what has a rate of its own is taken first
            connector = cast(Stream, stream).connector
            parts.append((f"streams.{name}.connector", connector, of.connector_learning_rate))
        parts.append((f"streams.{name}", stream, of.learning_rate))
    return parts


def _decays(owner: nn.Module, parameter: nn.Parameter) -> bool:
    return parameter.ndim >= 2 and not isinstance(owner, nn.Embedding | nn.EmbeddingBag) and is_product(owner)


def _is_matrix(owner: nn.Module, parameter: nn.Parameter) -> bool:
    """Or a stack of them, as of experts; kernels of convolutions are none."""
    return _decays(owner, parameter) and parameter.ndim <= 3 and not isinstance(owner, nn.modules.conv._ConvNd)


def is_product(owner: nn.Module) -> bool:
    """Whether the module multiplies by its matrices: free parameters (latents, positions) belong to other modules."""
    linear_like = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, nn.MultiheadAttention, nn.RNNBase)
    kind = type(owner).__name__
    experts = kind.endswith(("Experts", "Router", "Gate"))  # of mixtures in transformers: parameters of their own
    return isinstance(owner, linear_like) or hasattr(owner, "in_features") or kind == "Conv1D" or experts
