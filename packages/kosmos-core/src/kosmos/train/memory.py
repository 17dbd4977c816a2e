"""When memory does not suffice: what a user can set, and how much was taken."""

from __future__ import annotations

import resource
import sys

import torch

from kosmos.data.batch import PackedBatch

FIRST_STEPS = 10
"""Steps after the start in which rows are split where memory does not suffice; later something else is wrong."""


def advice(batch: PackedBatch, *, at_once: int = 1) -> str:
    """What a row holds, and the settings that make it smaller.

    Args:
        at_once: rows that were being computed.
    """
    media = "".join(f", {len(m.values):,} cells of {name}" for name, m in batch.media.items() if len(m.values))
    rows = f"{at_once} rows at once, the largest" if at_once > 1 else "a row"
    return (
        f"out of memory in {rows} of {len(batch.token_ids):,} tokens in {len(batch.documents)} documents{media}. Lower "
        f"{'train.lanes_at_once, ' if at_once > 1 else ''}"
        "data.tokens_per_pack or data.cells_per_pack.STREAM (with more data.lanes the step stays as large), set "
        "train.gradient_checkpointing=true, or share the model over more processes"
    )


def peak_bytes(device: torch.device) -> int:
    """Most memory that was taken so far: of the accelerator, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
