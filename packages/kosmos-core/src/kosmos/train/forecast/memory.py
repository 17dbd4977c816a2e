"""Bytes of weights, gradients and optimizer state that a process holds, before there is any.

What counts is the rank with the largest shards: FSDP2 cuts parameters along their first dimension into parts of
equally many rows, of which the last ranks may get fewer or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, cast

import torch

from kosmos.components import ObjectiveSpec
from kosmos.compose import Composition
from kosmos.config import ParallelConfig
from kosmos.model.nf4 import is_packed
from kosmos.model.omni import OmniModel
from kosmos.runtime.parallel import Parallel
from kosmos.train.forecast.optimizer_state import StateBytes, state_bytes
from kosmos.train.forecast.parts import trained_type
from kosmos.train.parameter_groups import parameter_groups
from kosmos.train.sharding import mesh_shape, units_of
from kosmos.train.tensor_parallel import cut_dimension


class Share(NamedTuple):
    """What a rank holds of a parameter."""

    shape: tuple[int, ...]
    """Of its part."""
    gathered: int
    """Elements of what lies here while its module computes."""
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Memory:
    """Of one process, of the rank that holds most."""

    weights_bytes: int
    gradients_bytes: int
    """With ``train.release_gradients`` of the largest parameter alone, as each is freed at once."""
    state: StateBytes
    gathered_bytes: int
    """Of the unit that computes and the root, whole on every rank for as long as they do; 0 where nothing is cut."""
    reference_bytes: int
    """Of the model as the run began with it, where ``train.objective`` compares with that."""
    offloaded: bool
    """Whether weights, gradients and state are in host memory, and only what is gathered, and weights in 4 bits, on the
    device."""
    packed_bytes: int = 0
    """Of the weights that are in 4 bits, which are among ``weights_bytes``."""

    @property
    def held_bytes(self) -> int:
        """Weights, gradients, optimizer state and reference, as far as that is known."""
        return self.weights_bytes + self.gradients_bytes + self.state.total + self.reference_bytes

    @property
    def device_bytes(self) -> int:
        """What the device has to have for them at least."""
        return self.gathered_bytes + self.packed_bytes if self.offloaded else self.held_bytes


def memory_of(composition: Composition, parallel: Parallel, dtype: torch.dtype) -> Memory:
    """
    Args:
        parallel: how many processes there are, and how many on a machine; its rank does not matter.
        dtype: of matrix products, in which shards are gathered.
    """
    config, model = composition.config, composition.model
    shares = shares_of(model, config.parallel, parallel, config.train.weights)
    trained = [shares[id(p)] for p in model.parameters() if p.requires_grad]
    gradients = [share.bytes for share in trained]
    groups = [
        {**group, "params": [shares[id(p)] for p in group["params"]]} for group in parameter_groups(model, config)
    ]
    several = parallel.world_size > 1
    is_cut = several and config.parallel.strategy != "ddp"
    return Memory(
        weights_bytes=sum(share.bytes for share in shares.values()),
        gradients_bytes=(max if config.train.release_gradients else sum)(gradients),
        state=state_bytes(composition.registry, config.train, groups),
        gathered_bytes=_gathered(model, shares, dtype) if is_cut else 0,
        reference_bytes=_reference(composition, shares, is_cut=is_cut),
        offloaded=several and config.parallel.offload,
        packed_bytes=sum(p.nbytes for p in model.parameters() if is_packed(p)),
    )


def _reference(composition: Composition, shares: Mapping[int, Share], *, is_cut: bool) -> int:
    """Shards are a copy of all, and otherwise what is not trained is shared with the model."""
    named = composition.config.train.objective
    if named is None or not cast(ObjectiveSpec, composition.registry.get("objective", named.name)).reference:
        return 0
    parameters = [p for p in composition.model.parameters() if not is_packed(p)]  # those are shared in any case
    return sum(shares[id(p)].bytes for p in parameters if is_cut or p.requires_grad)


def shares_of(model: OmniModel, settings: ParallelConfig, parallel: Parallel, weights: str) -> dict[int, Share]:
    """By the ``id`` of a parameter, what the rank with most of it holds.

    Args:
        weights: ``train.weights``.

    Raises:
        ConfigError: as of ``kosmos.train.sharding.check_strategy``.
    """
    whole = {id(p): p for p in model.parameters()}
    if parallel.world_size == 1 or settings.strategy == "ddp":
        return {i: Share(tuple(p.shape), p.numel(), trained_type(p, weights)) for i, p in whole.items()}
    ranks = mesh_shape(parallel, settings)[-1]
    cut = _cut_by_tensor(model) if settings.tensor > 1 else {}
    shares = {}
    for i, parameter in whole.items():
        if is_packed(parameter):  # each rank holds it whole
            shares[i] = Share(tuple(parameter.shape), 0, parameter.dtype)
            continue
        shape, over = list(parameter.shape), ranks
        if i in cut:
            over = parallel.world_size // settings.tensor
            if (dimension := cut[i]) is not None:
                shape[dimension] = -(-shape[dimension] // settings.tensor)
        gathered = prod(shape)
        shape[0] = -(-shape[0] // over)
        shares[i] = Share(tuple(shape), gathered, trained_type(parameter, weights))
    return shares


def _cut_by_tensor(model: OmniModel) -> dict[int, int | None]:
    """By the ``id`` of each parameter of the backbone's blocks, the dimension along which ranks share it."""
    blocks: Any = model.backbone.blocks
    return {id(p): cut_dimension(name) for block in blocks for name, p in block.named_parameters()}


def _gathered(model: OmniModel, shares: Mapping[int, Share], dtype: torch.dtype) -> int:
    """Of the largest unit, and of the root, which stays gathered from the forward pass on."""
    sizes: list[int] = []
    taken: set[int] = set()
    for unit in units_of(model):
        own = [shares[id(p)] for p in unit.parameters() if id(p) not in taken]
        taken |= {id(p) for p in unit.parameters()}
        kept = [share.dtype if dtype == torch.float32 else dtype for share in own]
        sizes.append(sum(share.gathered * kind.itemsize for share, kind in zip(own, kept, strict=True)))
    *units, root = sizes
    return root + max(units, default=0)
