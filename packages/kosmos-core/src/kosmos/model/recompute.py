"""Recompute activations in the backward pass: all of a block, or what is cheap.

Source of the selective kind: Korthikanti et al., arXiv 2205.05198; here what is kept is every matrix product and
attention, so that only norms, rotations and activations are computed twice. Of a compiled block torch's compiler does
so by itself: it keeps as little as it can without another product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

Recompute = bool | Literal["selective"]
"""Nothing, all of a block, or all but its products and attention."""

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
_AS_WRITTEN: ContextVar[bool] = ContextVar("_AS_WRITTEN", default=False)
_ATTENTION = ("_scaled_dot_product", "_flash_attention", "_efficient_attention", "_varlen_attn", "flex_attention")


def run_block(block: nn.Module, *arguments: Any, recompute: Recompute) -> Any:
    """``block(*arguments)``, of which the backward pass computes again what ``recompute`` says."""
    if not recompute or not torch.is_grad_enabled() or (recompute == "selective" and runs_compiled(block)):
        return block(*arguments)
    return checkpoint(block, *arguments, **options_of(recompute))


@contextmanager
def uncompiled() -> Iterator[None]:
    """In which compiled blocks run as they are written.

    For what counts operations: of a compiled block it would see nothing, and torch never again compiles code that it
    meets for the first time under such a mode. Forward and backward belong in it together, as recomputation expects.
    """
    before = _AS_WRITTEN.set(True)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        _AS_WRITTEN.reset(before)


def runs_compiled(block: nn.Module) -> bool:
    """Whether a call of ``block`` runs what it was compiled to."""
    return getattr(block, "_compiled_call_impl", None) is not None and not _AS_WRITTEN.get()


def options_of(recompute: Recompute, compiled: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Arguments of ``torch.utils.checkpoint.checkpoint``.

    Args:
        compiled: asked at each call. What keeps products would keep memory that a compiled block uses again, so that
            all of it is computed again instead.
    """

    def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        return (nullcontext(), nullcontext()) if compiled() else create_selective_checkpoint_contexts(_policy)  # type: ignore[no-untyped-call]

    return {"use_reentrant": False, **({"context_fn": contexts} if recompute == "selective" else {})}


def _policy(context: Any, operator: Any, *arguments: Any, **more: Any) -> CheckpointPolicy:
    name = operator.__name__.partition(".")[0]
    kept = name in _PRODUCTS or name.startswith(_ATTENTION)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
