"""Groups of neighbouring ranks that train the same rows: what they can share, and who is in one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from kosmos.config import ParallelConfig
from kosmos.errors import ConfigError
from kosmos.model.decoder import Decoder
from kosmos.model.lora import LoRALinear
from kosmos.model.omni import OmniModel, Stream
from kosmos.model.own_losses import refuse_shared, says_losses
from kosmos.model.sequence import SequenceGroup
from kosmos.runtime.parallel import Parallel


def check_sharing(backbone: nn.Module, settings: ParallelConfig, world_size: int) -> None:
    """Whether ranks can share matrices and rows as the run file says. A process alone shares nothing.

    Raises:
        ConfigError: names the setting that does not fit.
    """
    tensor, sequence = settings.tensor, settings.sequence
    field = check_kind(type(backbone), settings, world_size)
    if not field:
        return
    decoder = cast(Decoder, backbone)
    if tensor > 1 and any(isinstance(module, LoRALinear) for module in decoder.modules()):
        raise ConfigError(f"{field}: matrices with updates beside them (backbone.lora) are not shared; set it to 1")
    if tensor > 1 and settings.strategy not in ("auto", "fsdp"):
        raise ConfigError(f"{field}: goes with strategy fsdp, not with {settings.strategy}; set it to 1")
    shape = decoder.shape
    parts = [("parallel.tensor", tensor, "ffn_width", shape.ffn_width)]
    for name, heads in (("heads", shape.heads), ("kv_heads", shape.kv_heads)):
        parts += [("parallel.tensor", tensor, name, heads), ("parallel.sequence", sequence, name, heads // tensor)]
    for name, ranks, what, number in parts:
        if number % ranks:
            cut = name == "parallel.sequence" and tensor > 1
            share = f" (the part of one of {tensor} ranks of parallel.tensor)" if cut else ""
            raise ConfigError(f"{name}: {ranks} ranks cannot share {number} {what}{share} evenly; use a divisor of it")


def check_kind(backbone: type, settings: ParallelConfig, world_size: int) -> str:
    """The first part of ``check_sharing``, for which the class of the backbone is enough.

    Returns:
        The field that has ranks share it; empty where none has.
    """
    if world_size == 1 or settings.sharing == 1:
        return ""
    field = "parallel.tensor" if settings.tensor > 1 else "parallel.sequence"
    if not issubclass(backbone, Decoder):
        raise ConfigError(
            f"{field}: only the built-in decoder can be shared, the backbone is {backbone.__name__}; set it to 1"
        )
    return field


def share_rows(model: OmniModel, parallel: Parallel, settings: ParallelConfig, device: torch.device) -> int:
    """Have neighbouring ranks share rows if they are to; returns which part is this rank's. All ranks call this.

    Raises:
        PluginError: a part says that it has losses of its own.
    """
    if settings.sequence == 1:
        return 0
    refuse_shared(place for place, part in _parts(model) if says_losses(part))  # before a rank waits for another
    shape = (parallel.data_world_size, settings.sequence, settings.tensor)
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=("rows", "sequence", "tensor"))
    model.row_ranks = SequenceGroup.of(mesh.get_group("sequence"))
    return model.row_ranks.rank


def _parts(model: OmniModel) -> Iterator[tuple[str, nn.Module]]:
    """Each by its place in a run file."""
    for name, stream in model.streams.items():
        yield f"streams.{name}.encoder", cast(Stream, stream).encoder
        yield f"streams.{name}.connector", cast(Stream, stream).connector
    yield "backbone", model.backbone
