"""Recompute activations in the backward pass: all of a block, or what is cheap.

Source of the selective kind: Korthikanti et al., arXiv 2205.05198; here what is kept is every matrix product and
attention, so that only norms, rotations and activations are computed twice.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

Recompute = bool | Literal["selective"]
"""Nothing, all of a block, or all but its products and attention."""

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
_ATTENTION = ("_scaled_dot_product", "_flash_attention", "_efficient_attention", "_varlen_attn", "flex_attention")


def run_block(block: nn.Module, *arguments: Any, recompute: Recompute) -> Any:
    """``block(*arguments)``, of which the backward pass computes again what ``recompute`` says."""
    if not recompute or not torch.is_grad_enabled():
        return block(*arguments)
    return checkpoint(block, *arguments, **options_of(recompute))


def options_of(recompute: Recompute) -> dict[str, Any]:
    """Arguments of ``torch.utils.checkpoint.checkpoint``."""
    if recompute != "selective":
        return {"use_reentrant": False}
    return {"use_reentrant": False, "context_fn": partial(create_selective_checkpoint_contexts, _policy)}


def _policy(context: Any, operator: Any, *arguments: Any, **more: Any) -> CheckpointPolicy:
    name = operator.__name__.partition(".")[0]
    kept = name in _PRODUCTS or name.startswith(_ATTENTION)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
