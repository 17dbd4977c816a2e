"""Recompute activations in the backward pass: all of a block, or what is cheap.

Source of the selective kind: Korthikanti et al., arXiv 2205.05198; here what is kept is every matrix product and
attention, so that only norms, rotations and activations are computed twice. Of a compiled block torch's compiler does
so by itself: it keeps as little as it can without another product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from kosmos.errors import ConfigError

Recompute = bool | Literal["selective"]
"""Nothing, all of a block, or all but its products and attention."""

_AS_WRITTEN: ContextVar[bool] = ContextVar("_AS_WRITTEN", default=False)
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_grouped_mm", "grouped_mm_fallback")
"""Among them those of experts: torch's own, and that of transformers for what it cannot take."""
_ATTENTION = (
    "_scaled_dot_product", "_flash_attention", "_efficient_attention", "_varlen_attn", "flex_attention",
    "attention_in_products", "attention_in_documents",
)  # fmt: skip


def run_block(block: nn.Module, *arguments: Any, recompute: Recompute, **named: Any) -> Any:
    """``block(*arguments, **named)``, of which the backward pass computes again what ``recompute`` says.

    A compiled block that runs as it is written, for once, keeps no more than products and attention: about as much as
    its compiler keeps, on which the size of rows may have been set.
    """
    if not recompute and _is_compiled(block) and _AS_WRITTEN.get():
        recompute = "selective"
    if not recompute or not torch.is_grad_enabled() or (recompute == "selective" and runs_compiled(block)):
        return block(*arguments, **named)
    return checkpoint(block, *arguments, **options_of(recompute), **named)


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
    return _is_compiled(block) and not _AS_WRITTEN.get()


def _is_compiled(block: nn.Module) -> bool:
    return getattr(block, "_compiled_call_impl", None) is not None


def options_of(recompute: Recompute, blocks: Sequence[nn.Module] = ()) -> dict[str, Any]:
    """Arguments of ``torch.utils.checkpoint.checkpoint`` for ``blocks``."""
    return {"use_reentrant": False, **({"context_fn": partial(_selective, blocks)} if recompute == "selective" else {})}


def _selective(blocks: Sequence[nn.Module]) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """What keeps products. It would keep memory that compiled blocks use again: all of these is computed again."""
    if any(map(runs_compiled, blocks)):
        return nullcontext(), nullcontext()
    found: tuple[Any, Any] = create_selective_checkpoint_contexts(_policy)  # type: ignore[no-untyped-call]
    return found


def _policy(context: Any, operator: Any, *arguments: Any, **more: Any) -> CheckpointPolicy:
    name = operator.__name__.partition(".")[0]
    kept = name in _PRODUCTS or name.startswith(_ATTENTION) or (name == "convolution" and _is_product(arguments[1]))
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def _is_product(kernel: torch.Tensor) -> bool:
    """Whether a convolution is one, as of ``kosmos.model.products``."""
    return all(size == 1 for size in kernel.shape[2:])


def recompute_in(model: Any, wanted: Recompute) -> None:
    """Have the backbone and the encoders of an omni-modal model recompute activations.

    Raises:
        ConfigError: one of them cannot.
    """
    parts: list[tuple[str, Any]] = [("backbone", model.backbone)]
    parts += [(f"streams.{name}.encoder", stream.encoder) for name, stream in model.streams.items()]
    for path, part in parts:
        switch = getattr(part, "set_gradient_checkpointing", None)
        if switch is None:
            raise ConfigError(
                f"train.gradient_checkpointing: {path} ({type(part).__name__}) cannot recompute its activations"
            )
        switch(wanted)
