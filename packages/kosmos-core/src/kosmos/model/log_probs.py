"""What a model thinks of texts, token by token, with gradients: for losses of one's own."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

from kosmos.data.batch import PackedBatch
from kosmos.errors import ConfigError
from kosmos.model.omni import OmniModel
from kosmos.model.protocols import Backbone

ROWS = 512
"""Positions whose logits are in memory at once, in the backward pass too."""


def log_probs(model: nn.Module, batch: PackedBatch) -> list[Tensor]:
    """The logarithm of the probability of each token that is learned, of each document of a row.

    Products run in the type of autocast where that is on, softmax in fp32 (fp64 for fp64). The logits [n, V] of all n
    tokens are never held: those of 512 at a time are made again in the backward pass.

    Args:
        model: ``Composition.model``, also as ``torch.compile`` or ``AveragedModel`` wraps it, though it is not run
            compiled here. A
            ``DistributedDataParallel`` exchanges gradients in its own forward alone: let that be of a module whose
            forward calls ``log_probs``.
        batch: as ``Composition.pack`` gives, where the model is (``batch.to(device)``).

    Returns:
        Of each document [tokens of it that are learned], in nats, fp32, with a gradient where those are taken, but
        none of second order.
        ``Document.weight`` has no part in it.

    Raises:
        ConfigError: an argument is something else than its type says.

    Example:
        >>> from kosmos import log_probs
        >>> def dpo(model, reference, batch, beta=0.1):  # a row of pairs, each a chosen and a rejected document
        ...     with torch.no_grad():
        ...         before = torch.stack([own.sum() for own in log_probs(reference, batch)])
        ...     gain = torch.stack([own.sum() for own in log_probs(model, batch)]) - before
        ...     return -torch.nn.functional.logsigmoid(beta * (gain[0::2] - gain[1::2])).mean()
    """
    model = getattr(model, "_orig_mod", model)
    if isinstance(model, AveragedModel):
        model = model.module
    if isinstance(getattr(model, "module", None), OmniModel):
        raise ConfigError(
            f"log_probs: {type(model).__name__} exchanges gradients in its own forward alone, which is not run here; "
            "let it wrap a module whose forward calls log_probs(model, row)"
        )
    if not isinstance(model, OmniModel) or not isinstance(batch, PackedBatch):
        raise ConfigError(
            "log_probs: expected the model of a Composition and a row of its pack, got "
            f"{type(model).__name__} and {type(batch).__name__}"
        )
    hidden, head = model.hidden(batch), cast(Backbone, model.backbone).output_weight()
    hidden, targets = hidden.index_select(0, batch.trained), batch.labels.index_select(0, batch.trained)
    found = [
        cast(Tensor, checkpoint(_of_chunk, x, head, own, use_reentrant=False))
        for x, own in zip(torch.split(hidden, ROWS), torch.split(targets, ROWS), strict=True)
    ]
    return list(torch.split(torch.cat(found), _learned(batch.host or batch)))


def _of_chunk(hidden: Tensor, head: Tensor, targets: Tensor) -> Tensor:
    logits = hidden @ head.T
    exact = logits if logits.dtype == torch.float64 else logits.float()
    return exact.log_softmax(1).gather(1, targets[:, None])[:, 0]


def _learned(row: PackedBatch) -> list[int]:
    """How many tokens of each document are learned, of a row on the CPU."""
    ends = torch.searchsorted(row.trained, torch.tensor(row.lengths).cumsum(0))
    return torch.diff(ends, prepend=ends.new_zeros(1)).tolist()
