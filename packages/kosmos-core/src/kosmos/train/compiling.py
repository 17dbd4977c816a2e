"""torch.compile by the block: one program for all blocks of a part, whose attention stays as it is."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import nn

from kosmos.model.omni import OmniModel

PROGRAMS = 8
"""What the blocks of one part may need: with and without gradients, for one length of row and for any, recomputed."""


def compile_blocks(model: OmniModel, wanted: bool | Literal["auto"], device: torch.device) -> int:
    """Have the blocks compiled at their first call, before the model is sharded.

    Those of the backbone, and of encoders that say ``compiles = True``. Rows have one length but for a few tokens:
    torch compiles once for that length and, where another comes, once more for any.

    Returns:
        The number of blocks.
    """
    if wanted is False or (wanted == "auto" and device.type != "cuda"):
        return 0
    parts: list[nn.Module] = [model.backbone]
    for stream in model.streams.values():
        encoder = cast(Any, stream).encoder
        parts += [encoder] if getattr(encoder, "compiles", False) else []
    blocks = [block for part in parts for block in getattr(part, "blocks", ())]
    # Parts whose blocks are of one class share its code: beyond torch's limit a code's blocks would run uncompiled.
    limits = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, PROGRAMS * len(parts))
    torch._inductor.config.fallback_random = True  # dropout as in steps that run uncompiled
    for block in blocks:
        block.compile()
    return len(blocks)


def compilations() -> int:
    """Programs that torch has compiled in this process so far: constant after a warm-up."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
